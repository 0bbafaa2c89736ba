"""A pretrained model's reading of a text, in pictures' terms: what is drawn first, and what is said of it."""

from __future__ import annotations

from html import escape

import numpy as np
import streamlit as st

from core import analysis
from core.pretrained import Pretrained, Reading, load_minilm, read
from core.trace import AttentionMap, AttentionTrace
from dashboard.attention_view.palette import CATEGORIES
from dashboard.cache import model, shared
from dashboard.export import head_csv, map_svg, trace_npz
from dashboard.panels import plain, theme

Found = dict[tuple[int, int], int]


def embedded() -> Pretrained:
    """The embedded default, loaded once for every session."""
    return model(load_minilm)


def read_embedded(text: str) -> Reading:
    return read(embedded(), text)


def without_special(text: str) -> AttentionTrace:
    """The reading with its special tokens taken out of rows and columns, each row renormalised."""
    reading = shared(read_embedded, text)
    maps = tuple(analysis.hide_keys(item, reading.special) for item in reading.trace.maps)
    return AttentionTrace(maps, reading.trace.source)


def roles_of(text: str) -> Found:
    return analysis.roles(shared(read_embedded, text).trace)


def telling_row(item: AttentionMap, head: int, special: tuple[bool, ...]) -> int:
    """The row that is worth reading first: most weight on one ordinary token that is no neighbour of the query."""
    weights = item.weights[head].copy()
    rows, columns = np.indices(weights.shape)
    weights[np.abs(rows - columns) < 2] = -1.0
    hidden = np.asarray(special)
    weights[hidden] = -1.0
    weights[:, hidden] = -1.0
    return int(np.unravel_index(weights.argmax(), weights.shape)[0])


def number(weight: float) -> str:
    """A weight with two decimals, or three where two would say nothing."""
    return f"{weight:.2f}" if weight >= 0.01 or weight == 0 else f"{weight:.3f}"


def head_fact(trace: AttentionTrace, layer: int, head: int, row: int, pinned: int | None = None) -> str:
    """What the head does with one query: its largest weight (or the pinned one), and the heads that do it too."""
    item = trace.map(layer)
    weights, keys = item.weights[head, row], item.keys
    order = [int(j) for j in np.argsort(-weights, kind="stable")]
    first = order[0] if pinned is None else pinned
    also = "".join(f" and {number(weights[j])} on {plain(keys[j])}" for j in [j for j in order if j != first][:1])
    said = (f"In head **L{layer}·H{head}**, :primary[**{plain(item.queries[row])}**] puts **{number(weights[first])}** "
            f"of its weight on **{plain(keys[first])}**{also}; even attention would give each {number(1 / len(keys))}.")
    return f"{said} {_rivals(trace, layer, head, row, first)}"


def _rivals(trace: AttentionTrace, layer: int, head: int, row: int, key: int) -> str:
    """How many other heads put as much weight on the same cell, and which puts most."""
    mine = trace.head(layer, head)[row, key]
    others = [(float(item.weights[h, row, key]), item.layer, h) for item in trace.maps
              for h in range(len(item.weights)) if (item.layer, h) != (layer, head)]
    value, best_layer, best_head = max(others)
    stronger = sum(other >= mine for other, _, _ in others)
    best = f"L{best_layer}·H{best_head}, {number(value)}"
    if mine < 0.005:
        return f"Most there has {best}."
    if stronger:
        heads = "head puts" if stronger == 1 else "heads put"
        return f"{stronger} of the other {len(others)} {heads} as much there, most {best}."
    return f"None of the other {len(others)} heads puts as much there; next is {best}."


def previous_fact(trace: AttentionTrace) -> str:
    """Which head looks most at the previous token, with its figure and what even attention would give."""
    if len(trace.map(0).queries) < 3:
        return "With so few tokens there is no previous one to speak of."
    layer, head, value = analysis.strongest(trace, analysis.previous_token)
    return (f"Of all heads, L{layer}·H{head} looks most at the previous token: {number(value)} of its weight, "
            f"where even attention would give {number(1 / len(trace.map(0).keys))}.")


def role_table(found: Found, heads: int) -> None:
    """How many heads have each role, with the mark that they carry in the grid and the threshold."""
    colours = CATEGORIES[theme()]
    rows = []
    for place, role in enumerate(analysis.ROLES):
        count = sum(value == place for value in found.values())
        mark = (f'<div style="width:0;height:0;border-left:12px solid transparent;'
                f'border-bottom:12px solid {colours[place]}"></div>')
        rows.append(f"<tr><td>{mark}</td><td>{escape(role.name)}</td><td>{count}</td>"
                    f'<td style="opacity:.62">{escape(role.meaning)}</td></tr>')
    rows.append(f'<tr style="opacity:.62"><td></td><td>No single role</td><td>{heads - len(found)}</td><td></td></tr>')
    style = "<style>.roles td{padding:3px 12px 3px 0;font-size:14px}.roles td:nth-child(3){text-align:right}</style>"
    st.html(f'{style}<table class="roles">{"".join(rows)}</table>')


def export_popover(trace: AttentionTrace, layer: int, head: int) -> None:
    """Downloads of what is drawn, made only when they are asked for."""
    item = trace.map(layer)
    name = f"attention-L{layer}H{head}"
    with st.popover("Export", icon=":material/download:"):
        st.download_button("This head, CSV", lambda: head_csv(item, head), f"{name}.csv", "text/csv", on_click="ignore")
        if len(item.keys) <= 128:
            st.download_button("This head, SVG", lambda: map_svg(item.weights[head], item.queries, item.keys),
                               f"{name}.svg", "image/svg+xml", on_click="ignore")
        st.download_button("All heads, NPZ", lambda: trace_npz(trace), "attention.npz", on_click="ignore")


def conditions(found: Reading, with_special: bool) -> str:
    """Under which conditions the page's numbers hold."""
    tokens = len(found.special)
    said = f"{plain(found.trace.source)}, {tokens} tokens, {sum(found.special)} of them special."
    if not with_special:
        said += (" Special tokens are hidden and each row is divided by what is left of it, "
                 "so the weights shown are larger than the model's own.")
    return f"{said} A weight says where a head looks, not what it does with what it finds."
