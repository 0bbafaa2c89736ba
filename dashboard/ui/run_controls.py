"""The controls of a run: start, stop, pause, continue and restart, how far it is, and what went wrong."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.attention import ConfigError
from core.files import hosted
from core.runs.folder import Status
from core.runs.runs import Run
from core.training import Record, RunConfig
from dashboard.draw.curves import Curve, legend, step_chart
from dashboard.draw.formats import about_duration, plain
from dashboard.draw.palette import Ink
from dashboard.draw.vega import split_data
from dashboard.server import jobs, people
from dashboard.server.people import limits, max_run_seconds
from dashboard.ui.panels import chart_title, draw_chart, theme
from dashboard.ui.progress import flash_errors, pop_flash
from dashboard.ui.run_data import RunView

RunState = Literal["live", "paused", "ended"]
T = TypeVar("T")
U = TypeVar("U")
POLL_INTERVAL, SLOW_POLL_INTERVAL = (
    0.5,
    1.0,
)  # seconds between two reads; slow where many folders are read
PATIENCE = 0.6  # seconds


def run_buttons(
    row: DeltaGenerator,
    page: str,
    data: RunView[Any],
    config: object,
    *,
    start: str,
    start_key: str,
    proceed: Callable[[Run], object],
    restart_help: Mapping[RunState, str],
) -> RunState:
    """Draw Start, Stop or Continue by the run's state, with Pause, and Restart in the states of `restart_help`.

    Start and Restart mark a press (see `start_run`) of a run with `config`, None where the settings do not fit;
    `proceed` is what Continue calls. Returns the state; a run of another person counts as ended.
    """
    run, status = data.run, data.status
    state: RunState = "paused" if status.state == "paused" else "ended" if status.ended else "live"
    state = state if people.mine(run) else "ended"
    if state == "live":
        stop_button(row, page, end_run, run)
        row.button(
            "",
            icon=":material/pause:",
            key=f"{page}:pause",
            help="Pause; Continue resumes from the same step",
            on_click=end_run,
            args=(run, "pause"),
        )
    elif state == "paused":
        continue_button(row, page, proceed, run)
    else:
        start_button(
            row, start, key=start_key, disabled=config is None, on_click=press, args=(page,)
        )
    if state in restart_help:
        row.button(
            "",
            icon=":material/replay:",
            key=f"{page}:again",
            help=restart_help[state],
            disabled=config is None or _goes_on(page, config),
            on_click=press,
            args=(page,),
        )
    return state


def anothers_note(run: Run) -> bool:
    """Say of a run of another person what one may do with it; whether it is one."""
    another = bool(people.owner(run)) and not people.mine(run)
    if another:
        st.caption(
            "This run belongs to another person. You can look at it and export it, but not change it."
        )
    return another


def press(page: str) -> None:
    """Mark a press of the page's start button: its next run starts the run, with the current controls."""
    st.session_state[f"{page}:pressed"] = True


def _goes_on(page: str, config: object) -> bool:
    """Whether the last run that was started on the page has these settings and has not ended."""
    last, run = st.session_state.get(f"{page}:started", (None, None))
    return config == last and run is not None and not run.status().ended


def start_button(container: Any, label: str, **options: Any) -> None:
    container.button(
        label, icon=":material/play_arrow:", type="primary", width="stretch", **options
    )


def stop_button(container: Any, page: str, stop: Callable[..., object], *args: Any) -> None:
    container.button(
        "Stop",
        icon=":material/stop:",
        type="primary",
        width="stretch",
        key=f"{page}:stop",
        on_click=stop,
        args=args,
    )


def continue_button(
    container: Any,
    page: str,
    proceed: Callable[..., object],
    *args: Any,
    label: str = "Continue",
    primary: bool = True,
) -> None:
    container.button(
        label,
        icon=":material/resume:",
        type="primary" if primary else "secondary",
        width="stretch",
        key=f"{page}:continue",
        on_click=proceed,
        args=args,
    )


def start_run(
    page: str,
    config: T | None,
    start: Callable[[T], U],
    show: Callable[[U], object],
    *errors: type[Exception],
    run_of: Callable[[U], Run] = lambda run: run,  # type: ignore[assignment,return-value]
    ends: Run | None = None,
) -> None:
    """Where Start was pressed: `start` what these settings say, `show` it, and run the page again.

    A full queue and these errors become the page's message. `run_of` gives a run of what was started, by default
    itself; the run `ends` is stopped before.
    """
    # A press counts once, and not while the run that it started goes on
    if (
        config is None
        or not st.session_state.pop(f"{page}:pressed", False)
        or _goes_on(page, config)
    ):
        return
    if ends is not None:
        end_run(ends)
    started: list[U] = []
    if flash_errors(
        page,
        "The run could not be started: ",
        lambda: started.append(start(config)),
        jobs.QueueFull,
        OSError,
        *errors,
    ):
        run = run_of(started[0])
        st.session_state[f"{page}:started"] = config, run
        show(started[0])
        wait(lambda: run.records() or run.status().state == "queued")
    st.rerun()


