"""Every head of a pretrained model on what the reader gives it: the grid, one head, and what it measures."""

import streamlit as st

from core import analysis, lens
from dashboard.views.head_roles.marks import role_line
from dashboard.views.inside_weight.link import weight_link
from dashboard.views.pretrained import view
from dashboard.views.pretrained.export import export_popover
from dashboard.views.pretrained.lenses import seen_through, telling
from dashboard.views.pretrained.roles import WAITING, known_roles, measure_roles
from dashboard.views.pretrained.settings import controls
from dashboard.views.pretrained.words import all_heads_fact, conditions, head_fact, pins_fact
from dashboard.widgets.model_picker import choose
from dashboard.widgets.panels import fact, next_page, source_panel, title

title("Inside a pretrained model",
      "Every head of a Hugging Face model, on what you give it. Pick a head to read it, a word to follow it.")
chosen = choose("pretrained")
if chosen is None:
    next_page("pretrained")
    st.stop()
settings = controls(chosen.reading)
view.forget_other(chosen.ref, settings)
seen = seen_through(chosen.ref, chosen.given, settings)
begun, pins = view.begin(seen, chosen.ref)
roles = known_roles(chosen.ref, chosen.given, settings.kind)
left, right = st.columns([1.05, 1], gap="large")
with left:
    picked = view.all_heads(seen, begun, roles, len(chosen.reading.trace.kinds) > 1)
ranked, one = view.one_head(seen, picked, pins, settings, chosen.given)
if roles is not None:  # else the page is drawn again, with the same link
    view.keep(chosen.ref, ranked, one, begun, pins, settings)
item = ranked.trace.map(one.layer)
row, key = one.pin or (telling(ranked, one.layer, one.head)[0], None)
with right:
    fact(head_fact(ranked.trace, one.layer, one.head, row, key))
    if said := pins_fact(item, one.head, one.pins):
        st.caption(said)
    column = int(item.weights[one.head, row].argmax()) if key is None else key
    weight_link(chosen, settings.kind, (one.layer, one.head), ranked.lens.own((row, column)))
    if roles:
        role_line(roles, sum(len(layer.weights) for layer in seen.trace.maps))
    waiting = st.skeleton(height=WAITING) if roles is None else None
export_popover(ranked.trace, one.layer, one.head)
fact(all_heads_fact(seen))
st.caption(conditions(chosen.reading, seen, settings))
with st.expander("Where these numbers come from", on_change="rerun") as sources:
    if sources.open:
        st.markdown("Each map is what the model itself computed, in fp32, before dropout. Merging, hiding and the "
                    "figures above are these functions:")
        source_panel(lens.through)
        source_panel(analysis.previous_token)
next_page("pretrained")
if waiting is not None:
    with waiting, st.spinner("Measuring what the heads do, first time only"):
        measure_roles(chosen.ref, chosen.given, settings.kind)
