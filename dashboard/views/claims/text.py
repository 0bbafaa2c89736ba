"""Sentences of the page Claims."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from core.claims.base import (
    FEWEST_SEEDS,
    Claim,
    Effect,
    Figure,
    Outcome,
    Part,
    Sketch,
    State,
    Verdict,
    reasons_text,
)
from core.claims.run import ClaimConfig
from core.claims.shipped import Shipped
from dashboard.draw.formats import about_duration, duration, number, percent, plain
from dashboard.views.claims.compute import ClaimResult, OwnRun

LEAD = (
    "Classic statements about attention, each measured here, with a verdict computed from the data."
)
STATES: tuple[State, ...] = ("holds", "holds in part", "does not hold", "cannot be told here")
MEANINGS: dict[State, str] = {
    "holds": "every part of it is confirmed",
    "holds in part": "some parts are confirmed, others are not",
    "does not hold": "no part is confirmed and at least one is refuted",
    "cannot be told here": "the intervals are too wide, the models have not learned, or the seeds are too few",
}
VERBS: dict[Outcome, tuple[str, str]] = {
    "holds": ("holds", "hold"),
    "refuted": ("is refuted", "are refuted"),
    "cannot be told": ("cannot be told", "cannot be told"),
}  # of one, of several
RULE = (
    f"A part holds where the whole interval of its mean over {FEWEST_SEEDS} seeds or more lies within its bounds, "
    "and is refuted where the whole interval lies outside; the intervals cover all parts together (95 %, Student's "
    "t, Bonferroni), those of ratios on a logarithmic scale and those of shares between 0 and 1. It cannot be told "
    "where the models have not learned, or where the task leaves no room."
)


def overview(states: Sequence[State | None]) -> str:
    """How many claims have which verdict."""
    counts = Counter(state for state in states if state is not None)
    parts = [
        f"**{counts[state]}** {state if counts[state] == 1 else _plural(state)}"
        for state in STATES
        if counts[state]
    ]
    missing = sum(state is None for state in states)
    waiting = f" {missing} {'is' if missing == 1 else 'are'} not measured yet." if missing else ""
    return (
        f"Of {len(states)} claims {', '.join(parts)}.{waiting}"
        if parts
        else f"{len(states)} claims.{waiting}"
    )


def _plural(state: State) -> str:
    return state.replace("holds", "hold").replace("does not", "do not")


def parts_count(judged: Verdict) -> str:
    """How many of a claim's parts hold; empty for a single one."""
    held, count = sum(effect.outcome == "holds" for effect in judged.effects), len(judged.effects)
    return f"{held} of {count} parts" if count > 1 else ""


def verdict_fact(measured: ClaimResult, whose: str) -> str:
    """The verdict as a sentence, with the number of parts and seeds."""
    judged = measured.verdict
    counts = Counter(effect.outcome for effect in judged.effects)
    parts = [
        f"{counts[outcome]} {verbs[counts[outcome] > 1]}"
        for outcome, verbs in VERBS.items()
        if counts[outcome]
    ]
    scope = f", {measured.claim.scope}" if measured.claim.scope else ""
    return (
        f"{whose}: the claim :primary[**{judged.state}**]{scope}. Of its {len(judged.effects)} parts "
        f"{', '.join(parts)}, over {len(measured.seeds)} seeds.{reasons_text(judged)}"
    )


def answer_reasons(options: Sequence[str], answer: int) -> tuple[str, ...]:
    """What the data answer to each guess; nothing more to the right one."""
    text = options[answer][0].lower() + options[answer][1:]
    return tuple("" if at == answer else f"The data say: {text}." for at in range(len(options)))


def guess_distance(
    guess: Mapping[float, float], measured: ClaimResult, question: Sketch, figure: Figure
) -> str:
    """How far a drawn line is from the measured means, and where it is farthest."""
    stats = {x: measured.stats(question.condition, figure, x) for x in guess}
    truth = {x: each.mean for x, each in stats.items() if each is not None}
    away = {x: abs(guess[x] - mean) for x, mean in truth.items()}
    farthest = max(away, key=lambda x: away[x])
    mean = sum(away.values()) / len(away)
    points = (
        f"{number(100 * mean)} percentage points"
        if figure.unit == "share"
        else write(mean, figure.unit)
    )
    return (
        f"Your line for {question.condition} is on average **{points}** from the measured one. It is farthest at "
        f"{figure.x} {farthest:g}: you drew {write(guess[farthest], figure.unit)}, measured "
        f"{write(truth[farthest], figure.unit)}."
    )


def source_line(claim: Claim) -> str:
    """Who made the claim, as Markdown."""
    named = (
        f"[{plain(claim.source.text)}]({claim.source.url})"
        if claim.source.url
        else plain(claim.source.text)
    )
    return f"Claimed by {named}: *{plain(claim.source.title)}*."


def shipped_line(result: Shipped) -> str:
    """What the shipped result was measured on."""
    machine = result.machine
    return (
        f"Measured on {result.date} with {machine.get('device', 'an unknown processor')}, "
        f"{machine.get('threads', '?')} thread a worker, PyTorch {result.versions.get('torch', '?')}, in "
        f"{duration(result.seconds)} of one core: `{result.command}`."
    )


def today() -> str:
    """The date, such as 2026-11-23."""
    return time.strftime("%Y-%m-%d", time.gmtime())


def progress(own: OwnRun) -> tuple[float, str]:
    """How far a run is, and the time left."""
    left = own.seconds_left
    after = "" if left is None else f", about {about_duration(left)} left"
    return own.done / max(1, own.count), f"{own.done} of {own.count} measurements{after}"


def unfinished(own: OwnRun) -> str:
    """How far an ended run is."""
    return f"Your run made {own.done} of {own.count} measurements, which are saved; Continue makes the others."


def time_needed(claim: Claim, result: Shipped | None, config: ClaimConfig) -> str:
    """How long a run takes, from the shipped result; a claim about time measures one thing at a time."""
    if result is None:
        return "How long it takes was not measured yet."
    seconds = result.seconds / max(1, len(result.results.cells)) * len(config.cells)
    other = [
        param.name.lower()
        for param in claim.settings
        if config.settings[param.key] != result.settings[param.key]
    ]
    source = "by the lab's own measurement" + (
        f", which had other {' and '.join(other)}" if other else ""
    )
    if claim.timed:
        return f"About {about_duration(seconds)} on one core, as it measures time; {source}."
    return f"About {about_duration(seconds / 2)} on two cores, {source}."


def write(value: float, unit: str) -> str:
    """A quantity in its unit: a share as a percentage, a ratio with its sign, else the number."""
    if unit in ("share", "gain", "seeds"):
        return percent(value)
    return f"{number(value)} ×" if unit == "times" else number(value)


def interval_text(effect: Effect) -> str:
    """The interval of a part's mean, such as 0.31 to 0.42."""
    if not math.isfinite(effect.low):
        return "unknown"
    return f"{write(effect.low, effect.part.unit)} to {write(effect.high, effect.part.unit)}"


def bounds(part: Part) -> str:
    """Where a part's quantity must lie, in words."""
    low, high = (
        write(end, part.unit) if math.isfinite(end) else "" for end in (part.low, part.high)
    )
    return f"{low} to {high}" if low and high else f"at least {low}" if low else f"at most {high}"