def end_run(run: Run, how: str = "stop") -> None:
    """Stop or pause a run, and wait a moment for its end; that of another person of a public copy goes on."""
    if people.mine(run):
        jobs.stop(run, how)
        wait(lambda: run.status().ended)


def longer(config: RunConfig, steps: int, more_seconds: float) -> dict[str, Any]:
    """The changes with which a run goes on to `steps`, and without an early end, which it may have passed already."""
    seconds = min(max_run_seconds(), config.max_seconds + more_seconds)
    return {"steps": int(steps), "max_seconds": float(seconds), "finish_early": False}


def continue_run(page: str, run: Run, **changes: Any) -> bool:
    """Continue an ended run, with changes to its config; whether that was possible."""
    done = flash_errors(
        page,
        "The run could not continue: ",
        lambda: jobs.resume(run, **changes),
        jobs.QueueFull,
        ConfigError,
        OSError,
    )
    if done:
        wait(lambda: run.status().state == "running" and run.alive())
    return done


def limits_line(steps: bool = True) -> None:
    """On a public copy: what a run may take, before it is started; one without `steps` continues in a next turn."""
    if hosted():
        now = limits()
        most = (
            f"a run may take {now['steps']:,} steps and {now['seconds']} s"
            if steps
            else f"a run stops after {now['seconds']} s, and Continue gives it as many again"
        )
        st.caption(
            f"This is a public copy. Here {most}, and you may have {now['under_way']} runs at once. Nobody else "
            "sees yours without its link."
        )


def show_flash(page: str) -> None:
    if message := pop_flash(page):
        st.warning(plain(message))


def steps_done(
    records: Sequence[Record], steps: int, seconds: float = math.inf, first: str = "Setting up…"
) -> tuple[float, str]:
    """How far a run is, 0 to 1, and a line with the time left; the line `first` before its first record."""
    if not records:
        return 0.0, first
    last = records[-1]
    text = f"Step {last.step:,} of {steps:,}"
    if last.final:
        return 1.0, text
    if last.step and last.elapsed:
        left = min(last.elapsed * (steps - last.step) / last.step, seconds - last.elapsed)
        text += f", about {max(1, round(left))} s left"
    return min(1.0, max(last.step / steps, last.elapsed / seconds)), text


def show_progress(
    run: Run,
    status: Status,
    *,
    ending: str,
    progress: Callable[[], tuple[float, str]],
    name: str = "Waiting for a free worker",
) -> None:
    """How far a run is: `ending` in Markdown once it has ended, its place in the queue, or a progress bar."""
    if status.ended:
        (st.error if status.state == "failed" else st.caption)(ending)
    elif place := jobs.place(run):
        seconds = (
            "" if place.seconds is None else f", starts in about {about_duration(place.seconds)}"
        )
        st.progress(0.0, f"{name}: number {place.number} in the queue{seconds}")
    else:
        st.progress(*progress())
    if not status.ended and (where := status.message or jobs.node_text(run.metadata())):
        st.caption(plain(f"{where[:1].upper()}{where[1:].rstrip('.')}."))


def draw_curves(
    place: Any,
    title: str,
    curves: Sequence[Curve],
    *,
    key: str,
    alt: str,
    cut: str = "",
    **chart: Any,
) -> None:
    """Draw the `step_chart` of some curves of runs under its title, whose legend leaves out the ending `cut`."""
    ink = Ink.of(theme())
    named = [replace(curve, name=curve.name.removesuffix(cut)) for curve in curves]
    chart_title(title, place, legend(named, ink))
    draw_chart(place, *split_data(step_chart(curves, ink=ink, **chart)), key=key, alt=alt)


def poll(
    load: Callable[[], T],
    render: Callable[[T], object],
    live: bool,
    key: str,
    *,
    interval: float = POLL_INTERVAL,
    still_live: Callable[[T], bool] = lambda data: data.live,  # type: ignore[attr-defined]
) -> None:
    """Render what `load` returns, every `interval` seconds while the work is live; then the whole page runs again."""

    def refresh() -> None:
        if live:
            jobs.tick(fresh=POLL_INTERVAL / 2)
        data = load()
        if live and not still_live(data):
            st.rerun()
        render(data)

    st.fragment(refresh, run_every=interval if live else None, key=key)()


def wait(done: Callable[[], object]) -> None:
    """Wait up to PATIENCE seconds for `done`, so that the next run of the page shows the result."""
    end = time.monotonic() + PATIENCE
    while not done() and time.monotonic() < end:
        time.sleep(0.01)
