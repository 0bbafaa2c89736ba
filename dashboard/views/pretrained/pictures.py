"""The two pictures of the page, all heads and one head, and the pins that link, settings and clicks agree on."""

from __future__ import annotations

import streamlit as st

from core.pretrained import ModelInputs
from dashboard.components.attention_view import ViewState, attention_view
from dashboard.runtime.query_params import read_pair, read_pairs, write_pair, write_pairs
from dashboard.runtime.role_scores import HeadRoles
from dashboard.views.pretrained.compute import (
    Pair,
    TraceView,
    default_row,
    first_head,
    in_order,
    patches_of,
    shown_pins,
)
from dashboard.views.pretrained.controls import Controls
from dashboard.widgets.model_picker import EMBEDDED, ModelRef
from dashboard.widgets.model_picker.head_choice import KINDS, choose_head, current_head_of
from dashboard.widgets.panels import plain

COREFERENCE = (3, 1)  # the head of the embedded model in which "it" looks at "animal"
LINK = "pretrained"
GRID, SMALLEST, LARGEST = 400, 34, 68  # pixels: the grid's width, and of a thumbnail


def reset_for_other_model(ref: ModelRef, controls: Controls) -> None:
    """The link's head and pins belong to one model and one kind of map: with another they are gone."""
    now = (repr(ref), controls.kind)
    if st.session_state.setdefault("pretrained:of", now) != now:
        for name in ("head", "pin"):
            st.query_params.pop(name, None)
        st.session_state["pretrained:of"] = now


def first_head_and_pins(view_: TraceView, ref: ModelRef) -> tuple[Pair, list[Pair]]:
    """The head that the link asks for, or that was picked on another page, or to begin with; and the link's own pins.

    What is wrong in a link is said.
    """
    linked, bad_head = read_pair("head", view_.trace.shape)
    pins, bad_pin = read_pairs("pin", (len(view_.rows), len(view_.columns)))
    for sentence in filter(None, (bad_head, bad_pin)):
        st.warning(sentence)
    kind = view_.trace.map(0).kind
    picked = linked or current_head_of(ref, kind, view_.trace.shape)
    if picked:
        choose_head(ref, kind, picked)
        write_pair("head", picked)
    return picked or first_head(view_, COREFERENCE if ref == EMBEDDED else None), pins


def all_heads(view_: TraceView, head: Pair, roles: HeadRoles | None, name_kind: bool) -> ViewState:
    """The grid; `kind_said` where the model has maps of more than one kind."""
    layers, heads = view_.trace.shape
    of = f" of {KINDS[view_.trace.map(0).kind].lower()} attention" if name_kind else ""
    thumb = max(SMALLEST, min(LARGEST, GRID // heads))
    return attention_view(view_.trace, key="pretrained:grid", layout="grid", layer=head[0], head=head[1], thumb=thumb,
                          roles=roles or {}, link=LINK, fact=f"{layers} layers of {heads} heads{of}")


def one_head(
    view_: TraceView, picked: ViewState, pins: list[Pair], controls: Controls, given: ModelInputs
) -> tuple[TraceView, ViewState]:
    """One head in the order asked for, and what is picked in it."""
    before = shown_pins(view_, pins)
    ranked = in_order(view_, picked.layer, picked.head, controls.order, before[-1] if before else None)
    row, _ = default_row(ranked, picked.layer, picked.head)
    item = ranked.trace.map(picked.layer)
    view = attention_view(
        ranked.trace, key="pretrained:head", layer=picked.layer, head=picked.head, query=row, link=LINK,
        pins=shown_pins(ranked, pins), show=controls.show, scale=controls.scale, pool=controls.pool,  # type: ignore[arg-type]
        threshold=controls.threshold, patches=patches_of(ranked, given),
        fact=f"Head {ranked.trace.label(picked.layer, picked.head)}; the picked row is {plain(item.queries[row])}")
    return ranked, view


def save_picks(
    ref: ModelRef, ranked: TraceView, view: ViewState, first: Pair, pins: list[Pair], controls: Controls
) -> None:
    """Into the link: the head unless it is the one to begin with, and the pins by the model's own tokens.

    A head that was picked stays so on other pages.
    """
    head = (view.layer, view.head)
    if head != first:
        choose_head(ref, ranked.trace.map(0).kind, head)
    write_pair("head", head if head != first or "head" in st.query_params else None)
    hidden = [pin for pin in pins if ranked.lens.shown_cell(pin) is None]
    own = [pin for pin in pins if ranked.lens.shown_cell(pin) in view.pins]
    fresh = [ranked.lens.source_cell(cell) for cell in view.pins
             if cell not in [ranked.lens.shown_cell(pin) for pin in own]]
    write_pairs("pin", [*hidden, *own, *fresh])
    if fresh and controls.order != "text":
        st.rerun()  # the order follows the pin
