"""Kernel benchmarks, and the weights that a kernel implies."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from core.attention import AttentionConfig, Choice
from core.attention.cost import Measurement
from core.seeding import seeded_layer
from core.studies.racing import Race, machine
from core.tokens import embed
from dashboard.views.efficient.controls import ROUNDS, SHORTEST, Controls, limits

D_MODEL, HEADS, SEED = 64, 4, 126


@dataclass(frozen=True)
class Implied:
    """The weights (H, T, T) of one kernel on the sentence, and their error."""

    kernel: str
    weights: np.ndarray
    mean_error: float  # mean |difference| from exact's over all cells of all heads
    largest: float  # of all its weights


def implied(choice: Choice, tokens: tuple[str, ...], causal: bool) -> Implied:
    """The weights of a kernel on these tokens, with the same seeded projections for every kernel."""
    config = AttentionConfig(D_MODEL, HEADS, mask="causal" if causal else "none", kernel=choice)
    weights, exact_weights = (
        weights_of(config, tokens),
        weights_of(config.with_(kernel=Choice("exact")), tokens),
    )
    return Implied(
        choice.key,
        weights.numpy(),
        float((weights - exact_weights).abs().mean()),
        float(weights.max()),
    )


def weights_of(config: AttentionConfig, tokens: tuple[str, ...]) -> Tensor:
    """The weights (H, T, T) of the seeded layer on these tokens."""
    with torch.no_grad():
        weights = seeded_layer(config, SEED)(embed(tokens, D_MODEL, SEED)).weights
    assert weights is not None
    return weights[0]


def start_race(controls: Controls, clock: Callable[[], float] = time.perf_counter) -> Race:
    """Start measuring these kernels in a thread, at lengths that double up to the longest."""
    lengths = [SHORTEST]
    while lengths[-1] < controls.longest:
        lengths.append(2 * lengths[-1])
    return Race(
        controls.configs()[0],
        lengths,
        rounds=ROUNDS,
        limits=limits(controls.device),
        backward=controls.backward,
        device=controls.device,
        clock=clock,
    )


@dataclass(frozen=True)
class Result:
    """The points of a race, and their conditions."""

    controls: Controls
    points: tuple[Measurement, ...]
    machine: str

    @classmethod
    def of_race(cls, controls: Controls, race: Race) -> Result:
        """What a race has measured so far."""
        return cls(controls, tuple(race.points), machine(race.device))

    def of(self, kernel: str) -> list[Measurement]:
        """The points of one kernel that were measured, shortest first."""
        return [point for point in self.points if point.name == kernel and not point.skipped]

    def skipped(self) -> list[Measurement]:
        """The first skipped length of each kernel."""
        first: dict[str, Measurement] = {}
        for point in self.points:
            if point.skipped:
                first.setdefault(point.name, point)
        return list(first.values())

    def to_json(self) -> dict[str, Any]:
        """Plain values; `asked` is the stored key of the controls."""
        controls = {
            **asdict(self.controls),
            "kernels": [choice.to_json() for choice in self.controls.kernels],
        }
        return {
            "machine": self.machine,
            "asked": controls,
            "points": [asdict(point) for point in self.points],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Result:
        kernels = tuple(Choice.from_json(choice) for choice in data["asked"]["kernels"])
        controls = Controls(**{**data["asked"], "kernels": kernels})
        return cls(
            controls, tuple(Measurement(**point) for point in data["points"]), data["machine"]
        )
