"""What √D does: variance of the scores and entropy of the weights with and without it, measured as D grows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from core.attention import attend
from core.seeding import seeded_generator
from dashboard.charts.numbers import number

DIMS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
QUERIES, KEYS = 64, 64


@dataclass(frozen=True)
class Point:
    """One size: variance of the scores and mean entropy of the rows (nats), dot product alone and divided by √D."""

    dims: int
    variance: float
    scaled_variance: float
    entropy: float
    scaled_entropy: float


def measure(seed: int) -> tuple[Point, ...]:
    """64 standard normal queries against 64 such keys at each D from 1 to 512."""
    generator = seeded_generator(seed, "scaling")
    return tuple(point(dims, generator) for dims in DIMS)


def point(dims: int, generator: torch.Generator) -> Point:
    q, k = (torch.randn(1, 1, rows, dims, generator=generator) for rows in (QUERIES, KEYS))
    alone, scaled = attend(q, k, k, scale=1.0), attend(q, k, k)
    variances = (float(steps.scores.var()) for steps in (alone, scaled))
    return Point(dims, *variances, entropy(alone.weights), entropy(scaled.weights))


def entropy(weights: torch.Tensor) -> float:
    """Mean over rows of −Σ w ln w, in nats; a weight of 0 adds nothing."""
    return float(torch.special.entr(weights).sum(-1).mean())


def sentence(points: tuple[Point, ...]) -> str:
    """The measured sentence, at the largest D."""
    last = points[-1]
    even = math.log(KEYS)
    return (f"At D = {last.dims} the dot products vary by {number(last.variance)} and the weights keep "
            f"{number(last.entropy / even)} of the entropy of even attention; divided by √{last.dims} they vary by "
            f"{number(last.scaled_variance)} and keep {number(last.scaled_entropy / even)}.")
