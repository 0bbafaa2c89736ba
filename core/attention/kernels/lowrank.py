"""Attention of low rank: r keys stand in for all S. Linformer (Wang 2020) and Nyströmformer (Xiong 2021)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from core.attention.kernels.base import to_float32
from core.attention.kernels.exact import AttentionInputs, Steps
from core.attention.kernels.implied import (
    IMPLIED,
    PADDING_ONLY,
    full_precision,
    needs_plain_rows,
    real_keys,
    scaled_qk,
    steps,
)
from core.attention.kernels.implied_costs import linformer_cost, nystrom_cost
from core.entries import ConfigError, Entry, LayerConfig, Param


class Linformer(nn.Module):
    """Learned E and F, (max_len, r), mix the S keys and values into r. Wang 2020, equation 7."""

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        if config is None:
            raise ConfigError(
                "kernel = linformer has weights; take Attention(config), or kernel = linear."
            )
        self.max_len, rank = int(config.kernel["max_len"]), int(config.kernel["rank"])
        self.to_key, self.to_value = (
            nn.Parameter(torch.empty(self.max_len, rank).uniform_(-(rank**-0.5), rank**-0.5))
            for _ in range(2)
        )

    @full_precision
    def forward(self, inputs: AttentionInputs) -> Steps:
        length = inputs.k.shape[2]
        if length > self.max_len:
            raise ConfigError(
                f"kernel = linformer has max_len = {self.max_len}, but there are {length} keys; take "
                f"max_len ≥ {length}, or kernel = nystrom."
            )
        real = real_keys(inputs, "linformer")
        q, k, scale = scaled_qk(inputs)
        v = to_float32(inputs.v)
        to_key, to_value = (
            self.to_key[:length].to(q.dtype),
            self.to_value[:length].to(q.dtype),
        )  # (S, r)
        if real is not None:
            to_key, to_value = (
                to_key.masked_fill(~real.mT, 0.0),
                to_value.masked_fill(~real.mT, 0.0),
            )
        weights = (q @ (scale * (to_key.mT @ k)).mT).softmax(-1)  # (B, H, T, r)
        return steps(inputs, weights @ (to_value.mT @ v), lambda: weights @ to_value.mT)


def averages(length: int, count: int, real: Tensor | None, like: Tensor) -> Tensor:
    """(B, 1, count, length): row n averages the n-th of `count` stretches of the real tokens; zeros if it is empty."""
    real = (
        torch.ones(1, 1, 1, length, dtype=torch.bool, device=like.device) if real is None else real
    )
    rank, number = real.cumsum(-1) - 1, real.sum(-1, keepdim=True)
    stretch = torch.div(rank * count, number.clamp(min=1), rounding_mode="floor")
    inside = ((stretch == torch.arange(count, device=like.device)[:, None]) & real).to(like.dtype)
    return inside / inside.sum(-1, keepdim=True).clamp(min=1.0)


def inverse(matrix: Tensor, rounds: int) -> Tensor:
    """The Moore–Penrose inverse of a matrix of weights, by iteration. Xiong 2021, equation 11.

    Rows sum to at most one, so dividing by the largest column sum makes the first estimate small enough.
    """
    identity = torch.eye(matrix.shape[-2], dtype=matrix.dtype, device=matrix.device)
    largest = matrix.sum(-2, keepdim=True).amax(-1, keepdim=True)
    estimate = matrix.mT / largest.clamp(min=torch.finfo(matrix.dtype).tiny)
    for _ in range(rounds):
        both = matrix @ estimate
        estimate = (
            0.25
            * estimate
            @ (13 * identity - both @ (15 * identity - both @ (7 * identity - both)))
        )
    return estimate


def soft(q: Tensor, k: Tensor, columns: Tensor | None) -> Tensor:
    """The softmax of q kᵀ over the columns where `columns` is True; zeros elsewhere."""
    scores = q @ k.mT
    if columns is None:
        return scores.softmax(-1)
    return (
        scores.masked_fill(~columns, torch.finfo(scores.dtype).min)
        .softmax(-1)
        .masked_fill(~columns, 0.0)
    )


class Nystrom:
    """softmax(q k̃ᵀ) · softmax(q̃ k̃ᵀ)⁺ · softmax(q̃ kᵀ), where q̃ and k̃ are landmarks: means of stretches.

    Xiong 2021, equation 13, without the convolution over v. With as many landmarks as keys it is the softmax itself.
    """

    def __init__(self, config: LayerConfig) -> None:
        choice = None if config is None else config.kernel
        self.landmarks, self.rounds = (
            int(choice[p.key] if choice else p.default) for p in (LANDMARKS, ROUNDS)
        )

    @full_precision
    def __call__(self, inputs: AttentionInputs) -> Steps:
        real = real_keys(inputs, "nystrom")
        q, k, scale = scaled_qk(inputs)
        v = to_float32(inputs.v)
        if k.shape[2] <= self.landmarks:
            weights = soft(scale * q, k, real)
            return steps(inputs, weights @ v, lambda: weights)
        of_k = averages(k.shape[2], self.landmarks, real, k)
        left, middle, right = self.factors(q, k, of_k, scale, real, inputs.block.owns_queries)
        if real is None:
            return steps(inputs, left @ (middle @ (right @ v)), lambda: left @ (middle @ right))
        few = (
            real.sum(-1, keepdim=True) <= self.landmarks
        )  # a landmark a key, whatever the padding: the softmax itself
        return steps(
            inputs,
            left @ torch.where(few, of_k @ v, middle @ (right @ v)),
            lambda: left @ torch.where(few, of_k, middle @ right),
        )

    def factors(
        self,
        q: Tensor,
        k: Tensor,
        of_k: Tensor,
        scale: float | Tensor,
        real: Tensor | None,
        own: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The three matrices, (B, H, T, m), (B, H, m, m), (B, H, m, S); `own` says that the queries are padded too."""
        of_q = averages(q.shape[2], min(self.landmarks, q.shape[2]), real if own else None, q)
        few_q, few_k = of_q @ q, of_k @ k
        filled = (
            None if real is None else of_k.any(-1).unsqueeze(-2)
        )  # (B, 1, 1, m): fewer tokens leave some empty
        left, right = soft(q, scale * few_k, filled), soft(scale * few_q, k, real)
        middle = soft(few_q, scale * few_k, filled)
        if real is not None:
            middle = middle.masked_fill(~of_q.any(-1, keepdim=True), 0.0)
        return left, inverse(middle, self.rounds), right


