"""One line on each run, read again only when its folder has changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from core.attention import ConfigError
from core.entries import quote_name
from core.files import seconds_of, text_of
from core.finetune.config import FineTuneConfig
from core.finetune.run import about, config_of, is_fine_tune
from core.run_index import Details
from core.tasks import task_entry
from core.training.config import RunConfig
from core.training.record import Record
from core.training.run_storage import LONGEST_NAME, size
from core.training.runs import LISTED, Run, Status, list_runs
from dashboard.runtime.example_runs import EXAMPLE_RUNS, status_of
from dashboard.runtime.run_data import file_stamp
from dashboard.runtime.run_labels import EXAMPLE, STATES, fine_tune_label, model_label, run_label

CURVE = 40  # points of a small curve


@dataclass(frozen=True)
class RunSummary:
    """One run in a line; `trouble` is the error where its config cannot be read."""

    run: Run
    name: str
    named: bool
    config: RunConfig | None  # None for a fine-tuning run, too
    task: str
    status: Status
    created: float
    steps: int
    trained: float  # seconds
    loss: float | None
    curve: tuple[float, ...]  # held-out loss
    last: Record | None  # the latest in which the model ran free
    checkpoint_steps: tuple[int, ...]  # at which weights are saved
    bytes: int
    parent: str = ""
    sweep: str = ""
    trouble: str = ""
    tuned: FineTuneConfig | None = None
    planned_steps: int = 0

    @property
    def example(self) -> bool:
        return self.run in EXAMPLE_RUNS

    @property
    def plain_name(self) -> str:
        """The name without the mark of an example."""
        return self.name.removesuffix(EXAMPLE)

    @property
    def live(self) -> bool:
        return not self.status.ended


def summarize(run: Run) -> RunSummary:
    """Summarize a run; cached until its files change."""
    names = ("metrics.jsonl", "run.json", "status.json", "checkpoints")
    return _read(run, tuple(file_stamp(run.path / name) for name in names))


@lru_cache(maxsize=512)
def _read(run: Run, _changed: tuple[tuple[int, int], ...]) -> RunSummary:
    metadata, records, trouble = run.metadata(), run.records(), ""
    config: RunConfig | None = None
    tuned: FineTuneConfig | None = None
    try:
        if is_fine_tune(run):
            tuned = config_of(run)
        else:
            config = run.config()
    except (ConfigError, TypeError, ValueError, KeyError) as error:
        trouble = f"Its settings cannot be read: {error}"
    losses = [record.loss for record in records if record.loss is not None]
    every = -(-len(losses) // CURVE) or 1
    name, parent, sweep = (
        text_of(metadata.get("name"), LONGEST_NAME),
        metadata.get("parent"),
        metadata.get("sweep"),
    )
    return RunSummary(
        run=run,
        name=name or run_label(config, run in EXAMPLE_RUNS, tuned),
        named=bool(name),
        config=config,
        task=task_entry(config.task.key).name if config else fine_tune_label(tuned),
        status=status_of(run),
        tuned=tuned,
        planned_steps=config.steps if config else _count(about(run).get("steps")),
        created=seconds_of(metadata.get("created")),
        steps=records[-1].step if records else 0,
        trained=records[-1].trained if records else 0.0,
        loss=losses[-1] if losses else None,
        curve=tuple(losses[::every]),
        last=next(
            (r for r in reversed(records) if r.exact is not None or r.error is not None), None
        ),
        checkpoint_steps=tuple(run.checkpoint_steps()),
        bytes=size(run),
        trouble=trouble,
        parent=f"{_shown(parent, 'run')} at step {_shown(parent, 'step')}"
        if isinstance(parent, dict)
        else "",
        sweep=f"sweep {_shown(sweep, 'id')}" if isinstance(sweep, dict) else "",
    )


def _count(value: object) -> int:
    return value if isinstance(value, int) and value >= 0 else 0


def _shown(data: dict[str, Any], name: str) -> str:
    return quote_name(data[name]) if name in data else "unknown"


def describe(run: Run) -> Details:
    """What the index of runs has of a run."""
    item = summarize(run)
    words = [item.name, item.task, STATES.get(item.status.state, ""), item.parent, item.sweep]
    if item.config is None:
        return Details(" ".join(words).casefold(), measured=bool(item.curve))
    config = item.config
    words += [model_label(config.model), config.task.key, config.optimizer, f"seed {config.seed}"]
    return Details(
        " ".join(words).casefold(),
        _digest(config.task.to_json()),
        _digest(config.to_json()),
        None if item.last is None else _score(item),
        item.trained,
        bool(item.curve),
    )


def _digest(data: object) -> str:
    return hashlib.sha1(json.dumps(data, sort_keys=True).encode()).hexdigest()


def list_summaries() -> list[RunSummary]:
    """The newest runs, the newest first, examples last."""
    return [summarize(run) for run in (*reversed(list_runs(latest=LISTED)), *EXAMPLE_RUNS)]


def rival(item: RunSummary, items: Sequence[RunSummary]) -> RunSummary | None:
    """The best of the runs of the same task with another config."""
    if item.config is None or item.last is None:
        return None
    same = [
        other
        for other in items
        if other.run != item.run
        and other.config is not None
        and other.config.task == item.config.task
        and other.config != item.config
        and other.last is not None
    ]
    return max(same, key=lambda other: (_score(other), -other.trained), default=None)


def _score(item: RunSummary) -> float:
    assert item.last is not None
    return -item.last.error if item.last.error is not None else item.last.exact or 0.0
