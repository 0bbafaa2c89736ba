"""The controls: the kind of attention and the cell, from a link, the map or the fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import streamlit as st

from core.interpret.trace import AttentionTrace, Kind, head_name
from core.pretrained import ModelInputs, Reading
from dashboard.runtime.link_values import read_pair, write_pair
from dashboard.ui.heads import KIND
from dashboard.views.inside_weight.compute import Cell, default_cell
from dashboard.widgets.model_picker import ModelChoice, ModelRef
from dashboard.widgets.model_picker.head_choice import (
    KIND_HELP,
    KINDS,
    choose_head,
    current_head_of,
)
from dashboard.widgets.params import BOUND

MAP = "inside_weight:map"
CELL, OF, SENT, WRITTEN = (f"inside_weight:{name}" for name in ("cell", "of", "told", "written"))
HEAD, QUERY, KEY = (f"inside_weight:{name}" for name in ("head", "query", "key"))
Order = Literal["own", "largest"]
ORDERS: dict[Order, str] = {"own": "By dimension", "largest": "Largest first"}


@dataclass(frozen=True, eq=False)
class Controls:
    """The model and its inputs, the maps of the chosen kind of attention, and the open cell."""

    ref: ModelRef
    inputs: ModelInputs
    kind: Kind
    trace: AttentionTrace
    cell: Cell


def draw_controls(chosen: ModelChoice) -> Controls:
    """Draw the fields of kind, head, query and key, and read them."""
    reading = chosen.reading
    several = len(reading.trace.kinds) > 1
    columns = st.columns(4 if several else 3)
    kind = _kind_field(reading.trace, columns[0]) if several else reading.trace.kinds[0]
    trace = reading.trace.of(kind)
    cell = current_cell(reading, trace, (chosen.ref, chosen.inputs, kind))
    _cell_fields(trace, columns[-3:])
    return Controls(chosen.ref, chosen.inputs, kind, trace, cell)


def order_field() -> Order:
    """Draw the choice of the order of dimensions."""
    return (
        st.segmented_control(
            "Order of dimensions",
            list(ORDERS),
            default="own",
            required=True,
            format_func=ORDERS.__getitem__,
            key="inside_weight:order",
            label_visibility="collapsed",
            **BOUND,
            help="The order of the dimensions: as in the vectors, or by the size of the product.",
        )
        or "own"
    )


def current_cell(
    reading: Reading, trace: AttentionTrace, of: tuple[ModelRef, ModelInputs, Kind]
) -> Cell:
    """A new link's cell, else the last one picked here; else, as for another model, text or head, the default."""
    before: Cell | None = st.session_state.get(CELL)
    linked = (
        _cell_of_link(trace)
        if st.query_params.get("cell") not in (None, st.session_state.get(WRITTEN))
        else None
    )
    ref, _, kind = of
    elsewhere = current_head_of(ref, kind, trace.shape)
    same = before is not None and st.session_state.get(OF) == repr(of) and before.inside(trace)
    if (
        before is None
        or linked is not None
        or not same
        or elsewhere not in (None, (before.layer, before.head))
    ):
        cell = linked or default_cell(reading, trace, elsewhere)
    else:
        cell = _cell_of_map(before, trace) or _cell_of_fields(before, trace)
    if linked is not None or same and before is not None and cell.name != before.name:
        choose_head(ref, kind, (cell.layer, cell.head))
    st.session_state[OF], st.session_state[CELL] = repr(of), cell
    st.session_state[WRITTEN] = f"{cell.query}.{cell.key}"
    st.session_state[HEAD], st.session_state[QUERY], st.session_state[KEY] = (
        cell.name,
        cell.query,
        cell.key,
    )
    st.session_state[SENT] = (cell.layer, cell.head), (cell.query, cell.key)
    write_pair("head", (cell.layer, cell.head))
    write_pair("cell", (cell.query, cell.key))
    return cell


def _cell_of_link(trace: AttentionTrace) -> Cell | None:
    head, bad_head = read_pair("head", trace.shape)
    cell, bad_cell = read_pair("cell", trace.maps[0].weights.shape[1:])  # type: ignore[arg-type]
    for sentence in filter(None, (bad_head, bad_cell)):
        st.warning(sentence)
    return None if head is None or cell is None else Cell(*head, *cell)


def _cell_of_map(before: Cell, trace: AttentionTrace) -> Cell | None:
    """The cell just picked in the map: its state differs from what was last sent to it."""
    own = st.session_state.get(f"{MAP}:view", {})
    sent = st.session_state.get(SENT)
    head = own.get("pick") or (before.layer, before.head)
    pin = own.get("pin") or (before.query, before.key)
    cell = Cell(*head, *pin)
    return cell if sent is not None and (head, pin) != sent and cell.inside(trace) else None


def _cell_of_fields(before: Cell, trace: AttentionTrace) -> Cell:
    """The cell of the fields, or the one before if the trace has none such."""
    layer, head = _numbers(st.session_state.get(HEAD, before.name))
    cell = Cell(
        layer,
        head,
        st.session_state.get(QUERY, before.query),
        st.session_state.get(KEY, before.key),
    )
    return cell if cell.inside(trace) else before


def _numbers(name: str) -> tuple[int, int]:
    layer, head = name.split("·")
    return int(layer[1:]), int(head[1:])


def _kind_field(trace: AttentionTrace, column: Any) -> Kind:
    if st.session_state.get(KIND) not in trace.kinds:
        st.session_state.pop(KIND, None)
    default = "cross" if "cross" in trace.kinds else trace.kinds[0]
    kinds = [kind for kind in KINDS if kind in trace.kinds]
    kind: Kind = column.selectbox(
        "Attention",
        kinds,
        kinds.index(default),
        format_func=KINDS.__getitem__,
        key=KIND,
        help=KIND_HELP,
        **BOUND,
    )
    return kind


def _cell_fields(trace: AttentionTrace, columns: Sequence[Any]) -> None:
    names = [
        head_name(layer, head)
        for layer, item in enumerate(trace.maps)
        for head in range(len(item.weights))
    ]
    item = trace.maps[0]
    columns[0].selectbox(
        "Head",
        names,
        format_func=lambda name: trace.label(*_numbers(name)),
        key=HEAD,
        help="Layer and head, counted from 0.",
    )
    for column, label, tokens, key, does in (
        (columns[1], "Query", item.queries, QUERY, "attends"),
        (columns[2], "Key", item.keys, KEY, "is attended to"),
    ):
        labels = [f"{index} · {token}" for index, token in enumerate(tokens)]
        column.selectbox(
            label,
            range(len(tokens)),
            format_func=labels.__getitem__,
            key=key,
            help=f"The token that {does}.",
        )
