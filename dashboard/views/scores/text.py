"""Sentences, equations and table cells of the page Scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core.attention import Choice, entry
from core.attention.properties import PROBE_DIMS, PROBE_TOKENS, ScoreProperties
from dashboard.draw.formats import byte_size, coloured, duration, latex, name, number
from dashboard.draw.formats import latex_signed as signed
from dashboard.draw.scripts import source_of
from dashboard.views.scores import compute
from dashboard.views.scores.compute import ScoreMaps, Timing
from dashboard.views.scores.controls import BASELINE, SEED
from dashboard.views.scores.measurement import Measurement
from dashboard.widgets.panels import plain

MAX_TERMS = 3
TOLERANCE = 1e-5  # relative, in single precision: within it two scores are the same
HEAD = (
    "score",
    "rule",
    "parameters",
    "time",
    "× dot",
    "memory",
    "rank",
    "symmetric",
    "query × 2",
    "rotated",
)


def favourite(scores: Sequence[ScoreMaps], query: int) -> int:
    """The key on which most scores put most of the query's weight."""
    tops = [int(each.weights[query].argmax()) for each in scores]
    return max(set(tops), key=tops.count)


def fact(scores: Sequence[ScoreMaps], tokens: Sequence[str], query: int, stretch: float) -> str:
    """On which key the scores agree for one query, and the largest and smallest weight they give it."""
    column = favourite(scores, query)
    agree = sum(int(each.weights[query].argmax()) == column for each in scores)
    high = max(scores, key=lambda each: float(each.weights[query, column]))
    low = min(scores, key=lambda each: float(each.weights[query, column]))
    sentence = (
        f"For the query :primary[{plain(tokens[query])}], {agree} of {len(scores)} scores put most weight on "
        f"{plain(tokens[column])}: {lower(high)} **{number(high.weights[query, column])}**, {lower(low)} "
        f"**{number(low.weights[query, column])}**. Uniform weights would be {number(1 / len(tokens))}."
    )
    return sentence if stretch == 1.0 else f"{sentence} Each query is multiplied by {stretch:g}."


def snippet(choice: Choice, dims: int) -> str:
    """Code that builds the same layer in a notebook."""
    return (
        "import torch\nfrom core.attention import Attention, AttentionConfig, Choice\n\n"
        f"config = AttentionConfig({dims}, 1, score={source_of(choice)})\n"
        f"steps = Attention(config)(torch.randn(1, 6, {dims}))\n"
        "print(steps.scores, steps.weights)\n"
    )


def lower(each: ScoreMaps) -> str:
    """A score's name inside a sentence: lower case, except QK-norm."""
    text = entry("score", each.key).name
    return plain(text if text[:2].isupper() else text[0].lower() + text[1:])


def conditions(
    scores: Sequence[ScoreMaps], dims: int, tokens: Sequence[str], notes: Sequence[str]
) -> str:
    """Sizes and seed, and which scores give the same numbers."""
    equal = [
        f"{entry('score', one.key).name} and {lower(other)} give the same numbers here."
        for at, one in enumerate(scores)
        for other in scores[at + 1 :]
        if np.abs(one.scores - other.scores).max()
        < TOLERANCE * max(1.0, float(np.abs(one.scores).max()))
    ]
    return " ".join(
        [
            f"One head of D = {dims}; {len(tokens)} tokens, no mask, softmax. Words and weights are random (seed {SEED}), "
            "so the numbers show how the rules differ, not what a trained model attends to.",
            *equal,
            *notes,
        ]
    )


def equation(
    each: ScoreMaps, tokens: Sequence[str], i: int, j: int, colour: str
) -> tuple[str, ...]:
    """The rule, and the score of query i on key j as a sum of products."""
    left = coloured(rf"s_{{{name(tokens[i], i)},\,{name(tokens[j], j)}}}", colour)
    result = coloured(rf"\mathbf{{{latex(each.scores[i, j])}}}", colour)
    rule_latex = "s_{ij} = " + entry("score", each.key).latex
    if each.factors is None:
        return rule_latex, f"{left} = {result}"
    first, second = (part[i, j] for part in each.factors)
    terms = " + ".join(
        rf"{signed(a)} \cdot {signed(b)}" for a, b in zip(first[:MAX_TERMS], second, strict=False)
    )
    terms += r" + \cdots" if len(first) > MAX_TERMS else ""
    return rule_latex, rf"{left} = {terms} = {result}" if each.scale == 1.0 else (
        rf"{left} = {latex(each.scale)} \cdot ({terms}) = {result}"
    )


