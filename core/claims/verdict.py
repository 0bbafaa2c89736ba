"""The verdict on a claim: computed from the intervals of its parts' quantities over the seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from core.claims.base import Claim, ClaimSettings, Part
from core.claims.results import Results
from core.training.comparisons import LEVEL
from core.training.seed_stats import half_width

State = Literal["holds", "holds in part", "does not hold", "cannot be told here"]
Outcome = Literal["holds", "refuted", "cannot be told"]


@dataclass(frozen=True)
class Effect:
    """A part's quantity over the seeds: its mean, the interval of the mean, and what follows for the statement."""

    part: Part
    values: tuple[float, ...]
    mean: float
    low: float
    high: float
    outcome: Outcome


@dataclass(frozen=True)
class Verdict:
    state: State
    effects: tuple[Effect, ...]


def verdict(claim: Claim, settings: ClaimSettings, results: Results) -> Verdict:
    """The verdict on a claim from the seeds that have every condition.

    Intervals are Student's t, paired by seed where a quantity is a difference, and cover all parts together: 95 %
    after Bonferroni's correction for their number.
    """
    complete = results.complete(claim.conditions(settings))
    seeds = [complete.seed(seed) for seed in complete.seeds]
    effects = tuple(effect(part, [part.quantity(seed) for seed in seeds], LEVEL / len(claim.parts))
                    for part in claim.parts)
    return Verdict(combine([each.outcome for each in effects]), effects)


def effect(part: Part, values: Sequence[float], level: float) -> Effect:
    """The mean of a quantity, its interval, and the outcome; fewer than two finite values tell nothing."""
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return Effect(part, tuple(values), math.nan, -math.inf, math.inf, "cannot be told")
    deviation = max(float(np.std(values, ddof=1)), part.resolution)
    mean, half = float(np.mean(values)), half_width(deviation, len(values), level)
    return Effect(part, tuple(values), mean, mean - half, mean + half, outcome(part, mean - half, mean + half))


def outcome(part: Part, low: float, high: float) -> Outcome:
    """What an interval says of a statement."""
    if part.low <= low and high <= part.high:
        return "holds"
    return "refuted" if high < part.low or low > part.high else "cannot be told"


def combine(outcomes: Sequence[Outcome]) -> State:
    """All parts hold; some do; none does and one is refuted; or nothing can be told."""
    if all(one == "holds" for one in outcomes):
        return "holds"
    if "holds" in outcomes:
        return "holds in part"
    return "does not hold" if "refuted" in outcomes else "cannot be told here"
