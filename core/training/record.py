"""The measurements of a run at one step."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import msgspec
import numpy as np

from core.entries import ConfigError, quote
from core.serialization import LARGEST, OLD_NAMES, Count, read, renamed
from core.tasks.base import balanced_accuracy

Text = Annotated[str, msgspec.Meta(pattern=r"^[^\ud800-\udfff]*$")]  # that UTF-8 can write


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

    source: tuple[Text, ...]
    target: tuple[Text, ...]
    predicted: tuple[Text, ...]
    cut: bool = False

    @property
    def right(self) -> bool:
        return self.predicted == self.target


@dataclass(frozen=True)
class Bucket:
    """Scores over the held-out sources of one range of lengths, such as 11–20 tokens."""

    lengths: Text
    count: Count
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
        if isinstance(norms := data.get("gradients"), dict) and not finite:
            # null: a norm that was not finite
            data["gradients"] = {k: math.nan if norm is None else norm for k, norm in norms.items()}
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
