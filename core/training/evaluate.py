"""Held-out measurements: teacher-forced (loss, accuracy, attention mass) and free-running (exact, BLEU, chrF)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from core.attention import Steps
from core.interpret.trace import AttentionMap, AttentionTrace, Kind
from core.models import Model, ModelConfig, ModelOutput, map_tokens
from core.models.decoding import EOS, greedy
from core.tasks import PAD, UNK, Batch, Example, Task, TaskConfig, make_task, task_of
from core.tasks.metrics import by_length, score
from core.training.record import Bucket, Prediction, Record

# The objective of each form of task: the loss, the teacher-forced measures, and the free-running outputs.


CONTINUED = 64  # tokens of a displayed continuation, at most


class Objective:
    """Pairs: cross-entropy of the next target token in nats, under teacher forcing."""

    scored = True  # whether free-running outputs are scored, or only displayed

    def loss(self, logits: Tensor, batch: Batch, smoothing: float = 0.0) -> Tensor:
        """The mean loss; label smoothing as in Szegedy 2016, section 7."""
        return F.cross_entropy(
            logits.flatten(0, -2),
            batch.target_out.flatten(),
            ignore_index=PAD,
            label_smoothing=smoothing,
        )

    def teacher_forced(self, logits: Tensor, batch: Batch) -> tuple[float, float, int]:
        """The sum of losses, the number of right outputs, and the number of outputs."""
        real = batch.target_out != PAD
        logits, targets = logits[real], batch.target_out[real]
        loss = F.cross_entropy(logits, targets, reduction="sum")
        return loss.item(), float((logits.argmax(-1) == targets).sum()), int(real.sum())

    def unknown(self, logits: Tensor, batch: Batch) -> tuple[float, int]:
        """The sum of losses at target tokens that the vocabulary lacks, and their number."""
        mask = batch.target_out == UNK
        return F.cross_entropy(logits[mask], batch.target_out[mask], reduction="sum").item(), int(
            mask.sum()
        )

    def confusion(self, logits: Tensor, batch: Batch) -> Tensor | None:
        """The confusion matrix (K, K), rows true and columns predicted classes; None unless classes are predicted."""
        return None

    def outputs(self, batch: Batch) -> int:
        """The number of outputs of an example."""
        return batch.target_out.shape[1]

    def free(
        self, model: Any, task: Task, examples: Sequence[Example], device: str
    ) -> list[Prediction]:
        """The model's free-running output for each example."""
        batch = task.collate(examples).to(device)
        written = greedy(model, batch.source, batch.source_mask, task.max_target + 1).tolist()
        return [
            Prediction(
                *task.display_tokens(example),
                tuple(task.target_vocab.decode(ids)),
                cut=EOS not in ids,
            )
            for example, ids in zip(examples, written, strict=True)
        ]

    def score(self, task: Task, predictions: Sequence[Prediction]) -> dict[str, Any]:
        """Fields of a Record, by name."""
        outputs, targets = [p.predicted for p in predictions], [p.target for p in predictions]
        return {**score(task, outputs, targets), "cut": sum(p.cut for p in predictions)}


