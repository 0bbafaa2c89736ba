"""Measurements of attention maps: entropy, distance, overlap of heads. All on NumPy weights (H, T, S)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from core.trace import AttentionTrace

Weights = Float[np.ndarray, "H T S"]


def entropy(weights: Weights) -> Float[np.ndarray, "H T"]:
    """Entropy of each row in nats: log S for uniform weights, 0 for a single key."""
    safe = np.where(weights > 0, weights, 1.0)
    return -(weights * np.log(safe)).sum(-1)


def mean_distance(weights: Weights) -> Float[np.ndarray, " H"]:
    """The mean distance |i − j| of each head, by its weights."""
    rows, columns = weights.shape[1:]
    distance = np.abs(np.arange(rows)[:, None] - np.arange(columns)[None, :])
    return (weights * distance).sum((1, 2)) / rows


def previous_token(weights: Weights) -> Float[np.ndarray, " H"]:
    """Mean weight on the token just before; 0 with fewer than two tokens."""
    diagonal = np.diagonal(weights, -1, 1, 2)
    return diagonal.mean(-1) if diagonal.shape[-1] else np.zeros(len(weights), weights.dtype)


def breadth(weights: Weights) -> Float[np.ndarray, " H"]:
    """Mean entropy of the rows as a share of log S, the largest possible; 0 for a single key."""
    keys = weights.shape[-1]
    return (
        entropy(weights).mean(-1) / np.log(keys)
        if keys > 1
        else np.zeros(len(weights), weights.dtype)
    )


def overlap(weights: Weights) -> Float[np.ndarray, "H H"]:
    """The share of weight that two heads have in common, Σ_j min(a_ij, b_ij), mean of all rows; weights ≥ 0.

    1 where two heads are equal, 0 where they share no key.
    """
    return np.stack([np.minimum(weights, head).sum(-1).mean(-1) for head in weights])


def strongest(
    trace: AttentionTrace, score: Callable[[Weights], np.ndarray]
) -> tuple[int, int, float]:
    """The layer and head in which a score is largest, and that score."""
    return max(
        (
            (item.layer, int(head), float(value))
            for item in trace.maps
            for head, value in enumerate(score(item.weights))
        ),
        key=lambda entry: entry[2],
    )