POSITIONAL = IMPLIED | {"own positions"}  # rows of E and stretches of landmarks belong to positions

LINFORMER = Entry(
    "linformer",
    "Linformer",
    Linformer,
    r"\text{softmax}\!\left(q\,(E^\top K)^\top\right) F^\top V",
    "Learned matrices E and F project all keys and values to r keys and r values before the scores are computed.",
    "Wang et al.",
    2020,
    "https://arxiv.org/abs/2006.04768",
    (
        Param("rank", "Rank", 32, 1, 1024, 1, meaning="number r of projected keys and values"),
        Param(
            "max_len",
            "Longest length",
            512,
            1,
            16384,
            1,
            meaning="largest number of keys that E and F can project",
        ),
    ),
    short="{rank} projected keys",
    traits=POSITIONAL,
    cost=linformer_cost,
    refuse=needs_plain_rows("linformer", *PADDING_ONLY),
)
LANDMARKS = Param(
    "landmarks",
    "Landmarks",
    32,
    1,
    1024,
    1,
    meaning="number m of landmarks, each the mean of neighbouring queries or keys",
)
ROUNDS = Param(
    "rounds",
    "Rounds",
    6,
    1,
    50,
    1,
    meaning="iterations that compute the inverse of the landmarks' weights",
)
NYSTROM = Entry(
    "nystrom",
    "Nyström",
    Nystrom,
    r"\text{softmax}(q \tilde k^\top)\ \text{softmax}(\tilde q \tilde k^\top)^{+}\ \text{softmax}(\tilde q k^\top)",
    "Queries are compared with landmarks, and landmarks with keys. A landmark is the mean of neighbouring tokens.",
    "Xiong et al.",
    2021,
    "https://arxiv.org/abs/2102.03902",
    (LANDMARKS, ROUNDS),
    short="{landmarks} landmarks",
    traits=POSITIONAL,
    cost=nystrom_cost,
    refuse=needs_plain_rows("nystrom", *PADDING_ONLY),
)
