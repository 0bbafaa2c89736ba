"""Sentences about one row, all heads, and the conditions."""

from __future__ import annotations

import numpy as np

from core import analysis
from core.pretrained import Reading
from core.trace import AttentionMap, AttentionTrace
from dashboard.charts.numbers import number
from dashboard.views.pretrained.compute import TraceView, even
from dashboard.views.pretrained.controls import SENTENCES, Controls
from dashboard.widgets.panels import plain

PATCHES = " A patch is named by its row and its column, from 0: 2,1 is in row 2, column 1."


def called(tokens: tuple[str, ...], index: int) -> str:
    """A token's name, with its position where another has the same name."""
    return plain(tokens[index] if tokens.count(tokens[index]) == 1 else f"{tokens[index]} ({index})")


def head_fact(trace: AttentionTrace, layer: int, head: int, row: int, pinned: int | None = None) -> str:
    """What the head does with one query: its largest weight (or the pinned one), and the heads that do it too."""
    item = trace.map(layer)
    weights, keys = item.weights[head, row], item.keys
    order = [int(j) for j in np.argsort(-weights, kind="stable")]
    first = order[0] if pinned is None else pinned
    also = "".join(f" and {number(weights[j])} on {called(keys, j)}" for j in [j for j in order if j != first][:1])
    text = (f"In head **{trace.label(layer, head)}**, :primary[**{called(item.queries, row)}**] puts "
            f"**{number(weights[first])}** of its weight on **{called(keys, first)}**{also}; "
            f"uniform attention would give each key {number(even(item, row, head))}.")
    return f"{text} {_rivals(trace, layer, head, row, first)}"


def _rivals(trace: AttentionTrace, layer: int, head: int, row: int, key: int) -> str:
    """How many other heads put as much weight on the same cell, and which puts most."""
    mine = trace.head(layer, head)[row, key]
    others = [(float(item.weights[h, row, key]), index, h) for index, item in enumerate(trace.maps)
              for h in range(len(item.weights)) if (index, h) != (layer, head)]
    if not others:
        return "The model has no other head."
    value, best_layer, best_head = max(others)
    stronger = sum(other >= mine for other, _, _ in others)
    best = f"{trace.label(best_layer, best_head)} with {number(value)}"
    if mine < 0.005:
        return f"The head with the largest weight there is {best}."
    if stronger:
        put = "puts" if stronger == 1 else "put"
        heads = "head" if len(others) == 1 else "heads"
        return f"{stronger} of {len(others)} other {heads} {put} at least as much there; the largest is {best}."
    return f"None of the other {len(others)} heads puts as much there; the next largest is {best}."


def pins_fact(item: AttentionMap, head: int, pins: tuple[tuple[int, int], ...]) -> str:
    """The pins before the newest, in words; nothing where there is one alone."""
    if len(pins) < 2:
        return ""
    text = "; ".join(f"{called(item.queries, i)} → {called(item.keys, j)} **{number(item.weights[head, i, j])}**"
                     for i, j in reversed(pins[:-1]))
    return f"Also pinned: {text}."


def all_heads_fact(view_: TraceView) -> str:
    """The head with most weight on the previous token, or, without an order, the sharpest one."""
    item = view_.trace.map(0)
    if item.kind != "cross" and view_.rows.grid is None and len(item.queries) == len(item.keys) >= 3:
        layer, head, value = analysis.strongest(view_.trace, analysis.previous_token)
        share = float(np.mean([even(item, row) for row in range(1, len(item.queries))]))
        return (f"Of all heads, {view_.trace.label(layer, head)} attends most to the previous token, with "
                f"{number(value)} of its weight; uniform attention would give it {number(share)}.")
    if len(item.keys) < 2:
        return "With a single key, every weight is 1."
    layer, head, value = analysis.strongest(view_.trace, lambda weights: 1 - analysis.breadth(weights))
    count = float(np.exp(analysis.entropy(view_.trace.map(layer).weights[head : head + 1]).mean()))
    return (f"Of all heads, {view_.trace.label(layer, head)} is the most focused: its rows use about "
            f"{number(count)} of {len(item.keys)} keys (e^entropy); uniform attention uses all.")


def conditions(reading: Reading, view_: TraceView, controls: Controls) -> str:
    """Under which conditions the page's numbers hold."""
    text = f"{plain(reading.trace.source)}, {_tokens(view_)}."
    if controls.words:
        text += " Pieces of a word are merged: summed over keys, averaged over queries."
    if controls.sentences != "all":
        text += f" Sentences: {SENTENCES[controls.sentences]} only."
    if controls.sinks:
        hidden = len(view_.columns) - sum(map(len, view_.transform.columns))
        text += " Sinks are hidden." if hidden else " No key is a sink here."
    if controls.special:
        text += " Special tokens are hidden."
    if view_.hides:
        text += " Each row is divided by what is left of it, so the weights shown are larger than the model's own."
    if reading.note:
        text += f" {plain(reading.note)}"
    if view_.rows.grid:
        text += PATCHES
    return f"{text} A weight shows where a head attends, not what the head does with the value there."


def _tokens(view_: TraceView) -> str:
    if view_.rows is view_.columns:
        return view_.rows.count
    return f"rows: {view_.rows.count}; columns: {view_.columns.count}"
