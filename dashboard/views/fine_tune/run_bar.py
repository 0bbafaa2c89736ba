"""Fine-tune, stop, pause and go on; how far the run is; and the fragments that follow it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from core.entries import ConfigError
from core.finetune.config import FineTuneConfig, own_rows
from core.finetune.data import parse
from core.pretrained import PretrainedError
from core.training.runs import Run
from dashboard.runtime import jobs
from dashboard.runtime import polling as following
from dashboard.runtime.fine_tune_data import KEPT, Shown, look, show, show_kept
from dashboard.views.fine_tune import text
from dashboard.widgets.panels import plain

TROUBLE, START = "fine_tune:trouble", "fine_tune:pressed"


def bar(run: Run, config: FineTuneConfig | None) -> None:
    """The one primary button (Fine-tune; Stop while it is on its way; Continue when it is paused), and progress."""
    if following.pressed(START) and config is not None:
        _start(config)
        st.rerun()
    live = run not in KEPT.values() and not run.status().ended
    buttons, told = st.columns([1, 2.4], vertical_alignment="center")
    row = buttons.container(horizontal=True, gap="small")
    if live:
        row.button("Stop", icon=":material/stop:", type="primary", width="stretch", key="fine_tune:stop",
                   on_click=_end, args=(run, "stop"))
        row.button("", icon=":material/pause:", key="fine_tune:pause", help="Pause: it goes on where it was",
                   on_click=_end, args=(run, "pause"))
    elif run not in KEPT.values() and run.status().state == "paused":
        row.button("Continue", icon=":material/resume:", type="primary", width="stretch", key="fine_tune:continue",
                   on_click=_go_on, args=(run,))
        row.button("", icon=":material/replay:", key="fine_tune:again", disabled=config is None,
                   help="Leave it, and fine-tune anew with these settings", on_click=following.press, args=(START,))
    else:
        row.button("Fine-tune", icon=":material/play_arrow:", type="primary", width="stretch", key="fine_tune:start",
                   disabled=config is None, on_click=following.press, args=(START,))
    with told:
        follow(_progress, run)
        if config is not None and config.data != own_rows(config.task):
            rows = parse(config.task, config.data, config.seed)
            st.caption(f"The next run learns {len(rows.learned):,} of your rows and holds out {len(rows.held_out):,}.")
        if trouble := st.session_state.pop(TROUBLE, ""):
            st.warning(plain(trouble))


def follow(body: Callable[[Shown], None], run: Run) -> None:
    """Run the body now, and again on each beat while the run lives."""
    live = run not in KEPT.values() and not run.status().ended
    following.poll(lambda: look(run), body, live, f"fine_tune:{body.__name__}")


def _progress(shown: Shown) -> None:
    if shown.kept:
        st.caption("A kept run. Fine-tune starts one of your own: about 20 s for our rows on one core.")
    elif not shown.live:
        tell: Any = st.error if shown.status.state == "failed" else st.caption
        tell(plain(shown.status.message or shown.status.state))
    elif place := jobs.place(shown.run):
        st.progress(0.0, f"Waiting for a free worker, place {place} in the queue")
    else:
        st.progress(*text.progress(shown.records, int(shown.about.get("steps", 0)) or 1))


def _start(config: FineTuneConfig) -> None:
    try:
        run = jobs.fine_tune(config)
    except (jobs.QueueFull, ConfigError, PretrainedError, OSError) as error:
        st.session_state[TROUBLE] = f"The run could not be started: {error}"
        return
    show(run, config.task)
    following.wait(lambda: run.records() or run.status().state == "queued")


def _end(run: Run, how: str) -> None:
    jobs.stop(run, how)
    following.wait(lambda: run.status().ended)


def _go_on(run: Run) -> None:
    try:
        jobs.go_on(run)
    except (jobs.QueueFull, OSError) as error:
        st.session_state[TROUBLE] = f"The run could not go on: {error}"
        return
    following.wait(lambda: run.status().state == "running" and run.alive())


def kept_instead(task: str) -> None:
    """The way back from a run that cannot be shown."""
    st.button("Show the kept run", key="fine_tune:kept-instead", on_click=show_kept, args=(task,))
