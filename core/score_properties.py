"""What a score can express, measured on random queries and keys: rank, symmetry, the effect of scaling and rotation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from core.attention import Attention, AttentionConfig, Choice
from core.attention.scores import Score
from core.seeding import seed_layer, seeded_generator

PROBE_DIMS, PROBE_TOKENS = (
    8,
    48,
)  # of the properties: more tokens than dimensions, so that the rank shows
PARAMETER_STD = (
    0.5  # of the noise added to learned numbers, so that a gain of 1 does not pass for a constant
)
TOLERANCE = 1e-9  # relative, in double precision


@dataclass(frozen=True)
class ScoreProperties:
    """What a score can express, measured at D = 8 on 48 random queries and keys with random learned numbers."""

    rank: int  # of the matrix of scores
    symmetric: bool  # s(a, b) = s(b, a)
    doubling: float  # median of |s(2q, k) / s(q, k)|
    rotation: (
        float  # mean change when q and k are rotated alike, in standard deviations of the scores
    )


def randomized_score(choice: Choice, seed: int) -> Score:
    """The score in double precision, with noise added to every learned number."""
    layer = Attention(AttentionConfig(PROBE_DIMS, 1, score=choice)).double().requires_grad_(False)
    seed_layer(layer, seed)
    for name, weight in layer.score.named_parameters():
        weight += PARAMETER_STD * torch.randn(
            weight.shape, generator=seeded_generator(seed, name), dtype=weight.dtype
        )
    score: Score = layer.score
    return score


@torch.inference_mode()
def score_properties(choice: Choice, seed: int) -> ScoreProperties:
    """Measure the properties of a score on the built module; queries, keys and learned numbers follow from the seed."""
    score, draw = randomized_score(choice, seed), seeded_generator(seed, "character")
    a, b = (
        torch.randn(1, 1, PROBE_TOKENS, PROBE_DIMS, generator=draw, dtype=torch.float64)
        for _ in range(2)
    )
    rotation = torch.linalg.qr(
        torch.randn(PROBE_DIMS, PROBE_DIMS, generator=draw, dtype=torch.float64)
    ).Q

    def scores(q: Tensor, k: Tensor) -> Tensor:
        return score(*score.qk_transform(q, k))[0, 0]

    plain = scores(a, b)
    std = float(plain.std())
    asymmetry = float((plain - scores(b, a).mT).abs().max()) / std
    change = float((plain - scores(a @ rotation, b @ rotation)).abs().mean()) / std
    doubling = float((scores(2 * a, b) / plain).abs().median())
    return ScoreProperties(
        int(torch.linalg.matrix_rank(plain)),
        asymmetry < TOLERANCE,
        doubling,
        change if change > TOLERANCE else 0.0,
    )
