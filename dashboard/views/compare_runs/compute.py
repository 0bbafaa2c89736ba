"""The compared runs, and the attention of each at one step on the same held-out example."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from core.training.record import Record
from dashboard.charts import source_attention
from dashboard.components.multiples import Tile
from dashboard.runtime.attention_frames import KINDS, best_head, steps_with_maps, tokens, watched_examples
from dashboard.runtime.run_data import RunData, load_run
from dashboard.runtime.run_summary import RunSummary

Head = tuple[int, int]
Value = Callable[[Record], float | None]
LONGEST = 30  # characters of a name beside a curve


@dataclass(frozen=True)
class ComparedRun:
    """One of the runs: its index, which gives its colour and its marker, and all that was read of it."""

    index: int
    summary: RunSummary
    data: RunData
    name: str

    @property
    def records(self) -> tuple[Record, ...]:
        return self.data.records


def sides(chosen: Sequence[RunSummary]) -> list[ComparedRun]:
    return [ComparedRun(place, item, load_run(item.run), name)
            for place, (item, name) in enumerate(zip(chosen, names(chosen), strict=True))]


def names(chosen: Sequence[RunSummary]) -> list[str]:
    """Names short enough to stand beside a curve, all different; a task that all of them learn needs no saying."""
    same = len({item.task for item in chosen}) == 1
    names: list[str] = []
    for item in chosen:
        name = item.plain_name
        if same and not item.named:
            name = name.removeprefix(f"{item.task}: ")
            name = name[:1].upper() + name[1:]
        name = name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
        names.append(name if name not in names else f"{name} ({len(names) + 1})")
    return names


def expected(record: Record) -> float | None:
    """The weight on the expected place in the head that puts most there."""
    return max(map(max, record.expected)) if record.expected else None


def latest(records: Sequence[Record], value: Value, until: Callable[[Record], bool]) -> float | None:
    """The last measured value among the records for which `until` holds."""
    values = (value(record) for record in reversed(records) if until(record))
    return next((each for each in values if each is not None), None)


@dataclass(frozen=True, eq=False)
class SourceWeights:
    """What the outputs of one example put on its source at one step: weights (layers, H, T, S) and their words."""

    step: int
    weights: np.ndarray
    rows: tuple[str, ...]
    columns: tuple[str, ...]


def split_by_task(sides: Sequence[ComparedRun]) -> tuple[list[ComparedRun], list[ComparedRun]]:
    """The runs whose maps can stand side by side, which watch the same held-out examples, and the others."""
    able = [side for side in sides if steps_with_maps(side.data)]
    if not able:
        return [], list(sides)
    task = able[0].data.config.task
    same = [side for side in able if side.data.config.task == task]
    return same, [side for side in sides if side not in same]


def steps(sides: Sequence[ComparedRun]) -> list[int]:
    """Every step at which one of the runs kept its maps."""
    return sorted({step for side in sides for step in steps_with_maps(side.data)})


def shared_step(sides: Sequence[ComparedRun]) -> int:
    """The last step that all of them reached, and kept if there is one."""
    steps_by_run = [set(steps_with_maps(side.data)) for side in sides]
    return max(set.intersection(*steps_by_run), default=max(steps_by_run[0]))


def examples(side: ComparedRun) -> list[str]:
    """The held-out examples that a run watches, as one line each."""
    task, config = side.data.task(), side.data.config
    return [task.separator.join(task.display_tokens(example)[0])
            for example in watched_examples(config.task, config.watch)]


def source_weights(side: ComparedRun, step: int, example: int) -> SourceWeights | None:
    """The maps of a run at the step, or at the last it kept before; None where it has none of its source."""
    before = [at for at in steps_with_maps(side.data) if at <= step]
    if not before:
        return None
    frame, config, task = side.summary.run.frame(before[-1]), side.data.config, side.data.task()
    watched = watched_examples(config.task, config.watch)
    if example >= len(watched):
        return None
    source = task.display_tokens(watched[example])[0]
    for kind in KINDS:
        weights = frame.get(f"{example}:{kind}")
        if weights is None:
            continue
        rows, columns = tokens(side.data, example, kind)
        heads = [source_attention.source_weights(config.model, kind, head, rows, len(source))
                 for layer in weights for head in layer]
        if all(head is not None for head in heads):
            by_head = np.stack([head[1] for head in heads if head is not None])
            stacked = by_head.reshape(*weights.shape[:2], *by_head.shape[1:])
            return SourceWeights(before[-1], stacked, heads[0][0], tuple(source))
        if task.form == "text":
            return SourceWeights(before[-1], weights, rows, columns)
    return None


def heads(side: ComparedRun) -> list[Head]:
    """The heads of a run's maps, the one that looks best where its outputs come from first."""
    result = source_weights(side, steps_with_maps(side.data)[-1], 0)
    if result is None:
        return []
    all_heads = [(layer, head) for layer in range(result.weights.shape[0]) for head in range(result.weights.shape[1])]
    best = best_head(next((record for record in reversed(side.records) if record.expected), None))
    return sorted(all_heads, key=lambda head: head != best)


def tiles(
    items: Sequence[tuple[ComparedRun, SourceWeights, Head]],
) -> tuple[list[Tile], tuple[str, ...], tuple[str, ...], list[ComparedRun]]:
    """The maps of the first run's shape as tiles, their words, and the runs whose maps have another shape."""
    rows, columns = items[0][1].rows, items[0][1].columns
    drawn, other = [], []
    for side, attention, (layer, head) in items:
        weights = attention.weights[layer, head]
        if weights.shape != (len(rows), len(columns)):
            other.append(side)
            continue
        one = attention.weights.shape[:2] == (1, 1)
        note = f"step {attention.step:,}" + ("" if one else f" · L{layer}·H{head}")
        drawn.append(Tile(side.name, note, weights, None, side.index))
    return drawn, rows, columns, other
