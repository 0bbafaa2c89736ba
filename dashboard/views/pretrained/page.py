"""The page Pretrained models: the grid of heads, one head, and the measures of both."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import streamlit as st

from core import analysis, map_transform
from core.pretrained import ModelInputs
from core.trace import Kind
from dashboard.components.attention_view import ViewState, attention_view
from dashboard.runtime.link_values import fragment, read_pair, read_pairs, write_link, write_pair, write_pairs
from dashboard.runtime.page_pictures import add_script
from dashboard.runtime.rendering import reruns_alone
from dashboard.views.pretrained import compute
from dashboard.views.pretrained.compute import Pair, TraceView, default_row, shown_pins
from dashboard.views.pretrained.controls import SHOW, SHOWS, Controls, draw_controls
from dashboard.views.pretrained.script import script
from dashboard.views.pretrained.text import all_heads_fact, conditions, head_fact, pins_fact
from dashboard.widgets.model_picker import EMBEDDED, ModelChoice, ModelRef, choose_model
from dashboard.widgets.model_picker.head_choice import KINDS, choose_head, current_head_of
from dashboard.widgets.panels import caption, details, fact, next_page, source_panel, title
from dashboard.widgets.role_marks import role_line
from dashboard.widgets.role_scores import HeadRoles, roles_are_cached, roles_of
from dashboard.widgets.weight_link import weight_link

LINK = "pretrained"
GRID, SMALLEST, LARGEST = 400, 34, 68  # pixels: the grid's width, and of a thumbnail
SKELETON_HEIGHT = 56  # pixels: about the height of the line of roles


def page() -> None:
    """Draw the page from top to bottom; the roles are measured last, after the figures."""
    title("Pretrained models",
          "See where every head of a trained model attends in your own sentence. Pick a head, then a word.")
    chosen = choose_model("pretrained")
    measure = None if chosen is None else _view(chosen)
    next_page("pretrained")
    if measure is not None:
        measure()


@fragment
def _view(chosen: ModelChoice) -> Callable[[], None] | None:
    """Draw the controls and all that they change, which reruns alone; returns what measures the roles, if unknown."""
    controls = draw_controls(chosen.reading)
    request = chosen.ref, chosen.inputs, controls.kind
    roles = roles_of(*request) if roles_are_cached(*request) else None  # measuring them would delay the figures
    view, skeleton = _figures(chosen, controls, roles)
    fact(all_heads_fact(view))
    caption(conditions(chosen.reading, view, controls))
    details("Where these numbers come from", _sources)
    if skeleton is None:
        return None
    if reruns_alone():  # nothing else is left to draw
        _measure_roles(skeleton, request)
    return partial(_measure_roles, skeleton, request)


def _measure_roles(skeleton: st.delta_generator.DeltaGenerator, request: tuple[ModelRef, ModelInputs, Kind]) -> None:
    with skeleton, st.spinner("Measuring the roles of the heads, only the first time"):
        roles_of(*request)
        st.rerun()


def _figures(chosen: ModelChoice, controls: Controls,
             roles: HeadRoles | None) -> tuple[TraceView, st.delta_generator.DeltaGenerator | None]:
    """Draw the grid, one head and its facts; returns the maps, and a skeleton until the roles are measured."""
    _reset_for_other_model(chosen.ref, controls)
    view = compute.view_of(chosen.ref, chosen.inputs, controls)
    first, pins = _first_head_and_pins(view, chosen.ref)
    left, right = st.columns([1.05, 1], gap="large")
    with left:
        picked = _all_heads(view, first, roles, len(chosen.reading.trace.kinds) > 1)
    ranked, one = _one_head(view, picked, pins, controls, chosen.inputs)
    if roles is not None:  # else the page runs again with the same link
        _save_picks(chosen.ref, ranked, one, first, pins, controls)
    item = ranked.trace.map(one.layer)
    row, key = one.pin or (default_row(ranked, one.layer, one.head)[0], None)
    add_script(partial(script, chosen, controls, view, ranked, (one.layer, one.head), row,
                       next(reversed(shown_pins(view, pins)), None)))
    with right:
        fact(head_fact(ranked.trace, one.layer, one.head, row, key))
        if sentence := pins_fact(item, one.head, one.pins):
            st.caption(sentence)
        column = int(item.weights[one.head, row].argmax()) if key is None else key
        weight_link(chosen, controls.kind, (one.layer, one.head), ranked.transform.source_cell((row, column)))
        if roles:
            role_line(roles, sum(len(layer.weights) for layer in view.trace.maps))
        skeleton = st.skeleton(height=SKELETON_HEIGHT) if roles is None else None
    return view, skeleton


def _reset_for_other_model(ref: ModelRef, controls: Controls) -> None:
    """Remove the link's head and pins, which belong to one model and one kind of map, when another is chosen."""
    now = (repr(ref), controls.kind)
    if st.session_state.setdefault("pretrained:of", now) != now:
        for name in ("head", "pin"):
            write_link(name, None)
        st.session_state["pretrained:of"] = now


