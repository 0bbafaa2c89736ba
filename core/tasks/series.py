"""A random seasonal series, whose next values are close to those of one season ago."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from core.entries import Param
from core.models.base import Shape
from core.tasks import recipes
from core.tasks.base import Batch, Example, Form, Task, TaskConfig, TaskEntry
from core.tasks.rows import in_held_out

DRIFT, NOISE, TREND = (
    0.3,
    0.15,
    0.3,
)  # standard deviations: between seasons, of a moment, of a season's slope
SPIKE = 4.0
PRECISION = 1000  # steps a unit, for the hash that decides the side of the split


class Seasons(Task):
    """Predict the next season from `seasons` seasons; each series has a random season of its own.

    The season drifts from one to the next and the series has a linear trend. `anomalies` is the share of the moments
    read that are spikes, of SPIKE standard deviations of the season; the target has none.
    """

    form: Form = "series"
    input = "series"
    unit, whole = "moment", "forecasts"
    metrics = ("error",)

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        super().__init__(config, entry)
        self.period, self.seasons = int(config["period"]), int(config["seasons"])
        self.anomalies = float(config["anomalies"])
        self.max_source, self.max_target = self.period * self.seasons, self.period
        self.recommended = recipes.series()

    @property
    def shape(self) -> Shape:
        return Shape(1, self.max_target, self.max_source, "series", "values")

    @cached_property
    def baseline_loss(self) -> float:
        """The mean squared error of predicting each window's mean."""
        errors = [
            (value - sum(e.source) / len(e.source)) ** 2
            for e in self.held_out(200)
            for value in e.target
        ]
        return sum(errors) / len(errors)

    def naive(self, values: Sequence[float]) -> list[float]:
        return list(values[-self.period :])

    def batch(self, batch_size: int, generator: torch.Generator) -> Batch:
        return self._batch(*self._series(batch_size, generator, held_out=False))

    def draw(self, generator: torch.Generator, held_out: bool) -> Example:
        source, target = self._series(1, generator, held_out)
        return Example(tuple(source[0].tolist()), tuple(target[0].tolist()))

    def collate(self, examples: Sequence[Example]) -> Batch:
        return self._batch(
            torch.tensor([example.source for example in examples]),
            torch.tensor([example.target for example in examples]),
        )

    def display_tokens(self, example: Example) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return tuple(f"{value:.3f}" for value in example.source), tuple(
            f"{value:.3f}" for value in example.target
        )

    def example(self, text: str) -> Example:
        """A typed series, numbers with spaces or commas between; ValueError when it is none."""
        try:
            values = tuple(float(word) for word in text.replace(",", " ").split())
        except ValueError as error:
            raise ValueError(f"A series is made of numbers: {error}.") from None
        if not 2 * self.period <= len(values) <= self.max_source:
            raise ValueError(
                f"The series has {len(values)} numbers; this task reads {2 * self.period} to "
                f"{self.max_source}."
            )
        return Example(values, (0.0,) * self.period)

    def expected(self, example: Example) -> tuple[int, ...]:
        """One season back."""
        return tuple(range(len(example.source) - self.period, len(example.source)))

    def _series(
        self, count: int, generator: torch.Generator, held_out: bool
    ) -> tuple[Float[Tensor, "B S"], Float[Tensor, "B N"]]:
        """Series of one side of the split, which the first season decides."""
        firsts: list[Tensor] = []
        while sum(map(len, firsts)) < count:
            candidates = torch.randn(count + count // 4 + 16, self.period, generator=generator)
            firsts.append(
                candidates[in_held_out((candidates * PRECISION).round().long()) == held_out]
            )
        first = torch.cat(firsts)[:count]
        steps = DRIFT * torch.randn(count, self.seasons, self.period, generator=generator)
        seasons = torch.cat(
            (first[:, None], first[:, None] + steps.cumsum(1)), dim=1
        )  # (B, seasons + 1, period)
        slope = TREND * torch.randn(count, 1, generator=generator)
        moments = torch.arange((self.seasons + 1) * self.period) / self.period
        values = seasons.flatten(1) + slope * moments
        values = values + NOISE * torch.randn(values.shape, generator=generator)
        source, target = values[:, : self.max_source], values[:, self.max_source :]
        spikes = torch.rand(source.shape, generator=generator) < self.anomalies
        signs = torch.randint(2, source.shape, generator=generator) * 2 - 1
        return source + SPIKE * signs * spikes, target

    def _batch(self, source: Float[Tensor, "B S"], target: Float[Tensor, "B N"]) -> Batch:
        return Batch(source[..., None], torch.ones(source.shape, dtype=torch.bool), None, target)


SERIES: TaskEntry = TaskEntry(
    "series",
    "Time series",
    "Predict the next season of a series from the seasons before it.",
    "Each predicted moment attends to the moment one season earlier, and skips spikes.",
    lambda config: Seasons(config, SERIES),
    (
        Param("period", "Season", 12, 4, 24, 1, meaning="number of moments in a season"),
        Param("seasons", "Seasons", 4, 2, 8, 1, meaning="number of seasons in the input"),
        Param(
            "anomalies",
            "Anomalies",
            0.04,
            0.0,
            0.2,
            0.01,
            meaning="share of the input moments that are spikes",
        ),
    ),
)
