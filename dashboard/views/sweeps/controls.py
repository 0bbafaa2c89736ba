"""The setup of a sweep as widgets: where its settings start, what is varied, its values, seeds and how long."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import streamlit as st

from core.attention import ConfigError
from core.tasks import TASKS, TaskConfig, task_entry
from core.training import recommended
from core.training.config import BOUNDS, RunConfig
from core.training.runs import Run, list_runs
from core.training.sweep_files import Sweep, find_sweep, list_sweeps
from core.training.sweeps import EQUAL, RUNS, SEEDS, VALUES, SweepConfig, name_of
from dashboard.runtime import jobs
from dashboard.runtime.run_labels import MODEL_NAMES
from dashboard.views.sweeps import values
from dashboard.views.sweeps.compute import EXAMPLE_SWEEP, SweepData, load_sweep, task_of
from dashboard.widgets.panels import plain
from dashboard.widgets.params import BOUND

RECIPE, SAME = "recipe", "same"
LAST = "sweeps:last"
LATEST = 20  # runs of one's own that are offered to start from
FEW = 6  # values that may be chosen from in the open
FIRST_SEEDS, FIRST_SECONDS = 3, 5.0


def controls(data: SweepData | None) -> SweepConfig | None:
    """Draw the controls; the sweep they describe, or None with the reason on the page."""
    base, own = _base(data)
    if base is None:
        return None
    axes = values.axes(base)
    axis = st.selectbox("Vary", axes, format_func=lambda key: name_of(key, base.task), key="sweeps:axis", **BOUND)
    try:
        chosen = _values(base, axis, f"sweeps:values:{own}:{axis}")
        seeds = st.slider("Seeds of each value", SEEDS[0], SEEDS[1], FIRST_SEEDS, key="sweeps:seeds", **BOUND)
        base, equal, seconds = _long(base, own)
        config = SweepConfig(base, axis, tuple(chosen), tuple(range(seeds)), equal, seconds)
        config.try_models()
    except ConfigError as error:
        st.error(plain(str(error)))
        return None
    workers = jobs.max_workers()
    st.caption(f"{len(config.cells)} of at most {RUNS} runs, {workers} at a time. All else stays as it is in the base; "
               "no run ends early.")
    return config


def _base(data: SweepData | None) -> tuple[RunConfig | None, str]:
    """The run of which one setting is varied: a task's recipe, the base of the sweep shown, or a run of one's own.

    With it a name, under which the settings that follow from it are kept.
    """
    runs = {run.id: run for run in _own_runs()}
    same = [SAME] if data is not None and data.sweep != EXAMPLE_SWEEP else []
    options = [RECIPE, *same, *runs]
    if st.session_state.get("sweeps:from") not in options:
        st.session_state.pop("sweeps:from", None)  # that run was deleted
    start = RECIPE
    if len(options) > 1:
        labels = {RECIPE: "A recipe", SAME: "As the sweep shown"} | {key: _label(run) for key, run in runs.items()}
        start = st.selectbox("Settings of", options, format_func=labels.get, key="sweeps:from", **BOUND) or RECIPE
    if start == SAME and data is not None:
        return data.config.base, data.sweep.id
    if start in runs:
        return runs[start].config(), start
    keys = [entry.key for entry in TASKS]
    key = st.selectbox("Task", keys, format_func=lambda k: task_entry(k).name, key="sweeps:task", **BOUND)
    try:
        task = task_of(TaskConfig.of(key))
        kind = st.selectbox("Model", list(task.recommended), format_func=lambda k: MODEL_NAMES.get(k, k),
                            key=f"sweeps:kind:{key}", **BOUND)
        return recommended(task, kind), f"{key}:{kind}"
    except (ConfigError, ValueError) as error:
        st.error(plain(f"{error} Train one such run first; it can be chosen here then."))
        return None, ""


def _own_runs() -> list[Run]:
    """The latest runs that belong to no sweep and whose settings can be read."""
    runs: list[Run] = []
    for run in reversed(list_runs()):
        try:
            if "sweep" not in run.metadata() and run.config():
                runs.append(run)
        except (ConfigError, TypeError, ValueError, KeyError):
            continue
        if len(runs) == LATEST:
            break
    return runs


def _label(run: Run) -> str:
    config = run.config()
    day, clock = run.id.split("-")[:2]
    when = run.name if run.name != run.id else f"{day[6:]}.{day[4:6]}., {clock[:2]}:{clock[2:4]}"
    return f"{task_entry(config.task.key).name}, {MODEL_NAMES.get(config.model.kind, config.model.kind)} · {when}"


def _values(base: RunConfig, axis: str, key: str) -> list[Any]:
    """The chosen values; many stand in a popover, not as a row of chips. ConfigError for one that cannot be read."""
    names = list(values.offered(base, axis))
    usual = [name for name in values.first(base, axis) if name in names]
    hint = values.example(axis, base)
    few = len(names) <= FEW
    # The popover's label stays, whatever is chosen in it: its label is part of its identity, and a new one is closed.
    panel: Any = st.container() if few else st.popover("Values", width="stretch", icon=":material/checklist:")
    with panel:
        now = st.multiselect("Values", names, usual, key=key, max_selections=VALUES[1], help=hint or None,
                             accept_new_options=bool(hint), **BOUND)
    if not few:
        st.caption(f"{len(now)} values: {', '.join(plain(name) for name in now)}")
    return [values.read(base, axis, name) for name in now]


def _long(base: RunConfig, own: str) -> tuple[RunConfig, str, float]:
    """Equal steps or equal seconds, and how many."""
    equal = st.segmented_control("Each run gets equal", EQUAL, default=EQUAL[0], required=True, key="sweeps:equal",
                                 format_func=str.capitalize, **BOUND)
    if equal == "seconds":
        low, high = BOUNDS["trained"]
        seconds = st.number_input("Seconds of training", float(low), float(high), FIRST_SECONDS, 1.0,
                                  key="sweeps:seconds", **BOUND,
                                  help="Without measuring. The learning rate stays constant after its warm-up.")
        return base, equal, seconds
    low, high = BOUNDS["steps"]
    steps = st.number_input("Steps", int(low), int(high), base.steps, 50, key=f"sweeps:steps:{own}", **BOUND)
    return replace(base, steps=steps, record_every=max(1, steps // 25)), equal, FIRST_SECONDS


def linked_sweep() -> tuple[Sweep, str]:
    """The sweep the link names, else the one this session saw last; words when there is no such one."""
    named = st.query_params.get("sweep")
    if named is None and (last := find_sweep(st.session_state[LAST]) if LAST in st.session_state else _running()):
        st.query_params["sweep"] = named = last.id
    if not named:
        return EXAMPLE_SWEEP, ""
    sweep = find_sweep(named)
    st.session_state[LAST] = sweep.id if sweep else None
    if sweep is None:
        return EXAMPLE_SWEEP, "The sweep in the link is not on this machine, or was deleted. Below is the example."
    return sweep, ""


def _running() -> Sweep | None:
    """The newest sweep that has runs on their way: a fresh page shows it."""
    return next((sweep for sweep in reversed(list_sweeps())
                 if isinstance(data := load_sweep(sweep), SweepData) and data.live), None)


def select_sweep(sweep: Sweep) -> None:
    """Make it the page's sweep, in the link too."""
    if sweep == EXAMPLE_SWEEP:
        st.query_params.pop("sweep", None)
        st.session_state[LAST] = None  # chosen: no running sweep takes its place
        return
    st.query_params["sweep"] = st.session_state[LAST] = sweep.id
