"""The verdict on a claim: computed from the intervals of its parts' quantities over the seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from core.claims.base import FEWEST_SEEDS, LEARNED_SHARE, Claim, ClaimSettings, Learned, Part
from core.claims.results import Results, SeedValues
from core.training.seed_stats import LEVEL, interval

State = Literal["holds", "holds in part", "does not hold", "cannot be told here"]
Outcome = Literal["holds", "refuted", "cannot be told"]


@dataclass(frozen=True)
class Effect:
    """A part's quantity over the seeds: its mean, the interval of the mean, and what follows for the statement.

    Where the interval says nothing yet, `reason` says why: too few seeds, models that have not learned, no room.
    """

    part: Part
    values: tuple[float, ...]
    mean: float
    low: float
    high: float
    outcome: Outcome
    reason: str = ""


@dataclass(frozen=True)
class Verdict:
    state: State
    effects: tuple[Effect, ...]

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why parts cannot be told whatever their intervals are, each reason once."""
        return tuple(dict.fromkeys(effect.reason for effect in self.effects if effect.reason))


def verdict(claim: Claim, settings: ClaimSettings, results: Results) -> Verdict:
    """The verdict on a claim from the seeds that have every condition.

    Intervals (core.training.seed_stats.interval) are paired by seed where a quantity is a difference or a ratio, and
    cover all parts together: 95 % after Bonferroni's correction for their number.
    """
    conditions = claim.conditions(settings)
    complete = results.complete(conditions)
    seeds = [complete.seed(seed) for seed in complete.seeds]
    effects = tuple(
        effect(
            part,
            [part.quantity(seed) for seed in seeds],
            LEVEL / len(claim.parts),
            why_not(part, seeds, conditions),
        )
        for part in claim.parts
    )
    return Verdict(combine([each.outcome for each in effects]), effects)


def effect(part: Part, values: Sequence[float], level: float, reason: str = "") -> Effect:
    """The mean of a quantity, its interval, and the outcome; it cannot be told where there is a `reason`."""
    measured = interval(values, part.unit, level, part.resolution)
    if measured is None:
        reason = reason or "a value is no finite number within the bounds of its unit"
        return Effect(part, tuple(values), math.nan, -math.inf, math.inf, "cannot be told", reason)
    result: Outcome = "cannot be told" if reason else outcome(part, measured.low, measured.high)
    return Effect(part, tuple(values), *measured, result, reason)


def why_not(part: Part, seeds: Sequence[SeedValues], conditions: Sequence[str]) -> str:
    """Why an interval says nothing of a statement; empty where it does."""
    if len(seeds) < FEWEST_SEEDS:
        return f"{len(seeds)} {'seed' if len(seeds) == 1 else 'seeds'} of the {FEWEST_SEEDS} that a verdict needs"
    if (
        part.learned is not None
        and (lacking := part.learned.lacking(seeds, conditions)) is not None
    ):
        condition, count = lacking
        return (
            f"the models have not learned: {criterion(part.learned)} in {count} of {len(seeds)} seeds of "
            f"{condition}{'' if part.learned.conditions else ', the best'}"
        )
    if part.room is not None and (room := sum(map(part.room, seeds)) / len(seeds)) < part.low:
        return f"the task leaves no room: {part.name} could be {written(room, part.unit)} at most"
    return ""


def verdict_line(claim: Claim, judged: Verdict, seeds: int) -> str:
    """Such as: Verdict: holds in part, over 5 seeds, in models of d_model 64 with 2 layers."""
    scope = f", {claim.scope}" if claim.scope else ""
    return f"Verdict: {judged.state}, over {seeds} seeds{scope}.{reasons_text(judged)}"


def reasons_text(judged: Verdict) -> str:
    """Why parts cannot be told, a sentence each after a space; empty where only intervals are too wide."""
    return "".join(f" {reason[0].upper()}{reason[1:]}." for reason in judged.reasons)


def rule_lines(claim: Claim) -> list[str]:
    """When the models of a claim count as having learned, a sentence a criterion."""
    share = f"{100 * LEARNED_SHARE:.0f} % of the seeds"
    return [
        f"The models have learned where {criterion(one)} in {share} of "
        f"{' and of '.join(one.conditions) if one.conditions else 'at least one condition'}."
        for one in claim.criteria
    ]


def criterion(learned: Learned) -> str:
    """Such as: Accuracy on recall at least 95 %."""
    at = "" if learned.x is None else f" at {learned.x:g}"
    low, high = (
        math.isfinite(end) and written(end, learned.unit) for end in (learned.low, learned.high)
    )
    return f"{learned.measure}{at} {' and '.join([f'at least {low}'] * bool(low) + [f'at most {high}'] * bool(high))}"


def written(value: float, unit: str) -> str:
    return f"{100 * value:.3g} %" if unit in ("share", "gain", "seeds") else f"{value:.3g}"


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
