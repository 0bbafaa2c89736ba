"""Which cell of which head is open: what the link asks for, what a person picks in the map or in the fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st

from core.pretrained import Line, ModelInputs, Reading
from core.pretrained.load import MINILM
from core.pretrained.weight_breakdown import LayerAttention, layer_attentions
from core.trace import AttentionTrace, Kind
from dashboard.runtime.cache import shared
from dashboard.runtime.query_params import read_pair, write_pair
from dashboard.widgets.model_picker import ModelRef, load_model
from dashboard.widgets.model_picker.head_choice import KINDS, Head, choose_head, current_head_of
from dashboard.widgets.params import BOUND
from dashboard.widgets.weight_link import KIND

MAP = "inside_weight:map"
CELL, OF, SENT, WRITTEN = (f"inside_weight:{name}" for name in ("cell", "of", "told", "written"))
HEAD, QUERY, KEY = (f"inside_weight:{name}" for name in ("head", "query", "key"))
PRONOUN, TELLING = (3, 1), 2 / 3
APART = 3  # words: a weight between neighbours is the commonest there is, and tells the least


@dataclass(frozen=True)
class Cell:
    """A cell of a head: layers, heads and tokens counted from 0."""

    layer: int
    head: int
    query: int
    key: int

    @property
    def name(self) -> str:
        return head_name(self.layer, self.head)

    def inside(self, trace: AttentionTrace) -> bool:
        """Whether the trace has such a cell."""
        if not 0 <= self.layer < len(trace.maps):
            return False
        place = (self.head, self.query, self.key)
        return all(0 <= at < size for at, size in zip(place, trace.maps[self.layer].weights.shape, strict=True))


def head_name(layer: int, head: int) -> str:
    return f"L{layer}·H{head}"


def layers_of(ref: ModelRef, given: ModelInputs) -> tuple[LayerAttention, ...]:
    """What each layer of the model attends with on this input; shared by all sessions, never change it."""
    return shared(_layers_of, ref, given)


def _layers_of(ref: ModelRef, given: ModelInputs) -> tuple[LayerAttention, ...]:
    return layer_attentions(load_model(ref), given)


def default_cell(reading: Reading, trace: AttentionTrace, picked: Head | None = None) -> Cell:
    """Of the weights between two words that are no neighbours, the one nearest to two thirds; of all, with none such.

    A weight of two thirds leads its row and leaves something to others. Only the head that is asked for is looked at;
    with none, all of them, but of the embedded model the one that follows a pronoun.
    """
    rows, columns = reading.lines(trace.maps[0].kind)
    within = _wordy(rows)[:, None] & _wordy(columns)
    if trace.maps[0].kind != "cross":
        place = np.array([-1 if one is None else one for one in rows.word])
        within &= np.abs(place[:, None] - place) >= APART
    if not within.any():
        within = np.ones_like(within)
    off = [np.where(within, np.abs(item.weights - TELLING), 1.0).min((1, 2)) for item in trace.maps]
    layer = int(np.argmin([one.min() for one in off]))
    usual = PRONOUN if trace.source == MINILM else (layer, int(np.argmin(off[layer])))
    layer, head = picked or usual
    cells = np.where(within, np.abs(trace.maps[layer].weights[head] - TELLING), 1.0)
    query, key = np.unravel_index(int(cells.argmin()), cells.shape)
    return Cell(layer, head, int(query), int(key))


def _wordy(line: Line) -> np.ndarray:
    """Which tokens are words of two letters or more, or patches of a picture."""
    return np.array([not special and (line.grid is not None or len(token) > 1 and token[:2] != "##")
                     for token, special in zip(line.tokens, line.special, strict=True)])


def current_cell(reading: Reading, trace: AttentionTrace, of: tuple[ModelRef, ModelInputs, Kind]) -> Cell:
    """The cell now: a link's, else the last pick in the map or the fields; else a telling one.

    That is for another model or text, and where another head was picked on another page.
    """
    before: Cell | None = st.session_state.get(CELL)
    linked = _cell_of_link(trace) if st.query_params.get("cell") not in (None, st.session_state.get(WRITTEN)) else None
    ref, _, kind = of
    elsewhere = current_head_of(ref, kind, trace.shape)
    same = before is not None and st.session_state.get(OF) == repr(of) and before.inside(trace)
    if before is None or linked is not None or not same or elsewhere not in (None, (before.layer, before.head)):
        cell = linked or default_cell(reading, trace, elsewhere)
    else:
        cell = _cell_of_map(before, trace) or _cell_of_fields(before, trace)
    if linked is not None or same and before is not None and cell.name != before.name:
        choose_head(ref, kind, (cell.layer, cell.head))
    st.session_state[OF], st.session_state[CELL] = repr(of), cell
    st.session_state[WRITTEN] = f"{cell.query}.{cell.key}"
    st.session_state[HEAD], st.session_state[QUERY], st.session_state[KEY] = cell.name, cell.query, cell.key
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
    """What was just picked in the map: its state says other than it was last told."""
    own = st.session_state.get(f"{MAP}:view", {})
    sent = st.session_state.get(SENT)
    head = own.get("pick") or (before.layer, before.head)
    pin = own.get("pin") or (before.query, before.key)
    cell = Cell(*head, *pin)
    return cell if sent is not None and (head, pin) != sent and cell.inside(trace) else None


def _cell_of_fields(before: Cell, trace: AttentionTrace) -> Cell:
    """What the fields say."""
    layer, head = _numbers(st.session_state.get(HEAD, before.name))
    cell = Cell(layer, head, st.session_state.get(QUERY, before.query), st.session_state.get(KEY, before.key))
    return cell if cell.inside(trace) else before


def _numbers(name: str) -> tuple[int, int]:
    layer, head = name.split("·")
    return int(layer[1:]), int(head[1:])


def kind_field(trace: AttentionTrace, place: Any) -> Kind:
    """Which kind of attention is open."""
    if st.session_state.get(KIND) not in trace.kinds:
        st.session_state.pop(KIND, None)
    usual = "cross" if "cross" in trace.kinds else trace.kinds[0]
    named = [kind for kind in KINDS if kind in trace.kinds]
    kind: Kind = place.selectbox("Attention", named, named.index(usual), format_func=KINDS.__getitem__,
                                 key=KIND, **BOUND)
    return kind


def fields(trace: AttentionTrace, places: Sequence[Any]) -> None:
    """The head, the query and the key as fields, beside the map in which they can be pressed."""
    names = [head_name(layer, head) for layer, item in enumerate(trace.maps) for head in range(len(item.weights))]
    item = trace.maps[0]
    places[0].selectbox("Head", names, format_func=lambda name: trace.label(*_numbers(name)), key=HEAD)
    for place, label, tokens, key in ((1, "Query", item.queries, QUERY), (2, "Key", item.keys, KEY)):
        shown = [f"{at} · {token}" for at, token in enumerate(tokens)]
        places[place].selectbox(label, range(len(tokens)), format_func=shown.__getitem__, key=key)
