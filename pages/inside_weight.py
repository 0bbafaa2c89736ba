"""Inside one weight: the query and the key that meet in one cell, up to the weight and what it carries."""

import streamlit as st

from dashboard.views.inside_weight.view import opened_weight
from dashboard.widgets.model_picker import choose
from dashboard.widgets.panels import next_page, title

title("Inside one weight", "One cell of one head: how a query and a key make a weight, number by number.")
chosen = choose("inside_weight", needs=("qkv",))
if chosen is None:
    next_page("inside_weight")
    st.stop()
opened_weight(chosen)
next_page("inside_weight")
