"""Sentences and cells of the page All mechanisms."""

from __future__ import annotations

import numpy as np

from core import analysis
from core.attention import Entry, Param
from dashboard.charts.numbers import number
from dashboard.views.mechanisms.compute import (
    D_MODEL,
    HEADS,
    MIN_CHANGE,
    SEED,
    TOKENS,
    Comparison,
)
from dashboard.views.mechanisms.controls import Controls
from dashboard.widgets.panels import plain

MIN_NUMBER = 5e-3  # a smaller change of a number is not written


def note(controls: Controls, implied: bool) -> str:
    """The second line over the map: source, what the choice needs beside it, and whether its weights are implied."""
    item = controls.item
    others = " and ".join(f"{axis} = {key}" for axis, key in controls.beside.items())
    parts = (item.paper and f"{item.paper} {item.year}", others and f"with {others}", implied and "implied weights")
    return " · ".join(part for part in parts if part)


def sentence(item: Entry, before: np.ndarray, after: np.ndarray, query: int, column: int) -> str:
    """The weight that the choice changes most, the sum of its row, and the change of entropy."""
    was, now = float(before[query, column]), float(after[query, column])
    if np.abs(before - after).max() <= MIN_CHANGE:
        return (f"{plain(item.name)} changes no weight here: :primary[{plain(TOKENS[query])}] gives "
                f"{plain(TOKENS[column])} **{number(now)}** with it and without it.")
    total = float(after[query].sum())
    row_sum = "" if abs(total - 1) < MIN_NUMBER else f" The weights of this query sum to **{number(total)}**."
    entropy = ""
    old, new = (float(analysis.entropy(np.clip(m, 0, None)[None]).mean()) for m in (before, after))
    if (after >= 0).all() and abs(old - new) >= MIN_NUMBER:
        entropy = f" The mean entropy of a query changes from {number(old)} to {number(new)} nats."
    return (f"With {plain(item.name)}, :primary[{plain(TOKENS[query])}] gives **{number(now)}** to "
            f"{plain(TOKENS[column])} instead of {number(was)}.{row_sum}{entropy}")


def conditions(comparison: Comparison) -> str:
    implied = " This kernel computes no weights: the map shows the weights that would give the same output."
    return (f"Head {comparison.head} of {HEADS}, in which a weight changes most; d_model {D_MODEL}. The layer is not "
            f"trained. Its parameters are random (seed {SEED}), and both maps share those that both have. So the "
            f"numbers are computed, but which key a query prefers has no meaning.{implied * comparison.implied}")


def parameter_table(item: Entry) -> str:
    """Each parameter with its meaning and bounds, as Markdown."""
    rows = ["| parameter | meaning | default | range |", "| --- | --- | --- | --- |"]
    rows += [f"| {plain(p.name)} | {plain(p.meaning)} | {plain(str(p.default))} | {plain(bounds(p))} |"
             for p in item.params]
    return "\n".join(rows)


def bounds(param: Param) -> str:
    if param.choices:
        return ", ".join(map(param.label, param.choices))
    if isinstance(param.default, bool):
        return "on or off"
    if isinstance(param.default, str):
        return "a text"
    return f"{param.low:g} to {param.high:g}"
