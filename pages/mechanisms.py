"""All mechanisms: look up any choice of the six axes, see what it does to one sentence, and read all of its entry."""

import streamlit as st

from core.attention import AXES
from dashboard.views.mechanisms import sections, state
from dashboard.widgets.panels import next_page, title

count = sum(len(entries) for entries in AXES.values())
title("All mechanisms", f"One formula, six axes, {count} choices. Pick one: all else stays as it was.")
for sentence in state.unknown():
    st.warning(sentence)
axis = state.pick_axis()
sections.explore(axis)
st.markdown(f"## All {len(AXES[axis])} {state.NAMES[axis].lower()}")
sections.axis_table(axis)
next_page("mechanisms")
