"""Whether two lists of numbers put the same things first."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

FEWEST = 3


def kendall(first: Float[np.ndarray, " N"], second: Float[np.ndarray, " N"]) -> float | None:
    """Kendall's τ-b: +1 the same order, 0 none, −1 the reverse; None where there is no order (under 3, or all equal).

    Of all pairs, the share that both put in the same order less the share in which they disagree, ties allowed for.
    """
    from scipy.stats import kendalltau

    return float(kendalltau(first, second).statistic) if _ordered(first) and _ordered(second) else None


def spearman(first: Float[np.ndarray, " N"], second: Float[np.ndarray, " N"]) -> float | None:
    """Spearman's ρ, the correlation of the ranks; None where there is no order (under 3, or all equal)."""
    from scipy.stats import spearmanr

    return float(spearmanr(first, second).statistic) if _ordered(first) and _ordered(second) else None


def _ordered(values: np.ndarray) -> bool:
    return len(values) >= FEWEST and float(np.ptp(values)) > 0
