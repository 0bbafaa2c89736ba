"""The measurements of a run at one step, a Record, and how they are made of held-out items: teacher-forced (loss,
accuracy, attention mass) and free-running (exact, BLEU, chrF)."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
import torch
import torch.nn.functional as F

from core.entries import ConfigError, quote
from core.interpret.trace import AttentionMap, AttentionTrace, Kind
from core.models import Model, ModelConfig, map_tokens
from core.models.decoding import EOS, greedy
from core.serialization import LARGEST, OLD_NAMES, Count, read, renamed
from core.tasks import (
    METRICS,
    PAD,
    UNK,
    Batch,
    Example,
    Metric,
    Task,
    TaskConfig,
    balanced_accuracy,
    make_task,
    score,
    task_of,
)

Scores = Annotated[dict[str, float], msgspec.Meta(max_length=500)]
Letters = Annotated[str, msgspec.Meta(pattern=r"^[^\ud800-\udfff]*$")]  # that UTF-8 can write


def cap_reached(seconds: float, steps: int) -> str:
    """A sentence: the cap on seconds ended the run before its last step."""
    return (
        f" The time limit of {seconds:g} s ended it before step {steps:,}, so its numbers depend on the speed of "
        "the machine."
    )


@dataclass(frozen=True)
class Prediction:
    """A held-out example and the free-running model's output, as tokens; `cut`: it reached the cap without an end
    mark."""

    source: tuple[Letters, ...]
    target: tuple[Letters, ...]
    predicted: tuple[Letters, ...]
    cut: bool = False

    @property
    def right(self) -> bool:
        return self.predicted == self.target


@dataclass(frozen=True)
class Bucket:
    """Scores over the held-out sources of one range of lengths, such as 11–20 tokens."""

    lengths: Letters
    count: Count
    sequence_accuracy: float
    bleu: float | None = None
    chrf: float | None = None
    scores: Scores = field(default_factory=dict)


@dataclass(frozen=True)
class Record:
    """The measurements of one step.

    Losses are nats a token (squared error for a series). `token_accuracy` is under teacher forcing,
    `sequence_accuracy` of whole free-running outputs (of classes, for a label), `error` a series' absolute error divided by
    that of repeating the last season. `cut` counts the outputs that reached the cap of decoding (one token more than
    the longest target) without an end mark. `expected` is, by layer and head, the mean weight on the position the
    output comes from, `even` the weight that uniform attention puts there.

    Since the last record: `indexer_loss` is the mean over steps and layers of the loss that trains lightning indexers
    (None without any), `gradient` is the mean norm of all gradients before clipping, `gradients` the norm by part of
    the model in the last step, `rate` the learning rate of that step, `data_share` the share of the training time spent
    on making batches. `elapsed` are seconds with measuring, `train_seconds` without. `changes` is how far each part of
    the model is from its start (`core.training.weight_changes`); empty in runs of older versions.

    `unknown` is the share of held-out target tokens that the vocabulary lacks, `known_loss` the loss of the others;
    None where all are known. In a final record, `capped` is whether the cap on seconds ended the run before its last
    step, `best` the step whose weights were measured if not the last.

    `scores` are the metrics of the task's own, by key (core.tasks.Metric), which are attributes, too.

    `maps` holds the attention of the first `num_examples` examples, "0:cross" -> (layers, H, T, S). `buckets` has the
    free-running scores by source length. `confusion` counts a label's held-out items by class (row) and predicted class
    (column), in the order of the task's classes.
    """

    step: Count
    train_loss: float | None = None
    loss: float | None = None
    token_accuracy: float | None = None
    sequence_accuracy: float | None = None
    bleu: float | None = None
    chrf: float | None = None
    expected: tuple[tuple[float, ...], ...] | None = None
    even: float | None = None
    error: float | None = None
    cut: Count | None = None
    unknown: float | None = None
    known_loss: float | None = None
    indexer_loss: float | None = None
    gradient: float | None = None
    gradients: Annotated[dict[str, float], msgspec.Meta(max_length=500)] = field(
        default_factory=dict
    )
    changes: Annotated[dict[str, float], msgspec.Meta(max_length=500)] = field(default_factory=dict)
    rate: float | None = None
    tokens_per_second: float | None = None
    data_share: float | None = None
    elapsed: float = 0.0
    train_seconds: float = 0.0
    held_out: Count = 0
    final: bool = False
    capped: bool = False
    best: Count | None = None
    examples: tuple[Prediction, ...] = ()
    buckets: tuple[Bucket, ...] = ()
    confusion: tuple[tuple[Count, ...], ...] | None = None
    scores: Scores = field(default_factory=dict)
    maps: dict[str, np.ndarray] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        for name, rows in (("expected", self.expected), ("confusion", self.confusion)):
            if rows is not None and (len({*map(len, rows)}) != 1 or not rows[0]):
                raise ConfigError(f"{name} = {quote(rows)}; expected rows of one length.")
        if (counts := self.confusion) is not None and (
            len(counts) != len(counts[0]) or not any(map(any, counts))
        ):
            raise ConfigError(f"confusion = {quote(counts)}; expected a square of counts.")

    def __getattr__(self, name: str) -> Any:
        """A field by the name that it had before, which the plug-ins of readers still use; or a metric, None without it."""
        if name in METRICS:
            return self.scores.get(name)
        if name in OLD_NAMES["record"]:
            return getattr(self, OLD_NAMES["record"][name])
        raise AttributeError(f"a record has no {name}")

    @property
    def balanced(self) -> float | None:
        """Balanced accuracy, 0 to 1; None where no class is predicted."""
        return None if self.confusion is None else balanced_accuracy(self.confusion)

    @property
    def validation_loss(self) -> float | None:
        """The loss that chooses the best weights: of the tokens that the vocabulary has."""
        return self.loss if self.known_loss is None else self.known_loss

    def to_json(self) -> dict:
        """The record as plain JSON values, without maps; a value that is not finite becomes null."""
        data = msgspec.to_builtins(replace(self, maps={}), enc_hook=float)  # of numpy's numbers
        del data["maps"]
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in data.items()
        }

    @classmethod
    def from_json(cls, data: dict[str, Any], finite: bool = False) -> "Record":
        """The record in a line of metrics.jsonl; ConfigError for an invalid field.

        Some numbers of a run that diverged are NaN or infinite; with `finite` they are refused.
        """
        data = renamed(data, "record")
        if isinstance(buckets := data.get("buckets"), list | tuple):
            data["buckets"] = [
                renamed(one, "record") if isinstance(one, dict) else one for one in buckets
            ]
        for name in ("gradients", "changes"):
            if isinstance(norms := data.get(name), dict) and not finite:
                # null: a norm that was not finite
                data[name] = {k: math.nan if norm is None else norm for k, norm in norms.items()}
        record = read(data, cls, "A record")
        for name, value in data.items():
            for number in _numbers(value) if name != "examples" else ():  # those are texts
                if not abs(number) <= LARGEST and (finite or math.isfinite(number)):
                    raise ConfigError(f"{name} = {quote(value)}; {number:g} is not possible.")
        return record


def _numbers(value: object) -> Iterator[float]:
    if isinstance(value, int | float):
        yield value
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _numbers(part)


def one_a_step(records: Iterable[Record]) -> list[Record]:
    """The records in the order of their steps: the final one replaces the last of its step."""
    by_step = {record.step: record for record in records}
    return [by_step[step] for step in sorted(by_step)]


T = TypeVar("T")
BUCKET = 10  # tokens, of a range of lengths
CONTINUED = 64  # tokens of a displayed continuation, at most


def means(metrics: Iterable[Metric], predictions: Sequence[Prediction]) -> dict[str, float]:
    """The mean of each metric over the predictions to which it applies, by key."""
    values = {
        metric.key: [metric.of(p.source, p.target, p.predicted) for p in predictions]
        for metric in metrics
    }
    measured = {key: [one for one in every if one is not None] for key, every in values.items()}
    return {key: sum(every) / len(every) for key, every in measured.items() if every}


class Objective:
    """Pairs: cross-entropy of the next target token in nats, under teacher forcing."""

    scored = True  # whether free-running outputs are scored, or only displayed

    def loss(self, logits: torch.Tensor, batch: Batch, smoothing: float = 0.0) -> torch.Tensor:
        """The mean loss; label smoothing as in Szegedy 2016, section 7."""
        return F.cross_entropy(
            logits.flatten(0, -2),
            batch.target_out.flatten(),
            ignore_index=PAD,
            label_smoothing=smoothing,
        )

    def sums(self, logits: torch.Tensor, batch: Batch) -> tuple[float, ...]:
        """The sum of losses, the number of right outputs (nan where none can be) and that of outputs; of tokens also the
        sum of losses at those that the vocabulary lacks, and their number."""
        real, rare = batch.target_out != PAD, batch.target_out == UNK
        of_real, of_rare = (
            F.cross_entropy(logits[which], batch.target_out[which], reduction="sum").item()
            for which in (real, rare)
        )
        right = (logits[real].argmax(-1) == batch.target_out[real]).sum()
        return of_real, float(right), int(real.sum()), of_rare, int(rare.sum())

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
        scores = means(task.own_metrics, predictions)
        if task.longest_trained:
            longer = [p for p in predictions if len(p.source) > task.longest_trained]
            scores |= means([METRICS["longer"]], longer)
        cut = sum(p.cut for p in predictions)
        return {**score(task, outputs, targets), "cut": cut, "scores": scores}


class Text(Objective):
    """The next token of a text."""

    scored = False

    def free(
        self, model: Any, task: Task, examples: Sequence[Example], device: str
    ) -> list[Prediction]:
        """A continuation of the first half of each window from its last token: there is no start mark."""
        starts = [Example(e.source[: max(2, len(e.source) // 2)], ()) for e in examples]
        batch, last = (
            task.collate([Example(start.source[:-1], ()) for start in starts]).to(device),
            task.source_vocab.encode(start.source[-1] for start in starts),
        )
        written = greedy(
            model,
            batch.source,
            batch.source_mask,
            min(CONTINUED, len(examples[0].source) // 2),
            begin=torch.tensor(last, device=device),
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


class Marked(Objective):
    """The answers at marked places of the source, which a causal model gives while it reads."""

    def free(
        self, model: Any, task: Task, examples: Sequence[Example], device: str
    ) -> list[Prediction]:
        batch = task.collate(examples).to(device)
        ids, names = model(batch.source, batch.source_mask).logits.argmax(-1), task.target_vocab
        return [
            Prediction(
                *task.display_tokens(example),
                tuple(names.tokens[i] for i in row[answers != PAD].tolist()),
            )
            for example, row, answers in zip(examples, ids, batch.target_out, strict=True)
        ]


class Label(Objective):
    """One class for the whole input."""

    def loss(self, logits: torch.Tensor, batch: Batch, smoothing: float = 0.0) -> torch.Tensor:
        return F.cross_entropy(logits, batch.target_out, label_smoothing=smoothing)

    def sums(self, logits: torch.Tensor, batch: Batch) -> tuple[float, ...]:
        loss = F.cross_entropy(logits, batch.target_out, reduction="sum").item()
        right = float((logits.argmax(-1) == batch.target_out).sum())
        return loss, right, len(batch.target_out)

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

    def loss(self, logits: torch.Tensor, batch: Batch, smoothing: float = 0.0) -> torch.Tensor:
        return F.mse_loss(logits, batch.target_out)

    def sums(self, logits: torch.Tensor, batch: Batch) -> tuple[float, ...]:
        return (
            F.mse_loss(logits, batch.target_out, reduction="sum").item(),
            math.nan,
            batch.target_out.numel(),
        )

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


def confusion_matrix(logits: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
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
    "marked": Marked(),
}


def objective(task: Task) -> Objective:
    return OBJECTIVES[task.form]


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
        # and the words of each: together what the class takes of every word
        if kind == "sentences":
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
        if task.form in ("text", "marked"):
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


def never_stop() -> bool:
    return False


def until(stop: Callable[[], bool], items: Iterable[T]) -> Iterator[T]:
    """The items; Stopped in place of the next one once `stop()` is true."""
    for item in items:
        if stop():
            raise Stopped
        yield item


@torch.no_grad()
def measure_teacher_forced(
    model, task: Task, examples, device: str, stop: Callable[[], bool] = never_stop
) -> dict[str, Any]:
    """Loss, accuracy and attention mass on the expected positions over `examples`, under teacher forcing: fields of a
    Record by name, None where the task has no such measure."""
    form, sums, tables = objective(task), np.zeros(5), []
    mass: list[torch.Tensor] = []  # of each batch the weight on expected keys, (layers, H)
    rows = even = 0.0
    for start in until(stop, range(0, len(examples), CHUNK)):
        part = examples[start : start + CHUNK]
        batch = task.collate(part).to(device)
        outputs = batch.target_out.shape[1] if task.form != "label" else 1
        keys = expected_keys(task, part, outputs, device)
        output = model(batch.source, batch.source_mask, batch.target_in, record=keys is not None)
        figures = form.sums(output.logits, batch)
        sums[: len(figures)] += figures
        if task.form == "label":
            tables.append(confusion_matrix(output.logits, batch.target_out))
        if keys is None or not output.source_attention:
            continue
        mass.append(torch.stack([_mass(weights, keys) for weights in output.source_attention]))
        expected = (keys >= 0).sum(-1)
        rows += float((expected > 0).sum())
        if output.uniform is not None:
            even += float(_mass(output.uniform[:, None], keys))
        else:
            total = batch.source_mask.sum(1, keepdim=True)
            even += float((expected / (total if output.visible is None else output.visible)).sum())
    loss, right, count, unknown_loss, unknown = sums.tolist()
    measured: dict[str, Any] = {
        "loss": loss / count,
        "token_accuracy": None if math.isnan(right) else right / count,
    }
    if unknown:
        measured |= {
            "unknown": unknown / count,
            "known_loss": (loss - unknown_loss) / ((count - unknown) or math.inf),
        }
    if rows:
        measured |= {
            "expected": tuple(map(tuple, (torch.stack(mass).sum(0) / rows).tolist())),
            "even": even / rows,
        }
    if tables:
        measured["confusion"] = tuple(map(tuple, torch.stack(tables).sum(0).tolist()))
    return measured


def expected_keys(
    task: Task, examples: Sequence[Example], length: int, device: str
) -> torch.Tensor | None:
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


def _mass(weights: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Weight (B, H, T, S) on keys (B, T, K), summed over all outputs: (H,)."""
    index = keys.clamp(min=0)[:, None].expand(-1, weights.shape[1], -1, -1)
    return (weights.gather(3, index) * (keys >= 0)[:, None]).sum((0, 2, 3))


