"""The run bar of Train: start, stop, pause, continue, train longer, and the run's progress."""

from __future__ import annotations

from typing import Any

import streamlit as st

from core.training.config import BOUNDS, RunConfig
from core.training.runs import Run
from dashboard.runtime import jobs
from dashboard.runtime.polling import poll, pressed
from dashboard.runtime.run_data import RunData, load_run, select_run
from dashboard.views.train import text
from dashboard.widgets import run_controls
from dashboard.widgets.panels import plain

PAGE, FOLLOW = "train", "train:follow"
RESTART_HELP: dict[run_controls.RunState, str] = {"live": "Stop, and train anew with these settings",
                                                  "paused": "Leave it, and train anew with these settings"}


def run_bar(data: RunData, config: RunConfig | None) -> None:
    """Draw the buttons of the run, and its progress; `config` is what Train would start."""
    if pressed(run_controls.press_mark(PAGE)) and config is not None:
        _train(data, config)
        st.rerun()
    run = data.run
    paused = not data.is_example and data.status.state == "paused"
    state: run_controls.RunState = "live" if data.live else "paused" if paused else "ended"
    row = st.container(horizontal=True, gap="small")
    run_controls.run_buttons(row, run, PAGE, state, start="Train", start_key="train:train", enabled=config is not None,
                             proceed=_continue, restart_help=RESTART_HELP)
    if state == "ended" and not data.is_example and run.checkpoint_steps():
        with row:
            _train_longer(data)
    run_controls.show_flash(PAGE)
    poll(lambda: load_run(run), _progress, data.live, "train:progress")


def _train_longer(data: RunData) -> None:
    """A popover that asks for more steps, from the last checkpoint."""
    if data.config is None:
        return
    panel = st.popover("Train longer", icon=":material/forward:", width="stretch", on_change="rerun",
                       key="train:longer")
    if not panel.open:
        return
    reached, most = data.run.checkpoint_steps()[-1], int(BOUNDS["steps"][1])
    with panel:
        if reached >= most:
            st.caption(f"This run has made all {most:,} steps that a run may have.")
            return
        default = min(most - reached, max(100, reached))
        more = st.number_input("Steps more", 1, most - reached, default, 100, key=f"train:more:{data.run.id}")
        st.caption(f"From step {reached:,} to {reached + more:,}, in {data.config.seconds:g} seconds more at most. "
                   f"The schedule ({data.config.schedule}) is stretched over all steps.")
        st.button("Go on", icon=":material/resume:", key="train:go-on", on_click=_continue, args=(data.run, more))


def _train(before: RunData, config: RunConfig) -> None:
    """Start a run; the one before it is stopped if it is still live."""
    if before.live:
        run_controls.end_run(before.run)
    run_controls.start_run(PAGE, lambda: jobs.start(config), _follow_new)


def _follow_new(run: Run) -> None:
    st.session_state[FOLLOW] = True
    select_run(run)


def _continue(run: Run, more: int = 0) -> None:
    """Continue a run for `more` steps and as many seconds again; a paused run (0) as it was."""
    changes: dict[str, Any] = {}
    if more:
        data = load_run(run)
        if data.config is None:
            return
        spent = data.records[-1].elapsed if data.records else 0.0
        changes = {"steps": run.checkpoint_steps()[-1] + more, "finish_early": False, "patience": 0,
                   "seconds": min(float(BOUNDS["seconds"][1]), spent + data.config.seconds)}
    if run_controls.continue_run(PAGE, run, **changes):
        st.session_state[FOLLOW] = True


def _progress(data: RunData) -> None:
    if data.is_example:
        st.caption("An example run. Train starts one of your own.")
    elif data.config is not None or not data.live:
        run_controls.show_progress(data.run, data.status, ending=plain(text.ending(data.status, data.records)),
                                   waiting=text.waiting, progress=lambda: text.progress(data.records, data.config))
