"""The attention of every run at one step, on the same held-out example: what each output put on its source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dashboard.charts import source_attention
from dashboard.components.multiples import Tile
from dashboard.runtime.attention_frames import KINDS, best_head, steps_with_maps, tokens, watched_examples
from dashboard.views.compare_runs.controls import ComparedRun

Head = tuple[int, int]


@dataclass(frozen=True, eq=False)
class SourceWeights:
    """What the outputs of one example put on its source at one step: weights (layers, H, T, S) and their words."""

    step: int
    weights: np.ndarray
    rows: tuple[str, ...]
    columns: tuple[str, ...]


def split_by_task(sides: Sequence[ComparedRun]) -> tuple[list[ComparedRun], list[ComparedRun]]:
    """The runs whose maps can stand side by side, which watch the same held-out examples, and the others."""
    able = [side for side in sides if steps_with_maps(side.shown)]
    if not able:
        return [], list(sides)
    task = able[0].shown.config.task
    same = [side for side in able if side.shown.config.task == task]
    return same, [side for side in sides if side not in same]


def steps(sides: Sequence[ComparedRun]) -> list[int]:
    """Every step at which one of the runs kept its maps."""
    return sorted({step for side in sides for step in steps_with_maps(side.shown)})


def shared_step(sides: Sequence[ComparedRun]) -> int:
    """The last step that all of them reached, and kept if there is one."""
    steps_by_run = [set(steps_with_maps(side.shown)) for side in sides]
    return max(set.intersection(*steps_by_run), default=max(steps_by_run[0]))


def examples(side: ComparedRun) -> list[str]:
    """The held-out examples that a run watches, as one line each."""
    task, config = side.shown.task(), side.shown.config
    return [task.separator.join(task.display_tokens(example)[0])
            for example in watched_examples(config.task, config.watch)]


def source_weights(side: ComparedRun, step: int, example: int) -> SourceWeights | None:
    """The maps of a run at the step, or at the last it kept before; None where it has none of its source."""
    before = [kept for kept in steps_with_maps(side.shown) if kept <= step]
    if not before:
        return None
    kept, config, task = side.item.run.frame(before[-1]), side.shown.config, side.shown.task()
    watched = watched_examples(config.task, config.watch)
    if example >= len(watched):
        return None
    source = task.display_tokens(watched[example])[0]
    for kind in KINDS:
        weights = kept.get(f"{example}:{kind}")
        if weights is None:
            continue
        rows, columns = tokens(side.shown, example, kind)
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
    result = source_weights(side, steps_with_maps(side.shown)[-1], 0)
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
        drawn.append(Tile(side.name, note, weights, None, side.place))
    return drawn, rows, columns, other
