"""2022 to 2026: models that choose which keys to read, lay out several texts in a row, or make values anew."""

from __future__ import annotations

from collections.abc import Callable

from core.attention.presets.base import Choices, Preset, share_heads
from core.attention.presets.long import PLAIN
from core.attention.presets.today import latent_sizes
from core.entries import Choice, Value


def _share(projection: str, queries: int, **more: Value) -> Callable[[int, int], Choices]:
    """`share_heads` for another projection that shares its heads of keys."""

    def fit(d_model: int, num_heads: int) -> Choices:
        shared = share_heads(queries)(d_model, num_heads)["projection"]
        assert isinstance(shared, Choice)
        return {"projection": Choice.of(projection, kv_heads=shared["kv_heads"], **more)}

    return fit


def _two_latents(d_model: int, num_heads: int) -> Choices:
    """Two groups, where there are two halves of the heads and of the latent."""
    whole = latent_sizes(d_model, num_heads)["projection"]
    return latent_sizes(d_model, num_heads, 1 if num_heads % 2 or int(whole["latent"]) % 2 else 2)


SELECTIVE: tuple[Preset, ...] = (
    Preset(
        "nat",
        "Neighborhood Attention Transformer",
        "Hassani et al.",
        2022,
        "https://arxiv.org/abs/2204.07143",
        (("position", "none"), ("mask", "neighborhood")),
        "Each patch of a picture attends to the patches around it (7 × 7 in the paper, here 3 × 3). Its biases for "
        "relative positions are left out here.",
    ),
    Preset(
        "specinfer",
        "SpecInfer, Medusa",
        "Miao et al.",
        2023,
        "https://arxiv.org/abs/2305.09781",
        (("projection", PLAIN), ("position", "rope"), ("mask", "tree")),
        "A small model proposes a tree of continuations, and the large one checks all of them in one call. In the "
        "paper a token's position is its depth; here positions count all tokens.",
    ),
    Preset(
        "hydragen",
        "Hydragen",
        "Juravsky et al.",
        2024,
        "https://arxiv.org/abs/2402.05099",
        (("projection", PLAIN), ("position", "rope"), ("mask", "shared_prefix")),
        "Many answers to one prompt read its keys and values together. In the paper each answer counts its "
        "positions from the end of the prompt; here positions count all tokens.",
    ),
    Preset(
        "block_diffusion",
        "Block diffusion, BD3-LM",
        "Arriola et al.",
        2025,
        "https://arxiv.org/abs/2503.09573",
        (("projection", PLAIN), ("position", "rope"), ("mask", "block_diffusion")),
        "The tokens of a block are denoised together, and blocks follow one another as in an autoregressive model.",
    ),
    Preset(
        "nsa",
        "Native sparse attention, NSA",
        "Yuan et al.",
        2025,
        "https://arxiv.org/abs/2502.11089",
        (("position", "rope"), ("mask", "causal"), ("kernel", "nsa")),
        "A model that is trained from the start to read summaries of all blocks, a few whole blocks, and its "
        "neighbours. The heads that share keys and values select the same blocks.",
        heads=8,
        fit=share_heads(16, bias=False),
    ),
    Preset(
        "moba",
        "MoBA, Kimi",
        "Lu et al.",
        2025,
        "https://arxiv.org/abs/2502.13189",
        (("projection", PLAIN), ("position", "rope"), ("mask", "moba"), ("kernel", "block_sparse")),
        "Blocks of keys compete like the experts of a mixture. A model can change between this and full attention, "
        "as both have the same weights.",
    ),
    Preset(
        "deepseek_v32",
        "DeepSeek-V3.2, DSA",
        "DeepSeek-AI",
        2025,
        "https://arxiv.org/abs/2512.02556",
        (("mask", "lightning"),),
        "Each token attends to the 2,048 keys (here 4) that a small indexer chooses, over the latents of MLA. A "
        "loss of its own trains the indexer to predict the attention to all keys.",
        heads=8,
        fit=latent_sizes,
    ),
    Preset(
        "tpa",
        "T6, tensor product attention",
        "Zhang et al.",
        2025,
        "https://arxiv.org/abs/2501.06425",
        (("projection", "tensor_product"), ("position", "rope"), ("mask", "causal")),
        "Queries, keys and values are sums of a few outer products, so a decoder caches a few short vectors for all "
        "heads together.",
    ),
    Preset(
        "gta",
        "Grouped-tied attention",
        "Zadouri et al.",
        2025,
        "https://arxiv.org/abs/2505.21487",
        (("mask", "causal"),),
        "One state serves as value and as half of the key, so each number that a decoder loads from its cache is "
        "used twice.",
        heads=8,
        fit=_share("grouped_tied", 4),
    ),
    Preset(
        "grouped_latent",
        "Grouped latent attention, GLA-2",
        "Zadouri et al.",
        2025,
        "https://arxiv.org/abs/2505.21487",
        (("mask", "causal"),),
        "The latent of MLA is cut in two, and half of the heads read each part, so two devices can share one layer "
        "without storing anything twice but the rotated key.",
        heads=8,
        fit=_two_latents,
    ),
    Preset(
        "gemma4",
        "Gemma 4",
        "Gemma Team",
        2026,
        "https://huggingface.co/docs/transformers/model_doc/gemma4",
        (
            ("score", "qk_norm"),
            ("position", Choice.of("p_rope", base=1_000_000.0, share=0.25)),
            ("mask", "causal"),
        ),
        "In layers that attend to all tokens, values are the normalized keys. The other layers have a window and "
        "values of their own. Scores are not divided by √D; learned gains replace that.",
        heads=8,
        fit=_share("keys_as_values", 8, bias=False),
    ),
    Preset(
        "exclusive",
        "Exclusive self-attention",
        "Zhai",
        2026,
        "https://arxiv.org/abs/2603.09078",
        (
            ("projection", Choice.of("exclusive", bias=False)),
            ("position", "rope"),
            ("mask", "causal"),
        ),
        "What a token's own value says is left out of the output, since the residual path carries it already.",
    ),
)
