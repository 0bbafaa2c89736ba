"""The second figure: one head on the same tokens by every measure."""

from __future__ import annotations

import numpy as np
import streamlit as st

from dashboard.draw.attention_view import Pair, settle_pin, stores
from dashboard.draw.formats import number, signed
from dashboard.draw.multiples import Tile, multiples
from dashboard.runtime.link_values import read_linked, write_linked
from dashboard.ui.tables import table
from dashboard.views.evidence.compute import (
    HeadMaps,
    contributions_of,
    default_cell,
    head_maps,
    key_agreement,
)
from dashboard.views.evidence.controls import Controls, Head
from dashboard.views.evidence.text import NAMES, NOTES, cell_fact
from dashboard.widgets.panels import fact, paragraph

KEY = "evidence:maps"
MOST_DRAWN = 640  # tokens up to which whole maps are drawn side by side


def section(controls: Controls, head: Head) -> HeadMaps:
    """Draw the measures side by side with one crosshair, and the picked cell in all of them as a sentence."""
    item = controls.maps[head[0]]
    row, column = default_cell(controls, head)
    shape: Pair = item.weights.shape[1:]  # type: ignore[assignment]
    linked = read_linked("evidence", "pin", shape, (controls.ref, controls.question.inputs))
    pinned = settle_pin(stores(KEY, None)[0], KEY, linked, shape)
    write_linked("evidence", "pin", pinned)
    row, column = pinned or (row, column)
    measures = head_maps(controls, head, row)
    paragraph(f"**{controls.name(head)} on the same tokens**")
    if max(item.weights.shape) > MOST_DRAWN:
        _one_row(controls, head, measures, row, column)
    else:
        tiles = [
            _tile(
                name, values, item.mask, head[1], measures.known if name == "flow" else None, index
            )
            for index, (name, values) in enumerate(measures.maps.items())
        ]
        cross = item.kind == "cross"
        multiples(
            tiles,
            item.queries,
            item.keys,
            key=KEY,
            query=row,
            column=column,
            height=320,
            pin=pinned,
            reads="output (row) … input (column)" if cross else "query (row) … key (column)",
            noun="value",
            fact=f"Head {controls.name(head)} by {len(tiles)} measures",
        )
    fact(
        cell_fact(
            controls.name(head), (item.queries[row], item.keys[column]), measures, row, column
        )
    )
    if "flow" not in measures.maps:
        st.caption(
            f"Flow is left out: {max(len(item.queries), len(item.keys))} tokens are too many for it here."
        )
    if contributions_of(controls).out_of_memory:
        st.caption(
            "The gradient is left out: it needs more memory than this computer has free. Use a shorter text."
        )
    return measures


def _one_row(controls: Controls, head: Head, measures: HeadMaps, row: int, column: int) -> None:
    """Draw one row of maps too large to be drawn side by side, a line a measure."""
    item = controls.maps[head[0]]
    values = np.stack(
        [np.abs(each[row]) / (np.abs(each[row]).max() or 1.0) for each in measures.maps.values()]
    )
    multiples(
        [
            Tile(
                f"From {item.queries[row]}",
                "each measure from 0 to its largest value, without signs",
                values,
            )
        ],
        [NAMES[name] for name in measures.maps],
        item.keys,
        key="evidence:row",
        query=0,
        column=column,
        noun="share",
        reads="measure (row) … key (column)",
        fact=f"One row of head {controls.name(head)}",
    )
    st.caption(
        f"{' × '.join(str(size) for size in item.weights.shape[1:])} cells are too many to show side by side, "
        f"so only row {row} is shown."
    )


def _tile(
    name: str,
    values: np.ndarray,
    mask: np.ndarray | None,
    head: int,
    known: np.ndarray | None,
    index: int,
) -> Tile:
    visible = (
        None
        if mask is None
        else np.broadcast_to(mask, (max(head + 1, len(mask)), *values.shape))[head]
    )
    if known is not None:
        wide = np.pad(known, ((0, 0), (0, values.shape[1] - known.shape[1])))
        visible = wide if visible is None else visible & known
    note = f"{NOTES[name]}; this row only" if known is not None else NOTES[name]
    if name == "gradient":
        return Tile(
            NAMES[name],
            note,
            values / (np.abs(values).max() or 1.0),
            visible,
            index,
            (-1.0, 1.0),
            signed=True,
        )
    return Tile(NAMES[name], note, values, visible, index)


def agreement(measures: HeadMaps) -> None:
    """Draw how the measures of this head agree in the order of the keys."""
    names = list(measures.maps)
    rows = [[NAMES[one], *(_rho(measures, one, other) for other in names)] for one in names]
    table(
        ["ρ", *(NAMES[name] for name in names)],
        rows,
        markers=False,
        caption="Agreement of the order of the keys between measures, Spearman's ρ",
    )
    st.caption(
        "Spearman’s ρ between the orders of the keys by two measures, the mean over the rows; the gradient "
        "without its sign. 1 is the same order, 0 no relation."
    )


def _rho(measures: HeadMaps, one: str, other: str) -> str:
    value = key_agreement(measures, one, other)
    return "–" if value is None else number(value) if one == other else signed(value)
