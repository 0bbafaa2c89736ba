"""The page's words: the measured sentence, the conditions, the equation with its numbers, and the table's cells."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

import numpy as np
import torch

from core.attention import Choice, entry
from core.attention.normalizers import Entmax, Hard, Normalizer, Sigmoid, Softmax, TopK
from core.attention.normalizers.soft import Rest
from dashboard.charts.latex import name, signed
from dashboard.charts.numbers import latex, number
from dashboard.views.normalizers.charts import LEAST_KEPT, NO_KEY
from dashboard.views.normalizers.compute import Weighed
from dashboard.views.normalizers.controls import USUAL, Scores
from dashboard.widgets.panels import plain

MOST_TERMS = 5
HEAD = ("normalizer", "row sum", "to no key", "exact zeros", "entropy", "largest", "scores that learn")


def rows(found: Sequence[Weighed]) -> list[list[str]]:
    """One row a normalizer, in the order of HEAD."""
    return [[entry("normalizer", each.key).name, number(each.given),
             number(each.kept) if each.kept > LEAST_KEPT else "–", str(each.zeros), number(each.entropy),
             number(float(each.weights.max())), str(each.learn)] for each in found]


def foot(found: Weighed) -> str:
    """Under the bars: the sum, and the zeros where there are any."""
    zeros = f" · {found.zeros} exact zero{'s' * (found.zeros > 1)}" if found.zeros else ""
    return f"Σ {number(found.given)}{zeros}"


def fact(found: Sequence[Weighed], scores: Scores) -> str:
    """Who gives exactly nothing, and who leaves weight to no key, beside the usual one."""
    seen = sum(score is not None for score in scores)
    if not seen:
        return "Every key is masked, so every normalizer gives zeros, and no score learns."
    usual = next((each for each in found if each.key == USUAL), found[0])
    sparse = max((each for each in found if "hard" not in entry("normalizer", each.key).traits),
                 key=lambda each: each.zeros)
    resting = max(found, key=lambda each: each.kept)
    zeros = (f"{label(sparse)} gives exactly nothing to **{sparse.zeros} of {seen}** keys, {label(usual, False)} to "
             f"{usual.zeros or 'none'}." if sparse.zeros else "No soft normalizer gives any key exactly nothing.")
    rest = f" {label(resting)} leaves **{number(resting.kept)}** to no key at all."
    return zeros + rest * (resting.kept > LEAST_KEPT)


def snippet(choice: Choice, scores: Scores) -> str:
    """The same row in a notebook."""
    params = "".join(f", {name}={value!r}" for name, value in choice.params)
    row = ", ".join("0.0" if score is None else f"{score:g}" for score in scores)
    seen = ", ".join(str(score is not None) for score in scores)
    return ("import torch\nfrom core.attention import AttentionConfig, Choice, entry\n\n"
            f"choice = Choice.of({choice.key!r}{params})\n"
            "normalizer = entry(\"normalizer\", choice.key).build(AttentionConfig(2, 1, normalizer=choice))\n"
            f"weights = normalizer(torch.tensor([[[[{row}]]]]), torch.tensor([{seen}]))\nprint(weights)\n")


def label(found: Weighed, first: bool = True) -> str:
    text = entry("normalizer", found.key).name
    return plain(text if first else text[0].lower() + text[1:])


def conditions(own: bool, query: str, spread: float, temperature: float) -> str:
    where = "The scores are yours." if own else (
        f"The scores are those of the query {plain(query)} by the scaled dot product, D = 16, seed 126.")
    times = f" They are multiplied by {spread:g} first." if spread != 1 else ""
    return (f"{where}{times} τ = {temperature:g}. The hollow bar is weight that goes to {NO_KEY}. "
            "Entropy is in nats. A score learns when some weight would move with it.")


def equation(found: Weighed, names: Sequence[str], j: int, colour: str) -> tuple[str, ...]:
    """The rule, and the weight of key j with its numbers."""
    def pick(text: str) -> str:
        return rf"\textcolor{{{colour}}}{{{text}}}"

    weight = float(found.weights[j])
    live = numbers(found.normalizer, found, j)
    left, result = pick(rf"w_{{{name(names[j], j)}}}"), pick(rf"\mathbf{{{latex(weight)}}}")
    return entry("normalizer", found.key).latex, f"{left} = {live} = {result}" if live else f"{left} = {result}"


def fraction(found: Weighed, j: int, terms: Sequence[int], first: str = "") -> str:
    """e^s over a sum of such powers."""
    shown = sorted(sorted(terms, key=lambda m: (m != j, -found.prepared[m]))[:MOST_TERMS])
    below = [first] * bool(first) + [power(found, m) for m in shown] + [r"\cdots"] * (len(shown) < len(terms))
    return rf"\frac{{{power(found, j)}}}{{{' + '.join(below)}}}"


def power(found: Weighed, m: int) -> str:
    return f"e^{{{latex(float(found.prepared[m]))}}}"


def kept(found: Weighed) -> list[int]:
    return [int(m) for m in np.flatnonzero(found.weights)]


@singledispatch
def numbers(normalizer: Normalizer, found: Weighed, j: int) -> str:
    """The middle of the equation; empty for a normalizer that has no such line, or a key that gets nothing."""
    return ""


@numbers.register(Softmax)
@numbers.register(TopK)
def _(normalizer: Normalizer, found: Weighed, j: int) -> str:
    return fraction(found, j, kept(found)) if j in kept(found) else ""


@numbers.register
def _(normalizer: Rest, found: Weighed, j: int) -> str:
    rest = float(normalizer.rest(torch.zeros(1, 1, 1, 1, dtype=torch.float64)).detach().max())
    return fraction(found, j, kept(found), "1" if rest == 0 else f"e^{{{latex(rest)}}}") if j in kept(found) else ""


@numbers.register
def _(normalizer: Sigmoid, found: Weighed, j: int) -> str:
    return rf"\sigma({latex(float(found.prepared[j]))})" if j in kept(found) else ""


@numbers.register
def _(normalizer: Entmax, found: Weighed, j: int) -> str:
    if not kept(found):
        return ""
    top, step = int(found.weights.argmax()), normalizer.alpha - 1.0
    threshold = step * found.prepared[top] - found.weights[top] ** step
    outside = "" if step == 1 else f"^{{{latex(1 / step)}}}"
    own = latex(float(step * found.prepared[j]))
    return rf"\max({own} - {signed(float(threshold))},\ 0){outside}"


@numbers.register
def _(normalizer: Hard, found: Weighed, j: int) -> str:
    if not kept(found):
        return ""
    own, top = (latex(float(value)) for value in (found.prepared[j], found.prepared[kept(found)].max()))
    return rf"[\,{own} = \max_m s_m = {top}\,]"