def rows(
    scores: Sequence[ScoreMaps],
    properties: Sequence[ScoreProperties],
    timings: Sequence[Timing | None],
) -> list[list[str]]:
    """One row a score, in the order of HEAD; a dash for what was not measured."""
    dot = next(
        (time for each, time in zip(scores, timings, strict=True) if each.key == BASELINE),
        timings[0],
    )
    return [
        [
            entry("score", each.key).name,
            rule(each),
            f"{each.parameters:,}",
            *(
                (
                    duration(time.seconds),
                    f"{number(time.seconds / dot.seconds)} ×",
                    byte_size(time.bytes),
                )
                if time and dot
                else ("–",) * 3
            ),
            f"{can.rank}",
            "yes" if can.symmetric else "no",
            f"× {number(can.doubling)}",
            "no change" if not can.rotation else f"± {number(can.rotation)}",
        ]
        for each, can, time in zip(scores, properties, timings, strict=True)
    ]


def table_note(dims: int, saved: Measurement | None, threads: int) -> str:
    """What the columns mean and how they were measured: as saved, or on this machine with so many threads."""
    size = compute.TIMED_WIDTH // compute.TIMED_HEADS
    where = (
        f"saved on {saved.date}, {saved.machine}"
        if saved
        else f"measured on this machine, {threads} threads"
    )
    return (
        f"Parameters: learned numbers of the score at head size D = {dims}. Time: of a forward and a backward "
        f"pass, {compute.TIMED_HEADS} heads of size {size}, {compute.TIMED_TOKENS} tokens, processor time of the "
        f"fastest round; {where}. × dot: the time divided by that of scaled dot product. Memory: the most in "
        "use at once. The last four columns are computed from each "
        f"score with random parameters, on {PROBE_TOKENS} random queries and keys of D = "
        f"{PROBE_DIMS}: the rank of the matrix of scores; whether s(a, b) = s(b, a); the factor by which a "
        "score grows when the query is doubled; the mean change of a score, in standard deviations, when queries "
        "and keys are rotated by the same rotation."
    )


def table_fact(
    scores: Sequence[ScoreMaps],
    properties: Sequence[ScoreProperties],
    timings: Sequence[Timing | None],
    saved: Measurement,
) -> str:
    """The slowest score against the dot product, from the saved times, and the score of highest rank."""
    indices = range(len(scores))
    widest = max(indices, key=lambda at: properties[at].rank)
    seconds = [0.0 if time is None else time.seconds for time in timings]
    slowest = max(indices, key=seconds.__getitem__)
    dot = next((at for at in indices if scores[at].key == BASELINE), 0)
    names = [plain(entry("score", each.key).name) for each in scores]
    return (
        f"{names[slowest]} takes **{number(seconds[slowest] / seconds[dot])} ×** as long as "
        f"{lower(scores[dot])} (measured on {saved.date}). With {PROBE_DIMS} dimensions its matrix of "
        f"scores has rank {properties[slowest].rank}. The highest rank is **{properties[widest].rank}** "
        f"({lower(scores[widest])}); {lower(scores[dot])} reaches {properties[dot].rank}."
    )


def note(each: ScoreMaps, show: str) -> str:
    """The second line over a map: the rule, or the scale where each map has its own."""
    return f"± {number(float(np.abs(each.scores).max()))}" if show == "own" else rule(each)


def rule(each: ScoreMaps) -> str:
    """The score in plain signs, with its scale where that is not 1."""
    short = entry("score", each.key).short
    return short if each.scale == 1.0 else f"{short} × {number(each.scale)}"
