"""Held-out measurements: teacher-forced (loss, accuracy, attention mass) and free-running (exact, BLEU, chrF)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from core.models import ModelConfig, ModelOutput, map_tokens
from core.tasks import Batch, Example, Task, TaskConfig, make_task
from core.tasks.metrics import by_length, score
from core.training.objectives import objective
from core.training.record import Bucket, Prediction
from core.training.source_maps import axis_tokens

CHUNK = 50  # examples of a batch
FRAME_NUMBERS = 500_000  # weights saved at one step: 1 MB


class Stopped(Exception):
    """Raised inside a measurement when a stop is requested."""


@dataclass(frozen=True)
class TeacherForced:
    """Teacher-forced measures, as in Record; `expected` and `even` are None where the task expects no position."""

    loss: float
    letters: float | None
    expected: tuple[tuple[float, ...], ...] | None
    even: float | None
    confusion: tuple[tuple[int, ...], ...] | None = None
    unknown: float | None = None
    known_loss: float | None = None


def never_stop() -> bool:
    return False


@torch.no_grad()
def measure_teacher_forced(
    model, task: Task, examples, device: str, stop: Callable[[], bool] = never_stop
) -> TeacherForced:
    """Loss, accuracy and attention mass on the expected positions over `examples`, under teacher forcing."""
    form, mass = objective(task), AttentionMass()
    loss = right = unknown_loss = 0.0
    count, unknown, tables = 0, 0, []
    for start in range(0, len(examples), CHUNK):
        if stop():
            raise Stopped
        part = examples[start : start + CHUNK]
        batch = task.collate(part).to(device)
        keys = expected_keys(task, part, form.outputs(batch), device)
        output = model(batch.source, batch.source_mask, batch.target_in, record=keys is not None)
        sums = form.teacher_forced(output.logits, batch)
        loss, right, count = loss + sums[0], right + sums[1], count + sums[2]
        part_loss, part_count = form.unknown(output.logits, batch)
        unknown_loss, unknown = unknown_loss + part_loss, unknown + part_count
        if (table := form.confusion(output.logits, batch)) is not None:
            tables.append(table)
        if keys is not None:
            mass.add(output, batch, keys)
    confusion = tuple(map(tuple, torch.stack(tables).sum(0).tolist())) if tables else None
    known = (
        (unknown / count, (loss - unknown_loss) / max(1, count - unknown))
        if unknown
        else (None, None)
    )
    return TeacherForced(
        loss / count, None if math.isnan(right) else right / count, *mass.mean(), confusion, *known
    )


class AttentionMass:
    """Sums, by layer and head, the weight on expected keys, and the weight that uniform attention puts there."""

    def __init__(self) -> None:
        self.total: Tensor | None = None
        self.rows = self.even = 0.0

    def add(self, output: ModelOutput, batch: Batch, keys: Tensor) -> None:
        """Add a batch; `keys` (B, T, K) are the expected source positions of each output, padded with −1."""
        if not output.source_attention:
            return
        mass = torch.stack(
            [_mass(weights, keys) for weights in output.source_attention]
        )  # (layers, H)
        self.total = mass if self.total is None else self.total + mass
        expected = (keys >= 0).sum(-1)
        self.rows += float((expected > 0).sum())
        if output.uniform is not None:
            self.even += float(_mass(output.uniform[:, None], keys))
            return
        visible = (
            batch.source_mask.sum(1, keepdim=True) if output.visible is None else output.visible
        )
        self.even += float((expected / visible).sum())

    def mean(self) -> tuple[tuple[tuple[float, ...], ...] | None, float | None]:
        if self.total is None or not self.rows:
            return None, None
        return tuple(
            tuple(layer) for layer in (self.total / self.rows).tolist()
        ), self.even / self.rows


def expected_keys(
    task: Task, examples: Sequence[Example], length: int, device: str
) -> Tensor | None:
    """The expected source positions of each output (B, T, K), padded with −1; None where the task expects none."""
    keys = [row for row in map(task.places, examples) if row is not None]
    if len(keys) < len(examples):
        return None
    most = max((len(positions) for row in keys for positions in row), default=0)
    padded = [
        [
            [*positions, *[-1] * (most - len(positions))]
            for positions in (*row[:length], *[()] * (length - len(row)))
        ]
        for row in keys
    ]
    return torch.tensor(padded, device=device, dtype=torch.long)


def _mass(weights: Tensor, keys: Tensor) -> Tensor:
    """Weight (B, H, T, S) on keys (B, T, K), summed over all outputs: (H,)."""
    index = keys.clamp(min=0)[:, None].expand(-1, weights.shape[1], -1, -1)
    return (weights.gather(3, index) * (keys >= 0)[:, None]).sum((0, 2, 3))


@torch.no_grad()
def measure_free(
    model, task: Task, examples, device: str, stop: Callable[[], bool] = never_stop
) -> list[Prediction]:
    """The model's free-running output for each example."""
    predictions: list[Prediction] = []
    for start in range(0, len(examples), CHUNK):
        if stop():
            raise Stopped
        predictions += objective(task).free(model, task, examples[start : start + CHUNK], device)
    return predictions


def buckets(task: Task, predictions: list[Prediction]) -> tuple[Bucket, ...]:
    """Exact match, BLEU and chrF by source length; empty where all sources are in one range."""
    if task.form != "pairs" or task.input != "tokens":
        return ()
    sources, outputs, targets = zip(
        *((p.source, p.predicted, p.target) for p in predictions), strict=True
    )
    by_range = by_length(sources, outputs, targets, partial(score, task))
    if len(by_range) < 2:
        return ()
    return tuple(Bucket(name, count, **scores) for name, (scores, count) in by_range.items())


@torch.no_grad()
def frames(model, config: ModelConfig, task: Task, examples, device: str) -> dict[str, np.ndarray]:
    """The teacher-forced attention of each example, "0:cross" -> (layers, H, T, S), without padding.

    At least one example, and as many as fit into FRAME_NUMBERS.
    """
    if not examples:
        return {}
    batch = task.collate(examples).to(device)
    maps = model(batch.source, batch.source_mask, batch.target_in, record=True).maps
    result: dict[str, np.ndarray] = {}
    for i, example in enumerate(examples):
        cut = {}
        for kind, layers in maps.items():
            rows, columns = map(len, map_tokens(config, kind, *axis_tokens(task, example)))
            cut[f"{i}:{kind}"] = torch.stack(
                [steps.weights[i, :, :rows, :columns] for steps in layers]
            )
        result |= {
            name: weights.float().cpu().numpy() for name, weights in cut.items() if weights.numel()
        }
        if sum(weights.size for weights in result.values()) * (i + 2) / (i + 1) > FRAME_NUMBERS:
            break
    return result


def bits_by_length(
    model, config: TaskConfig, lengths: Sequence[int] = (64, 128, 256), windows: int = 100
) -> dict[int, float]:
    """Bits a token of a language model on held-out windows of each length (Press 2022).

    ConfigError when the text is too short for a length; a model with a table of positions must reach the longest.
    """
    bits = {}
    for length in lengths:
        task = make_task(
            TaskConfig.of(config.key, config.seed, **dict(config.params) | {"length": length})
        )
        bits[length] = measure_teacher_forced(
            model, task, task.held_out(windows), "cpu"
        ).loss / math.log(2)
    return bits
