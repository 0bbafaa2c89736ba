"""What the page shows of a model: its parts on eight held-out examples, its attention on the first, its gradients."""

from __future__ import annotations

import statistics
import threading
from dataclasses import dataclass, replace

import numpy as np
import torch

from core.attention import Steps
from core.models import Model, ModelConfig, build_model, map_tokens
from core.models.model_summary import Part, summarize
from core.tasks import Example, Task, TaskConfig, make_task
from core.trace import AttentionMap, AttentionTrace
from core.training.objectives import objective
from dashboard.views.transformer.controls import Asked, run_of

BATCH, SEEDS = 8, 3
_SEEDING = threading.Lock()  # torch's generator is one for the whole process


@dataclass(frozen=True)
class Measured:
    """A model taken apart, and its maps on the first example, whose words stand beside it."""

    tree: Part
    trace: AttentionTrace
    source: tuple[str, ...]
    target: tuple[str, ...]
    loss: float
    form: str


def seeded(config: ModelConfig, task: Task, seed: int) -> Model:
    """A fresh model whose weights follow from the seed alone; torch's generator is left as it was."""
    with _SEEDING, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build_model(config, task.shape).eval()


def model_of(asked: Asked) -> tuple[Model, Task]:
    """The model asked for, in eval mode: nothing is dropped out. ValueError when a run's weights cannot be read."""
    run = None if asked.seeded else run_of(asked.run)
    if run is not None:
        return run.model(asked.step)
    task = make_task(asked.task)
    return seeded(asked.config, task, asked.seed), task


def measure(asked: Asked) -> Measured:
    """One pass over a batch, there and back, and one more for the maps of its first example."""
    model, task = model_of(asked)
    examples = task.held_out(BATCH)[:BATCH]
    batch, ask, losses = task.collate(examples), objective(task), []

    def loss(logits: torch.Tensor) -> torch.Tensor:
        losses.append(ask.loss(logits, batch))
        return losses[-1]

    tree = summarize(model, (batch.source, batch.source_mask, batch.target_in), loss)
    source, target = task.display_tokens(examples[0])
    trace = _trace(model, asked.config, task, examples[0])
    return Measured(tree, trace, tuple(map(str, source)), tuple(map(str, target)), losses[0].item(), task.form)


@torch.no_grad()
def _trace(model: Model, config: ModelConfig, task: Task, example: Example) -> AttentionTrace:
    """Every layer's maps on one example, the right past given."""
    batch, (source, target) = task.collate([example]), task.display_tokens(example)
    fed = None if task.form in ("text", "label") else tuple(map(str, target))
    maps = []
    for kind, layers in model(batch.source, batch.source_mask, batch.target_in, record=True).maps.items():
        rows, columns = map_tokens(config, kind, tuple(map(str, source)), fed)
        for layer, steps in enumerate(layers):
            weights = steps.weights[0, :, : len(rows), : len(columns)].float().numpy()
            maps.append(AttentionMap(kind, layer, weights, rows, columns, _allowed(steps, len(rows), len(columns))))
    return AttentionTrace(tuple(maps), task.name)


def _allowed(steps: Steps, rows: int, columns: int) -> np.ndarray | None:
    """Who may see whom in the first example, (1, T, S); one head's tells of all."""
    if steps.mask is None:
        return None
    whole = steps.mask.broadcast_to(*torch.broadcast_shapes(steps.mask.shape, (1, 1, rows, columns)))
    return whole[0, :1].numpy()


@dataclass(frozen=True)
class Depth:
    """Layer by layer over SEEDS models: the gradient's norm (mean and deviation), and how wide the output spreads."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    output: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """How much of the last layer's gradient the first one gets."""
        return self.mean[0] / self.mean[-1]


def by_depth(config: ModelConfig, task_config: TaskConfig, layers: int, norm: str) -> Depth:
    """Untrained models of that depth, with the norm before or after: each layer of the last stack.

    Xiong 2020, section 3.3, measured on the task instead of bounded.
    """
    task = make_task(task_config)
    batch, ask = task.collate(task.held_out(BATCH)[:BATCH]), objective(task)
    gradients, outputs = [], []
    for seed in range(SEEDS):
        model = seeded(replace(config, layers=layers, norm=norm, dropout=0.0), task, seed)
        tree = summarize(model, (batch.source, batch.source_mask, batch.target_in), lambda out: ask.loss(out, batch))
        last = tree.layers()[-layers:]  # the decoder's, where there is one
        gradients.append([part.gradient for part in last])
        outputs.append([part.std for part in last])
    felt, made = (list(zip(*rows, strict=True)) for rows in (gradients, outputs))
    return Depth(tuple(map(statistics.fmean, felt)), tuple(map(statistics.pstdev, felt)),
                 tuple(map(statistics.fmean, made)))
