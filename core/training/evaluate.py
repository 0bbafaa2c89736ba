"""Held-out measurements: with the right past given (cheap), and with the model left to itself (exact, BLEU, chrF)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from core.models import ModelConfig, ModelOutput, map_tokens
from core.tasks import Batch, Example, Task
from core.tasks.metrics import by_length, score
from core.training.objectives import objective
from core.training.record import Bucket, Prediction

CHUNK = 50  # examples between two looks at Stop
FRAME_NUMBERS = 500_000  # weights kept at one step: 1 MB


class Stopped(Exception):
    """Raised inside a measurement when Stop was asked for, so that a long decode does not delay it."""


@dataclass(frozen=True)
class TeacherForced:
    """Teacher-forced measurement; `expected` and `even` are None where the task expects no position, `confusion` where
    it tells no class."""

    loss: float
    letters: float | None
    expected: tuple[tuple[float, ...], ...] | None
    even: float | None
    confusion: tuple[tuple[int, ...], ...] | None = None
    unknown: float | None = None  # the share of target tokens that the vocabulary does not have, where there are any
    known_loss: float | None = None  # the loss of the others


def never_stop() -> bool:
    return False


@torch.no_grad()
def measure_teacher_forced(
    model, task: Task, examples, device: str, stop: Callable[[], bool] = never_stop
) -> TeacherForced:
    """Loss, tokens right and weight on the expected position over `examples`, the right past given."""
    asks, mass = objective(task), AttentionMass()
    loss = right = unknown_loss = 0.0
    count, unknown, tables = 0, 0, []
    for start in range(0, len(examples), CHUNK):
        if stop():
            raise Stopped
        part = examples[start : start + CHUNK]
        batch = task.collate(part).to(device)
        keys = expected_keys(task, part, asks.outputs(batch), device)
        answer = model(batch.source, batch.source_mask, batch.target_in, record=keys is not None)
        for_part = asks.teacher_forced(answer.logits, batch)
        loss, right, count = loss + for_part[0], right + for_part[1], count + for_part[2]
        their_loss, their_count = asks.unknown(answer.logits, batch)
        unknown_loss, unknown = unknown_loss + their_loss, unknown + their_count
        if (table := asks.confusion(answer.logits, batch)) is not None:
            tables.append(table)
        if keys is not None:
            mass.add(answer, batch, keys)
    share = right / count
    counted = tuple(map(tuple, torch.stack(tables).sum(0).tolist())) if tables else None
    apart = (unknown / count, (loss - unknown_loss) / max(1, count - unknown)) if unknown else (None, None)
    return TeacherForced(loss / count, None if math.isnan(share) else share, *mass.mean(), counted, *apart)


class AttentionMass:
    """Adds up, a layer and a head, the weight on expected keys, and what even attention would put there."""

    def __init__(self) -> None:
        self.total: Tensor | None = None
        self.rows = self.even = 0.0

    def add(self, answer: ModelOutput, batch: Batch, keys: Tensor) -> None:
        """`keys` (B, T, K) holds the places in the source that each output may look at, −1 filling up."""
        if not answer.source_attention:
            return
        mass = torch.stack([_mass(weights, keys) for weights in answer.source_attention])  # (layers, H)
        self.total = mass if self.total is None else self.total + mass
        visible = batch.source_mask.sum(1, keepdim=True) if answer.visible is None else answer.visible
        there = (keys >= 0).sum(-1)
        self.rows += float((there > 0).sum())
        self.even += float((there / visible).sum())

    def mean(self) -> tuple[tuple[tuple[float, ...], ...] | None, float | None]:
        if self.total is None or not self.rows:
            return None, None
        return tuple(tuple(layer) for layer in (self.total / self.rows).tolist()), self.even / self.rows


def expected_keys(task: Task, examples: Sequence[Example], length: int, device: str) -> Tensor | None:
    """The keys each output may well look at, (B, T, K), −1 filling up; None when the task has no such thing."""
    keys = [row for row in map(task.places, examples) if row is not None]
    if len(keys) < len(examples):
        return None
    most = max((len(places) for row in keys for places in row), default=0)
    padded = [[[*places, *[-1] * (most - len(places))] for places in (*row[:length], *[()] * (length - len(row)))]
              for row in keys]
    return torch.tensor(padded, device=device, dtype=torch.long)


def _mass(weights: Tensor, keys: Tensor) -> Tensor:
    """Weight (B, H, T, S) on keys (B, T, K), summed over all outputs: (H,)."""
    index = keys.clamp(min=0)[:, None].expand(-1, weights.shape[1], -1, -1)
    there = weights.gather(3, index)  # (B, H, T, K)
    return (there * (keys >= 0)[:, None]).sum((0, 2, 3))


@torch.no_grad()
def measure_free(model, task: Task, examples, device: str, stop: Callable[[], bool] = never_stop) -> list[Prediction]:
    """What the model says for each example when it is left to itself."""
    predictions: list[Prediction] = []
    for start in range(0, len(examples), CHUNK):
        if stop():
            raise Stopped
        predictions += objective(task).free(model, task, examples[start : start + CHUNK], device)
    return predictions


def buckets(task: Task, predictions: list[Prediction]) -> tuple[Bucket, ...]:
    """Exact match, BLEU and chrF by the length of the source; none where all sources are of one range."""
    if task.form != "pairs" or task.input != "tokens":
        return ()
    sources, outputs, targets = zip(*((p.source, p.predicted, p.target) for p in predictions), strict=True)
    by_range = by_length(sources, outputs, targets, partial(score, task))
    if len(by_range) < 2:
        return ()
    return tuple(Bucket(name, count, **scores) for name, (scores, count) in by_range.items())


@torch.no_grad()
def frames(model, config: ModelConfig, task: Task, examples, device: str) -> dict[str, np.ndarray]:
    """The attention of each example, the right past given: "0:cross" -> (layers, H, T, S), cut to its own tokens.

    As many examples as fit into FRAME_NUMBERS, and one at least.
    """
    if not examples:
        return {}
    batch = task.collate(examples).to(device)
    maps = model(batch.source, batch.source_mask, batch.target_in, record=True).maps
    result: dict[str, np.ndarray] = {}
    for i, example in enumerate(examples):
        source, target = task.display_tokens(example)
        target_tokens = None if task.form in ("text", "label") else target
        cut = {}
        for kind, layers in maps.items():
            rows, columns = map(len, map_tokens(config, kind, source, target_tokens))
            cut[f"{i}:{kind}"] = torch.stack([steps.weights[i, :, :rows, :columns] for steps in layers])
        result |= {name: weights.float().cpu().numpy() for name, weights in cut.items() if weights.numel()}
        if sum(weights.size for weights in result.values()) * (i + 2) / (i + 1) > FRAME_NUMBERS:
            break
    return result
