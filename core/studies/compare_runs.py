"""The compared runs, their measures, and the attention of each at one step on the same held-out example."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from core.interpret.trace import Head
from core.runs.runs import Run
from core.tasks import Example, Task, task_of
from core.training import Record, RunConfig, SourceMaps, best_head, source_maps, watched_examples

Value = Callable[[Record], float | None]


@dataclass(frozen=True)
class ComparedRun:
    """A run: its index, which gives its colour and marker, its name, what its folder held, and the steps with maps.

    Two are equal where their names, their folders and the steps are.
    """

    index: int
    name: str
    run: Run
    config: RunConfig | None = field(compare=False)  # None where it cannot be read
    records: tuple[Record, ...] = field(compare=False)
    steps: tuple[int, ...]
    live: bool = field(compare=False)

    @property
    def required_config(self) -> RunConfig:
        """The config of a run whose config could be read."""
        assert self.config is not None
        return self.config

    @property
    def task(self) -> Task:
        return task_of(self.required_config.task)

    @property
    def watched(self) -> tuple[Example, ...]:
        """The held-out examples that it records."""
        return watched_examples(self.required_config.task, self.required_config.num_examples)


def expected(record: Record) -> float | None:
    """The weight on the expected position in the head that puts most there."""
    return max(map(max, record.expected)) if record.expected else None


def latest(
    records: Sequence[Record], value: Value, until: Callable[[Record], bool]
) -> float | None:
    """The last measured value among the records for which `until` holds."""
    values = (value(record) for record in reversed(records) if until(record))
    return next((each for each in values if each is not None), None)


@dataclass(frozen=True)
class Measure:
    """A value that records hold; a `share` of 1 is drawn in percent."""

    key: str
    label: str
    name: str
    value: Value
    share: bool = True


MEASURES = (
    Measure("sequence_accuracy", "Accuracy", "Sequence accuracy", lambda r: r.sequence_accuracy),
    Measure("error", "Error", "Error, relative to repeating the last season", lambda r: r.error),
    Measure("token_accuracy", "Token accuracy", "Token accuracy", lambda r: r.token_accuracy),
    Measure("bleu", "BLEU", "BLEU", lambda r: r.bleu, False),
    Measure("chrf", "chrF", "chrF", lambda r: r.chrf, False),
    Measure("loss", "Validation loss", "Validation loss", lambda r: r.loss, False),
    Measure("train_loss", "Training loss", "Training loss", lambda r: r.train_loss, False),
    Measure("expected", "Expected weight", "Weight on the expected position, best head", expected),
)


def measures(sides: Sequence[ComparedRun]) -> list[Measure]:
    """The measures that any of the runs has, named after the task where it is the same in all."""
    names = {measure.key: measure.name for measure in MEASURES}
    if len({side.config.task for side in sides if side.config is not None}) == 1:
        task = next(side.task for side in sides if side.config is not None)
        names["token_accuracy"] = f"{task.unit} accuracy".capitalize()
        if task.form == "label":
            names["sequence_accuracy"] = "Accuracy"
    return [
        replace(measure, name=names[measure.key])
        for measure in MEASURES
        if any(measure.value(record) is not None for side in sides for record in side.records)
    ]


def split_by_task(sides: Sequence[ComparedRun]) -> tuple[list[ComparedRun], list[ComparedRun]]:
    """The runs that log the same held-out examples, so that their maps can be compared, and the others."""
    task = next((side.required_config.task for side in sides if side.steps), None)
    same = [side for side in sides if side.steps and side.required_config.task == task]
    return same, [side for side in sides if side not in same]


def steps(sides: Sequence[ComparedRun]) -> tuple[int, ...]:
    """The steps of which any of the runs has maps."""
    return tuple(sorted({step for side in sides for step in side.steps}))


def examples(side: ComparedRun) -> list[str]:
    """The held-out examples that a run watches, as one line each."""
    task = side.task
    return [task.separator.join(task.display_tokens(example)[0]) for example in side.watched]


def source_at(side: ComparedRun, step: int, example: int) -> tuple[int, SourceMaps | None]:
    """The last step with maps up to that one (-1 without any), and the maps; None where none is of its source."""
    step = max((each for each in side.steps if each <= step), default=-1)
    config, watched = side.required_config, side.watched
    if step < 0 or example >= len(watched):
        return step, None
    frame = side.run.frame(step)
    return step, source_maps(config.model, side.task, frame, watched[example], example)


def heads(side: ComparedRun) -> list[Head]:
    """The heads of a run's maps, the one with most weight on the expected position first."""
    _, result = source_at(side, side.steps[-1], 0)
    if result is None:
        return []
    best = best_head(next((record for record in reversed(side.records) if record.expected), None))
    return sorted(np.ndindex(result.weights.shape[:2]), key=lambda head: head != best)


@dataclass(frozen=True, eq=False)
class RunMap:
    """The attention (T, S) of one head of a run, at the step of the note."""

    run: ComparedRun
    note: str
    weights: np.ndarray


class Maps(NamedTuple):
    """Maps of one shape with the tokens of their rows and columns, and the runs whose maps have another shape."""

    maps: list[RunMap]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    others: list[ComparedRun]


def maps_at(
    sides: Sequence[ComparedRun], step: int, example: int, heads: Sequence[Head | None]
) -> Maps:
    """The map of each run's head at a step, as far as it has the shape of the first one."""
    items = [
        (side, at, attention, head)
        for side, head in zip(sides, heads, strict=True)
        if head is not None
        for at, attention in (source_at(side, step, example),)
        if attention is not None
    ]
    maps = Maps([], items[0][2].rows, items[0][2].columns, []) if items else Maps([], (), (), [])
    for side, at, attention, (layer, head) in items:
        weights = attention.weights[layer, head]
        if weights.shape == (len(maps.rows), len(maps.columns)):
            of = "" if attention.weights.shape[:2] == (1, 1) else f" · L{layer}·H{head}"
            maps.maps.append(RunMap(side, f"step {at:,}{of}", weights))
        else:
            maps.others.append(side)
    return maps


@lru_cache(maxsize=4)
def maps_over_time(
    sides: tuple[ComparedRun, ...], example: int, heads: tuple[Head | None, ...]
) -> list[list[RunMap]]:
    """The maps of `maps_at` at each of the `steps`."""
    return [maps_at(sides, step, example, heads).maps for step in steps(sides)]
