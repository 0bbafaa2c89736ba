"""Statistics over several seeds: means with intervals that stay in their unit's bounds, and mean curves."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

LEVEL = 0.05  # of the family of tests; intervals cover 1 − LEVEL
ROUNDING = 1e-6  # by which a share may leave its bounds
GRID = 60  # points of a line over seconds, where runs share no x


@dataclass(frozen=True)
class Scale:
    """Where a unit's numbers lie. Intervals are symmetric on its link: a logit within two bounds, a log above one."""

    low: float = -math.inf
    high: float = math.inf

    def link(self, x: float) -> tuple[float, float]:
        """The link at x and its derivative."""
        ends = [
            (sign, each)
            for sign, each in ((1, x - self.low), (-1, self.high - x))
            if not math.isinf(each)
        ]
        if not ends:
            return x, 1.0
        return sum(sign * math.log(each) for sign, each in ends), sum(1 / each for _, each in ends)

    def back(self, y: float) -> float:
        """The x whose link is y."""
        if math.isinf(self.low):
            return y
        factor = math.exp(min(y, 700.0))  # beyond it no float is larger
        if math.isinf(self.high):
            return self.low + factor
        return min(self.high, self.low + (self.high - self.low) * factor / (1 + factor))


UNITS: Mapping[str, Scale] = {
    "number": Scale(),
    "positive": Scale(0.0),
    "times": Scale(0.0),
    "share": Scale(0.0, 1.0),
    "gain": Scale(-1.0, 1.0),
    "correlation": Scale(-1.0, 1.0),
    "score": Scale(0.0, 100.0),
    "score gain": Scale(-100.0, 100.0),
    "seeds": Scale(0.0, 1.0),
}


class Interval(NamedTuple):
    """A mean and the ends of its interval."""

    mean: float
    low: float
    high: float


def mean_interval(
    values: Sequence[float],
    unit: str = "number",
    level: float = LEVEL,
    resolution: float = 0.0,
) -> Interval | None:
    """The mean over seeds with the interval that covers it in 1 − level; None for one value, or one out of bounds.

    Student's t on the link of the unit (the delta method), so that no end leaves the unit's bounds. Of ratios
    ("times") it is the mean of the logarithms, so that a over b and b over a say the same; of a "seeds" share, of
    seeds in which something holds (0 or 1 each), the interval is exact (Clopper and Pearson 1934). The standard
    deviation counts as at least `resolution`, the smallest step of the measure.
    """
    scale, count = UNITS[unit], len(values)
    if count < 2 or not all(
        math.isfinite(value) and scale.low - ROUNDING <= value <= scale.high + ROUNDING
        for value in values
    ):
        return None
    values = [min(max(value, scale.low), scale.high) for value in values]
    if unit == "seeds":
        from scipy.special import betaincinv

        held = sum(values)
        low = betaincinv(held, count - held + 1, level / 2) if held else 0.0
        high = betaincinv(held + 1, count - held, 1 - level / 2) if held < count else 1.0
        return Interval(held / count, float(low), float(high))
    if unit == "times":
        measured = (
            mean_interval([math.log(value) for value in values], "number", level)
            if min(values) > 0
            else None
        )
        return measured and Interval(*(UNITS[unit].back(end) for end in measured))
    mean, half = statistics.fmean(values), quantile(1 - level / 2, count - 1)
    half *= max(statistics.stdev(values), resolution) / count**0.5
    return around(mean, half, scale, resolution)


def around(mean: float, half: float, scale: Scale, resolution: float = 0.0) -> Interval:
    """A mean with half of its interval as both lie on a scale; a mean at a bound counts as half a step inside."""
    inside = min(max(mean, scale.low + resolution / 2), scale.high - resolution / 2)
    if half == 0 or not scale.low < inside < scale.high:
        return Interval(mean, mean, mean)
    centre, slope = scale.link(inside)
    return Interval(
        mean,
        min(mean, scale.back(centre - half * slope)),
        max(mean, scale.back(centre + half * slope)),
    )


def quantile(p: float, freedom: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(freedom, p))


