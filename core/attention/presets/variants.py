"""2020 to 2025: one change each to the Transformer, in its scores, its positions or how scores become weights."""

from __future__ import annotations

from core.attention.presets.base import Preset, share_heads
from core.attention.presets.long import PLAIN
from core.entries import Choice

VARIANTS: tuple[Preset, ...] = (
    Preset(
        "talking_heads",
        "Talking-heads attention",
        "Shazeer et al.",
        2020,
        "https://arxiv.org/abs/2003.02436",
        (("projection", PLAIN), ("position", "sinusoidal"), ("normalizer", "talking_heads")),
        "Heads are no longer computed apart: before and after the softmax each one reads all others.",
    ),
    Preset(
        "longrope",
        "LongRoPE, Phi-3",
        "Ding et al.",
        2024,
        "https://arxiv.org/abs/2402.13753",
        (
            ("projection", PLAIN),
            ("position", Choice.of("longrope", stretch=32.0, original=4096)),
            ("mask", "causal"),
        ),
        "A search finds how much slower each pair of dimensions must rotate in texts that are many times longer. "
        "The lists that it found for each model are left out here.",
    ),
    Preset(
        "p_rope",
        "p-RoPE",
        "Barbero et al.",
        2024,
        "https://arxiv.org/abs/2410.06205",
        (("projection", PLAIN), ("position", "p_rope"), ("mask", "causal")),
        "The slowest rotations of RoPE are left out, as trained models use them for content and not for position.",
    ),
    Preset(
        "rope_vit",
        "RoPE-ViT, axial",
        "Heo et al.",
        2024,
        "https://arxiv.org/abs/2403.13298",
        (("position", Choice.of("grid_rope", base=100.0)),),
        "A vision transformer rotates queries and keys by the row and the column of each patch, so it also reads "
        "pictures larger than those it was trained on.",
    ),
    Preset(
        "selective",
        "Selective attention",
        "Leviathan et al.",
        2024,
        "https://arxiv.org/abs/2410.02703",
        (("projection", PLAIN), ("position", "selective"), ("mask", "causal")),
        "A token can remove an earlier one from the context of all later tokens, so a decoder may forget it.",
    ),
    Preset(
        "ngpt",
        "nGPT",
        "Loshchilov et al.",
        2024,
        "https://arxiv.org/abs/2410.01131",
        (
            ("projection", PLAIN),
            ("score", "unit_vectors"),
            ("position", "rope"),
            ("mask", "causal"),
        ),
        "Queries and keys have length 1. In the paper all vectors of the model have, and its weights too.",
    ),
    Preset(
        "llama4_global",
        "Llama 4, global layers",
        "Meta",
        2025,
        "https://ai.meta.com/blog/llama-4-multimodal-intelligence/",
        (("position", "position_temperature"), ("mask", "causal")),
        "Every fourth layer attends to all tokens without positions. Only the scores grow with the position, after "
        "each 8,192 tokens (here after each).",
        heads=8,
        fit=share_heads(5, bias=False),
    ),
    Preset(
        "ssmax",
        "Scalable-Softmax",
        "Nakanishi",
        2025,
        "https://arxiv.org/abs/2501.19399",
        (
            ("projection", PLAIN),
            ("position", "rope"),
            ("mask", "causal"),
            ("normalizer", "scalable_softmax"),
        ),
        "Scores grow with the logarithm of the number of keys, so the weights of a long text do not become flat.",
    ),
    Preset(
        "multi_token",
        "Multi-token attention",
        "Golovneva et al.",
        2025,
        "https://arxiv.org/abs/2504.00927",
        (
            ("projection", PLAIN),
            ("position", Choice.of("and", Choice("rope"), Choice("multi_token"))),
            ("mask", "causal"),
        ),
        "A score no longer depends on one query and one key alone, so words that stand together can be looked for "
        "together. The mixing of heads and the norm after it are left out here.",
    ),
    Preset(
        "softpick",
        "Softpick",
        "Zuhri et al.",
        2025,
        "https://arxiv.org/abs/2504.20966",
        (
            ("projection", PLAIN),
            ("position", "rope"),
            ("mask", "causal"),
            ("normalizer", "softpick"),
        ),
        "A row may give no weight at all, so no token becomes the sink of heads that have nothing to read.",
    ),
)