@torch.no_grad()
def measure_free(
    model, task: Task, examples, device: str, stop: Callable[[], bool] = never_stop
) -> list[Prediction]:
    """The model's free-running output for each example."""
    predictions: list[Prediction] = []
    for start in until(stop, range(0, len(examples), CHUNK)):
        predictions += objective(task).free(model, task, examples[start : start + CHUNK], device)
    return predictions


def buckets(task: Task, predictions: list[Prediction]) -> tuple[Bucket, ...]:
    """Exact match, BLEU, chrF and the task's own for sources of 1–10 tokens, 11–20, …, or of all lengths of training and
    the longer ones; without empty ranges, and empty where all sources are in one range."""
    width = task.longest_trained or BUCKET
    by_range: dict[int, list[Prediction]] = defaultdict(list)
    for one in predictions if task.form in ("pairs", "marked") and task.input == "tokens" else ():
        by_range[(len(one.source) - 1) // width].append(one)
    every = tuple(
        Bucket(
            f"{width * place + 1}–{width * (place + 1)}",
            len(inside),
            **score(task, [one.predicted for one in inside], [one.target for one in inside]),
            scores=means(task.own_metrics, inside),
        )
        for place, inside in sorted(by_range.items())
    )
    return every if len(every) > 1 else ()


@torch.no_grad()
def frames(model, config: ModelConfig, task: Task, examples, device: str) -> dict[str, np.ndarray]:
    """The teacher-forced attention of each example, "0:cross" -> (layers, H, T, S), without padding.

    At least one example, and as many as fit into FRAME_NUMBERS.
    """
    batch = task.collate(examples).to(device)
    maps = model(batch.source, batch.source_mask, batch.target_in, record=True).maps
    result: dict[str, np.ndarray] = {}
    for i, example in enumerate(examples):
        for kind, layers in maps.items():
            rows, columns = map(len, map_tokens(config, kind, *axis_tokens(task, example)))
            weights = torch.stack([steps.weights[i, :, :rows, :columns] for steps in layers])
            if weights.numel():
                result[f"{i}:{kind}"] = weights.float().cpu().numpy()
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
        measured = measure_teacher_forced(model, task, task.held_out(windows), "cpu")
        bits[length] = measured["loss"] / math.log(2)
    return bits


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
    maps: list[AttentionMap] = []
    predicted: tuple[tuple[str, float], ...] = ()
    for kind, layers in output.maps.items():
        rows, columns = map_tokens(config, kind, *axis_tokens(task, example))
        shape = len(rows), len(columns)
        for layer, steps in enumerate(layers):
            weights = steps.weights[0, :, : shape[0], : shape[1]].float().numpy()
            mask = steps.mask  # (1, T, S), the same for every head
            allowed = None if mask is None else mask[:1, :1].expand(1, 1, *shape)[0].numpy()
            maps.append(AttentionMap(kind, layer, weights, rows, columns, allowed))
    if task.form != "series":
        names = task.classes if task.form == "label" else task.target_vocab.tokens
        shares, ids = output.logits[0].reshape(-1, output.logits.shape[-1]).softmax(-1).max(-1)
        predicted = tuple(
            (task.shown(str(names[index])), share)
            for index, share in zip(ids.tolist(), shares.tolist(), strict=True)
        )
    return ExampleReading(AttentionTrace(tuple(maps), task.name), predicted)


@lru_cache(maxsize=8)
def watched_examples(config: TaskConfig, count: int) -> tuple[Example, ...]:
    """The held-out examples whose maps a run saves."""
    return task_of(config).held_out(count)[:count]


def best_head(record: Record | None) -> tuple[int, int]:
    """The (layer, head) with most weight on the expected positions; the first where nothing is expected."""
    if record is None or not record.expected:
        return 0, 0
    weights = np.array(record.expected)
    layer, head = np.unravel_index(weights.argmax(), weights.shape)
    return int(layer), int(head)
