"""State space duality: Mamba-2 as attention, whose mask holds decays that the tokens decide.

Dao and Gu 2024: S_t = a_t S_{t−1} + Δ_t k_t v_tᵀ, out_t = S_tᵀ q_t, with C, B and x for q, k and v. The same output is
(L ∘ Q Kᵀ) V with the 1-semiseparable mask L_ij = a_{j+1} ⋯ a_i Δ_j for j ≤ i.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from core.attention.kernels.delta import decay_between
from core.attention.kernels.gates import (
    StateKernel,
    head_gate,
    initial_rates,
    initial_steps,
    softplus_decay,
)
from core.attention.kernels.implied import (
    CAUSAL,
    IMPLIED,
    STATE,
    in_chunks,
    needs_plain_rows,
    states_before,
)
from core.attention.kernels.linear import CHUNK
from core.attention.kernels.state_costs import ssd_cost
from core.entries import Entry, LayerConfig


def state_space(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    step: Tensor,
    chunk: int,
    offset: int = 0,
    past: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """S_tᵀ q_t, (B, H, T, E), in chunks, and the last S; decay = log a and step = Δ are (B, H, S).

    Queries begin at position `offset`; `past` is the state before the first key.
    """
    queries, keys = q.shape[2], k.shape[2]
    q, k, v = in_chunks(q, k * step.unsqueeze(-1), v, chunk, offset)
    total = (
        F.pad(decay, (0, q.shape[2] * chunk - keys))
        .unflatten(2, (-1, chunk))
        .unsqueeze(-1)
        .cumsum(-2)
    )
    inside = ((q @ k.mT) * decay_between(total)) @ v
    end = total[..., -1:, :]
    states, state = states_before((k * (end - total).exp()).mT @ v, end.exp(), past)
    return (inside + (q * total.exp()) @ states).flatten(2, 3)[
        :, :, offset : offset + queries
    ], state


class StateSpace(StateKernel):
    """Δ = softplus(W x + b) and a = e^(−e^A Δ), one of each a head and key, from the keys' own x."""

    key = "ssd"

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.step = nn.Linear(config.d_model, config.score_heads)
        self.log_rate = initial_rates(config.score_heads)
        initial_steps(self.step.bias)

    def gates(self, context: Tensor) -> tuple[Tensor, ...]:
        """log a and Δ, (B, H, S) each."""
        gate = head_gate(self.step, context)
        return softplus_decay(self.log_rate, gate), F.softplus(gate)

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
        decay, step = gates
        return state_space(q, k, v, decay, step, chunk, offset, past)


SSD = Entry(
    "ssd",
    "State space dual",
    StateSpace,
    r"q_t^\top S_t, \quad S_t = a_t S_{t-1} + \Delta_t k_t v_t^\top",
    "A state is passed from token to token. Each token chooses a step Δ: a long one forgets much of the state and adds "
    "much of the token. A query attends only to itself and earlier tokens.",
    "Dao & Gu",
    2024,
    "https://arxiv.org/abs/2405.21060",
    (CHUNK,),
    short="aS + Δkvᵀ",
    traits=IMPLIED | STATE | {"own positions"},
    cost=ssd_cost,
    refuse=needs_plain_rows("ssd", *CAUSAL),
)
