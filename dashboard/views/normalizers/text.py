"""Sentences, equations and table cells of the page Normalizers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

import numpy as np
import torch

from core.attention import Choice, entry
from core.attention.basics import Normalizer, Softmax
from core.attention.normalizers import Entmax, Hard, Sigmoid, SoftmaxWithSink, TopK
from dashboard.draw.formats import coloured, latex, name, number
from dashboard.draw.formats import latex_signed as signed
from dashboard.draw.scripts import source_of
from dashboard.views.normalizers.charts import MIN_UNASSIGNED, NO_KEY
from dashboard.views.normalizers.compute import RowWeights, Scores
from dashboard.views.normalizers.controls import BASELINE
from dashboard.widgets.panels import plain

MAX_TERMS = 4
HEAD = (
    "normalizer",
    "sum of weights",
    "to no key",
    "weights of 0",
    "entropy",
    "largest weight",
    "scores with gradient",
)


def rows(results: Sequence[RowWeights]) -> list[list[str]]:
    """One row a normalizer, in the order of HEAD."""
    return [
        [
            entry("normalizer", each.key).name,
            number(each.total),
            number(each.unassigned) if each.unassigned > MIN_UNASSIGNED else "–",
            str(each.zeros),
            number(each.entropy),
            number(float(each.weights.max())),
            str(each.learning),
        ]
        for each in results
    ]


def foot(row: RowWeights) -> str:
    """Under the bars: the sum, and the zeros where there are any."""
    zeros = f" · {row.zeros} exact zero{'s' * (row.zeros > 1)}" if row.zeros else ""
    return f"Σ {number(row.total)}{zeros}"


def fact(results: Sequence[RowWeights], scores: Scores) -> str:
    """Which normalizer gives exact zeros, and which leaves weight to no key, beside softmax."""
    visible = sum(score is not None for score in scores)
    if not visible:
        return "Every key is masked, so every normalizer gives weights of 0, and no score has a gradient."
    softmax = next((each for each in results if each.key == BASELINE), results[0])
    sparse = max(
        (each for each in results if "hard" not in entry("normalizer", each.key).traits),
        key=lambda each: each.zeros,
    )
    partial = max(results, key=lambda each: each.unassigned)
    zeros = (
        f"{label(sparse)} gives **{sparse.zeros} of {visible}** keys a weight of exactly 0; "
        f"{label(softmax, False)} gives {softmax.zeros or 'none'} a weight of 0."
        if sparse.zeros
        else "No soft normalizer gives a key a weight of exactly 0."
    )
    rest = f" With {label(partial, False)}, **{number(partial.unassigned)}** of the weight goes to no key."
    return zeros + rest * (partial.unassigned > MIN_UNASSIGNED)


def snippet(choice: Choice, scores: Scores) -> str:
    """The same row in a notebook."""
    values = ", ".join("0.0" if score is None else f"{score:g}" for score in scores)
    mask = ", ".join(str(score is not None) for score in scores)
    return (
        "import torch\nfrom core.attention import AttentionConfig, Choice, entry\n\n"
        f"choice = {source_of(choice)}\n"
        'normalizer = entry("normalizer", choice.key).build(AttentionConfig(2, 1, normalizer=choice))\n'
        f"weights = normalizer(torch.tensor([[[[{values}]]]]), torch.tensor([{mask}]))\nprint(weights)\n"
    )


def label(row: RowWeights, first: bool = True) -> str:
    text = entry("normalizer", row.key).name
    return plain(text if first else text[0].lower() + text[1:])


def conditions(
    own: bool, query: str, factor: float, temperature: float, results: Sequence[RowWeights]
) -> str:
    where = (
        "You typed these scores."
        if own
        else (
            f"These are the scaled dot-product scores of the query {plain(query)}, with head dimension 16 and seed 126."
        )
    )
    times = f" They are multiplied by {factor:g} first." if factor != 1 else ""
    return (
        f"{where}{times} Temperature τ = {temperature:g}. A dashed bar is weight that goes to {NO_KEY}. "
        f"Entropy is in nats. A score has a gradient if training changes it.{borrowed(results)}"
    )


def borrowed(results: Sequence[RowWeights]) -> str:
    """That a normalizer without a gradient of its own trains with that of softmax; empty where none does."""
    names = [label(each) for each in results if each.learning and isinstance(each.normalizer, Hard)]
    return (
        f" {' and '.join(names)} trains with the gradient of softmax: its own is zero."
        if names
        else ""
    )


def equation(row: RowWeights, names: Sequence[str], j: int, colour: str) -> tuple[str, ...]:
    """The rule, and the weight of key j with its numbers."""
    weight = float(row.weights[j])
    live = numbers(row.normalizer, row, j)
    left = coloured(rf"w_{{{name(names[j], j)}}}", colour)
    result = coloured(rf"\mathbf{{{latex(weight)}}}", colour)
    return entry(
        "normalizer", row.key
    ).latex, f"{left} = {live} = {result}" if live else f"{left} = {result}"


def fraction(row: RowWeights, j: int, terms: Sequence[int], first: str = "") -> str:
    """e^s over a sum of such powers, the largest terms of it."""
    largest = sorted(sorted(terms, key=lambda m: (m != j, -row.prepared[m]))[:MAX_TERMS])
    below = (
        [first] * bool(first)
        + [power(row, m) for m in largest]
        + [r"\cdots"] * (len(largest) < len(terms))
    )
    return rf"\frac{{{power(row, j)}}}{{{' + '.join(below)}}}"


def power(row: RowWeights, m: int) -> str:
    return f"e^{{{latex(float(row.prepared[m]))}}}"


def nonzero(row: RowWeights) -> list[int]:
    return [int(m) for m in np.flatnonzero(row.weights)]


@singledispatch
def numbers(normalizer: Normalizer, row: RowWeights, j: int) -> str:
    """The middle of the equation; empty for a normalizer that has no such line, or a key that gets nothing."""
    return ""


@numbers.register(Softmax)
@numbers.register(TopK)
def _(normalizer: Normalizer, row: RowWeights, j: int) -> str:
    return fraction(row, j, nonzero(row)) if j in nonzero(row) else ""


@numbers.register
def _(normalizer: SoftmaxWithSink, row: RowWeights, j: int) -> str:
    rest = float(normalizer.sink_score(torch.zeros(1, 1, 1, 1, dtype=torch.float64)).detach().max())
    return (
        fraction(row, j, nonzero(row), "1" if rest == 0 else f"e^{{{latex(rest)}}}")
        if j in nonzero(row)
        else ""
    )


@numbers.register
def _(normalizer: Sigmoid, row: RowWeights, j: int) -> str:
    return rf"\sigma({latex(float(row.prepared[j]))})" if j in nonzero(row) else ""


@numbers.register
def _(normalizer: Entmax, row: RowWeights, j: int) -> str:
    if not nonzero(row):
        return ""
    top, step = int(row.weights.argmax()), normalizer.alpha - 1.0
    threshold = step * row.prepared[top] - row.weights[top] ** step
    outside = "" if step == 1 else f"^{{{latex(1 / step)}}}"
    score = latex(float(step * row.prepared[j]))
    return rf"\max({score} - {signed(float(threshold))},\ 0){outside}"


@numbers.register
def _(normalizer: Hard, row: RowWeights, j: int) -> str:
    if not nonzero(row):
        return ""
    score, top = (
        latex(float(value)) for value in (row.prepared[j], row.prepared[nonzero(row)].max())
    )
    return rf"[\,{score} = \max_m s_m = {top}\,]"
