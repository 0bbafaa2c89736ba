"""A model's attention on one example of its task, and what it predicts there, under teacher forcing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from core.attention import Steps
from core.models import Model, ModelConfig, map_tokens
from core.tasks import Example, Task
from core.trace import AttentionMap, AttentionTrace
from core.training.source_maps import axis_tokens


@dataclass(frozen=True, eq=False)
class ExampleReading:
    """Every layer's maps; for each output position, the most probable token or class and its probability."""

    trace: AttentionTrace
    predicted: tuple[tuple[str, float], ...]


@torch.no_grad()
def read_example(model: Model, config: ModelConfig, task: Task, example: Example) -> ExampleReading:
    """Run a model in eval mode on one example; a series has no `predicted`."""
    batch = task.collate([example])
    output = model(batch.source, batch.source_mask, batch.target_in, record=True)
    maps = []
    for kind, layers in output.maps.items():
        rows, columns = map_tokens(config, kind, *axis_tokens(task, example))
        for layer, steps in enumerate(layers):
            weights = steps.weights[0, :, : len(rows), : len(columns)].float().numpy()
            maps.append(
                AttentionMap(
                    kind, layer, weights, rows, columns, _allowed(steps, len(rows), len(columns))
                )
            )
    return ExampleReading(
        AttentionTrace(tuple(maps), task.name), _predicted(output.logits[0], task)
    )


def _predicted(logits: torch.Tensor, task: Task) -> tuple[tuple[str, float], ...]:
    if task.form == "series":
        return ()
    names = task.classes if task.form == "label" else task.target_vocab.tokens
    shares, ids = logits.reshape(-1, logits.shape[-1]).softmax(-1).max(-1)
    return tuple(
        (str(names[index]), share)
        for index, share in zip(ids.tolist(), shares.tolist(), strict=True)
    )


def _allowed(steps: Steps, rows: int, columns: int) -> np.ndarray | None:
    """The mask of the example, (1, T, S), the same for every head."""
    if steps.mask is None:
        return None
    return steps.mask[:1, :1].expand(1, 1, rows, columns)[0].numpy()
