"""Masks: pick, compose, type or draw who may see whom, and watch the same scores become other weights."""

import streamlit as st

from dashboard.views.masks import sections, state
from dashboard.widgets.panels import next_page, title

title("Masks", "A mask says who may see whom. Pick one, join two, type a rule or draw the cells yourself.")
for sentence in state.refusals():
    st.warning(sentence)
sections.explore()
next_page("masks")
