"""Held-out measurements: with the right past given (cheap), and with the model running free (exact match, BLEU)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from core.decoding import greedy
from core.tasks import PAD
from core.tasks.metrics import bleu, by_length, exact_match
from core.training.record import Bucket, Prediction

CHUNK = 50  # examples between two looks at Stop


class Stopped(Exception):
    """Raised inside a measurement when Stop was asked for, so that a long decode does not delay it."""


@dataclass(frozen=True)
class Given:
    """Teacher-forced measurement; `expected` and `even` are None where the task expects no position."""

    loss: float
    letters: float
    expected: tuple[tuple[float, ...], ...] | None
    even: float | None


def never() -> bool:
    return False


@torch.no_grad()
def measure_given(model, task, examples, device: str, stop: Callable[[], bool] = never) -> Given:
    """Loss, tokens right and weight on the expected position over `examples`, the right past given."""
    loss = right = tokens = rows = even = 0.0
    mass = None
    for start in range(0, len(examples), CHUNK):
        if stop():
            raise Stopped
        part = examples[start : start + CHUNK]
        batch = task.collate(part).to(device)
        answer = model(batch.source, batch.source_mask, batch.target_in, record=True)
        kept = batch.target_out != PAD
        loss += F.cross_entropy(answer.logits[kept], batch.target_out[kept], reduction="sum").item()
        right += (answer.logits.argmax(-1)[kept] == batch.target_out[kept]).sum().item()
        tokens += kept.sum().item()
        keys = expected_keys(task, part, batch.target_out.shape[1], device)
        if keys is not None and answer.maps.get("cross"):
            found = torch.stack([_mass(steps.weights, keys) for steps in answer.maps["cross"]])  # (layers, H)
            mass = found if mass is None else mass + found
            rows += (keys >= 0).sum().item()
            even += ((keys >= 0).sum(1) / batch.source_mask.sum(1)).sum().item()
    expected = None if mass is None or not rows else tuple(tuple(layer) for layer in (mass / rows).tolist())
    return Given(loss / tokens, right / tokens, expected, even / rows if expected else None)


def expected_keys(task, examples, length: int, device: str) -> torch.Tensor | None:
    """The key each output should look at, (B, T) with -1 where none; None when the task has no such thing."""
    keys = [task.expected(example) for example in examples]
    if any(row is None for row in keys):
        return None
    padded = [list(row[:length]) + [-1] * (length - len(row)) for row in keys]
    return torch.tensor(padded, device=device)


def _mass(weights: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Weight (B, H, T, S) on keys (B, T), summed over all outputs that expect one: (H,)."""
    index = keys.clamp(min=0)[:, None, :, None].expand(-1, weights.shape[1], -1, 1)
    there = weights.gather(3, index).squeeze(3)  # (B, H, T)
    return (there * (keys >= 0)[:, None, :]).sum((0, 2))


@torch.no_grad()
def measure_free(model, task, examples, device: str, stop: Callable[[], bool] = never) -> list[Prediction]:
    """What the model writes for each example when it runs free, greedily."""
    found = []
    for start in range(0, len(examples), CHUNK):
        if stop():
            raise Stopped
        part = examples[start : start + CHUNK]
        batch = task.collate(part).to(device)
        written = greedy(model, batch.source, batch.source_mask, task.max_target + 1).tolist()
        for example, ids in zip(part, written, strict=True):
            found.append(Prediction(example.source, example.target, tuple(task.target_vocab.decode(ids))))
    return found


def score(task, predictions: list[Prediction]) -> dict[str, float]:
    """Exact match, and BLEU where the task asks for it."""
    written, wanted = [p.predicted for p in predictions], [p.target for p in predictions]
    scores = {"exact": exact_match(written, wanted)}
    if "bleu" in task.metrics:
        scores["bleu"] = bleu(written, wanted)
    return scores


def buckets(task, predictions: list[Prediction]) -> tuple[Bucket, ...]:
    """The same scores by the length of the source; none where all sources are of one range."""
    sources, written, wanted = zip(*((p.source, p.predicted, p.target) for p in predictions), strict=True)
    exact = by_length(sources, written, wanted, exact_match)
    if len(exact) < 2:
        return ()
    likeness = by_length(sources, written, wanted, bleu) if "bleu" in task.metrics else {}
    return tuple(Bucket(name, count, share, likeness[name][0] if likeness else None)
                 for name, (share, count) in exact.items())


@torch.no_grad()
def cross_maps(model, task, examples, device: str) -> dict[str, np.ndarray]:
    """The cross-attention of each example, right past given: number -> (layers, H, T, S), cut to its own tokens."""
    if not examples:
        return {}
    batch = task.collate(examples).to(device)
    layers = model(batch.source, batch.source_mask, batch.target_in, record=True).maps.get("cross")
    if not layers:
        return {}
    stacked = torch.stack([steps.weights for steps in layers], dim=1).float().cpu().numpy()  # (B, layers, H, T, S)
    queries = (batch.target_out != PAD).sum(1).tolist()
    keys = batch.source_mask.sum(1).tolist()
    return {str(i): stacked[i, :, :, : queries[i], : keys[i]] for i in range(len(examples))}
