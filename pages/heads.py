"""Heads: one or many at the same width, keys and values shared, and two maps subtracted."""

import streamlit as st

from dashboard.views.heads import sections, state
from dashboard.widgets.panels import next_page

for sentence in state.unknown():
    st.warning(sentence)
sections.explore()
next_page("heads")
