"""Models with latent attention: DeepSeek-V2, and V3.2, whose indexer picks the keys."""

from __future__ import annotations

from core.attention import AttentionConfig, Choice
from core.cards.base import AttentionLayer, Block, Extra, FeedForward, ModelCard, stack
from core.cards.dense import DEFAULTS, final_norm

_MLA = Choice.of("latent", latent=512, rope=64, query_latent=1536, head_dim=128)
_V2 = AttentionLayer("latent of 512", AttentionConfig(5120, 128, _MLA, mask="causal"))
_INDEXER = Choice.of("lightning", keys=2048, heads=64, size=128, share=0.5)
_V32 = AttentionLayer(
    "latent, 2,048 keys picked",
    AttentionConfig(7168, 128, _MLA, mask=_INDEXER),
    (
        Extra(
            "Indexer reads the query latent",
            -(7168 - 1536) * 64 * 128,
            "its queries come from 1,536 numbers, not from the token's 7,168",
        ),
    ),
    beside=128,
)


def _experts(
    layer: AttentionLayer,
    d_model: int,
    width: int,
    dense: int,
    layers: int,
    experts: FeedForward,
) -> tuple[Block, ...]:
    """The first `dense` blocks with one wide feed-forward layer, the others with experts."""
    first = Block(layer, FeedForward(width), 2 * d_model)
    return (*stack((first,), dense), *stack((Block(layer, experts, 2 * d_model),), layers - dense))


DEEPSEEK_V2 = ModelCard(
    "deepseek_v2",
    "DeepSeek-V2",
    2024,
    "https://arxiv.org/abs/2405.04434",
    "deepseek-ai/DeepSeek-V2",
    "a training recipe for it in public code",
    "Keys and values of 128 heads come from one vector of 512 numbers a token, which alone is stored.",
    5120,
    102400,
    _experts(_V2, 5120, 12288, 1, 60, FeedForward(1536, experts=160, used=6, shared=3072)),
    extras=final_norm(5120),
)
DEEPSEEK_V32 = ModelCard(
    "deepseek_v32",
    "DeepSeek-V3.2",
    2025,
    "https://arxiv.org/abs/2512.02556",
    "deepseek-ai/DeepSeek-V3.2",
    DEFAULTS,
    "A small indexer scores all earlier tokens, and each query attends to the 2,048 that score highest.",
    7168,
    129280,
    _experts(_V32, 7168, 18432, 3, 61, FeedForward(2048, experts=256, used=8, shared=2048)),
    extras=final_norm(7168),
    remark="Without the layer that predicts a second token in training.",
)

LATENT = (DEEPSEEK_V2, DEEPSEEK_V32)
