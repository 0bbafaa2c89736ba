"""Train and Stop, how far the run is, and the fragments that follow it."""

from __future__ import annotations

import time
from collections.abc import Callable

import streamlit as st

from core.training.config import RunConfig
from core.training.runs import Run
from dashboard import jobs
from dashboard.train import words
from dashboard.train.state import EXAMPLE, Shown, look, show_example
from dashboard.train.view import draw

BEAT = 0.5
PATIENCE = 0.6


def bar(run: Run, config: RunConfig | None) -> None:
    """The one primary button (Train, or Stop while the run is on its way) and the run's progress."""
    live = _live(run)
    if live:
        row = st.container(horizontal=True, gap="small")
        row.button("Stop", icon=":material/stop:", type="primary", width="stretch", key="train:stop",
                    on_click=_stop, args=(run,))
        row.button("", icon=":material/replay:", key="train:again", disabled=config is None,
                     help="Stop, and train anew with these settings", on_click=_again, args=(run, config))
    else:
        st.button("Train", icon=":material/play_arrow:", type="primary", width="stretch", key="train:train",
                  disabled=config is None, on_click=_train, args=(config,))
    if trouble := st.session_state.pop("train:trouble", ""):
        st.warning(trouble)
    _follow(_progress, run, live)


def pictures(run: Run) -> None:
    """Everything the run has measured, redrawn while it goes on."""
    _follow(_pictures, run, _live(run))


def _live(run: Run) -> bool:
    return run != EXAMPLE and not run.status().ended


def _train(config: RunConfig) -> None:
    try:
        run = jobs.start(config)
    except (jobs.QueueFull, OSError) as error:
        st.session_state["train:trouble"] = f"The run could not be started: {error}"
        return
    st.session_state["train:follow"] = True
    st.query_params["run"] = run.id
    _wait(lambda: run.records() or run.status().state == "queued")


def _stop(run: Run) -> None:
    jobs.stop(run)
    _wait(lambda: run.status().ended)


def _wait(done: Callable[[], object]) -> None:
    """Give the worker a moment, so that the page that follows shows its answer already."""
    end = time.monotonic() + PATIENCE
    while not done() and time.monotonic() < end:
        time.sleep(0.01)


def _again(run: Run, config: RunConfig) -> None:
    _stop(run)
    _train(config)


def _follow(body: Callable[[Shown, bool], None], run: Run, live: bool) -> None:
    """Run the body now, and again on each beat while the run lives; when it ends, the whole page once more."""

    def look_again() -> None:
        if live:
            jobs.tick()
        shown = look(run)
        if live and not shown.live:
            st.rerun()
        body(shown)

    st.fragment(look_again, run_every=BEAT if live else None, key=f"train:{body.__name__}")()


def _progress(shown: Shown) -> None:
    if shown.is_example:
        st.caption("A kept run. Train starts one of your own.")
    elif not shown.live:
        tell = st.error if shown.status.state == "failed" else st.caption
        tell(words.ending(shown.status, shown.records))
    elif place := jobs.place(shown.run):
        st.progress(0.0, words.waiting(place))
    elif shown.config is not None:
        st.progress(*words.progress(shown.records, shown.config))


def _pictures(shown: Shown) -> None:
    if shown.trouble:
        st.error(shown.trouble)
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
