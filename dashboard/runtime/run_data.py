"""The run that the Train page shows, and what its folder holds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import streamlit as st

from core.attention import ConfigError
from core.cost import ShapesOnly
from core.models import ModelConfig, Shape, build_model
from core.tasks import Task, TaskConfig, make_task
from core.training.config import RunConfig
from core.training.record import Record, one_a_step
from core.training.runs import METRICS, Run, Status
from dashboard.runtime.example_runs import EXAMPLE_RUNS, find_any_run
from dashboard.runtime.link_values import by_history

LAST, SETTINGS_OF = "train:last", "train:settings-of"
EXAMPLE_RUN = EXAMPLE_RUNS[0]


@lru_cache(maxsize=8)
def task_of(config: TaskConfig) -> Task:
    return make_task(config)


@lru_cache(maxsize=8)
def baselines_of(config: TaskConfig, held_out: int) -> tuple[tuple[str, float], ...]:
    """The accuracy of methods without attention, by name: the majority class, and a baseline fitted once."""
    task = task_of(config)
    majority, baseline = task.majority(held_out), task.baseline()
    named = [(f"the majority class “{majority[0]}”", majority[1])] if majority else []
    return (*named, *([baseline] if baseline else []))


@lru_cache(maxsize=128)
def count_parameters(model: ModelConfig, shape: Shape) -> int:
    """The number of weights of a model, built without memory; ConfigError where it does not fit that shape."""
    with ShapesOnly():
        return sum(weight.numel() for weight in build_model(model, shape).parameters())


@dataclass(frozen=True)
class RunData:
    """The data of a run, read once; `trouble` is the error where its config could not be read."""

    run: Run
    config: RunConfig | None
    status: Status
    records: tuple[Record, ...]
    trouble: str = ""

    @property
    def is_example(self) -> bool:
        return self.run in EXAMPLE_RUNS

    @property
    def live(self) -> bool:
        return not self.status.ended

    @property
    def required_config(self) -> RunConfig:
        """The config of a run without `trouble`."""
        assert self.config is not None
        return self.config

    def task(self) -> Task:
        return task_of(self.required_config.task)

    def baselines(self, held_out: int) -> tuple[tuple[str, float], ...]:
        return baselines_of(self.required_config.task, held_out)

    def at(self, step: int | None) -> Record:
        """The record of a step, or the last one."""
        return next((r for r in self.records if r.step == step), self.records[-1])

    def until(self, step: int) -> tuple[Record, ...]:
        return tuple(record for record in self.records if record.step <= step)

    def decoded_at(self, step: int) -> Record | None:
        """The latest record up to a step in which the model ran free."""
        return next((r for r in reversed(self.records) if r.step <= step and r.examples), None)


def linked_run(run_id: str | None) -> tuple[Run, str]:
    """The link's run, else the example and a warning."""
    if not run_id:
        return EXAMPLE_RUN, ""
    run = find_any_run(run_id)
    if run is not None:
        return run, ""
    return (
        EXAMPLE_RUN,
        "The run in the link is not on this machine, or was deleted. Below is the example run.",
    )


def linked_run_id() -> str | None:
    """The link's run, else the session's last, which is put back into the link unless the reader went back."""
    run_id = st.query_params.get("run")
    last = st.session_state.get(LAST)
    if run_id is None and last is not None and not by_history() and find_any_run(last) is not None:
        st.query_params["run"] = run_id = last
    st.session_state[LAST] = run_id
    return run_id


def select_run(run: Run) -> None:
    """Make this the run of the page, whose config the controls already show."""
    st.query_params["run"] = run.id
    st.session_state[SETTINGS_OF] = run.id


def select_example() -> None:
    """Select the example run."""
    st.query_params.pop("run", None)
    st.session_state.pop(LAST, None)


def config_from_link(run: Run) -> RunConfig | None:
    """The config of a run that a link has just brought, once; None for the example and for the session's own runs."""
    if run == EXAMPLE_RUN or st.session_state.get(SETTINGS_OF) == run.id:
        return None
    st.session_state[SETTINGS_OF] = run.id
    return load_run(run).config


def file_stamp(path: Path) -> tuple[int, int]:
    """A file's modification time and size; zeros without it."""
    try:
        stat = path.stat()
    except OSError:
        return 0, 0
    return stat.st_mtime_ns, stat.st_size


def records_of(run: Run) -> tuple[Record, ...]:
    """A run's records in file order, parsed again only after the file has changed."""
    return _parse_records(run, file_stamp(run.path / METRICS))[0]


def damage_of(run: Run) -> str:
    """How many lines of a run's records its figures leave out, as a sentence; "" where all are whole."""
    count = _parse_records(run, file_stamp(run.path / METRICS))[1]
    lines = "1 line" if count == 1 else f"{count:,} lines"
    return (
        f"{lines} of this run's records changed after they were saved; the figures leave them out."
        if count
        else ""
    )


@lru_cache(maxsize=16)
def _parse_records(run: Run, _stamp: tuple[int, int]) -> tuple[tuple[Record, ...], int]:
    records, damaged = run.read_records()
    return tuple(records), damaged


def load_run(run: Run) -> RunData:
    """Read a run's folder; an unreadable config becomes `trouble`."""
    status = run.status()
    if run in EXAMPLE_RUNS and not status.ended:
        status = Status("finished")
    try:
        config, trouble = run.config(), ""
        task_of(config.task)
    except (ConfigError, TypeError, ValueError, KeyError) as error:
        config, trouble = None, f"This run's settings cannot be read: {error}"
    return RunData(run, config, status, tuple(one_a_step(records_of(run))), trouble)
