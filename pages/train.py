"""Train and watch: a small model learns in a worker of its own, and its attention forms before one's eyes."""

import streamlit as st

from core.attention.config import entry
from core.training.loop import train
from dashboard.runtime import jobs
from dashboard.runtime.run_data import asked_run, brought, chosen_run
from dashboard.views.train.compute import time_needed
from dashboard.views.train.controls import adopt, setup
from dashboard.views.train.run_bar import bar, pictures
from dashboard.widgets import panels

panels.title("Train and watch",
             "A small model learns here, in seconds. Drag the step and see what its attention was doing.")
jobs.warm_up()

run, trouble = chosen_run(asked_run())
if trouble:
    st.warning(trouble)
if (config := brought(run)) is not None:
    adopt(config)

left, right = st.columns([0.27, 0.73], gap="medium")
with right:
    pictures(run)  # sent before the setup is made
with left:
    first = st.container()  # on a phone Stop comes before everything else
    config = setup()
    st.caption("Changes apply to the next run.")
    with first:
        bar(run, config)
        if config is not None:
            time_needed(config)  # after everything else, as it times a few steps

asked = st.expander("Equation, paper and the loop that just ran", on_change="rerun", key="train:source")
if asked.open:
    with asked:
        if config is not None and config.model.attention is not None:
            panels.entries_panel([entry("score", config.model.attention.score.key)])
        panels.source_panel(train)
panels.next_page("train")
