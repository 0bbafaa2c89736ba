"""2014 to 2019: attention in recurrent models, the Transformer, and its first relatives."""

from __future__ import annotations

from core.attention.presets.base import VASWANI, Preset
from core.entries import Choice


def _recurrent(
    key: str, name: str, paper: str, year: int, url: str, meaning: str, **choices: str | Choice
) -> Preset:
    return Preset(
        key,
        name,
        paper,
        year,
        url,
        (("projection", "identity"), *choices.items()),
        meaning,
        heads=1,
    )


_LUONG = ("Luong et al.", 2015, "https://arxiv.org/abs/1508.04025")
_VASWANI = ("Vaswani et al.", 2017, "https://arxiv.org/abs/1706.03762")

RECURRENT: tuple[Preset, ...] = (
    _recurrent(
        "bahdanau",
        "Bahdanau 2014",
        "Bahdanau et al.",
        2014,
        "https://arxiv.org/abs/1409.0473",
        "A small network compares each decoder state with every encoder state.",
        score="additive",
    ),
    _recurrent(
        "xu_hard",
        "Show, attend and tell, hard",
        "Xu et al.",
        2015,
        "https://arxiv.org/abs/1502.03044",
        "At each step the decoder attends to exactly one position of the picture.",
        score="additive",
        normalizer="hard",
    ),
    _recurrent(
        "luong_dot",
        "Luong 2015, dot",
        *_LUONG,
        "The score is the dot product of decoder state and encoder state.",
        score="dot",
    ),
    _recurrent(
        "luong_general",
        "Luong 2015, general",
        *_LUONG,
        "A learned matrix is multiplied between the two states.",
        score="general",
    ),
    _recurrent(
        "luong_concat",
        "Luong 2015, concat",
        *_LUONG,
        "Both states are concatenated and put through a small network.",
        score="concat",
    ),
    _recurrent(
        "luong_local_m",
        "Luong 2015, local-m",
        *_LUONG,
        "Output position i attends to a window around input position i (±10 in the paper).",
        score="general",
        mask="local_m",
    ),
    _recurrent(
        "luong_local_p",
        "Luong 2015, local-p",
        *_LUONG,
        "The decoder first predicts a position, then attends to a window around it (±10 in the paper).",
        score="general",
        mask="local_p",
    ),
)

TRANSFORMERS: tuple[Preset, ...] = (
    Preset(
        "self_attention",
        "Self-attention",
        *_VASWANI,
        (("projection", "multi_head"), ("score", "scaled_dot")),
        "Every token attends to every token of the same sequence.",
        heads=1,
    ),
    Preset(
        "causal",
        "Causal self-attention",
        *_VASWANI,
        (("projection", "multi_head"), ("score", "scaled_dot"), ("mask", "causal")),
        "Each token attends to itself and to earlier tokens.",
        heads=1,
    ),
    Preset(
        "vaswani",
        "Vaswani 2017",
        *_VASWANI,
        tuple(VASWANI.items()),
        "The encoder of the Transformer: several heads, with sinusoidal positions added to the input.",
    ),
    Preset(
        "gpt",
        "GPT",
        "Radford et al.",
        2018,
        "https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf",
        (("position", "learned"), ("mask", "causal")),
        "The decoder of the Transformer without an encoder: it predicts each token from the earlier ones. GPT-2 "
        "and GPT-3 do the same.",
    ),
    Preset(
        "bert",
        "BERT",
        "Devlin et al.",
        2018,
        "https://arxiv.org/abs/1810.04805",
        (("position", "learned"),),
        "The encoder of the Transformer without a decoder: it predicts a masked token from both sides.",
    ),
    Preset(
        "shaw",
        "Shaw 2018",
        "Shaw et al.",
        2018,
        "https://arxiv.org/abs/1803.02155",
        (("position", "shaw"),),
        "A position is the distance from query to key and its sign.",
    ),
    Preset(
        "transformer_xl",
        "Transformer-XL",
        "Dai et al.",
        2019,
        "https://arxiv.org/abs/1901.02860",
        (("position", "transformer_xl"), ("mask", "causal")),
        "Relative positions let a segment attend to the cached states of the segment before it.",
    ),
    Preset(
        "sparse_transformer",
        "Sparse Transformer",
        "Child et al.",
        2019,
        "https://arxiv.org/abs/1904.10509",
        (("position", "learned"), ("mask", "strided")),
        "Each query attends to near keys and to every s-th far key. Two layers reach all keys at a cost of T√T.",
    ),
    Preset(
        "entmax",
        "Entmax Transformer",
        "Correia et al.",
        2019,
        "https://arxiv.org/abs/1909.00015",
        (("position", "sinusoidal"), ("normalizer", "entmax15")),
        "The number of keys with weight above 0 differs from row to row. The paper learns α for each head; here it "
        "is 1.5.",
    ),
    Preset(
        "multi_query",
        "Multi-query",
        "Shazeer",
        2019,
        "https://arxiv.org/abs/1911.02150",
        (
            ("projection", Choice.of("multi_query", bias=False)),
            ("position", "sinusoidal"),
            ("mask", "causal"),
        ),
        "All query heads share one head of keys and values, so the cache of a decoder is H times smaller.",
    ),
)
