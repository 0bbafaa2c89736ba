"""The page Inside a pretrained model: the grid of heads, one head, and the measures of both."""

from __future__ import annotations

import streamlit as st

from core import analysis, map_transform
from core.pretrained import ModelInputs
from core.trace import Kind
from dashboard.runtime.role_scores import HeadRoles, roles_are_cached, roles_of
from dashboard.views.pretrained import pictures
from dashboard.views.pretrained.compute import TraceView, default_row, view_of
from dashboard.views.pretrained.controls import Controls, draw_controls
from dashboard.views.pretrained.export import export_popover
from dashboard.views.pretrained.text import all_heads_fact, conditions, head_fact, pins_fact
from dashboard.widgets.model_picker import ModelChoice, ModelRef, choose_model
from dashboard.widgets.panels import fact, next_page, source_panel, title
from dashboard.widgets.role_marks import role_line
from dashboard.widgets.weight_link import weight_link

SKELETON_HEIGHT = 56  # pixels: about the height of the line of roles


def page() -> None:
    """Everything from top to bottom; the roles are measured last, once the figures are there."""
    title("Inside a pretrained model",
          "Every head of a Hugging Face model, on what you give it. Pick a head to read it, a word to follow it.")
    chosen = choose_model("pretrained")
    if chosen is None:
        next_page("pretrained")
        return
    controls = draw_controls(chosen.reading)
    roles = _known_roles(chosen.ref, chosen.inputs, controls.kind)
    view, skeleton = _figures(chosen, controls, roles)
    fact(all_heads_fact(view))
    st.caption(conditions(chosen.reading, view, controls))
    _sources()
    next_page("pretrained")
    if skeleton is not None:
        with skeleton, st.spinner("Measuring what the heads do, first time only"):
            roles_of(chosen.ref, chosen.inputs, controls.kind)
            st.rerun()


def _known_roles(ref: ModelRef, given: ModelInputs, kind: Kind) -> HeadRoles | None:
    """The roles, or None where measuring them would delay the figures."""
    return roles_of(ref, given, kind) if roles_are_cached(ref, given, kind) else None


def _figures(
    chosen: ModelChoice, controls: Controls, roles: HeadRoles | None
) -> tuple[TraceView, st.delta_generator.DeltaGenerator | None]:
    """The grid, one head and what is measured of it; the maps, and a skeleton where the roles will be drawn."""
    pictures.reset_for_other_model(chosen.ref, controls)
    view = view_of(chosen.ref, chosen.inputs, controls)
    first, pins = pictures.first_head_and_pins(view, chosen.ref)
    left, right = st.columns([1.05, 1], gap="large")
    with left:
        picked = pictures.all_heads(view, first, roles, len(chosen.reading.trace.kinds) > 1)
    ranked, one = pictures.one_head(view, picked, pins, controls, chosen.inputs)
    if roles is not None:  # else the page runs again with the same link
        pictures.save_picks(chosen.ref, ranked, one, first, pins, controls)
    item = ranked.trace.map(one.layer)
    row, key = one.pin or (default_row(ranked, one.layer, one.head)[0], None)
    with right:
        fact(head_fact(ranked.trace, one.layer, one.head, row, key))
        if sentence := pins_fact(item, one.head, one.pins):
            st.caption(sentence)
        column = int(item.weights[one.head, row].argmax()) if key is None else key
        weight_link(chosen, controls.kind, (one.layer, one.head), ranked.lens.source_cell((row, column)))
        if roles:
            role_line(roles, sum(len(layer.weights) for layer in view.trace.maps))
        skeleton = st.skeleton(height=SKELETON_HEIGHT) if roles is None else None
    export_popover(ranked.trace, one.layer, one.head)
    return view, skeleton


def _sources() -> None:
    with st.expander("Where these numbers come from", on_change="rerun") as sources:
        if sources.open:
            st.markdown("Each map is what the model itself computed, in fp32, before dropout. Merging, hiding and the "
                        "figures above are these functions:")
            source_panel(map_transform.transform_map)
            source_panel(analysis.previous_token)
