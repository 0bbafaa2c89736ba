"""The controls of Sweeps: base, varied setting, values, seeds, length; the frozen `Controls` is core's SweepConfig."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import streamlit as st

from core.attention import ConfigError
from core.runs.runs import Run, list_runs
from core.runs.sweeps import Sweep, list_sweeps
from core.tasks import TASKS, TaskConfig, task_entry
from core.training import recommended
from core.training.config import BOUNDS, RunConfig
from core.training.sweeps import EQUAL, RUNS, SEEDS, VALUES, SweepConfig, name_of
from dashboard.runtime import jobs
from dashboard.runtime.link_values import by_history, link_value, one_of
from dashboard.runtime.run_data import MODEL_NAMES, task_of
from dashboard.server.limits import at_most, most_seconds, most_steps
from dashboard.views.sweeps import values
from dashboard.views.sweeps.compute import EXAMPLE_SWEEP, SweepData, linked, load_sweep
from dashboard.widgets.panels import caption, plain
from dashboard.widgets.params import BOUND, KEEP

RECIPE, SAME = "recipe", "same"
# The names of settings in older links.
OLD_NAMES = {
    "Place of the norm": "norm",
    "Kind of model": "kind",
    "Normalization": "normalization",
    "Feeding": "feeding",
    "Schedule": "schedule",
    "Warm-up": "warmup",
    "Batch": "batch_size",
    "Gradient clipping": "clip",
    "Words to say": "task.said",
}
LAST = "sweeps:last"
LATEST = 20  # runs on offer as the base
FEW = 6  # values on offer without a popover
FIRST_SEEDS, FIRST_SECONDS = 5, 5.0  # as many seeds as the example has


def controls(data: SweepData | None) -> SweepConfig | None:
    """Draw the controls; the config of the sweep, or None with the reason on the page."""
    base, name = _base(data)
    if base is None:
        return None
    axis, most = _axis(base), at_most("under_way", RUNS)
    try:
        selected = _values(base, axis, f"sweeps:values:{name}:{axis}")
        seeds = st.slider(
            "Seeds of each value",
            SEEDS[0],
            SEEDS[1],
            FIRST_SEEDS,
            key="sweeps:seeds",
            **BOUND,
            help="Each value is trained this many times; more seeds give narrower intervals.",
        )
        base, equal, seconds = _length(base, name)
        config = SweepConfig(base, axis, tuple(selected), tuple(range(seeds)), equal, seconds)
        config.try_models()
        if len(config.cells) > most:
            raise ConfigError(
                f"{len(config.cells)} runs are more than the {most} that a person may have here. Choose "
                "fewer values or seeds."
            )
    except ConfigError as error:
        st.error(plain(str(error)))
        return None
    st.caption(
        f"{len(config.cells)} of at most {most} runs, {jobs.max_workers()} at a time. All other settings are "
        "those of the base. No run ends early."
    )
    return config


def _axis(base: RunConfig) -> str:
    """The setting that is varied; links once held its name."""
    axes, key = values.axes(base), "sweeps:axis"
    names = {name_of(axis, base.task): axis for axis in axes} | OLD_NAMES
    if st.session_state.get(key, axes[0]) not in axes:
        del st.session_state[key]  # another base had it
    link_value(key, axes[0], lambda text: one_of(axes)(names.get(text, text)))
    return (
        st.selectbox(
            "Vary",
            axes,
            format_func=lambda axis: name_of(axis, base.task),
            key=key,
            **KEEP,
            help="The one setting that differs between the runs.",
        )
        or axes[0]
    )


def _base(data: SweepData | None) -> tuple[RunConfig | None, str]:
    """The base: a task's recipe, the base of the page's sweep, or a run; and the name that its settings' keys have."""
    runs = {run.id: run for run in _own_runs()}
    options = [RECIPE, *[SAME] * (data is not None and data.sweep != EXAMPLE_SWEEP), *runs]
    if st.session_state.get("sweeps:from") not in options:
        st.session_state.pop("sweeps:from", None)  # that run was deleted
    start = RECIPE
    if len(options) > 1:
        labels = {RECIPE: "A recipe", SAME: "The sweep shown here"} | {
            key: _label(run) for key, run in runs.items()
        }
        start = (
            st.selectbox(
                "Base",
                options,
                format_func=labels.__getitem__,
                key="sweeps:from",
                **BOUND,
                help="Where all other settings come from.",
            )
            or RECIPE
        )
    if start == SAME and data is not None:
        return data.config.base, data.sweep.id
    if start in runs:
        return runs[start].config(), start
    keys = [entry.key for entry in TASKS]
    key = st.selectbox(
        "Task",
        keys,
        format_func=lambda k: task_entry(k).name,
        key="sweeps:task",
        **BOUND,
        help="What the models learn.",
    )
    try:
        task = task_of(TaskConfig.of(key))
        kind = st.selectbox(
            "Model",
            list(task.recommended),
            format_func=lambda k: MODEL_NAMES.get(k, k),
            key=f"sweeps:kind:{key}",
            **BOUND,
            help="The architecture that is trained.",
        )
        return recommended(task, kind), f"{key}:{kind}"
    except (ConfigError, ValueError) as error:
        st.error(plain(f"{error} Train one run of this task first; then select it as the base."))
        return None, ""


