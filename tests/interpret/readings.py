"""Lines, maps and readings made by hand."""

import numpy as np

from core.interpret.trace import AttentionMap, AttentionTrace, Kind
from core.pretrained import Line, Reading

SPECIAL = ("[CLS]", "[SEP]", "[UNK]", "<s>", "</s>")


def line(text: str) -> Line:
    # The tokens that stand apart in the text; ## continues a word.
    tokens = tuple(text.split())
    special = tuple(token in SPECIAL for token in tokens)
    word, count = [], -1
    for token, hidden in zip(tokens, special, strict=True):
        count += not hidden and not token.startswith("##")
        word.append(None if hidden else count)
    return Line(tuple(range(len(tokens))), tokens, special, tuple(word), (0,) * len(tokens))


def reading(text: str, weights: np.ndarray, kind: Kind = "self") -> Reading:
    # A model of as many layers and heads as weights (L, H, T, T) has.
    source = line(text)
    mask = np.tri(len(source), dtype=bool)[None] if kind == "causal" else None
    maps = tuple(
        AttentionMap(kind, layer, one.astype(np.float32), source.tokens, source.tokens, mask)
        for layer, one in enumerate(weights)
    )
    return Reading(AttentionTrace(maps, "made by hand"), source)


def softmax(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def random_weights(
    size: int, heads: int, seed: int, spread: float = 1.0, causal: bool = False
) -> np.ndarray:
    # Weights (1, H, T, T) of random scores.
    scores = np.random.default_rng(seed).normal(0, spread, (1, heads, size, size))
    return softmax(np.where(np.tri(size, dtype=bool), scores, -np.inf) if causal else scores)
