"""Tests of differences between means, paired by shared seeds and corrected for the number of tests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np

from core.training.seed_stats import LEVEL, UNITS, Interval, around, quantile

DIFFERENCES: Mapping[str, str] = {  # the unit of a comparison by that of the values
    "number": "number",
    "positive": "times",
    "times": "times",
    "share": "gain",
    "score": "score gain",
}


@dataclass(frozen=True)
class Comparison:
    """The difference first − second of two groups' means, with its interval, and `p`, both corrected for all pairs.

    In the unit "times" it is the ratio first / second. The interval leaves out 0 (a ratio's leaves out 1) where
    `significant`, and only there. `count` is the number of shared seeds, or, unless `paired`, that of the smaller
    group.
    """

    first: int
    second: int
    difference: float
    low: float
    high: float
    p: float
    count: int
    paired: bool
    unit: str = "number"

    @property
    def significant(self) -> bool:
        return self.p < LEVEL

    @property
    def sign(self) -> str:
        """Between the names of the two: − or ÷."""
        return "÷" if self.unit == "times" else "−"

    def swapped(self) -> Comparison:
        """The same pair in the other order."""
        difference, high, low = (
            _other_way(value, self.unit) for value in (self.difference, self.low, self.high)
        )
        return Comparison(
            self.second,
            self.first,
            difference,
            low,
            high,
            self.p,
            self.count,
            self.paired,
            self.unit,
        )


def _other_way(value: float, unit: str) -> float:
    if unit != "times":
        return -value
    return 1 / value if value else math.inf


class _Difference(NamedTuple):
    mean: float
    error: float  # standard error of the mean
    freedom: float  # degrees of freedom
    seeds: int  # as Comparison.count
    paired: bool


def compare(
    groups: Sequence[Mapping[int, float]], unit: str = "number", resolution: float = 0.0
) -> list[Comparison]:
    """Two-sided t tests of every pair of groups (seed -> value), in their order; pairs with too few seeds are left out.

    Paired Student's t over shared seeds; Welch's t where none are shared. p-values and intervals are both Bonferroni's
    over all pairs: the family-wise error rate stays below LEVEL, and the intervals cover all differences together and
    never contradict the tests. Losses and other positive numbers are compared by their logarithms, shares on a scale
    that ends at −1 and 1 (core.training.seed_stats.UNITS). A standard deviation counts as at least `resolution`, the
    smallest step of the measure (so scipy's ttest_rel and ttest_ind do not fit); where it is 0 even so, p is 1.
    """
    unit = DIFFERENCES[unit]
    if unit == "times":
        resolution = 0.0
        groups = [
            {seed: math.log(value) for seed, value in group.items() if value > 0}
            for group in groups
        ]
    pairs = [
        (a, b, difference)
        for a, b in combinations(range(len(groups)), 2)
        if (difference := _difference(groups[a], groups[b], resolution)) is not None
    ]
    return [
        _comparison(a, b, difference, len(pairs), unit, resolution) for a, b, difference in pairs
    ]


def _comparison(
    a: int, b: int, d: _Difference, pairs: int, unit: str, resolution: float
) -> Comparison:
    """The test and the interval of one of so many pairs, both on the link of the unit."""
    from scipy.special import stdtr

    scale = UNITS["number" if unit == "times" else unit]
    if d.error == 0:
        p, ends = 1.0, Interval(d.mean, scale.low, scale.high)
    else:
        half = quantile(1 - LEVEL / pairs / 2, d.freedom) * d.error
        ends = around(d.mean, half, scale, resolution)
        inside = min(max(d.mean, scale.low + resolution / 2), scale.high - resolution / 2)
        (centre, slope), (zero, _) = scale.link(inside), scale.link(0.0)
        p = min(1.0, 2 * pairs * float(stdtr(d.freedom, -abs(centre - zero) / (d.error * slope))))
    if unit == "times":
        ends = Interval(*map(UNITS["times"].back, ends))
    return Comparison(a, b, *ends, p, d.seeds, d.paired, unit)


def _difference(
    a: Mapping[int, float], b: Mapping[int, float], resolution: float
) -> _Difference | None:
    """The difference of two means with its standard error; None for too few values."""
    if shared := sorted(a.keys() & b.keys()):
        if len(shared) < 2:
            return None
        within = np.array([a[seed] - b[seed] for seed in shared])
        deviation = max(float(within.std(ddof=1)), resolution)
        return _Difference(
            float(within.mean()), deviation / len(within) ** 0.5, len(within) - 1, len(within), True
        )
    if min(len(a), len(b)) < 2:
        return None
    first, second = (np.array(list(group.values())) for group in (a, b))
    shares = [max(float(each.std(ddof=1)), resolution) ** 2 / len(each) for each in (first, second)]
    total = sum(shares)  # Welch–Satterthwaite
    spent = sum(
        share**2 / (len(each) - 1) for share, each in zip(shares, (first, second), strict=True)
    )
    return _Difference(
        float(first.mean() - second.mean()),
        total**0.5,
        total**2 / spent if spent else 1.0,
        min(len(a), len(b)),
        False,
    )
