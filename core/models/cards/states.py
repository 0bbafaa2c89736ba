"""Models whose layers carry a state: RetNet, Mamba-2, MiniMax-01, Qwen3-Next, and Kimi Linear."""

from core.attention import AttentionConfig, Choice
from core.models.cards.base import AttentionLayer, Block, Extra, FeedForward, ModelCard, stack
from core.models.cards.dense import DEFAULTS, final_norm

KERNEL = 4  # inputs that a short convolution reads, and that are held of each channel


def _convolution(channels: int, bias: bool = False) -> Extra:
    return Extra(
        "Short convolution",
        channels * (KERNEL + bias),
        "each channel reads its last three inputs too",
        False,
    )


def _norm(size: int) -> Extra:
    return Extra("Norm of the output", size, "before the gate and the last map", False)


_RETENTION = AttentionLayer(
    "retention",
    AttentionConfig(
        4096,
        16,
        Choice.of("gated", bias=False, head_dim=256),
        position=Choice.of("rope", layout="interleaved"),
        mask="causal",
        kernel=Choice.of("retention", decay="retnet"),
    ),
    (
        Extra(
            "Wider values",
            3 * 4096 * (6912 - 4096),
            "values, gate and last map have 432 numbers a head, not 256",
        ),
    ),
    state=16 * 256 * 432,
)
_SSD = AttentionLayer(
    "state space",
    AttentionConfig(
        4096,
        128,
        Choice.of("gated", bias=False, head_dim=64),
        score="dot",
        mask="causal",
        kernel="ssd",
    ),
    (
        Extra(
            "Shared queries and keys",
            2 * 4096 * (8 * 128 - 8192),
            "8 groups of 128 numbers serve all 128 heads of 64",
        ),
        _convolution(8192 + 2 * 8 * 128, bias=True),
        _norm(8192),
        Extra("Skip", 128, "each head adds its input times one number", False),
    ),
    state=128 * 64 * 128,
    held=KERNEL * (8192 + 2 * 8 * 128),
)
_LIGHTNING = AttentionLayer(
    "lightning",
    AttentionConfig(
        6144,
        64,
        Choice.of("gated", bias=False, head_dim=128),
        score="dot",
        mask="causal",
        kernel=Choice.of("retention", decay="lightning"),
    ),
    (_norm(64 * 128),),
    state=64 * 128 * 128,
)
_SOFTMAX = AttentionLayer(
    "full",
    AttentionConfig(
        6144,
        64,
        Choice.of("grouped_query", kv_heads=8, bias=False, head_dim=128),
        position=Choice.of("rope", base=10_000_000.0, share=0.5),
        mask="causal",
    ),
)
_DELTA = AttentionLayer(
    "gated delta rule",
    AttentionConfig(
        2048, 32, Choice.of("gated", bias=False, head_dim=128), mask="causal", kernel="gated_delta"
    ),
    (
        Extra(
            "Shared queries and keys",
            -2 * 2048 * 16 * 128,
            "16 heads of queries and keys serve 32 heads of values",
        ),
        _convolution(2 * 16 * 128 + 32 * 128),
        _norm(128),
    ),
    state=32 * 128 * 128,
    held=KERNEL * (2 * 16 * 128 + 32 * 128),
    products=3,
)
_GATED = AttentionLayer(
    "full, gated",
    AttentionConfig(
        2048,
        16,
        Choice.of("gated", kv_heads=2, bias=False, head_dim=256),
        score="qk_norm",
        position=Choice.of("rope", base=10_000_000.0, share=0.25),
        mask="causal",
    ),
)
_KDA = AttentionLayer(
    "Kimi delta",
    AttentionConfig(
        2304, 32, Choice.of("gated", bias=False, head_dim=128), mask="causal", kernel="kda"
    ),
    (
        Extra(
            "Gate through 128 numbers",
            2304 * 128 + 128 * 4096 - 2304 * 4096,
            "a low-rank map in place of a full one",
        ),
        _convolution(3 * 4096),
        _norm(128),
    ),
    state=32 * 128 * 128,
    held=KERNEL * 3 * 4096,
    products=3,
)
_KIMI_LATENT = AttentionLayer(
    "latent of 512",
    AttentionConfig(
        2304,
        32,
        Choice.of("latent", latent=512, rope=64, head_dim=128, layout="none"),
        mask="causal",
    ),
)

