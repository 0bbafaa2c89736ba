"""The second picture: one head on the same tokens, as it looks, as it writes, as the answer feels it, by all paths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import streamlit as st

from core.pretrained.evidence import answering_rows
from core.ranks import spearman
from dashboard.charts.numbers import number, signed
from dashboard.components.multiples import Tile, multiples
from dashboard.views.evidence.compute import contributions_of, flow_map, rollout_map
from dashboard.views.evidence.controls import Controls, Head
from dashboard.views.evidence.text import NAMES, NOTES, cell_fact
from dashboard.widgets.panels import fact
from dashboard.widgets.table import table

MOST_DRAWN = 640  # tokens up to which whole maps stand side by side


@dataclass(frozen=True, eq=False)
class Views:
    """One head's map (T, S) by each measure that can be had, and what its cells are made of.

    `lengths` (S,) are ‖v·W_O‖; `known` says which rows of the flow were computed (None: all).
    """

    maps: dict[str, np.ndarray]
    lengths: np.ndarray | None
    known: np.ndarray | None


def views(controls: Controls, head: Head, query: int) -> Views:
    """Every measure of one head; rollout and flow are of all heads, up to and with its layer."""
    item, contributions = controls.maps[head[0]], contributions_of(controls)
    keys = item.weights.shape[-1]
    maps, lengths = {"weights": item.weights[head[1]]}, None
    written = contributions.norm_map(item.kind, item.layer, item.weights)
    if written is not None:
        own = written[head[1]]
        maps["written"] = own / np.maximum(own.sum(-1, keepdims=True), 1e-12)
        lengths = contributions.norms[item.kind, item.layer][head[1]]
    slopes = contributions.gradient_map(item.kind, item.layer, keys)
    if slopes is not None:
        maps["gradient"] = slopes[head[1]]
    maps["rollout"] = rollout_map(controls, head[0])
    carried = flow_map(controls, head[0], query)
    if carried is not None:
        maps["flow"] = carried[0]
    wide = {name: np.pad(one, ((0, 0), (0, keys - one.shape[1]))) for name, one in maps.items()}
    return Views(wide, lengths, None if carried is None else carried[1])


def section(controls: Controls, head: Head) -> Views:
    """Draw the measures side by side with one crosshair, and say the picked cell in all of them."""
    item = controls.maps[head[0]]
    row, column = default_cell(controls, head)
    pinned = st.session_state.get("evidence:maps:view", {}).get("pin")
    if pinned is not None and pinned[0] < len(item.queries) and pinned[1] < len(item.keys):
        row, column = pinned
    head_views = views(controls, head, row)
    st.markdown(f"**{controls.name(head)} on the same tokens**")
    if max(item.weights.shape) > MOST_DRAWN:
        _one_row(controls, head, head_views, row, column)
    else:
        tiles = [_tile(name, one, item.mask, head[1], head_views.known if name == "flow" else None, index)
                 for index, (name, one) in enumerate(head_views.maps.items())]
        cross = item.kind == "cross"
        multiples(tiles, item.queries, item.keys, key="evidence:maps", query=row, column=column, height=320,
                  reads="output (row) … input (column)" if cross else "query (row) … key (column)", noun="value",
                  fact=f"Head {controls.name(head)} by {len(tiles)} measures")
    fact(_cell_sentence(controls, head, head_views, row, column))
    if "flow" not in head_views.maps:
        st.caption(f"Flow is left out: {max(len(item.queries), len(item.keys))} tokens are too many for it here.")
    if contributions_of(controls).out_of_memory:
        st.caption("The gradient is left out: it takes more memory than this computer has free. A shorter text has it.")
    return head_views


def _one_row(controls: Controls, head: Head, head_views: Views, row: int, column: int) -> None:
    """Of maps too large to stand side by side, the row that tells most, a line a measure."""
    item = controls.maps[head[0]]
    values = np.stack([np.abs(one[row]) / (np.abs(one[row]).max() or 1.0) for one in head_views.maps.values()])
    multiples([Tile(f"From {item.queries[row]}", "each measure from 0 to its own largest; signs left out", values)],
              [NAMES[name] for name in head_views.maps], item.keys, key="evidence:row", query=0, column=column,
              noun="share", reads="measure (row) … key (column)", fact=f"One row of head {controls.name(head)}")
    st.caption(f"{' × '.join(str(size) for size in item.weights.shape[1:])} cells are too many to stand side by side, "
               f"so row {row} stands alone.")


def _tile(name: str, values: np.ndarray, mask: np.ndarray | None, head: int, known: np.ndarray | None,
          index: int) -> Tile:
    seen = None if mask is None else np.broadcast_to(mask, (max(head + 1, len(mask)), *values.shape))[head]
    if known is not None:
        seen = np.pad(known, ((0, 0), (0, values.shape[1] - known.shape[1]))) if seen is None else seen & known
    note = f"{NOTES[name]}; this row alone" if known is not None else NOTES[name]
    if name == "gradient":
        return Tile(NAMES[name], note, values / (np.abs(values).max() or 1.0), seen, index, (-1.0, 1.0), signed=True)
    return Tile(NAMES[name], note, values, seen, index)


def default_cell(controls: Controls, head: Head) -> tuple[int, int]:
    """The largest weight of the row that answers; where many rows do, the cell whose weight tells least of what is
    written."""
    item, contributions = controls.maps[head[0]], contributions_of(controls)
    weights = item.weights[head[1]]
    if controls.baseline is not None and (item.kind != "self" or controls.baseline.target is None):
        rows = answering_rows(controls.baseline, item.kind)
        if rows.max() == 1:
            return int(rows.argmax()), int(weights[rows.argmax()].argmax())
    written = contributions.norm_map(item.kind, item.layer, item.weights)
    apart = weights
    if written is not None:
        apart = np.abs(weights - written[head[1]] / np.maximum(written[head[1]].sum(-1, keepdims=True), 1e-12))
    row, column = np.unravel_index(int(apart.argmax()), apart.shape)
    return int(row), int(column)


def _cell_sentence(controls: Controls, head: Head, head_views: Views, row: int, column: int) -> str:
    item, maps = controls.maps[head[0]], head_views.maps

    def value(name: str) -> float | None:
        return float(maps[name][row, column]) if name in maps else None

    lengths = head_views.lengths if head_views.lengths is not None and column < len(head_views.lengths) else None
    norms = (0.0, 0.0) if lengths is None else (float(lengths[column]), float(lengths.mean()))
    return cell_fact(controls.name(head), item.queries[row], item.keys[column], float(maps["weights"][row, column]),
                     None if lengths is None else value("written"), norms, value("gradient"),
                     (float(maps["rollout"][row, column]), value("flow")))


def agreement(head_views: Views) -> None:
    """How the measures of this head agree in the order of the keys: Spearman's ρ, the mean of the rows."""
    names = list(head_views.maps)
    rows = [[NAMES[one], *(agree(head_views, one, other) for other in names)] for one in names]
    table(["ρ", *(NAMES[name] for name in names)], rows, markers=False,
          caption="Agreement of the order of the keys between measures, Spearman's ρ")
    st.caption("Spearman’s ρ between the orders into which two measures put the keys, the mean over the rows; the "
               "gradient without its sign. 1 is the same order, 0 none.")


def agree(head_views: Views, one: str, other: str) -> str:
    """ρ of two measures, or a dash where no row has an order."""
    known = slice(None) if head_views.known is None or "flow" not in (one, other) else head_views.known.any(-1)
    rows = _rows(np.abs(head_views.maps[one][known]), np.abs(head_views.maps[other][known]))
    return "–" if not rows else number(float(np.mean(rows))) if one == other else signed(float(np.mean(rows)))


def _rows(first: np.ndarray, second: np.ndarray) -> Sequence[float]:
    # What no measure sees (a masked key) would agree with itself.
    pairs = [(a[keep], b[keep]) for a, b in zip(first, second, strict=True) for keep in [(a > 0) | (b > 0)]]
    return [rho for a, b in pairs if (rho := spearman(a, b)) is not None]
