"""One query, step by step: a sentence or three matrices through the six stages of the formula."""

import streamlit as st

from dashboard.one_query import controls, sections, state
from dashboard.panels import next_page, title

refused = state.refusals()  # before the first widget takes its value out of the link
with st.container(horizontal=True, vertical_alignment="bottom", horizontal_alignment="distribute"):
    with st.container(width=700):
        title("One query, step by step",
              "Follow one token’s query from projection to output. Change any control and every number follows.")
    formula = controls.popover()
sections.links_refused(refused)
source, config, real, notes = sections.choose(formula)

steps = sections.attend(config, source, formula.seed, real) if config else None
if steps:
    query, head = controls.pick_row(source.queries, config.num_heads)
    stage = controls.pick_stage()
    sections.picture(steps, source, config, query, head, stage, real, formula.seed, notes)

head_dim = config.head_dim if config else 1
sections.root_of_d(formula.seed, head_dim)
if config:
    sections.sources(config)
next_page("one_query")
