"""2014 to 2022: attention in recurrent models, the Transformer and its relatives, long texts, and new positions."""

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

PLAIN = Choice.of("multi_head", bias=False)

EARLY: tuple[Preset, ...] = (
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
    # 2020 to 2022: text to text, long texts, and positions that rotate vectors or subtract a penalty.
    Preset(
        "t5",
        "T5",
        "Raffel et al.",
        2020,
        "https://arxiv.org/abs/1910.10683",
        (("projection", PLAIN), ("score", "dot"), ("position", "t5")),
        "Each range of distances has one learned bias. Scores are not divided by √D; smaller initial weights "
        "replace that.",
    ),
    Preset(
        "qk_norm",
        "Query-key normalization",
        "Henry et al.",
        2020,
        "https://arxiv.org/abs/2010.04245",
        (("score", "cosine"), ("position", "sinusoidal")),
        "The score is the cosine of query and key, times a learned number (here one for each head).",
    ),
    Preset(
        "longformer",
        "Longformer",
        "Beltagy et al.",
        2020,
        "https://arxiv.org/abs/2004.05150",
        (("position", "learned"), ("mask", "global_window"), ("kernel", "block_sparse")),
        "Every token attends to a window, and a few global tokens attend to all, so cost grows linearly with T "
        "(windows of 512 in the paper).",
    ),
    Preset(
        "bigbird",
        "BigBird",
        "Zaheer et al.",
        2020,
        "https://arxiv.org/abs/2007.14062",
        (("position", "learned"), ("mask", "bigbird"), ("kernel", "block_sparse")),
        "A window, the two ends and a few random blocks. The paper proves that this can express what full "
        "attention can.",
    ),
    Preset(
        "linformer",
        "Linformer",
        "Wang et al.",
        2020,
        "https://arxiv.org/abs/2006.04768",
        (("position", "learned"), ("kernel", "linformer")),
        "Keys and values of a long text are projected to a few before the scores are computed.",
    ),
    Preset(
        "linear",
        "Linear Transformer",
        "Katharopoulos et al.",
        2020,
        "https://arxiv.org/abs/2006.16236",
        (("position", "sinusoidal"), ("mask", "causal"), ("kernel", "linear")),
        "Without the exponential, sums over earlier tokens can be updated token by token, so it decodes like a "
        "recurrent network.",
    ),
    Preset(
        "deberta",
        "DeBERTa",
        "He et al.",
        2021,
        "https://arxiv.org/abs/2006.03654",
        (("position", "deberta"),),
        "Each token has one vector for content and one for position; the score adds content to content, content to "
        "position and position to content.",
    ),
    Preset(
        "performer",
        "Performer",
        "Choromanski et al.",
        2021,
        "https://arxiv.org/abs/2009.14794",
        (("position", "learned"), ("kernel", "performer")),
        "Random features approximate softmax without bias, at a cost that grows linearly with T.",
    ),
    Preset(
        "nystrom",
        "Nyströmformer",
        "Xiong et al.",
        2021,
        "https://arxiv.org/abs/2102.03902",
        (("position", "learned"), ("kernel", "nystrom")),
        "A few landmarks replace all queries and all keys.",
    ),
    Preset(
        "roformer",
        "RoFormer",
        "Su et al.",
        2021,
        "https://arxiv.org/abs/2104.09864",
        (("position", "rope"),),
        "Queries and keys are rotated by their position, so a score depends on the distance only. Most later "
        "language models use it.",
    ),
    Preset(
        "gptj",
        "GPT-J",
        "Wang and Komatsuzaki",
        2021,
        "https://github.com/kingoflolz/mesh-transformer-jax",
        (
            ("projection", PLAIN),
            ("position", Choice.of("rope", layout="interleaved", share=0.25)),
            ("mask", "causal"),
        ),
        "A quarter of the dimensions of each head is rotated; the rest has no position.",
    ),
    Preset(
        "swin_v2",
        "Swin V2",
        "Liu et al.",
        2021,
        "https://arxiv.org/abs/2111.09883",
        (("score", "cosine"), ("position", "none"), ("mask", "block")),
        "Cosine scores keep a few patches from getting most of the weight in deep image models. Its network for "
        "positions inside a window is left out here.",
    ),
    Preset(
        "alibi",
        "ALiBi, BLOOM",
        "Press et al.",
        2022,
        "https://arxiv.org/abs/2108.12409",
        (("position", "alibi"), ("mask", "causal")),
        "A penalty grows with the distance, and no position vectors are added. A model trained on short texts can "
        "read longer ones.",
    ),
    Preset(
        "palm",
        "PaLM",
        "Chowdhery et al.",
        2022,
        "https://arxiv.org/abs/2204.02311",
        (
            ("projection", Choice.of("multi_query", bias=False)),
            ("position", "rope"),
            ("mask", "causal"),
        ),
        "All query heads share one head of keys and values, in a model of 540 billion parameters.",
    ),
    Preset(
        "gpt_neox",
        "GPT-NeoX",
        "Black et al.",
        2022,
        "https://arxiv.org/abs/2204.06745",
        (("position", Choice.of("rope", share=0.25)), ("mask", "causal")),
        "A quarter of the dimensions of each head is rotated, in pairs of m and m + D/2 instead of neighbours.",
    ),
)
