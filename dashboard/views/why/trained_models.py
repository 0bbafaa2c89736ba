"""The results of a trained model, of this session or saved: curves, scores by length, and one sentence."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from core.runs.runs import Run
from core.training import Record, RunConfig
from core.training.record import Bucket
from core.training.seed_stats import SeedStats
from dashboard.views.why.controls import Model

METRICS = ("bleu", "exact")
FRAMES = 10  # of the alignment over training, and the last one


@dataclass(frozen=True)
class Point:
    """A free decode at one step: seconds of training, BLEU (0 to 100) and exact match (0 to 1)."""

    step: int
    seconds: float
    bleu: float
    exact: float


@dataclass(frozen=True)
class TrainedModel:
    """One trained model; `buckets` are of its latest decode, over `held_out` sentences."""

    model: Model
    seed: int
    points: tuple[Point, ...]
    buckets: tuple[Bucket, ...]
    held_out: int

    @classmethod
    def of(cls, config: RunConfig, records: Iterable[Record]) -> TrainedModel:
        points: dict[int, Point] = {}
        buckets: tuple[Bucket, ...] = ()
        held_out = 0
        for r in records:
            if r.exact is not None and r.bleu is not None:
                points[r.step] = Point(r.step, r.trained, r.bleu, r.exact)
                buckets, held_out = r.buckets, r.held_out
        return cls(Model.of(config), config.seed, tuple(points.values()), buckets, held_out)

    def to_json(self) -> dict[str, Any]:
        points = [[p.step, round(p.seconds, 2), round(p.bleu, 3), p.exact] for p in self.points]
        return asdict(self) | {"points": points}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TrainedModel:
        points = tuple(Point(*point) for point in data["points"])
        buckets = tuple(Bucket(**bucket) for bucket in data["buckets"])
        return cls(Model(*data["model"]), data["seed"], points, buckets, data["held_out"])


@dataclass(frozen=True)
class Sentence:
    """A long held-out sentence: the output of each model, and the attention of the one that has it.

    `frames` are (step, weights (T, S)), oldest first; the target's end mark is the last row.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    outputs: Mapping[Model, tuple[str, ...]] = field(default_factory=dict)
    frames: tuple[tuple[int, np.ndarray], ...] = ()


def sentence(runs: Mapping[Model, tuple[Run, Sequence[Record]]]) -> Sentence | None:
    """The longest watched sentence of some runs, with FRAMES frames at most; None before the first decode."""
    outputs, weights, first = {}, [], None
    for model, (run, records) in runs.items():
        decoded = [r.examples for r in records if r.examples]
        if not decoded:
            continue
        index = max(range(len(decoded[0])), key=lambda i: len(decoded[0][i].source))
        first, outputs[model] = decoded[0][index], decoded[-1][index].predicted
        if model.score is not None:
            recorded = {r.step for r in records}
            steps = thinned([step for step in run.frame_steps() if step in recorded], FRAMES)
            weights = [(step, run.frame(step).get(f"{index}:cross")) for step in steps]
    if first is None:
        return None
    return Sentence(
        first.source,
        first.target,
        outputs,
        tuple((step, w[-1, 0]) for step, w in weights if w is not None),
    )


def thinned(items: Sequence[Any], most: int) -> list[Any]:
    """Every second, fourth, … item, at most `most`, and the last: the items that stay do not change as more come."""
    stride = 1
    while len(items) > most * stride:
        stride *= 2
    return [item for i, item in enumerate(items) if i % stride == 0 or i == len(items) - 1]


def models(learned: Iterable[TrainedModel]) -> list[Model]:
    """The models, the smallest first, and of one size the one without attention first."""
    return sorted(
        {one.model for one in learned},
        key=lambda m: (m.d_model, m.score is not None, m.score != "dot", m),
    )


def by_length(learned: Sequence[TrainedModel], model: Model, metric: str) -> dict[str, SeedStats]:
    """BLEU or exact match in percent, by the source's length, over the seeds of one model."""
    values: dict[str, list[float]] = {}
    for one in learned:
        for bucket in one.buckets if one.model == model else ():
            values.setdefault(bucket.lengths, []).append(_percent(bucket, metric))
    return {lengths: SeedStats(tuple(scores)) for lengths, scores in values.items()}


def over_time(
    learned: Sequence[TrainedModel], model: Model, metric: str, clock: str
) -> list[tuple[float, SeedStats]]:
    """(x, BLEU or exact match in percent) at each step that all seeds of one model have reached.

    `clock` names x: "step", or "seconds", the mean time of training.
    """
    seeds = [{point.step: point for point in one.points} for one in learned if one.model == model]
    steps = sorted(set.intersection(*map(set, seeds))) if seeds else []
    return [
        (
            statistics.fmean(getattr(points[step], clock) for points in seeds),
            SeedStats(tuple(_percent(points[step], metric) for points in seeds)),
        )
        for step in steps
    ]


def _percent(item: Bucket | Point, metric: str) -> float:
    return 100 * item.exact if metric == "exact" else float(item.bleu or 0.0)
