"""Train, pause, go on, stop, train longer; how far the run is; and the fragments that follow it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from core.attention import ConfigError
from core.training.config import BOUNDS, RunConfig
from core.training.runs import Run
from dashboard.runtime import jobs
from dashboard.runtime.example_runs import KEPT
from dashboard.runtime.polling import poll, press, pressed, wait
from dashboard.runtime.run_data import Shown, look, show, show_example
from dashboard.views.train import text
from dashboard.views.train.page import draw
from dashboard.widgets.panels import plain

TROUBLE, START = "train:trouble", "train:pressed"


def bar(run: Run, config: RunConfig | None) -> None:
    """The one primary button (Train; Stop while the run is on its way; Continue when it is paused), and progress."""
    if pressed(START) and config is not None:
        _train(run, config)
        st.rerun()
    live, paused = _live(run), run not in KEPT and run.status().state == "paused"
    row = st.container(horizontal=True, gap="small")
    if live:
        row.button("Stop", icon=":material/stop:", type="primary", width="stretch", key="train:stop",
                   on_click=_end, args=(run, "stop"))
        row.button("", icon=":material/pause:", key="train:pause", help="Pause: it goes on where it was",
                   on_click=_end, args=(run, "pause"))
        row.button("", icon=":material/replay:", key="train:again", disabled=config is None,
                   help="Stop, and train anew with these settings", on_click=press, args=(START,))
    elif paused:
        row.button("Continue", icon=":material/resume:", type="primary", width="stretch", key="train:continue",
                   on_click=_go_on, args=(run,))
        row.button("", icon=":material/replay:", key="train:again", disabled=config is None,
                   help="Leave it, and train anew with these settings", on_click=press, args=(START,))
    else:
        row.button("Train", icon=":material/play_arrow:", type="primary", width="stretch", key="train:train",
                   disabled=config is None, on_click=press, args=(START,))
        if run not in KEPT and run.checkpoint_steps():
            _longer(run)
    if trouble := st.session_state.pop(TROUBLE, ""):
        st.warning(plain(trouble))
    _follow(_progress, run, live)


def pictures(run: Run) -> None:
    """Everything the run has measured, redrawn while it goes on."""
    _follow(_pictures, run, _live(run))


def _live(run: Run) -> bool:
    return run not in KEPT and not run.status().ended


def _longer(run: Run) -> None:
    """A popover: how many steps more, from the last that was kept."""
    shown = look(run)
    if shown.config is None:
        return
    panel = st.popover("Train longer", icon=":material/forward:", width="stretch", on_change="rerun",
                       key="train:longer")
    if not panel.open:
        return
    reached, most = run.checkpoint_steps()[-1], int(BOUNDS["steps"][1])
    with panel:
        if reached >= most:
            st.caption(f"This run has made all {most:,} steps that a run may have.")
            return
        usual = min(most - reached, max(100, reached))
        more = st.number_input("Steps more", 1, most - reached, usual, 100, key=f"train:more:{run.id}")
        st.caption(f"From step {reached:,} to {reached + more:,}, in {shown.config.seconds:g} seconds more at most. "
                   f"The schedule ({shown.config.schedule}) is stretched over all steps.")
        st.button("Go on", icon=":material/resume:", key="train:go-on", on_click=_go_on, args=(run, more))


def _train(before: Run, config: RunConfig) -> None:
    """Begin a run; the one before it is stopped if it is still on its way."""
    if _live(before):
        _end(before, "stop")
    try:
        run = jobs.start(config)
    except (jobs.QueueFull, OSError) as error:
        st.session_state[TROUBLE] = f"The run could not be started: {error}"
        return
    st.session_state["train:follow"] = True
    show(run)
    wait(lambda: run.records() or run.status().state == "queued")


def _end(run: Run, how: str) -> None:
    jobs.stop(run, how)
    wait(lambda: run.status().ended)


def _go_on(run: Run, more: int = 0) -> None:
    """Let a run go on, for `more` steps over those it made and as many seconds again; a paused one just goes on."""
    changes: dict[str, Any] = {}
    if more:
        shown = look(run)
        if shown.config is None:
            return
        spent = shown.records[-1].elapsed if shown.records else 0.0
        changes = {"steps": run.checkpoint_steps()[-1] + more, "finish_early": False, "patience": 0,
                   "seconds": min(float(BOUNDS["seconds"][1]), spent + shown.config.seconds)}
    try:
        jobs.go_on(run, **changes)
    except (jobs.QueueFull, ConfigError, OSError) as error:
        st.session_state[TROUBLE] = f"The run could not go on: {error}"
        return
    st.session_state["train:follow"] = True
    wait(lambda: run.status().state == "running" and run.alive())


def _follow(body: Callable[[Shown], None], run: Run, live: bool) -> None:
    poll(lambda: look(run), body, live, f"train:{body.__name__}")


def _progress(shown: Shown) -> None:
    if shown.is_example:
        st.caption("A kept run. Train starts one of your own.")
    elif not shown.live:
        tell = st.error if shown.status.state == "failed" else st.caption
        tell(plain(text.ending(shown.status, shown.records)))
    elif place := jobs.place(shown.run):
        st.progress(0.0, text.waiting(place))
    elif shown.config is not None:
        st.progress(*text.progress(shown.records, shown.config))


def _pictures(shown: Shown) -> None:
    if shown.trouble:
        st.error(plain(shown.trouble))
        st.button("Show the kept example", key="train:example-instead", on_click=show_example)
    elif shown.records:
        draw(shown)
    else:
        _nothing_yet(shown)


def _nothing_yet(shown: Shown) -> None:
    """The final size, and what is waited for."""
    if shown.live:
        said = "Waiting for a free worker." if jobs.place(shown.run) else "The first numbers come within a second."
    else:
        said = "This run ended before its first measurement. Press Train to begin another."
    with st.container(border=True, height=420, vertical_alignment="center", horizontal_alignment="center"):
        st.caption(said)
