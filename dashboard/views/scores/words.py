"""The page's words: the measured sentence, the conditions, the equation with its numbers, and the table's cells."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core.attention import Choice, entry
from dashboard.charts.numbers import byte_size, duration, latex, number
from dashboard.views.one_query.equations import name, signed
from dashboard.views.scores import measure
from dashboard.views.scores.measure import Character, Met, Timed
from dashboard.views.scores.state import SEED, USUAL
from dashboard.widgets.panels import plain

MOST_TERMS = 3
ALIKE = 1e-5  # relative, in single precision
HEAD = ("score", "rule", "learns", "a step", "beside dot", "memory", "rank", "symmetric", "query × 2", "both turned")


def favourite(met: Sequence[Met], row: int) -> int:
    """The key on which most scores put most of the query's weight."""
    tops = [int(each.weights[row].argmax()) for each in met]
    return max(set(tops), key=tops.count)


def fact(met: Sequence[Met], tokens: Sequence[str], row: int, stretch: float) -> str:
    """On which key the scores agree for one query, and how sure the surest and the least sure are of it."""
    column = favourite(met, row)
    agree = sum(int(each.weights[row].argmax()) == column for each in met)
    sure = max(met, key=lambda each: float(each.weights[row, column]))
    least = min(met, key=lambda each: float(each.weights[row, column]))
    said = (f"For :primary[{plain(tokens[row])}], {agree} of {len(met)} scores put most weight on "
            f"{plain(tokens[column])}: {lower(sure)} **{number(sure.weights[row, column])}**, {lower(least)} "
            f"**{number(least.weights[row, column])}**; even would be {number(1 / len(tokens))}.")
    return said if stretch == 1.0 else f"{said} This is with every query {stretch:g} times as long."


def snippet(choice: Choice, dims: int) -> str:
    """The same layer in a notebook."""
    params = "".join(f", {name}={value!r}" for name, value in choice.params)
    return ("import torch\nfrom core.attention import Attention, AttentionConfig, Choice\n\n"
            f"config = AttentionConfig({dims}, 1, score=Choice.of({choice.key!r}{params}))\n"
            f"steps = Attention(config)(torch.randn(1, 6, {dims}))\n"
            "print(steps.scores, steps.weights)\n")


def lower(met: Met) -> str:
    """A score's name inside a sentence: QK-norm stays as it is."""
    text = entry("score", met.key).name
    return plain(text if text[:2].isupper() else text[0].lower() + text[1:])


def conditions(met: Sequence[Met], dims: int, tokens: Sequence[str], notes: Sequence[str]) -> str:
    alike = [f"{entry('score', one.key).name} and {lower(other)} make the same numbers of the same weights."
             for at, one in enumerate(met) for other in met[at + 1:]
             if np.abs(one.scores - other.scores).max() < ALIKE * max(1.0, float(np.abs(one.scores).max()))]
    return " ".join([
        f"One head of D = {dims}; {len(tokens)} tokens, no mask, softmax. Words and weights are random (seed {SEED}), "
        "so the arithmetic is real and the preference means nothing yet.", *alike, *notes])


def equation(met: Met, tokens: Sequence[str], i: int, j: int, colour: str) -> tuple[str, ...]:
    """The rule, and the score of query i on key j as the sum that it is."""
    def pick(text: str) -> str:
        return rf"\textcolor{{{colour}}}{{{text}}}"

    left = pick(rf"s_{{{name(tokens[i], i)},\,{name(tokens[j], j)}}}")
    result = pick(rf"\mathbf{{{latex(met.scores[i, j])}}}")
    rule = "s_{ij} = " + entry("score", met.key).latex
    if met.factors is None:
        return rule, f"{left} = {result}"
    one, other = (part[i, j] for part in met.factors)
    terms = " + ".join(rf"{signed(a)} \cdot {signed(b)}" for a, b in zip(one[:MOST_TERMS], other, strict=False))
    terms += r" + \cdots" if len(one) > MOST_TERMS else ""
    return rule, rf"{left} = {terms} = {result}" if met.scale == 1.0 else (
        rf"{left} = {latex(met.scale)} \cdot ({terms}) = {result}")


def rows(met: Sequence[Met], found: Sequence[Character], timed: Sequence[Timed]) -> list[list[str]]:
    """One row a score, in the order of HEAD."""
    dot = next((time for each, time in zip(met, timed, strict=True) if each.key == USUAL), timed[0])
    return [[entry("score", each.key).name, rule(each), f"{each.learned:,}",
             duration(time.seconds), f"{number(time.seconds / dot.seconds)} ×", byte_size(time.bytes),
             f"{is_.rank}", "yes" if is_.symmetric else "no", f"× {number(is_.twice)}",
             "no change" if not is_.turned else f"± {number(is_.turned)}"]
            for each, is_, time in zip(met, found, timed, strict=True)]


def table_note(threads: int) -> str:
    """How the table was measured, and how its columns read."""
    size = measure.TIMED_WIDTH // measure.TIMED_HEADS
    return (f"Learns: at the head size above. A step: forward and backward, {measure.TIMED_HEADS} heads of {size}, "
            f"{measure.TIMED_TOKENS} tokens, processor time of the quickest of up to {measure.ROUNDS}, {threads} "
            "threads; memory: the most alive at once. The last four ask each module itself, learned numbers moved "
            f"at random, {measure.TRIED_TOKENS} queries and keys of D = {measure.TRIED_DIMS}: the rank of the "
            "scores; whether s(a, b) = s(b, a); what a query twice as long does to a score; how far turning "
            "queries and keys alike moves it, in standard deviations.")


def table_fact(met: Sequence[Met], found: Sequence[Character], timed: Sequence[Timed]) -> str:
    """What more than a dot product costs and can."""
    places = range(len(met))
    widest, slowest = max(places, key=lambda at: found[at].rank), max(places, key=lambda at: timed[at].seconds)
    dot = next((at for at in places if met[at].key == USUAL), 0)
    names = [plain(entry("score", each.key).name) for each in met]
    return (f"{names[slowest]} takes **{number(timed[slowest].seconds / timed[dot].seconds)} ×** the time of "
            f"{lower(met[dot])}. {names[widest]} fills a matrix of rank **{found[widest].rank}** with "
            f"{measure.TRIED_DIMS} dimensions; {lower(met[dot])} stops at {found[dot].rank}.")


def note(met: Met, show: str) -> str:
    """The second line over a map: the rule, or the scale where each map has its own."""
    if show == "own":
        return f"± {number(float(np.abs(met.scores).max()))}"
    return rule(met)


def rule(met: Met) -> str:
    """The score in plain signs, with the number that this one is multiplied by."""
    short = entry("score", met.key).short
    return short if met.scale == 1.0 else f"{short} × {number(met.scale)}"
