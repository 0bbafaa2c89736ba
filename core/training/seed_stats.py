"""Statistics over several seeds: mean, interval and standard deviation, and mean curves."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from core.student_t import quantile
from core.training.comparisons import LEVEL

GRID = 60  # points of a line over seconds, where runs share no x


@dataclass(frozen=True)
class SeedStats:
    """The values of several seeds; standard deviation and interval are None for a single one."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def std(self) -> float | None:
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    @property
    def half_width(self) -> float | None:
        """Half of the mean's 95 % interval (Student's t over n values)."""
        return None if self.std is None else half_width(self.std, len(self.values))

    @property
    def low(self) -> float:
        return min(self.values)

    @property
    def high(self) -> float:
        return max(self.values)

    def times(self, factor: float) -> SeedStats:
        """The values in another unit."""
        return SeedStats(tuple(factor * value for value in self.values))


def half_width(std: float, count: int, level: float = LEVEL) -> float:
    """Half of the interval of a mean over `count` values (Student's t), which covers 1 − level."""
    return quantile(1 - level / 2, count - 1) * std / count**0.5


def seed_stats(values: Sequence[float | None]) -> SeedStats | None:
    """The statistics of the values that are not None; None without any."""
    numbers = tuple(value for value in values if value is not None)
    return SeedStats(numbers) if numbers else None


@dataclass(frozen=True)
class Line:
    """The mean, the smallest and the largest of several runs at each x."""

    x: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


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
    y = np.array([np.interp(x, [a for a, _ in points], [b for _, b in points]) for points in runs])  # (runs, points)
    return Line(*(tuple(row.tolist()) for row in (x, y.mean(0), y.min(0), y.max(0))))
