"""2020 to 2022: text to text, long texts, and positions that rotate vectors or subtract a penalty."""

from __future__ import annotations

from core.attention.presets.base import Preset
from core.entries import Choice

PLAIN = Choice.of("multi_head", bias=False)

LONG: tuple[Preset, ...] = (
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
