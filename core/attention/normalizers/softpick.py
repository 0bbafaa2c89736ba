"""Softpick: a softmax whose weights can be exactly 0, and whose row may sum to less than 1."""

from __future__ import annotations

import torch
from torch import Tensor

from core.attention.basics import Normalizer
from core.attention.normalizers.base import TEMPERATURE, matrices
from core.attention.normalizers.soft import AT_MOST_ONE
from core.entries import Entry

EPSILON = 1e-8  # in the denominator, as in the authors' code: a row of zeros gets weights of 0


class Softpick(Normalizer):
    """max(0, eˢ − 1) / (Σ |eˢ − 1| + ε) over the visible keys. Zuhri 2025.

    Both sides are divided by e^m before ε is added, m the largest score of a row or 0, so that nothing overflows. A
    negative score gets weight 0, but stays in the sum, so it has a gradient wherever another key has weight.
    """

    def normalize(self, scores: Tensor) -> Tensor:
        if not scores.numel():
            return scores
        highest = scores.detach().amax(-1, keepdim=True).clamp(min=0.0)
        excess = (scores - highest).exp() - (-highest).exp()  # (eˢ − 1) / e^m
        excess = excess.masked_fill(
            scores == torch.finfo(scores.dtype).min, 0.0
        )  # masked: not in the sum
        return excess.relu() / (excess.abs().sum(-1, keepdim=True) + EPSILON)


SOFTPICK = Entry(
    "softpick",
    "Softpick",
    lambda config: Softpick(**config.normalizer.kwargs),
    r"w_{ij} = \frac{\max(0,\, e^{s_{ij}/\tau} - 1)}{\sum_m \lvert e^{s_{im}/\tau} - 1 \rvert}",
    "A key with a negative score gets weight 0, and a row of negative scores gives no weight at all. So a head does "
    "not need a token that takes the weight it does not use.",
    "Zuhri et al.",
    2025,
    "https://arxiv.org/abs/2504.20966",
    (TEMPERATURE,),
    "max(0, eˢ − 1) / Σ |eˢ − 1|",
    traits=AT_MOST_ONE,
    cost=matrices(3, 4),
)
