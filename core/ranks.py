"""Rank correlations of two lists of numbers; scipy.stats has them too, and takes half a second to import."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

FEWEST = 3


def kendall(first: Float[np.ndarray, " N"], second: Float[np.ndarray, " N"]) -> float | None:
    """Kendall's τ-b: +1 the same order, −1 the reverse; None for fewer than 3 values, or equal ones.

    The share of pairs in the same order less the share in opposite order, corrected for ties.
    """
    if not (_ordered(first) and _ordered(second)):
        return None
    one, other = (np.sign(np.subtract.outer(values, values)) for values in (first, second))
    return float((one * other).sum() / np.sqrt((one**2).sum() * (other**2).sum()))


def spearman(first: Float[np.ndarray, " N"], second: Float[np.ndarray, " N"]) -> float | None:
    """Spearman's ρ, the correlation of the ranks; None for fewer than 3 values, or equal ones."""
    if not (_ordered(first) and _ordered(second)):
        return None
    return float(np.corrcoef(_ranks(first), _ranks(second))[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    """The rank of each value; equal ones share the mean of theirs."""
    _, index, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[index]


def _ordered(values: np.ndarray) -> bool:
    return len(values) >= FEWEST and float(np.ptp(values)) > 0
