"""Start, stop and continue a sweep, how far it is, and the fragments that follow it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import streamlit as st

from core.attention import ConfigError
from core.training.sweep_files import Sweep, delete_sweep, find_sweep, list_sweeps
from core.training.sweeps import SweepConfig
from dashboard.runtime import jobs
from dashboard.runtime.polling import press, pressed
from dashboard.views.sweeps import page, queue, text
from dashboard.views.sweeps.compute import EXAMPLE, Shown, look, show, task_of
from dashboard.widgets.panels import plain

BEAT = 1.0
TROUBLE, START = "sweeps:trouble", "sweeps:pressed"


def bar(sweep: Sweep, config: SweepConfig | None) -> None:
    """The one primary button (Start; Stop while runs are on their way; Continue where some are missing), progress."""
    if pressed(START) and config is not None:
        _start(config)
        st.rerun()
    shown = look(sweep)
    live = isinstance(shown, Shown) and shown.live
    if live:
        st.button("Stop", icon=":material/stop:", type="primary", width="stretch", key="sweeps:stop",
                  on_click=queue.stop, args=(sweep,))
    else:
        st.button("Start sweep", icon=":material/play_arrow:", type="primary", width="stretch", key="sweeps:start",
                  disabled=config is None, on_click=press, args=(START,))
        if isinstance(shown, Shown) and not shown.is_example and (missing := len(sweep.missing())):
            st.button(f"Continue: {missing} to go", icon=":material/resume:", width="stretch", key="sweeps:continue",
                      on_click=_go_on, args=(sweep,))
    if trouble := st.session_state.pop(TROUBLE, ""):
        st.warning(plain(trouble))
    _follow(_progress, sweep, live)


def pictures(sweep: Sweep) -> None:
    """Everything that was measured, redrawn while runs go on."""
    shown = look(sweep)
    _follow(_pictures, sweep, isinstance(shown, Shown) and shown.live)


def picker() -> None:
    """Which sweep is shown: the kept one, or one of those made here."""
    made = list(reversed(list_sweeps()))
    if not made:
        return
    now = find_sweep(st.query_params.get("sweep"))
    options = ["", *(sweep.id for sweep in made)]
    st.session_state["sweeps:shown"] = now.id if now in made and now is not None else ""
    row = st.container(horizontal=True, vertical_alignment="bottom", gap="small")
    row.selectbox("Shown", options, format_func=_label, key="sweeps:shown", on_change=_pick)
    if now is not None:
        with row.popover("", icon=":material/delete:", help="Delete this sweep"):
            st.markdown("The sweep and its numbers go; its runs stay among the runs.")
            st.button("Delete", key="sweeps:delete", on_click=_delete, args=(now,))


def _label(sweep_id: str) -> str:
    shown = look(EXAMPLE if not sweep_id else Sweep(list_sweeps()[0].path.with_name(f"{sweep_id}.json")))
    if isinstance(shown, str):
        return sweep_id
    said = f"{shown.setting} × {len(shown.config.seeds)} seeds, {task_of(shown.config.base.task).name.lower()}"
    return f"Kept: {said}" if not sweep_id else f"{said} · {sweep_id[9:11]}:{sweep_id[11:13]}"


def _pick() -> None:
    show(find_sweep(st.session_state["sweeps:shown"]) or EXAMPLE)


def _delete(sweep: Sweep) -> None:
    with suppress(ConfigError):  # a damaged file names no runs that could be stopped
        queue.stop(sweep)
    delete_sweep(sweep)
    show(EXAMPLE)


def _start(config: SweepConfig) -> None:
    try:
        show(queue.begin(config))
    except (jobs.QueueFull, ConfigError, OSError) as error:
        st.session_state[TROUBLE] = f"The sweep could not be started: {error}"


def _go_on(sweep: Sweep) -> None:
    try:
        queue.go_on(sweep)
    except (jobs.QueueFull, OSError) as error:
        st.session_state[TROUBLE] = f"The sweep could not go on: {error}"


def _follow(body: Callable[[Shown], None], sweep: Sweep, live: bool) -> None:
    """Run the body now, and again on each beat while runs are under way; when they end, the whole page once more."""

    def look_again() -> None:
        if live:
            jobs.tick()
        shown = look(sweep)
        if isinstance(shown, str):
            st.error(plain(shown))
            return
        if live and not shown.live:
            st.rerun()
        body(shown)

    st.fragment(look_again, run_every=BEAT if live else None, key=f"sweeps:{body.__name__}")()


def _progress(shown: Shown) -> None:
    if shown.is_example:
        st.caption("A kept sweep. Start makes one of your own.")
    elif shown.live:
        st.progress(*text.progress(shown, jobs.most_workers()))
    else:
        st.caption(text.ending(shown))


def _pictures(shown: Shown) -> None:
    page.draw(shown)
