"""What a run says about itself at one step."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace

import numpy as np

from core.tasks.metrics import balanced_accuracy
from core.training.fields import LOOSE_FIELDS, fits


def cap_reached(seconds: float, steps: int) -> str:
    """That the cap on seconds ended a run before its last step, as a sentence after another."""
    return (f" The cap of {seconds:g} s ended it before step {steps:,}: its numbers depend on how fast this machine "
            "was.")


@dataclass(frozen=True)
class Prediction:
    """A held-out example and what the model, left to itself, makes of it (tokens); `cut` where decoding reached its cap
    before an end mark."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    predicted: tuple[str, ...]
    cut: bool = False

    @property
    def right(self) -> bool:
        return self.predicted == self.target


@dataclass(frozen=True)
class Bucket:
    """How well it went for held-out sources of one range of lengths, such as 11–20 tokens."""

    lengths: str
    count: int
    exact: float
    bleu: float | None = None
    chrf: float | None = None


@dataclass(frozen=True)
class Record:
    """One step of a run, measured.

    Losses are nats a token (a squared error for a series). `letters` is the share of tokens right with the right past
    given, `exact` the share of whole outputs right when the model runs free (of classes, for a label), `error` a
    series' absolute error as a share of that of repeating the last season. `cut` counts the outputs that reached the
    cap of decoding (one token more than the longest target) without an end mark. `expected` holds, a layer and a head,
    the mean weight on the position the output comes from, and `even` what uniform attention would put there.

    Since the record before: `gradient` is the mean norm of all gradients before clipping, `gradients` the norm by part
    of the model in the last step, `rate` the learning rate of that step, `data_share` the share of the training time
    that went into making batches. `elapsed` are seconds with measuring, `trained` without.

    `unknown` is the share of held-out target tokens that the vocabulary does not have, and `known_loss` the loss of the
    others; None where all are known. Of a final record, `capped` is whether the cap on seconds ended the run before its
    last step, and `best` the step whose weights it measured, where those are not the last ones.

    `maps` holds the attention of the watched examples, "0:cross" -> (layers, H, T, S). `buckets` tells long sources
    from short ones, wherever the model ran free. `confusion` counts a label's held-out items by their class (row) and
    by what the model predicts (column), in the order of the task's classes.
    """

    step: int
    train_loss: float | None = None
    loss: float | None = None
    letters: float | None = None
    exact: float | None = None
    bleu: float | None = None
    chrf: float | None = None
    expected: tuple[tuple[float, ...], ...] | None = None
    even: float | None = None
    error: float | None = None
    cut: int | None = None
    unknown: float | None = None
    known_loss: float | None = None
    gradient: float | None = None
    gradients: dict[str, float] = field(default_factory=dict)
    rate: float | None = None
    tokens_per_second: float | None = None
    data_share: float | None = None
    elapsed: float = 0.0
    trained: float = 0.0
    held_out: int = 0
    final: bool = False
    capped: bool = False
    best: int | None = None
    examples: tuple[Prediction, ...] = ()
    buckets: tuple[Bucket, ...] = ()
    confusion: tuple[tuple[int, ...], ...] | None = None
    maps: dict[str, np.ndarray] = field(default_factory=dict, compare=False, repr=False)

    @property
    def balanced(self) -> float | None:
        """Balanced accuracy, 0 to 1; None where no class is told."""
        return None if self.confusion is None else balanced_accuracy(self.confusion)

    @property
    def validation_loss(self) -> float | None:
        """The loss that chooses the best weights: without tokens that no model of this vocabulary can get right."""
        return self.loss if self.known_loss is None else self.known_loss

    def to_json(self) -> dict:
        """The record as plain JSON values, without maps; a value that is not finite becomes null."""
        data = asdict(replace(self, maps={}))
        del data["maps"]
        return {key: _finite(_lists(value)) for key, value in data.items()}

    @classmethod
    def from_json(cls, data: dict) -> Record:
        """The record a line of metrics.jsonl holds; ValueError for a field that cannot hold what it does."""
        data = dict(data)
        if "step" not in data or not fits(data, LOOSE_FIELDS):
            raise ValueError("a record has a step, and numbers where numbers stand")
        examples = tuple(
            Prediction(tuple(e["source"]), tuple(e["target"]), tuple(e["predicted"]), bool(e.get("cut")))
            for e in data.pop("examples", ())
        )
        buckets = tuple(Bucket(**bucket) for bucket in data.pop("buckets", ()))
        expected, confusion = (None if rows is None else tuple(map(tuple, rows))
                               for rows in (data.pop("expected", None), data.pop("confusion", None)))
        return cls(**data, examples=examples, buckets=buckets, expected=expected, confusion=confusion)

    def numbers(self) -> tuple:
        """What must be the same from the same seed: everything but the clock."""
        scores = (self.train_loss, self.loss, self.letters, self.exact, self.bleu, self.chrf, self.error, self.expected,
                  self.confusion)
        return (self.step, *scores, self.gradient, self.gradients, self.examples)


def _lists(value: object) -> object:
    """A value with lists where it has tuples, as JSON reads it back."""
    if isinstance(value, tuple | list):
        return [_lists(part) for part in value]
    return {key: _lists(part) for key, part in value.items()} if isinstance(value, dict) else value


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value