RETNET = ModelCard(
    "retnet",
    "RetNet 7B",
    2023,
    "https://arxiv.org/abs/2307.08621",
    "retnet_7b of the authors' torchscale",
    "the architecture of that name in the authors' code",
    "No softmax: the past fades at a fixed pace in each head, so that one state replaces the cache.",
    4096,
    0,
    stack((Block(_RETENTION, FeedForward(6912), 2 * 4096),), 32),
    extras=final_norm(4096),
    remark="Without word embeddings and output map: no vocabulary is published with these sizes.",
)
MAMBA2 = ModelCard(
    "mamba2",
    "Mamba-2 (Codestral 7B)",
    2024,
    "https://arxiv.org/abs/2405.21060",
    "mistralai/Mamba-Codestral-7B-v0.1",
    DEFAULTS,
    "No attention and no feed-forward layers: each token chooses how long a step the state takes.",
    4096,
    32768,
    stack((Block(_SSD, None, 4096),), 64),
    extras=final_norm(4096),
)
MINIMAX = ModelCard(
    "minimax",
    "MiniMax-01",
    2025,
    "https://arxiv.org/abs/2501.08313",
    "MiniMaxAI/MiniMax-Text-01",
    "its config.json; the vocabulary from memory",
    "Seven of eight layers are linear, so a text of a million tokens needs the cache of ten layers.",
    6144,
    200064,
    stack(
        tuple(
            Block(layer, FeedForward(9216, experts=32, used=2), 2 * 6144)
            for layer in (*7 * (_LIGHTNING,), _SOFTMAX)
        ),
        80,
    ),
    pattern=8,
    extras=final_norm(6144),
)
QWEN3_NEXT = ModelCard(
    "qwen3_next",
    "Qwen3-Next 80B",
    2025,
    "https://huggingface.co/Qwen/Qwen3-Next-80B-A3B-Instruct",
    "Qwen/Qwen3-Next-80B-A3B-Instruct",
    DEFAULTS + "; the base of its rotations from memory",
    "Three of four layers correct a state instead of storing keys; the fourth attends to all and gates its output.",
    2048,
    151936,
    stack(
        tuple(
            Block(
                layer,
                FeedForward(512, experts=512, used=10, shared=512, shared_gate=True),
                2 * 2048,
            )
            for layer in (*3 * (_DELTA,), _GATED)
        ),
        48,
    ),
    pattern=4,
    extras=final_norm(2048),
    remark="Without the layer that predicts a second token in training.",
)


def _kimi_blocks() -> tuple[Block, ...]:
    """Three delta layers and a latent one in turn; the last layer is latent too, and the first has no experts."""
    layers = [*6 * (*3 * (_KDA,), _KIMI_LATENT), _KDA, _KDA, _KIMI_LATENT]
    experts = FeedForward(1024, experts=256, used=8, shared=1024)
    return tuple(
        Block(layer, experts if at else FeedForward(9216), 2 * 2304)
        for at, layer in enumerate(layers)
    )


KIMI = ModelCard(
    "kimi_linear",
    "Kimi Linear 48B",
    2025,
    "https://arxiv.org/abs/2510.26692",
    "moonshotai/Kimi-Linear-48B-A3B-Instruct",
    DEFAULTS + "; which layers are latent from memory",
    "Each channel of the state fades at a pace of its own, and every fourth layer is latent, without positions.",
    2304,
    163840,
    _kimi_blocks(),
    pattern=4,
    extras=final_norm(2304),
)

STATE = (RETNET, MAMBA2, MINIMAX, QWEN3_NEXT, KIMI)
