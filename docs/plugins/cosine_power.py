"""A score: the cosine of query and key, raised to a power that keeps its sign."""

from functools import partial

import torch.nn.functional as F

from core.attention import Entry, Param, register

SCALE = 8.0  # cosines lie between -1 and 1; softmax would give all keys nearly the same weight


def score(q, k, power):
    """q (B, H, T, D) and k (B, H, S, D) to scores (B, H, T, S)."""
    cosine = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT
    return SCALE * cosine.sign() * cosine.abs().clamp(min=1e-6) ** power


register(
    "score",
    Entry(
        "cosine_power",
        "Cosine power",
        build=lambda config: partial(score, **config.score.kwargs),
        latex=r"8\,\operatorname{sign}(c)\,|c|^p,\quad c = \hat q_i^\top \hat k_j",
        meaning="The cosine of query and key to a power: only keys that point the same way score high.",
        paper="",
        year=2026,
        params=(
            Param(
                "power",
                "Power",
                default=3.0,
                low=1.0,
                high=9.0,
                step=0.5,
                meaning="exponent of the cosine",
            ),
        ),
        short="cos(q, k)^p",
    ),
)