def _first_head_and_pins(trace_view: TraceView, ref: ModelRef) -> tuple[Pair, list[Pair]]:
    """The head of the link, or of another page, or the default, and the link's pins; warns of errors in the link."""
    linked, bad_head = read_pair("head", trace_view.trace.shape)
    pins, bad_pin = read_pairs("pin", (len(trace_view.rows), len(trace_view.columns)))
    for sentence in filter(None, (bad_head, bad_pin)):
        st.warning(sentence)
    kind = trace_view.trace.map(0).kind
    picked = linked or current_head_of(ref, kind, trace_view.trace.shape)
    if picked:
        choose_head(ref, kind, picked)
        write_pair("head", picked)
    return picked or compute.first_head(trace_view, compute.COREFERENCE if ref == EMBEDDED else None), pins


def _all_heads(trace_view: TraceView, head: Pair, roles: HeadRoles | None, name_kind: bool) -> ViewState:
    """Draw the grid; `name_kind` where the model has maps of more than one kind."""
    layers, heads = trace_view.trace.shape
    of = f" of {KINDS[trace_view.trace.map(0).kind].lower()} attention" if name_kind else ""
    thumb = max(SMALLEST, min(LARGEST, GRID // heads))
    return attention_view(trace_view.trace, key="pretrained:grid", layout="grid", layer=head[0], head=head[1],
                          thumb=thumb, roles=roles or {}, link=LINK, fact=f"{layers} layers of {heads} heads{of}")


def _one_head(trace_view: TraceView, picked: ViewState, pins: list[Pair], controls: Controls,
              inputs: ModelInputs) -> tuple[TraceView, ViewState]:
    """Draw one head in the chosen order; returns its maps in this order and the picks."""
    before = shown_pins(trace_view, pins)
    ranked = compute.in_order(trace_view, picked.layer, picked.head, controls.order, before[-1] if before else None)
    row, _ = default_row(ranked, picked.layer, picked.head)
    item = ranked.trace.map(picked.layer)
    view = attention_view(
        ranked.trace, key="pretrained:head", layer=picked.layer, head=picked.head, query=row, link=LINK,
        pins=shown_pins(ranked, pins), show=controls.show, scale=controls.scale, pool=controls.pool,  # type: ignore[arg-type]
        show_choice=(SHOW, tuple(SHOWS)), threshold=controls.threshold, patches=compute.patches_of(ranked, inputs),
        fact=f"Head {ranked.trace.label(picked.layer, picked.head)}; the picked row is {item.queries[row]}")
    return ranked, view


def _save_picks(ref: ModelRef, ranked: TraceView, view: ViewState, first: Pair, pins: list[Pair],
                controls: Controls) -> None:
    """Write the picked head and the pins, by the model's own tokens, into the link and the session."""
    head = (view.layer, view.head)
    if head != first:
        choose_head(ref, ranked.trace.map(0).kind, head)
    write_pair("head", head if head != first or "head" in st.query_params else None)
    hidden = [pin for pin in pins if ranked.transform.shown_cell(pin) is None]
    own = [pin for pin in pins if ranked.transform.shown_cell(pin) in view.pins]
    fresh = [ranked.transform.source_cell(cell) for cell in view.pins
             if cell not in [ranked.transform.shown_cell(pin) for pin in own]]
    write_pairs("pin", [*hidden, *own, *fresh])
    if fresh and controls.order != "text":
        st.rerun()  # the order follows the pin


def _sources() -> None:
    st.markdown("Each map holds the weights that the model computed, in fp32, before dropout. These functions merge "
                "and hide tokens and compute the numbers above:")
    source_panel(map_transform.transform_map)
    source_panel(analysis.previous_token)
