"""Differential attention (Ye 2024): the difference of two softmaxes, in which what both see cancels."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from core.attention.basics import Heads, Projection, linear, merge_heads, split_heads
from core.attention.projections.multi_head import BIAS
from core.entries import Entry, HeadSizes, LayerConfig, Param

EPSILON = 1e-5  # of the norm of each head's output, as in the paper's own code
INITIAL_STD = 0.1  # standard deviation of the vectors that make λ, at the start


def lambda_init(depth: int) -> float:
    """0.8 − 0.6·e^(−0.3(l − 1)) for layer l, counted from 1. Ye 2024, section 2.1."""
    return 0.8 - 0.6 * math.exp(-0.3 * (depth - 1))


class Differential(Projection):
    """(A₁ − λA₂)V in each of H heads, then RMSNorm a head, times 1 − λ_init. Ye 2024, equations 1 to 3.

    A head has two queries and two keys of D/2 dimensions, neighbours among the 2H heads that meet, and one value of D.
    λ = e^(λq₁·λk₁) − e^(λq₂·λk₂) + λ_init is learned, one for the layer.
    """

    def __init__(self, d_model: int, num_heads: int, bias: bool, depth: int) -> None:
        super().__init__()
        self.num_heads, self.start = num_heads, lambda_init(depth)
        self.query, self.key, self.value, self.output = (
            linear(d_model, d_model, bias) for _ in range(4)
        )
        half = d_model // num_heads // 2
        self.lambda_q1, self.lambda_k1, self.lambda_q2, self.lambda_k2 = (
            nn.Parameter(torch.randn(half) * INITIAL_STD) for _ in range(4)
        )

    def forward(
        self, x: Float[Tensor, "B T C"], context: Float[Tensor, "B S C"], offset: int = 0
    ) -> Heads:
        q, k = (
            split_heads(self.query(x), 2 * self.num_heads),
            split_heads(self.key(context), 2 * self.num_heads),
        )
        return q, k, split_heads(self.value(context), self.num_heads)

    def weight(self) -> Float[Tensor, ""]:
        """λ as it stands now."""
        first, second = (
            (self.lambda_q1 * self.lambda_k1).sum(),
            (self.lambda_q2 * self.lambda_k2).sum(),
        )
        return first.exp() - second.exp() + self.start

    def combine_heads(self, weights: Float[Tensor, "B Hs T S"]) -> Float[Tensor, "B H T S"]:
        first, second = rearrange(weights, "b (h two) t s -> two b h t s", two=2)
        return first - self.weight() * second

    def merge(
        self, out: Float[Tensor, "B H T E"], x: Float[Tensor, "B T C"]
    ) -> Float[Tensor, "B T C"]:
        normed = F.rms_norm(out, out.shape[-1:], eps=EPSILON)
        return self.output(merge_heads(normed * (1 - self.start)))


def _sizes(config: LayerConfig) -> HeadSizes:
    heads, half = 2 * config.num_heads, config.head_dim // 2
    return HeadSizes(
        heads, half, config.head_dim, heads, cached=2 * config.d_model
    )  # as many keys, half the values


def _refuse(config: LayerConfig) -> str | None:
    if config.head_dim % 2:
        return (
            f"projection = differential halves each head for its two queries, but d_model = {config.d_model} with "
            f"num_heads = {config.num_heads} gives an odd head size = {config.head_dim}; take an even one, or "
            "projection = multi_head."
        )
    return None


DIFFERENTIAL = Entry(
    "differential",
    "Differential",
    lambda config: Differential(config.d_model, config.num_heads, **config.projection.kwargs),
    r"(A_1 - \lambda A_2)\,V,\quad \lambda = e^{\lambda_{q_1} \cdot \lambda_{k_1}} - e^{\lambda_{q_2} \cdot "
    r"\lambda_{k_2}} + \lambda_0",
    "Each head subtracts one attention map from another, so weights that both maps share cancel. Weights may be "
    "negative.",
    "Ye et al.",
    2024,
    "https://arxiv.org/abs/2410.05258",
    (
        BIAS,
        Param(
            "depth",
            "Layer",
            1,
            1,
            1000,
            1,
            meaning="number l of the layer, from 1; λ₀ grows with it from 0.2 to 0.8",
        ),
    ),
    "A₁ − λA₂",
    traits=frozenset({"folds"}),
    sizes=_sizes,
    refuse=_refuse,
)
