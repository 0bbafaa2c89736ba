"""The run bar of Sweeps: start, stop and continue a sweep, its progress, and the list of sweeps."""

from __future__ import annotations

from contextlib import suppress

import streamlit as st

from core.attention import ConfigError
from core.training.runs import Run
from core.training.sweep_files import Sweep, delete_sweep, find_sweep, list_sweeps
from core.training.sweeps import SweepConfig
from dashboard.runtime import jobs, people
from dashboard.views.sweeps import queue, text
from dashboard.views.sweeps.compute import EXAMPLE_SWEEP, SweepData, load_sweep
from dashboard.views.sweeps.controls import select_sweep
from dashboard.widgets.flash import flash_errors
from dashboard.widgets.run_controls import (
    continue_button,
    limits_line,
    press,
    pressed,
    show_flash,
    start_button,
    start_run,
    stop_button,
)

PAGE = "sweeps"


def run_bar(sweep: Sweep, data: SweepData | str, config: SweepConfig | None) -> None:
    """One primary button (Stop while runs are live, else Start), and Continue where runs of the sweep are missing."""
    if config is not None and pressed(PAGE, config):
        sweeps: list[Sweep] = []
        start_run(PAGE, config, lambda: _start(config, sweeps), lambda run: select_sweep(sweeps[0]), ConfigError)
        st.rerun()
    readable = data if isinstance(data, SweepData) else None
    own = people.mine(sweep)
    if readable and readable.live and own:
        stop_button(st, PAGE, queue.stop, sweep)
    else:
        start_button(st, "Start sweep", key="sweeps:start", disabled=config is None, on_click=press,
                     args=(PAGE,))
        if readable and not readable.is_example and own and (missing := len(sweep.missing())):
            continue_button(st, PAGE, _resume, sweep, label=f"Continue ({missing} runs left)", primary=False)
    limits_line()
    show_flash(PAGE)


def _start(config: SweepConfig, sweeps: list[Sweep]) -> Run:
    sweeps.append(queue.start(config))
    return next(iter(sweeps[0].runs().values()))


def progress(data: SweepData) -> None:
    """The progress of the sweep, or how it ended."""
    if data.is_example:
        st.caption("This is an example sweep. Press Start sweep to run your own.")
    elif data.live:
        st.progress(*text.progress(data, jobs.max_workers()))
    else:
        st.caption(text.ending(data))


def picker() -> None:
    """A list of the sweeps, the example first; the selected one can be deleted."""
    sweeps = list(reversed(list_sweeps()))
    if not sweeps:
        return
    current = find_sweep(st.query_params.get("sweep"))
    st.session_state["sweeps:shown"] = current.id if current in sweeps and current is not None else ""
    row = st.container(horizontal=True, vertical_alignment="bottom", gap="small")
    row.selectbox("Sweep", ["", *(sweep.id for sweep in sweeps)], format_func=_label, key="sweeps:shown",
                  help="The sweep whose results are shown.",
                  on_change=lambda: select_sweep(find_sweep(st.session_state["sweeps:shown"]) or EXAMPLE_SWEEP))
    if current is not None:
        with row.popover("", icon=":material/delete:", help="Delete this sweep"):
            st.markdown("This deletes the sweep and its numbers. Its runs stay on the page Runs.")
            st.button("Delete", key="sweeps:delete", on_click=_delete, args=(current,))


def _label(sweep_id: str) -> str:
    data = load_sweep(find_sweep(sweep_id) or EXAMPLE_SWEEP)
    if isinstance(data, str):
        return sweep_id
    name = f"{data.setting} × {len(data.config.seeds)} seeds, {data.task().name.lower()}"
    return f"Example: {name}" if not sweep_id else f"{name} · {sweep_id[9:11]}:{sweep_id[11:13]}"


def _delete(sweep: Sweep) -> None:
    if not people.mine(sweep):
        return
    with suppress(ConfigError):  # a damaged file names no runs that could be stopped
        queue.stop(sweep)
    delete_sweep(sweep)
    select_sweep(EXAMPLE_SWEEP)


def _resume(sweep: Sweep) -> None:
    flash_errors(PAGE, "The sweep could not continue: ", lambda: queue.resume(sweep), jobs.QueueFull, OSError)