def _own_runs() -> list[Run]:
    """The latest readable runs that belong to no sweep."""
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
    """The selected values, in a popover where many are on offer. ConfigError for one that cannot be read."""
    names, hint = list(values.offered(base, axis)), values.example(axis, base)
    few = len(names) <= FEW
    # The popover's label stays the same: it is part of its identity, and another popover would be closed.
    panel: Any = (
        st.container()
        if few
        else st.popover("Values", width="stretch", icon=":material/checklist:")
    )
    with panel:
        selected = st.multiselect(
            "Values",
            names,
            values.first(base, axis),
            key=key,
            max_selections=VALUES[1],
            help=hint or "The values that are trained.",
            accept_new_options=bool(hint),
            **BOUND,
        )
    if not few:
        caption(f"{len(selected)} values: {', '.join(map(plain, selected))}")
    return [values.read(base, axis, name) for name in selected]


def _length(base: RunConfig, name: str) -> tuple[RunConfig, str, float]:
    """Equal steps or equal seconds, and how many."""
    equal = st.segmented_control(
        "Equal for all runs",
        EQUAL,
        default=EQUAL[0],
        required=True,
        key="sweeps:equal",
        format_func=str.capitalize,
        **BOUND,
        help="All runs have the same number of steps or the same seconds of training.",
    )
    if equal == "seconds":
        low, high = BOUNDS["trained"]
        seconds = st.number_input(
            "Seconds of training",
            float(low),
            float(min(high, most_seconds())),
            FIRST_SECONDS,
            1.0,
            key="sweeps:seconds",
            **BOUND,
            help="Evaluation is not counted. The learning rate is constant after the warm-up.",
        )
        return base, equal, seconds
    example = EXAMPLE_SWEEP.config().base
    same = (base.task, base.model) == (
        example.task,
        example.model,
    )  # the set-up is that of the picture beside it
    steps = st.number_input(
        "Steps",
        1,
        most_steps(),
        min(most_steps(), example.steps if same else base.steps),
        50,
        key=f"sweeps:steps:{name}",
        **BOUND,
        help="Training steps of each run.",
    )
    return replace(base, steps=steps, record_every=max(1, steps // 25)), equal, FIRST_SECONDS


def linked_sweep() -> tuple[Sweep, str]:
    """The sweep of the link, else the session's last or a running one; and a warning about the link."""
    sweep_id = st.query_params.get("sweep")
    if sweep_id is None and by_history():
        st.session_state[LAST] = None  # the reader went back to the example
    if sweep_id is None and (
        last := linked(st.session_state[LAST]) if LAST in st.session_state else _running()
    ):
        st.query_params["sweep"] = sweep_id = last.id
    if not sweep_id:
        return EXAMPLE_SWEEP, ""
    sweep = linked(sweep_id)
    st.session_state[LAST] = sweep.id if sweep else None
    if sweep is None:
        return (
            EXAMPLE_SWEEP,
            "The sweep in the link is not on this machine or was deleted. Below is the example.",
        )
    return sweep, ""


def _running() -> Sweep | None:
    """The newest live sweep, which a new session shows."""
    return next(
        (
            sweep
            for sweep in reversed(list_sweeps())
            if isinstance(data := load_sweep(sweep), SweepData) and data.live
        ),
        None,
    )


def select_sweep(sweep: Sweep) -> None:
    """Make this the page's sweep, in the link too."""
    if sweep == EXAMPLE_SWEEP:
        st.query_params.pop("sweep", None)
        st.session_state[LAST] = None  # so that no running sweep replaces it
        return
    st.query_params["sweep"] = st.session_state[LAST] = sweep.id