@dataclass(frozen=True)
class SeedStats:
    """The values of several seeds in their unit; the standard deviation is None for a single one."""

    values: tuple[float, ...]
    unit: str = "number"

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def std(self) -> float | None:
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The mean's 95 % interval, which stays within the bounds of the unit; None where there is none."""
        measured = mean_interval(self.values, "positive" if self.unit == "times" else self.unit)
        return measured and (measured.low, measured.high)

    @property
    def low(self) -> float:
        return min(self.values)

    @property
    def high(self) -> float:
        return max(self.values)

    def in_percent(self) -> "SeedStats":
        """Shares as 0 to 100."""
        return SeedStats(tuple(100 * value for value in self.values), "score")


def seed_stats(values: Sequence[float | None], unit: str = "number") -> SeedStats | None:
    """The statistics of the values that are not None; None without any."""
    numbers = tuple(value for value in values if value is not None)
    return SeedStats(numbers, unit) if numbers else None


@dataclass(frozen=True)
class Line:
    """The mean, the smallest and the largest of several runs at each x."""

    x: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    def in_percent(self) -> "Line":
        """Shares as 0 to 100."""
        columns = self.mean, self.low, self.high
        return Line(self.x, *(tuple(100 * y for y in column) for column in columns))


Points = Sequence[tuple[float, float]]


def line(runs: Sequence[Points], shared: bool) -> Line | None:
    """The mean of several runs of (x, y); None without points.

    With `shared` x (steps) at those that all runs have; else (seconds) interpolated up to the end of the shortest run.
    """
    runs = [points for points in runs if points]
    if not runs:
        return None
    if shared:
        common = set.intersection(*({x for x, _ in points} for points in runs))
        x = np.array(sorted(common), dtype=float)
    else:
        x = np.linspace(0.0, min(points[-1][0] for points in runs), GRID)
    if not len(x):
        return None
    # (runs, points)
    y = np.array([np.interp(x, [a for a, _ in points], [b for _, b in points]) for points in runs])
    return Line(*(tuple(row.tolist()) for row in (x, y.mean(0), y.min(0), y.max(0))))


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

    def swapped(self) -> "Comparison":
        """The same pair in the other order."""
        values = self.difference, self.low, self.high
        if self.unit == "times":
            difference, high, low = (1 / value if value else math.inf for value in values)
        else:
            difference, high, low = (-value for value in values)
        first, second = self.second, self.first
        return replace(self, first=first, second=second, difference=difference, low=low, high=high)


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
    from scipy.special import stdtr

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
    scale = UNITS["number" if unit == "times" else unit]
    comparisons = []
    for a, b, (mean, error, freedom, count, paired) in pairs:  # each on the link of the unit
        p, ends = 1.0, Interval(mean, scale.low, scale.high)
        if error:
            ends = around(
                mean, quantile(1 - LEVEL / len(pairs) / 2, freedom) * error, scale, resolution
            )
            inside = min(max(mean, scale.low + resolution / 2), scale.high - resolution / 2)
            centre, slope = scale.link(inside)  # of a difference the link at 0 is 0
            tail = float(stdtr(freedom, -abs(centre) / (error * slope)))
            p = min(1.0, 2 * len(pairs) * tail)
        if unit == "times":
            ends = Interval(*map(UNITS["times"].back, ends))
        comparisons.append(Comparison(a, b, *ends, p, count, paired, unit))
    return comparisons


def _difference(
    a: Mapping[int, float], b: Mapping[int, float], resolution: float
) -> tuple[float, float, float, int, bool] | None:
    """The difference of two means, its standard error and degrees of freedom, the number of seeds, and whether they are
    paired; None for too few values."""
    shared = sorted(a.keys() & b.keys())
    within = [a[seed] - b[seed] for seed in shared]
    samples = [np.array(each) for each in ([within] if shared else [[*a.values()], [*b.values()]])]
    count = min(map(len, samples))
    if count < 2:
        return None
    errors = [max(float(each.std(ddof=1)), resolution) ** 2 / len(each) for each in samples]
    spent = sum(square**2 / (len(each) - 1) for each, square in zip(samples, errors, strict=True))
    welch = sum(errors) ** 2 / spent if spent else math.inf  # Welch–Satterthwaite
    mean = float(samples[0].mean() - (0.0 if shared else samples[1].mean()))
    return mean, sum(errors) ** 0.5, count - 1 if shared else welch, count, bool(shared)
