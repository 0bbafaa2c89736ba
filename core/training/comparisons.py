"""Tests of differences between means, paired by shared seeds and corrected for the number of tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from core.student_t import quantile, survival

LEVEL = 0.05  # of the family of tests; intervals cover 1 − LEVEL


@dataclass(frozen=True)
class Comparison:
    """The difference first − second of two groups' means, with its 95 % interval, and `p` after Holm's correction.

    `count` is the number of shared seeds, or, unless `paired`, that of the smaller group.
    """

    first: int
    second: int
    difference: float
    low: float
    high: float
    p: float
    count: int
    paired: bool

    @property
    def significant(self) -> bool:
        return self.p < LEVEL

    def swapped(self) -> Comparison:
        """The same pair in the other order."""
        return Comparison(self.second, self.first, -self.difference, -self.high, -self.low, self.p, self.count,
                          self.paired)


class _Difference(NamedTuple):
    mean: float
    error: float  # standard error of the mean
    freedom: float  # degrees of freedom
    seeds: int  # as Comparison.count
    paired: bool


def compare(groups: Sequence[Mapping[int, float]], resolution: float = 0.0) -> list[Comparison]:
    """Two-sided t tests of every pair of groups (seed -> value), in their order; pairs with too few seeds are left out.

    Paired Student's t over shared seeds; Welch's t where none are shared. p-values are corrected over all pairs, so
    that the family-wise error rate stays below LEVEL (Holm 1979). A standard deviation counts as at least `resolution`,
    the smallest step of the measure (so scipy's ttest_rel and ttest_ind do not fit); where it is 0 even so, p is 1.
    """
    pairs = [(a, b, difference) for a, b in combinations(range(len(groups)), 2)
             if (difference := _difference(groups[a], groups[b], resolution)) is not None]
    if not pairs:
        return []
    mean, error, freedom = np.array([difference[:3] for _, _, difference in pairs]).T
    statistic = np.divide(np.abs(mean), error, out=np.zeros_like(mean), where=error > 0)
    corrected = holm(np.array([2 * survival(t, f) for t, f in zip(statistic.tolist(), freedom.tolist(), strict=True)]))
    half = [quantile(1 - LEVEL / 2, f) for f in freedom.tolist()] * error
    return [Comparison(a, b, d.mean, d.mean - float(h), d.mean + float(h), float(p), d.seeds, d.paired)
            for (a, b, d), h, p in zip(pairs, half, corrected, strict=True)]


def _difference(a: Mapping[int, float], b: Mapping[int, float], resolution: float) -> _Difference | None:
    """The difference of two means with its standard error; None for too few values."""
    if shared := sorted(a.keys() & b.keys()):
        if len(shared) < 2:
            return None
        within = np.array([a[seed] - b[seed] for seed in shared])
        deviation = max(float(within.std(ddof=1)), resolution)
        return _Difference(float(within.mean()), deviation / len(within) ** 0.5, len(within) - 1, len(within), True)
    if min(len(a), len(b)) < 2:
        return None
    first, second = (np.array(list(group.values())) for group in (a, b))
    shares = [max(float(each.std(ddof=1)), resolution) ** 2 / len(each) for each in (first, second)]
    total = sum(shares)  # Welch–Satterthwaite
    spent = sum(share**2 / (len(each) - 1) for share, each in zip(shares, (first, second), strict=True))
    return _Difference(float(first.mean() - second.mean()), total**0.5, total**2 / spent if spent else 1.0,
                       min(len(a), len(b)), False)


def holm(p: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Holm's correction: the smallest p times n, the next times n − 1, …, never falling, at most 1."""
    order = np.argsort(p)
    adjusted = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(adjusted, 1.0)
    return corrected
