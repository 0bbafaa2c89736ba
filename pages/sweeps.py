"""Sweeps: one setting takes several values, each from several seeds, and no single lucky run is believed."""

import streamlit as st

from core.training.comparisons import compare
from core.training.sweeps import vary
from dashboard.runtime import jobs
from dashboard.views.sweeps.compute import Shown, asked, look
from dashboard.views.sweeps.controls import setup
from dashboard.views.sweeps.page import runs
from dashboard.views.sweeps.run_bar import bar, picker, pictures
from dashboard.widgets import panels

panels.title("Sweeps", "Change one setting, keep all else, and train every value from several seeds.")
jobs.warm_up()

sweep, trouble = asked()
if trouble:
    st.warning(trouble)
shown = look(sweep)

left, right = st.columns([0.27, 0.73], gap="medium")
with left:
    first = st.container()  # on a phone Stop comes before everything else
    picker()
    config = setup(shown if isinstance(shown, Shown) else None)
    with first:
        bar(sweep, config)
with right:
    pictures(sweep)
    if isinstance(shown, Shown):
        runs(shown)

source = st.expander("How one setting is varied, and how differences are tested", on_change="rerun",
                     key="sweeps:source")
if source.open:
    with source:
        st.latex(r"\bar x \pm t_{.975,\,n-1} \frac{s}{\sqrt n} \qquad d_i = x_i^{(a)} - x_i^{(b)} \qquad "
                 r"t = \frac{\bar d}{s_d / \sqrt n}")
        st.markdown("Two values are trained from the same seeds, so that their difference is taken seed by seed and "
                    "tested by a paired t test (Student 1908) over all $n$ seeds. The p-values of all pairs of values "
                    "are corrected together ([Holm 1979](https://www.jstor.org/stable/4615733)): the chance that a "
                    "sweep of equal values claims any difference is 5 % at most. Seeds whose differences all agree "
                    "count with a deviation of one held-out item.")
        panels.source_panel(vary)
        panels.source_panel(compare)
panels.next_page("sweeps")
