"""The run bar of Fine-tune: start, stop, pause, continue, and the run's progress."""

from __future__ import annotations

from functools import partial

import streamlit as st

from core.entries import ConfigError
from core.finetune.config import FineTuneConfig, own_rows
from core.finetune.data import parse
from core.pretrained import PretrainedError
from dashboard.runtime import jobs
from dashboard.runtime.fine_tune_data import FineTuneData, load_fine_tune, select_run
from dashboard.runtime.polling import poll
from dashboard.views.fine_tune import text
from dashboard.widgets import run_controls
from dashboard.widgets.panels import plain

PAGE = "fine_tune"
RESTART_HELP: dict[run_controls.RunState, str] = {"paused": "Leave this run and start a new one with these settings"}


def run_bar(data: FineTuneData, config: FineTuneConfig | None) -> None:
    """Draw the buttons of the run, and its progress; `config` is what Fine-tune would start."""
    if config is not None and run_controls.pressed(PAGE, config):
        run_controls.start_run(PAGE, config, lambda: jobs.fine_tune(config), lambda run: select_run(run, config.task),
                               ConfigError, PretrainedError)
        st.rerun()
    state = "ended" if data.is_example else run_controls.state_of(data.run, data.status)
    buttons, column = st.columns([1, 2.4], vertical_alignment="center")
    row = buttons.container(horizontal=True, gap="small")
    run_controls.run_buttons(row, data.run, PAGE, state, start="Fine-tune", start_key="fine_tune:start",
                             config=config, proceed=partial(run_controls.continue_run, PAGE),
                             restart_help=RESTART_HELP)
    with column:
        poll(lambda: load_fine_tune(data.run), _progress, data.live, "fine_tune:progress")
        if config is not None and config.data != own_rows(config.task):
            rows = parse(config.task, config.data, config.seed)
            st.caption(f"The next run trains on {len(rows.learned):,} of your rows and holds out "
                       f"{len(rows.held_out):,}.")
        run_controls.anothers_note(data.run)
        run_controls.limits_line(steps=False)
        run_controls.show_flash(PAGE)


def _progress(data: FineTuneData) -> None:
    if data.is_example:
        st.caption("This is an example run. Press Fine-tune to start your own: about 20 s for the lab's rows on one "
                   "core.")
        return
    run_controls.show_progress(data.run, data.status, ending=plain(data.status.message or data.status.state),
                               progress=lambda: text.progress(data.records, int(data.about.get("steps", 0)) or 1))
