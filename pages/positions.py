"""Positions: how order enters attention, one encoding and one idea at a time."""

import streamlit as st

from dashboard.views.positions import sections, state
from dashboard.widgets.panels import next_page

for sentence in state.unknown():
    st.warning(sentence)
sections.explore()
sections.source()
next_page("positions")
