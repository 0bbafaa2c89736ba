"""2014 to 2022: attention in recurrent models, the Transformer and its relatives, long texts, and new positions."""

from typing import Any

from core.attention.presets.base import VASWANI, Preset
from core.entries import Choice


def _recurrent(
    key: str, name: str, *, paper: str, year: int, url: str, meaning: str, **choices: str | Choice
) -> Preset:
    return Preset(
        key,
        name,
        paper=paper,
        year=year,
        url=url,
        choices=(("projection", "identity"), *choices.items()),
        meaning=meaning,
        heads=1,
    )


_LUONG: dict[str, Any] = dict(
    paper="Luong et al.", year=2015, url="https://arxiv.org/abs/1508.04025"
)
_VASWANI: dict[str, Any] = dict(
    paper="Vaswani et al.", year=2017, url="https://arxiv.org/abs/1706.03762"
)

PLAIN = Choice.of("multi_head", bias=False)

EARLY: tuple[Preset, ...] = (
    _recurrent(
        "bahdanau",
        "Bahdanau 2014",
        paper="Bahdanau et al.",
        year=2014,
        url="https://arxiv.org/abs/1409.0473",
        meaning="A small network compares each decoder state with every encoder state.",
        score="additive",
    ),
    _recurrent(
        "xu_hard",
        "Show, attend and tell, hard",
        paper="Xu et al.",
        year=2015,
        url="https://arxiv.org/abs/1502.03044",
        meaning="At each step the decoder attends to exactly one position of the picture.",
        score="additive",
        normalizer="hard",
    ),
    _recurrent(
        "luong_dot",
        "Luong 2015, dot",
        **_LUONG,
        meaning="The score is the dot product of decoder state and encoder state.",
        score="dot",
    ),
    _recurrent(
        "luong_general",
        "Luong 2015, general",
        **_LUONG,
        meaning="A learned matrix is multiplied between the two states.",
        score="general",
    ),
    _recurrent(
        "luong_concat",
        "Luong 2015, concat",
        **_LUONG,
        meaning="Both states are concatenated and put through a small network.",
        score="concat",
    ),
    _recurrent(
        "luong_local_m",
        "Luong 2015, local-m",
        **_LUONG,
        meaning="Output position i attends to a window around input position i (±10 in the paper).",
        score="general",
        mask="local_m",
    ),
    _recurrent(
        "luong_local_p",
        "Luong 2015, local-p",
        **_LUONG,
        meaning="The decoder first predicts a position, then attends to a window around it (±10 in the paper).",
        score="general",
        mask="local_p",
    ),
    Preset(
        "self_attention",
        "Self-attention",
        **_VASWANI,
        choices=(("projection", "multi_head"), ("score", "scaled_dot")),
        meaning="Every token attends to every token of the same sequence.",
        heads=1,
    ),
    Preset(
        "causal",
        "Causal self-attention",
        **_VASWANI,
        choices=(("projection", "multi_head"), ("score", "scaled_dot"), ("mask", "causal")),
        meaning="Each token attends to itself and to earlier tokens.",
        heads=1,
    ),
    Preset(
        "vaswani",
        "Vaswani 2017",
        **_VASWANI,
        choices=tuple(VASWANI.items()),
        meaning="The encoder of the Transformer: several heads, with sinusoidal positions added to the input.",
    ),
    Preset(
        "gpt",
        "GPT",
        paper="Radford et al.",
        year=2018,
        url="https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf",
        choices=(("position", "learned"), ("mask", "causal")),
        meaning="The decoder of the Transformer without an encoder: it predicts each token from the earlier ones. GPT-2 "
        "and GPT-3 do the same.",
    ),
    Preset(
        "bert",
        "BERT",
        paper="Devlin et al.",
        year=2018,
        url="https://arxiv.org/abs/1810.04805",
        choices=(("position", "learned"),),
        meaning="The encoder of the Transformer without a decoder: it predicts a masked token from both sides.",
    ),
    Preset(
        "shaw",
        "Shaw 2018",
        paper="Shaw et al.",
        year=2018,
        url="https://arxiv.org/abs/1803.02155",
        choices=(("position", "shaw"),),
        meaning="A position is the distance from query to key and its sign.",
    ),
    Preset(
        "transformer_xl",
        "Transformer-XL",
        paper="Dai et al.",
        year=2019,
        url="https://arxiv.org/abs/1901.02860",
        choices=(("position", "transformer_xl"), ("mask", "causal")),
        meaning="Relative positions let a segment attend to the cached states of the segment before it.",
    ),
    Preset(
        "sparse_transformer",
        "Sparse Transformer",
        paper="Child et al.",
        year=2019,
        url="https://arxiv.org/abs/1904.10509",
        choices=(("position", "learned"), ("mask", "strided")),
        meaning="Each query attends to near keys and to every s-th far key. Two layers reach all keys at a cost of T√T.",
    ),
    Preset(
        "entmax",
        "Entmax Transformer",
        paper="Correia et al.",
        year=2019,
        url="https://arxiv.org/abs/1909.00015",
        choices=(("position", "sinusoidal"), ("normalizer", "entmax15")),
        meaning="The number of keys with weight above 0 differs from row to row. The paper learns α for each head; here it "
        "is 1.5.",
    ),
    Preset(
        "multi_query",
        "Multi-query",
        paper="Shazeer",
        year=2019,
        url="https://arxiv.org/abs/1911.02150",
        choices=(
            ("projection", Choice.of("multi_query", bias=False)),
            ("position", "sinusoidal"),
            ("mask", "causal"),
        ),
        meaning="All query heads share one head of keys and values, so the cache of a decoder is H times smaller.",
    ),
    # 2020 to 2022: text to text, long texts, and positions that rotate vectors or subtract a penalty.
    Preset(
        "t5",
        "T5",
        paper="Raffel et al.",
        year=2020,
        url="https://arxiv.org/abs/1910.10683",
        choices=(("projection", PLAIN), ("score", "dot"), ("position", "t5")),
        meaning="Each range of distances has one learned bias. Scores are not divided by √D; smaller initial weights "
        "replace that.",
    ),
    Preset(
        "qk_norm",
        "Query-key normalization",
        paper="Henry et al.",
        year=2020,
        url="https://arxiv.org/abs/2010.04245",
        choices=(("score", "cosine"), ("position", "sinusoidal")),
        meaning="The score is the cosine of query and key, times a learned number (here one for each head).",
    ),
    Preset(
        "longformer",
        "Longformer",
        paper="Beltagy et al.",
        year=2020,
        url="https://arxiv.org/abs/2004.05150",
        choices=(("position", "learned"), ("mask", "global_window"), ("kernel", "block_sparse")),
        meaning="Every token attends to a window, and a few global tokens attend to all, so cost grows linearly with T "
        "(windows of 512 in the paper).",
    ),
    Preset(
        "bigbird",
        "BigBird",
        paper="Zaheer et al.",
        year=2020,
        url="https://arxiv.org/abs/2007.14062",
        choices=(("position", "learned"), ("mask", "bigbird"), ("kernel", "block_sparse")),
        meaning="A window, the two ends and a few random blocks. The paper proves that this can express what full "
        "attention can.",
    ),
    Preset(
        "linformer",
        "Linformer",
        paper="Wang et al.",
        year=2020,
        url="https://arxiv.org/abs/2006.04768",
        choices=(("position", "learned"), ("kernel", "linformer")),
        meaning="Keys and values of a long text are projected to a few before the scores are computed.",
    ),
    Preset(
        "linear",
        "Linear Transformer",
        paper="Katharopoulos et al.",
        year=2020,
        url="https://arxiv.org/abs/2006.16236",
        choices=(("position", "sinusoidal"), ("mask", "causal"), ("kernel", "linear")),
        meaning="Without the exponential, sums over earlier tokens can be updated token by token, so it decodes like a "
        "recurrent network.",
    ),
    Preset(
        "deberta",
        "DeBERTa",
        paper="He et al.",
        year=2021,
        url="https://arxiv.org/abs/2006.03654",
        choices=(("position", "deberta"),),
        meaning="Each token has one vector for content and one for position; the score adds content to content, content to "
        "position and position to content.",
    ),
    Preset(
        "performer",
        "Performer",
        paper="Choromanski et al.",
        year=2021,
        url="https://arxiv.org/abs/2009.14794",
        choices=(("position", "learned"), ("kernel", "performer")),
        meaning="Random features approximate softmax without bias, at a cost that grows linearly with T.",
    ),
    Preset(
        "nystrom",
        "Nyströmformer",
        paper="Xiong et al.",
        year=2021,
        url="https://arxiv.org/abs/2102.03902",
        choices=(("position", "learned"), ("kernel", "nystrom")),
        meaning="A few landmarks replace all queries and all keys.",
    ),
    Preset(
        "roformer",
        "RoPE, RoFormer",
        paper="Su et al.",
        year=2021,
        url="https://arxiv.org/abs/2104.09864",
        choices=(("position", "rope"),),
        meaning="Queries and keys are rotated by their position, so a score depends on the distance only. Most later "
        "language models use it.",
    ),
    Preset(
        "gptj",
        "GPT-J",
        paper="Wang and Komatsuzaki",
        year=2021,
        url="https://github.com/kingoflolz/mesh-transformer-jax",
        choices=(
            ("projection", PLAIN),
            ("position", Choice.of("rope", layout="interleaved", share=0.25)),
            ("mask", "causal"),
        ),
        meaning="A quarter of the dimensions of each head is rotated; the rest has no position.",
    ),
    Preset(
        "swin_v2",
        "Swin V2",
        paper="Liu et al.",
        year=2021,
        url="https://arxiv.org/abs/2111.09883",
        choices=(("score", "cosine"), ("position", "none"), ("mask", "block")),
        meaning="Cosine scores keep a few patches from getting most of the weight in deep image models. Its network for "
        "positions inside a window is left out here.",
    ),
    Preset(
        "alibi",
        "ALiBi, BLOOM",
        paper="Press et al.",
        year=2022,
        url="https://arxiv.org/abs/2108.12409",
        choices=(("position", "alibi"), ("mask", "causal")),
        meaning="A penalty grows with the distance, and no position vectors are added. A model trained on short texts can "
        "read longer ones.",
    ),
    Preset(
        "palm",
        "PaLM",
        paper="Chowdhery et al.",
        year=2022,
        url="https://arxiv.org/abs/2204.02311",
        choices=(
            ("projection", Choice.of("multi_query", bias=False)),
            ("position", "rope"),
            ("mask", "causal"),
        ),
        meaning="All query heads share one head of keys and values, in a model of 540 billion parameters.",
    ),
    Preset(
        "gpt_neox",
        "GPT-NeoX",
        paper="Black et al.",
        year=2022,
        url="https://arxiv.org/abs/2204.06745",
        choices=(("position", Choice.of("rope", share=0.25)), ("mask", "causal")),
        meaning="A quarter of the dimensions of each head is rotated, in pairs of m and m + D/2 instead of neighbours.",
    ),
)