class Text(Objective):
    """The next token of a text."""

    scored = False

    def free(
        self, model: Any, task: Task, examples: Sequence[Example], device: str
    ) -> list[Prediction]:
        """A continuation of the first half of each window from its last token: there is no start mark."""
        starts = [Example(e.source[: max(2, len(e.source) // 2)], ()) for e in examples]
        batch, longest = (
            task.collate(starts).to(device),
            max(1, min(CONTINUED, len(examples[0].source) // 2)),
        )
        written = greedy(
            model,
            batch.source[:, :-1],
            batch.source_mask[:, :-1],
            longest,
            begin=batch.source[:, -1],
        ).tolist()
        return [
            Prediction(
                task.display_tokens(start)[0],
                task.display_tokens(whole)[0][len(start.source) :],
                tuple(task.target_vocab.decode(ids)),
            )
            for start, whole, ids in zip(starts, examples, written, strict=True)
        ]

    def score(self, task: Task, predictions: Sequence[Prediction]) -> dict[str, Any]:
        return {}


class Label(Objective):
    """One class for the whole input."""

    def loss(self, logits: Tensor, batch: Batch, smoothing: float = 0.0) -> Tensor:
        return F.cross_entropy(logits, batch.target_out, label_smoothing=smoothing)

    def unknown(self, logits: Tensor, batch: Batch) -> tuple[float, int]:
        return 0.0, 0

    def teacher_forced(self, logits: Tensor, batch: Batch) -> tuple[float, float, int]:
        loss = F.cross_entropy(logits, batch.target_out, reduction="sum")
        return (
            loss.item(),
            float((logits.argmax(-1) == batch.target_out).sum()),
            len(batch.target_out),
        )

    def confusion(self, logits: Tensor, batch: Batch) -> Tensor:
        return confusion_matrix(logits, batch.target_out)

    def outputs(self, batch: Batch) -> int:
        return 1

    def free(
        self, model: Any, task: Task, examples: Sequence[Example], device: str
    ) -> list[Prediction]:
        batch = task.collate(examples).to(device)
        predicted = model(batch.source, batch.source_mask).logits.argmax(-1).tolist()
        return [
            Prediction(*task.display_tokens(example), (task.classes[index],))
            for example, index in zip(examples, predicted, strict=True)
        ]


class Series(Objective):
    """A forecast: the mean squared error in units of the task."""

    def loss(self, logits: Tensor, batch: Batch, smoothing: float = 0.0) -> Tensor:
        return F.mse_loss(logits, batch.target_out)

    def unknown(self, logits: Tensor, batch: Batch) -> tuple[float, int]:
        return 0.0, 0

    def teacher_forced(self, logits: Tensor, batch: Batch) -> tuple[float, float, int]:
        loss = F.mse_loss(logits, batch.target_out, reduction="sum")
        return loss.item(), float("nan"), batch.target_out.numel()

    def free(
        self, model: Any, task: Task, examples: Sequence[Example], device: str
    ) -> list[Prediction]:
        batch = task.collate(examples).to(device)
        values = model(batch.source, batch.source_mask).logits.tolist()
        return [
            Prediction(*task.display_tokens(example), tuple(f"{value:.3f}" for value in row))
            for example, row in zip(examples, values, strict=True)
        ]

    def score(self, task: Task, predictions: Sequence[Prediction]) -> dict[str, Any]:
        """The absolute error divided by that of repeating the last season (MASE, Hyndman & Koehler 2006)."""
        predicted = torch.tensor([[float(x) for x in p.predicted] for p in predictions])
        targets = torch.tensor([[float(x) for x in p.target] for p in predictions])
        naive = torch.tensor([task.naive([float(x) for x in p.source]) for p in predictions])
        return {"error": float((predicted - targets).abs().mean() / (naive - targets).abs().mean())}


def confusion_matrix(logits: Tensor, classes: Tensor) -> Tensor:
    """The confusion matrix (K, K) of logits (B, K) and true classes (B,): rows true, columns predicted."""
    count = logits.shape[-1]
    return torch.bincount(classes * count + logits.argmax(-1), minlength=count**2).view(
        count, count
    )


OBJECTIVES: dict[str, Objective] = {
    "pairs": Objective(),
    "text": Text(),
    "label": Label(),
    "series": Series(),
}


def objective(task: Task) -> Objective:
    """The objective of a task's form."""
    return OBJECTIVES[task.form]


# What the outputs of a trained model attend to in the source, from the attention that a run saved.


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


CHUNK = 50  # examples of a batch
FRAME_NUMBERS = 500_000  # weights saved at one step: 1 MB


class Stopped(Exception):
    """Raised inside a measurement when a stop is requested."""


@dataclass(frozen=True)
class TeacherForced:
    """Teacher-forced measures, as in Record; `expected` and `even` are None where the task expects no position."""

    loss: float
    token_accuracy: float | None
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


# A model's attention on one example of its task, and what it predicts there, under teacher forcing.


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


@lru_cache(maxsize=8)
def watched_examples(config: TaskConfig, count: int) -> tuple[Example, ...]:
    """The held-out examples whose maps a run saves."""
    return task_of(config).held_out(count)[:count]


def best_head(record: Record | None) -> tuple[int, int]:
    """The (layer, head) with most weight on the expected positions; the first where nothing is expected."""
    if record is None or not record.expected:
        return 0, 0
    heads = [
        (w, -layer, -h) for layer, row in enumerate(record.expected) for h, w in enumerate(row)
    ]
    _, layer, head = max(heads)
    return -layer, -head
