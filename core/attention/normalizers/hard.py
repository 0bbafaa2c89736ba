"""The hardest normalizer: the largest score takes the whole row."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from core.attention.basics import Normalizer
from core.attention.normalizers.base import TEMPERATURE, matrices
from core.attention.normalizers.soft import SUMS_TO_ONE
from core.entries import Area, Cost, Entry, LayerConfig, Param

STRAIGHT_THROUGH, NONE = "straight_through", "none"


class _StraightThrough(torch.autograd.Function):
    """Returns `hard`, and passes the gradient to `soft` as if that had been returned. Bengio 2013."""

    generate_vmap_rule = True

    @staticmethod
    def forward(hard: Tensor, soft: Tensor) -> Tensor:
        return hard.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, grad


class Hard(Normalizer):
    """1 for the largest score of a row, shared by those that tie for it.

    Its gradient is zero wherever it is defined. "straight_through" takes that of the softmax instead, "none" gives
    queries and keys no gradient.
    """

    def __init__(self, temperature: float, gradient: str) -> None:
        super().__init__(temperature)
        self.gradient = gradient

    def normalize(self, scores: Tensor) -> Tensor:
        if not scores.numel():
            return scores
        first = (scores == scores.amax(-1, keepdim=True)).to(scores.dtype)
        hard = first / first.sum(-1, keepdim=True)
        if self.gradient == NONE:
            return hard
        weights: Tensor = _StraightThrough.apply(hard, scores.softmax(-1))  # type: ignore[no-untyped-call]
        return weights


def _cost(config: LayerConfig, area: Area) -> Cost:
    """The straight-through gradient holds the softmax and a copy too."""
    plain = 2 if config.normalizer["gradient"] == NONE else 4
    return matrices(plain, plain + 1)(config, area)


HARD = Entry(
    "hard",
    "Hard",
    lambda config: Hard(**config.normalizer.kwargs),
    r"w_{ij} = 1 \text{ for } j = \operatorname*{arg\,max}_m s_{im},\ \text{else } 0",
    "The key with the largest score gets weight 1. The paper samples a key; here the most probable key is always "
    "taken. Training uses the gradient of a softmax with this temperature.",
    "Xu et al.",
    2015,
    "https://arxiv.org/abs/1502.03044",
    (
        TEMPERATURE,
        Param(
            "gradient",
            "Gradient",
            STRAIGHT_THROUGH,
            choices=(STRAIGHT_THROUGH, NONE),
            meaning="whether scores get the gradient of a softmax, or none",
            labels=("Of the softmax (straight-through)", "None"),
        ),
    ),
    "1 for the largest",
    traits=SUMS_TO_ONE | {"hard"},
    cost=_cost,
)
