"""Which run the Train page shows: the one the link names, or the kept example."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import streamlit as st

from core.attention import ConfigError
from core.tasks import Task, make_task
from core.trace import AttentionMap, AttentionTrace
from core.training.config import RunConfig
from core.training.record import Record
from core.training.runs import Run, Status, find_run
from dashboard.train.setup import adopt

LAST = "train:last"
EXAMPLE = Run(Path(__file__).resolve().parents[1] / "example_run")


@dataclass(frozen=True)
class Shown:
    """All that one look at a run needs, read once; `trouble` says in words what could not be read."""

    run: Run
    config: RunConfig | None
    status: Status
    records: tuple[Record, ...]
    trouble: str = ""

    @property
    def is_example(self) -> bool:
        return self.run == EXAMPLE

    @property
    def live(self) -> bool:
        return not self.status.ended

    def task(self) -> Task:
        return make_task(self.config.task)

    def at(self, step: int | None) -> Record | None:
        """The record of a step, or the last one."""
        return next((r for r in self.records if r.step == step), self.records[-1] if self.records else None)

    def decoded_at(self, step: int) -> Record | None:
        """The latest record up to a step in which the model ran free."""
        return next((r for r in reversed(self.records) if r.step <= step and r.examples), None)


def chosen_run(asked: str | None) -> tuple[Run, str]:
    """The run a link names, and words when there is no such run (then the example is shown)."""
    if not asked:
        return EXAMPLE, ""
    run = find_run(asked)
    if run is not None:
        return run, ""
    return EXAMPLE, "The run in the link is not on this machine, or was deleted. Below is the kept example."


def asked_run() -> str | None:
    """The run the link names; without one, the run this session saw last, put back into the link."""
    asked = st.query_params.get("run")
    last = st.session_state.get(LAST)
    if asked is None and last is not None and find_run(last) is not None:
        st.query_params["run"] = asked = last
    st.session_state[LAST] = asked
    return asked


def show_example() -> None:
    """Leave the run for the kept example."""
    st.query_params.clear()
    st.session_state.pop(LAST, None)


def take_over(run: Run) -> None:
    """Once a session, when a link names a run: set the controls to that run's settings."""
    if st.session_state.setdefault("train:came-with", run.id) != run.id or "train:took" in st.session_state:
        return
    st.session_state["train:took"] = True
    config = None if run == EXAMPLE else look(run).config
    if config is not None:
        adopt(config)


def look(run: Run) -> Shown:
    """Read a run's folder; a folder that cannot be understood gives words, not an exception."""
    status = run.status()
    if run == EXAMPLE and not status.ended:
        status = Status("finished")
    try:
        config, trouble = run.config(), ""
    except (ConfigError, TypeError, ValueError, KeyError) as error:
        config, trouble = None, f"This run's settings cannot be read: {error}"
    records = {record.step: record for record in run.records()}  # the final one replaces the last of its step
    return Shown(run, config, status, tuple(records[step] for step in sorted(records)), trouble)


def frames(shown: Shown, example: int) -> list[tuple[int, np.ndarray]]:
    """(step, weights (layers, H, T, S)) of one watched example, oldest first; only steps that have a record."""
    steps = {record.step for record in shown.records}
    kept = [(step, shown.run.frame(step).get(f"{example}:cross")) for step in shown.run.frame_steps() if step in steps]
    return [(step, weights) for step, weights in kept if weights is not None]


def trace(shown: Shown, example: int, weights: np.ndarray) -> AttentionTrace:
    """The cross-attention of a watched example at one step as a trace: outputs by inputs."""
    source, target = _tokens(shown, example)
    queries, keys = (*target, "<eos>")[: weights.shape[2]], source[: weights.shape[3]]
    maps = tuple(AttentionMap("cross", layer, w, queries, keys) for layer, w in enumerate(weights))
    return AttentionTrace(maps, source=f"run {shown.run.id}")


def _tokens(shown: Shown, example: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    found = next(r.examples[example] for r in shown.records if len(r.examples) > example)
    return found.source, found.target


def best_head(record: Record | None) -> tuple[int, int]:
    """The (layer, head) that puts most weight where the output comes from; the first where nothing is expected."""
    if record is None or not record.expected:
        return 0, 0
    heads = [(w, -layer, -h) for layer, row in enumerate(record.expected) for h, w in enumerate(row)]
    _, layer, head = max(heads)
    return -layer, -head
