"""The measurements of a run at one step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from core.serialization import OLD_NAMES, renamed
from core.tasks.metrics import balanced_accuracy

# Tests of the plain JSON values in the fields of a run's files.


Test = Callable[[Any], bool]
LARGEST = 1e300


def number(value: Any) -> bool:
    """A finite number that a float can hold."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def any_number(value: Any) -> bool:
    """A number, NaN or infinity: the values of a run that diverged."""
    return number(value) or (isinstance(value, float) and not math.isfinite(value))


def count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 10**9


def text(value: Any) -> bool:
    """A text that UTF-8 can write."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def words(value: Any) -> bool:
    return (
        isinstance(value, list)
        and all(isinstance(word, str) for word in value)
        and text("".join(value))
    )


def flag(value: Any) -> bool:
    return isinstance(value, bool)


def maybe(test: Test) -> Test:
    return lambda value: value is None or test(value)


def table(test: Test) -> Test:
    """Rows of such values, all of one length above 0."""
    return lambda value: (
        isinstance(value, list)
        and all(isinstance(row, list) and row and all(map(test, row)) for row in value)
        and len(set(map(len, value))) == 1
    )


def list_of(test: Test) -> Test:
    return lambda value: isinstance(value, list) and all(map(test, value))


def counts(value: Any) -> bool:
    """A square table of counts, not all 0."""
    return table(count)(value) and len(value) == len(value[0]) and any(map(any, value))


def objects_with(fields: dict[str, Test], optional: dict[str, Test] | None = None) -> Test:
    """A list of objects with these fields, the optional ones, and no other."""
    known = fields | (optional or {})
    return lambda value: (
        isinstance(value, list)
        and all(
            isinstance(item, dict)
            and fields.keys() <= item.keys() <= known.keys()
            and all(known[name](part) for name, part in item.items())
            for item in value
        )
    )


def record_fields(number: Test) -> dict[str, Test]:
    """The tests of a Record's fields, by a test of numbers."""
    optional = maybe(number)
    return {
        **dict.fromkeys(
            (
                "train_loss",
                "loss",
                "known_loss",
                "token_accuracy",
                "sequence_accuracy",
                "bleu",
                "chrf",
                "unknown",
                "even",
                "error",
                "indexer_loss",
                "gradient",
                "rate",
                "tokens_per_second",
                "data_share",
            ),
            optional,
        ),
        **dict.fromkeys(("elapsed", "train_seconds"), number),
        **dict.fromkeys(("step", "held_out"), count),
        "expected": maybe(table(number)),
        "confusion": maybe(counts),
        "gradients": lambda value: (
            isinstance(value, dict) and len(value) <= 500 and all(map(optional, value.values()))
        ),
        **dict.fromkeys(("final", "capped"), flag),
        **dict.fromkeys(("cut", "best"), maybe(count)),
        "examples": objects_with(
            {"source": words, "target": words, "predicted": words}, {"cut": flag}
        ),
        "buckets": objects_with(
            {"lengths": text, "count": count, "sequence_accuracy": number, "bleu": optional},
            {"chrf": optional},
        ),
    }


FIELDS = record_fields(number)  # of a record in an uploaded zip
LOOSE_FIELDS = record_fields(any_number)  # of a record on this machine, which may have diverged


def fits(data: Mapping[str, Any], fields: Mapping[str, Test]) -> bool:
    """Whether every value passes its field's test; fields may be missing, unknown ones fail."""
    return all(name in fields and fields[name](value) for name, value in data.items())


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

    source: tuple[str, ...]
    target: tuple[str, ...]
    predicted: tuple[str, ...]
    cut: bool = False

    @property
    def right(self) -> bool:
        return self.predicted == self.target


@dataclass(frozen=True)
class Bucket:
    """Scores over the held-out sources of one range of lengths, such as 11–20 tokens."""

    lengths: str
    count: int
    sequence_accuracy: float
    bleu: float | None = None
    chrf: float | None = None


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
    on making batches. `elapsed` are seconds with measuring, `train_seconds` without.

    `unknown` is the share of held-out target tokens that the vocabulary lacks, `known_loss` the loss of the others;
    None where all are known. In a final record, `capped` is whether the cap on seconds ended the run before its last
    step, `best` the step whose weights were measured if not the last.

    `maps` holds the attention of the first `num_examples` examples, "0:cross" -> (layers, H, T, S). `buckets` has the
    free-running scores by source length. `confusion` counts a label's held-out items by class (row) and predicted class
    (column), in the order of the task's classes.
    """

    step: int
    train_loss: float | None = None
    loss: float | None = None
    token_accuracy: float | None = None
    sequence_accuracy: float | None = None
    bleu: float | None = None
    chrf: float | None = None
    expected: tuple[tuple[float, ...], ...] | None = None
    even: float | None = None
    error: float | None = None
    cut: int | None = None
    unknown: float | None = None
    known_loss: float | None = None
    indexer_loss: float | None = None
    gradient: float | None = None
    gradients: dict[str, float] = field(default_factory=dict)
    rate: float | None = None
    tokens_per_second: float | None = None
    data_share: float | None = None
    elapsed: float = 0.0
    train_seconds: float = 0.0
    held_out: int = 0
    final: bool = False
    capped: bool = False
    best: int | None = None
    examples: tuple[Prediction, ...] = ()
    buckets: tuple[Bucket, ...] = ()
    confusion: tuple[tuple[int, ...], ...] | None = None
    maps: dict[str, np.ndarray] = field(default_factory=dict, compare=False, repr=False)

    def __getattr__(self, name: str) -> Any:
        """A field by the name that it had before, which the plug-ins of readers still use."""
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
        data = asdict(replace(self, maps={}))
        del data["maps"]
        return {key: _finite(_lists(value)) for key, value in data.items()}

    @classmethod
    def from_json(cls, data: dict) -> Record:
        """The record in a line of metrics.jsonl; ValueError for an invalid field."""
        data = renamed(data, "record")
        if isinstance(data.get("buckets"), list):
            data["buckets"] = [
                renamed(bucket, "record") if isinstance(bucket, dict) else bucket
                for bucket in data["buckets"]
            ]
        if "step" not in data or not fits(data, LOOSE_FIELDS):
            raise ValueError("a record needs a step, and numbers in its number fields")
        examples = tuple(
            Prediction(
                tuple(e["source"]), tuple(e["target"]), tuple(e["predicted"]), bool(e.get("cut"))
            )
            for e in data.pop("examples", ())
        )
        buckets = tuple(Bucket(**bucket) for bucket in data.pop("buckets", ()))
        expected, confusion = (
            None if rows is None else tuple(map(tuple, rows))
            for rows in (data.pop("expected", None), data.pop("confusion", None))
        )
        return cls(
            **data, examples=examples, buckets=buckets, expected=expected, confusion=confusion
        )


def _lists(value: object) -> object:
    """A value with its tuples as lists."""
    if isinstance(value, tuple | list):
        return [_lists(part) for part in value]
    return {key: _lists(part) for key, part in value.items()} if isinstance(value, dict) else value


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def one_a_step(records: Iterable[Record]) -> list[Record]:
    """The records in the order of their steps: the final one replaces the last of its step."""
    by_step = {record.step: record for record in records}
    return [by_step[step] for step in sorted(by_step)]
