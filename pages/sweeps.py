"""Sweeps: one setting takes several values, each from several seeds, and no single lucky run is believed."""

import streamlit as st

from core.training.spread import spread
from core.training.sweeps import vary
from dashboard import jobs, panels
from dashboard.sweeps.bar import bar, picker, pictures
from dashboard.sweeps.setup import setup
from dashboard.sweeps.state import Shown, asked, look
from dashboard.sweeps.view import runs

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

source = st.expander("How one setting is varied, and what the spread is", on_change="rerun", key="sweeps:source")
if source.open:
    with source:
        st.latex(r"\bar x = \frac{1}{n} \sum_{i=1}^{n} x_i \qquad s^2 = \frac{1}{n-1} \sum_{i=1}^{n} (x_i - \bar x)^2")
        st.markdown("Two values are told apart when their means lie further from each other than twice "
                    r"$\sqrt{s_a^2 / n_a + s_b^2 / n_b}$ ([Welch 1947](https://doi.org/10.2307/2332510)).")
        panels.source_panel(vary)
        panels.source_panel(spread)
panels.next_page("sweeps")
