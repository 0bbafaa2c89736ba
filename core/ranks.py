"""Rank correlations of two lists of numbers; None for fewer than 3 values, or where all of a list are equal."""

import numpy as np
from jaxtyping import Float


def kendall(first: Float[np.ndarray, " N"], second: Float[np.ndarray, " N"]) -> float | None:
    """Kendall's τ-b, corrected for ties: +1 the same order, −1 the reverse."""
    from scipy.stats import kendalltau  # here: it takes half a second to import

    return float(kendalltau(first, second).statistic) if _ordered(first, second) else None


def spearman(first: Float[np.ndarray, " N"], second: Float[np.ndarray, " N"]) -> float | None:
    """Spearman's ρ, the correlation of the ranks; equal values share the mean of theirs."""
    from scipy.stats import spearmanr

    return float(spearmanr(first, second).statistic) if _ordered(first, second) else None


def _ordered(*lists: np.ndarray) -> bool:
    return all(len(values) >= 3 and float(np.ptp(values)) > 0 for values in lists)
