"""Made-up attention for the browser tests: the page draws it, and the tests know every number of it."""

import numpy as np

from core.interpret.trace import AttentionMap, AttentionTrace

WORDS = [
    "[CLS]",
    "the",
    "animal",
    "didn",
    "'",
    "t",
    "cross",
    "the",
    "street",
    "because",
    "it",
    "was",
    "too",
    "tired",
    ".",
    "[SEP]",
]


def weights(
    layers: int, heads: int, size: int, sharp: float = 2.0, causal: bool = False
) -> np.ndarray:
    """Softmax of random scores with a diagonal, a sink and a band among the heads: (L, H, T, T)."""
    rng = np.random.default_rng(86)
    scores = (rng.normal(size=(layers, heads, size, size)) * sharp).astype(np.float32)
    scores[:, 1::3, :, 0] += 4.0
    scores[:, 2::5] += 6.0 * (np.arange(size)[:, None] - np.arange(size)[None] == 1)
    if causal:
        scores = np.where(np.tri(size, dtype=bool), scores, -np.inf)
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    return scores / scores.sum(-1, keepdims=True)


def trace(
    layers: int, heads: int, tokens: list[str], mask: np.ndarray | None = None, **more
) -> AttentionTrace:
    values = weights(layers, heads, len(tokens), **more)
    names = tuple(tokens)
    maps = (AttentionMap("self", k, values[k], names, names, mask) for k in range(layers))
    return AttentionTrace(tuple(maps), "the demo")
