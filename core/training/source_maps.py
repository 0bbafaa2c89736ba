"""What the outputs of a trained model attend to in the source, from the attention that a run saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from core.models import ModelConfig, map_tokens
from core.tasks import Example, Task
from core.trace import Kind

# The attention of outputs to their source first.
KINDS: tuple[Kind, ...] = ("cross", "causal", "self", "sentences", "words")


def axis_tokens(task: Task, example: Example) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """What `map_tokens` names the axes of an example's maps by: source, and target (None where a model reads none)."""
    source, target = task.display_tokens(example)
    return source, target if task.form in ("pairs", "series") else None


@dataclass(frozen=True, eq=False)
class SourceMaps:
    """The weights (layers, H, T, S) of the outputs of one example on its source, and the tokens of both."""

    weights: np.ndarray
    rows: tuple[str, ...]
    columns: tuple[str, ...]


def source_maps(
    config: ModelConfig, task: Task, frame: Mapping[str, np.ndarray], example: Example, number: int
) -> SourceMaps | None:
    """The maps of the watched example of that number in a frame of a run; None where none is of its source.

    A language model, which has no source, gives its own maps; a hierarchical model's words and sentences are
    multiplied.
    """
    source, target = axis_tokens(task, example)
    for kind in KINDS:
        weights = frame.get(f"{number}:{kind}")
        if weights is None:
            continue
        if (
            kind == "sentences"
        ):  # and the words of each: together what the class takes of every word
            weights = weights @ frame[f"{number}:words"]
        rows, columns = map_tokens(config, kind, source, target)
        heads = [
            read
            for layer in weights
            for head in layer
            if (read := source_weights(config, kind, head, rows, len(source))) is not None
        ]
        if heads:
            by_head = np.stack([head for _, head in heads])
            return SourceMaps(
                by_head.reshape(*weights.shape[:2], *by_head.shape[1:]), heads[0][0], tuple(source)
            )
        if task.form == "text":
            return SourceMaps(weights, rows, columns)
    return None


def source_weights(
    config: ModelConfig, kind: str, weights: np.ndarray, rows: Sequence[str], length: int
) -> tuple[tuple[str, ...], np.ndarray] | None:
    """The outputs' names and weights (T, S) on the source's `length` positions; None for a map of something else."""
    if kind == "cross":
        return tuple(rows), weights
    if kind == "sentences":
        return ("class",), weights
    if config.kind == "classifier":
        return ("class",), weights[:1, 1:] if config.pool == "first" else weights.mean(
            0, keepdims=True
        )
    if (
        len(rows) > length
        and (config.kind == "forecaster" or kind == "causal")
        and weights.shape[1] > length
    ):
        return tuple(rows[length:]), weights[length:, :length]
    return None
