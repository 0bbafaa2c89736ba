"""Correlations of two lists of numbers; None for fewer than 3 values, or where all of a list are equal.

Not by scipy.stats, of which a server would hold 20 MB.
"""

import numpy as np
from jaxtyping import Float


def kendall(first: Float[np.ndarray, " N"], second: Float[np.ndarray, " N"]) -> float | None:
    """Kendall's τ-b, corrected for ties: +1 the same order, −1 the reverse."""
    return _cosine(_signs(first), _signs(second))


def spearman(first: Float[np.ndarray, " N"], second: Float[np.ndarray, " N"]) -> float | None:
    """Spearman's ρ, the correlation of the ranks; equal values share the mean of theirs."""
    return _cosine(_signs(first).sum(1), _signs(second).sum(1))  # ranks about 0, in steps of 2


def pearson(first: Float[np.ndarray, " N"], second: Float[np.ndarray, " N"]) -> float | None:
    """Pearson's r, the correlation of the values themselves."""
    return _cosine(first - first.mean(), second - second.mean())


def _signs(values: np.ndarray) -> np.ndarray:
    # of each pair, +1 where the first is larger
    return np.sign(np.subtract.outer(values, values))


def _cosine(one: np.ndarray, two: np.ndarray) -> float | None:
    return (
        float((one * two).sum() / norms)
        if (norms := np.linalg.norm(one) * np.linalg.norm(two)) and len(one) > 2
        else None
    )
