"""Kimi delta attention: the delta rule on a state in which each channel of the keys fades at a pace of its own.

Kimi Team 2025: S_t = (I − β_t k_t k_tᵀ) Diag(α_t) S_{t−1} + β_t k_t v_tᵀ, out_t = S_tᵀ q_t. Three layers of four in
Kimi Linear. With one α for all channels it is the gated delta rule.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from core.attention.kernels.base import spans
from core.attention.kernels.delta import Delta, correct_in_chunks, join_chunks
from core.attention.kernels.gates import (
    LowRank,
    channel_gate,
    head_gate,
    initial_rates,
    initial_steps,
    softplus_decay,
)
from core.attention.kernels.gla import CHUNK, chunk_decay, decay_products
from core.attention.kernels.implied import CAUSAL, IMPLIED, STATE, in_chunks, needs_plain_rows
from core.attention.kernels.implied_costs import power_of_two
from core.attention.kernels.state_costs import SEGMENT, kda_cost
from core.entries import Entry, LayerConfig


def kimi_delta(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    write: Tensor,
    chunk: int,
    offset: int = 0,
    past: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """S_tᵀ q_t, (B, H, T, E), in chunks, and the last S; decay = log α is (B, H, S, D), write = β (B, H, S).

    Queries begin at position `offset`; `past` is the state before the first key.
    """
    batch, queries, keys, size = len(q), q.shape[2], k.shape[2], max(chunk, SEGMENT)
    if queries == keys > size and offset == 0 and not torch.compiler.is_compiling():
        outs, past = (
            list[Tensor](),
            v.new_zeros(*q.shape[:2], k.shape[-1], v.shape[-1]) if past is None else past,
        )
        for some in spans(keys, size):
            parts, past = in_segment(
                q[:, :, some],
                k[:, :, some],
                v[:, :, some],
                decay[:, :, some],
                write[:, :, some],
                chunk,
                0,
                past,
            )
            outs += parts
    else:
        outs, past = in_segment(q, k, v, decay, write, chunk, offset, past)
    return join_chunks(outs, batch)[:, :, offset : offset + queries], past


def in_segment(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    write: Tensor,
    chunk: int,
    offset: int,
    past: Tensor | None,
) -> tuple[list[Tensor], Tensor]:
    """The outputs of each chunk of some tokens (B · H, c, E), and the state after them."""
    keys = k.shape[2]
    q, k, v = in_chunks(q, k, v, chunk, offset)
    write = F.pad(write, (0, q.shape[2] * chunk - keys)).unflatten(2, (-1, chunk)).unsqueeze(-1)
    weights, rows, until, total = decay_products([q, k], k, chunk_decay(decay, chunk, q.shape[2]))
    return correct_in_chunks(weights, rows, until, total.unsqueeze(-1), v, write, past)


class KimiDelta(Delta):
    """α = e^(−e^A softplus(W_2 W_1 x + b)) of each channel, through D numbers, and β = σ(W_b x) of each head."""

    key = "kda"

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.chunk, self.heads = power_of_two(self.chunk), config.score_heads
        self.forget = LowRank(config, config.qk_dim)
        self.log_rate = initial_rates(config.score_heads)
        initial_steps(self.forget.up.bias)

    def gates(self, context: Tensor) -> tuple[Tensor, ...]:
        decay = softplus_decay(self.log_rate, channel_gate(self.forget, context, self.heads))
        return decay, head_gate(self.write, context).sigmoid()

    def output(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        gates: tuple[Tensor, ...],
        chunk: int,
        offset: int,
        past: Tensor | None,
    ) -> tuple[Tensor, Tensor | None]:
        decay, write = gates
        return kimi_delta(q, k, v, decay, write, chunk, offset, past)


KDA = Entry(
    "kda",
    "Kimi delta",
    KimiDelta,
    r"q_t^\top S_t, \quad S_t = (I - \beta_t k_t k_t^\top)\, \text{Diag}(\alpha_t)\, S_{t-1} + \beta_t k_t v_t^\top",
    "A state is passed from token to token. Each token scales every channel of the state by a gate of its own and "
    "corrects the value that the state holds for its key. Queries and keys have length 1, and a query attends only to "
    "itself and earlier tokens.",
    "Kimi Team",
    2025,
    "https://arxiv.org/abs/2510.26692",
    (CHUNK,),
    short="(I − βkkᵀ)Diag(α)S + βkvᵀ",
    traits=IMPLIED | STATE | {"own positions"},
    cost=kda_cost,
    refuse=needs_plain_rows("kda", *CAUSAL),
)
