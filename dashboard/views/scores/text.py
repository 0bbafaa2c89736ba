"""Sentences, equations and table cells of the page Scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core.attention import Choice, entry
from dashboard.charts.latex import coloured, name, signed
from dashboard.charts.numbers import byte_size, duration, latex, number
from dashboard.views.scores import compute
from dashboard.views.scores.compute import Properties, ScoreMaps, Timing
from dashboard.views.scores.controls import BASELINE, SEED
from dashboard.widgets.panels import plain

MAX_TERMS = 3
TOLERANCE = 1e-5  # relative, in single precision: within it two scores are the same
HEAD = ("score", "rule", "learns", "a step", "beside dot", "memory", "rank", "symmetric", "query × 2", "both turned")


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
    sentence = (f"For :primary[{plain(tokens[query])}], {agree} of {len(scores)} scores put most weight on "
                f"{plain(tokens[column])}: {lower(high)} **{number(high.weights[query, column])}**, {lower(low)} "
                f"**{number(low.weights[query, column])}**; even would be {number(1 / len(tokens))}.")
    return sentence if stretch == 1.0 else f"{sentence} This is with every query {stretch:g} times as long."


def snippet(choice: Choice, dims: int) -> str:
    """Code that builds the same layer in a notebook."""
    params = "".join(f", {name}={value!r}" for name, value in choice.params)
    return ("import torch\nfrom core.attention import Attention, AttentionConfig, Choice\n\n"
            f"config = AttentionConfig({dims}, 1, score=Choice.of({choice.key!r}{params}))\n"
            f"steps = Attention(config)(torch.randn(1, 6, {dims}))\n"
            "print(steps.scores, steps.weights)\n")


def lower(each: ScoreMaps) -> str:
    """A score's name inside a sentence: lower case, except QK-norm."""
    text = entry("score", each.key).name
    return plain(text if text[:2].isupper() else text[0].lower() + text[1:])


def conditions(scores: Sequence[ScoreMaps], dims: int, tokens: Sequence[str], notes: Sequence[str]) -> str:
    """Sizes and seed, and which scores give the same numbers."""
    equal = [f"{entry('score', one.key).name} and {lower(other)} make the same numbers of the same weights."
             for at, one in enumerate(scores) for other in scores[at + 1:]
             if np.abs(one.scores - other.scores).max() < TOLERANCE * max(1.0, float(np.abs(one.scores).max()))]
    return " ".join([
        f"One head of D = {dims}; {len(tokens)} tokens, no mask, softmax. Words and weights are random (seed {SEED}), "
        "so the arithmetic is real and the preference means nothing yet.", *equal, *notes])


def equation(each: ScoreMaps, tokens: Sequence[str], i: int, j: int, colour: str) -> tuple[str, ...]:
    """The rule, and the score of query i on key j as a sum of products."""
    left = coloured(rf"s_{{{name(tokens[i], i)},\,{name(tokens[j], j)}}}", colour)
    result = coloured(rf"\mathbf{{{latex(each.scores[i, j])}}}", colour)
    rule_latex = "s_{ij} = " + entry("score", each.key).latex
    if each.factors is None:
        return rule_latex, f"{left} = {result}"
    first, second = (part[i, j] for part in each.factors)
    terms = " + ".join(rf"{signed(a)} \cdot {signed(b)}" for a, b in zip(first[:MAX_TERMS], second, strict=False))
    terms += r" + \cdots" if len(first) > MAX_TERMS else ""
    return rule_latex, rf"{left} = {terms} = {result}" if each.scale == 1.0 else (
        rf"{left} = {latex(each.scale)} \cdot ({terms}) = {result}")


def rows(scores: Sequence[ScoreMaps], properties: Sequence[Properties], timings: Sequence[Timing]) -> list[list[str]]:
    """One row a score, in the order of HEAD."""
    dot = next((time for each, time in zip(scores, timings, strict=True) if each.key == BASELINE), timings[0])
    return [[entry("score", each.key).name, rule(each), f"{each.parameters:,}",
             duration(time.seconds), f"{number(time.seconds / dot.seconds)} ×", byte_size(time.bytes),
             f"{can.rank}", "yes" if can.symmetric else "no", f"× {number(can.doubling)}",
             "no change" if not can.rotation else f"± {number(can.rotation)}"]
            for each, can, time in zip(scores, properties, timings, strict=True)]


def table_note(threads: int) -> str:
    """How the table was measured, and what its columns mean."""
    size = compute.TIMED_WIDTH // compute.TIMED_HEADS
    return (f"Learns: at the head size above. A step: forward and backward, {compute.TIMED_HEADS} heads of {size}, "
            f"{compute.TIMED_TOKENS} tokens, processor time of the quickest of up to {compute.MAX_ROUNDS}, {threads} "
            "threads; memory: the most alive at once. The last four ask each module itself, learned numbers moved "
            f"at random, {compute.PROBE_TOKENS} queries and keys of D = {compute.PROBE_DIMS}: the rank of the "
            "scores; whether s(a, b) = s(b, a); what a query twice as long does to a score; how far turning "
            "queries and keys alike moves it, in standard deviations.")


def table_fact(scores: Sequence[ScoreMaps], properties: Sequence[Properties], timings: Sequence[Timing]) -> str:
    """The slowest score beside the dot product, and the one of highest rank."""
    indices = range(len(scores))
    widest = max(indices, key=lambda at: properties[at].rank)
    slowest = max(indices, key=lambda at: timings[at].seconds)
    dot = next((at for at in indices if scores[at].key == BASELINE), 0)
    names = [plain(entry("score", each.key).name) for each in scores]
    return (f"{names[slowest]} takes **{number(timings[slowest].seconds / timings[dot].seconds)} ×** the time of "
            f"{lower(scores[dot])}. {names[widest]} fills a matrix of rank **{properties[widest].rank}** with "
            f"{compute.PROBE_DIMS} dimensions; {lower(scores[dot])} stops at {properties[dot].rank}.")


def note(each: ScoreMaps, show: str) -> str:
    """The second line over a map: the rule, or the scale where each map has its own."""
    return f"± {number(float(np.abs(each.scores).max()))}" if show == "own" else rule(each)


def rule(each: ScoreMaps) -> str:
    """The score in plain signs, with its scale where that is not 1."""
    short = entry("score", each.key).short
    return short if each.scale == 1.0 else f"{short} × {number(each.scale)}"
