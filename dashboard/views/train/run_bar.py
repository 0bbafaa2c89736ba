"""The run bar of Train: start, stop, pause, continue, train longer, and the run's progress."""

from __future__ import annotations

from typing import Any

import streamlit as st

from core.memory import is_small
from core.training.config import RunConfig
from core.training.runs import Run
from dashboard.navigation import step_of
from dashboard.runtime import jobs, people
from dashboard.runtime.copies import copy_run
from dashboard.runtime.limits import LimitReached, most_seconds, most_steps
from dashboard.runtime.link_values import between, link_value
from dashboard.runtime.polling import poll
from dashboard.runtime.run_data import EXAMPLE_RUN, RunData, load_run, select_run
from dashboard.views.train import text
from dashboard.views.train.attention import forget_step
from dashboard.widgets import run_controls
from dashboard.widgets.flash import flash_errors
from dashboard.widgets.panels import plain

PAGE = "train"
RESTART_HELP: dict[run_controls.RunState, str] = {"live": "Stop this run and start a new one with these settings",
                                                  "paused": "Leave this run and start a new one with these settings"}


def run_bar(data: RunData, config: RunConfig | None) -> None:
    """Draw the buttons of the run, and its progress; `config` is what Train would start."""
    if config is not None and run_controls.pressed(PAGE, config):
        _train(data, config)
        st.rerun()
    run = data.run
    own = not data.is_example and people.mine(run)
    state = run_controls.state_of(run, data.status) if own else "ended"
    row = st.container(horizontal=True, gap="small")
    run_controls.run_buttons(row, run, PAGE, state, start="Train", start_key="train:train", config=config,
                             proceed=_continue, restart_help=RESTART_HELP)
    if state == "ended" and own and run.checkpoint_steps():
        with row:
            _train_longer(data)
    if run_controls.anothers_note(run) and data.config is not None:
        st.button("Copy to my runs", icon=":material/content_copy:", key="train:copy", on_click=_copy, args=(run,),
                  help="The copy is yours: continue it, name it or download it.")
    run_controls.limits_line()
    if is_small() and state == "ended":
        st.caption(text.SLOW_START)
    run_controls.show_flash(PAGE)
    poll(lambda: load_run(run), _progress, data.live, "train:progress")
    if state == "ended" and not data.is_example and data.records:
        _compare(data)


def _compare(data: RunData) -> None:
    """A link to this run beside the example run, where both learn the same task."""
    if data.config is not None and data.config.task.key == EXAMPLE_RUN.config().task.key:
        st.page_link(step_of("compare_runs").path, label="Compare with the example run",
                     icon=step_of("compare_runs").icon, query_params={"runs": f"{EXAMPLE_RUN.id},{data.run.id}"})


def _train_longer(data: RunData) -> None:
    """A popover for more steps, from the last checkpoint."""
    if data.config is None:
        return
    panel = st.popover("Train longer", icon=":material/forward:", width="stretch", on_change="rerun",
                       key="train:longer", help="Continue training for more steps.")
    if not panel.open:
        return
    reached, most = data.run.checkpoint_steps()[-1], most_steps()
    with panel:
        if reached >= most:
            st.caption(f"This run has reached {most:,} steps, the most that a run can have here.")
            return
        default = min(most - reached, max(100, reached))
        key = f"train:more:{data.run.id}"
        link_value(key, default, between(1, most - reached))
        more = st.number_input("More steps", 1, most - reached, default, 100, key=key,
                               help="Training continues from the last saved weights.")
        st.caption(f"From step {reached:,} to {reached + more:,}, for at most {data.config.seconds:g} more seconds. "
                   f"The learning rate schedule ({data.config.schedule}) covers all steps.")
        st.button("Continue training", icon=":material/resume:", key="train:go-on", on_click=_continue,
                  args=(data.run, more))


def _copy(run: Run) -> None:
    """Copy a run of another person, and show the copy."""
    flash_errors(PAGE, "The run could not be copied: ", lambda: select_run(copy_run(run, run.name)), LimitReached,
                 OSError)


def _train(before: RunData, config: RunConfig) -> None:
    """Start a run; the one before it is stopped if it is still live."""
    if before.live:
        run_controls.end_run(before.run)
    run_controls.start_run(PAGE, config, lambda: jobs.start(config), select_run)


def _continue(run: Run, more: int = 0) -> None:
    """Continue a run for `more` steps and as many seconds again; a paused run (0) as it was."""
    changes: dict[str, Any] = {}
    if more:
        data = load_run(run)
        if data.config is None:
            return
        spent = data.records[-1].elapsed if data.records else 0.0
        changes = {"steps": run.checkpoint_steps()[-1] + more, "finish_early": False, "patience": 0,
                   "seconds": min(most_seconds(), spent + data.config.seconds)}
    if run_controls.continue_run(PAGE, run, **changes):
        forget_step(run.id)


def _progress(data: RunData) -> None:
    if data.is_example:
        st.caption("This is an example run. Press Train to start your own.")
    elif data.config is not None or not data.live:
        ending = plain(text.ending(data.status, data.records, data.config))
        run_controls.show_progress(data.run, data.status, ending=ending,
                                   progress=lambda: text.progress(data.records, data.required_config))
