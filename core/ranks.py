"""Rank correlations of two lists of numbers."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

FEWEST = 3


def kendall(first: Float[np.ndarray, " N"], second: Float[np.ndarray, " N"]) -> float | None:
    """Kendall's τ-b: +1 the same order, −1 the reverse; None for fewer than 3 values, or equal ones.

    The share of pairs in the same order less the share in opposite order, corrected for ties.
    """
    from scipy.stats import kendalltau

    return float(kendalltau(first, second).statistic) if _ordered(first) and _ordered(second) else None


def spearman(first: Float[np.ndarray, " N"], second: Float[np.ndarray, " N"]) -> float | None:
    """Spearman's ρ, the correlation of the ranks; None for fewer than 3 values, or equal ones."""
    from scipy.stats import spearmanr

    return float(spearmanr(first, second).statistic) if _ordered(first) and _ordered(second) else None


def _ordered(values: np.ndarray) -> bool:
    return len(values) >= FEWEST and float(np.ptp(values)) > 0
