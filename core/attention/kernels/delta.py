"""The delta rule: a state that a key corrects instead of adding to, without and with a gate that lets it forget.

Yang et al. 2024, section 3.1: S_t = α_t S_{t−1}(I − β_t k_t k_tᵀ) + β_t v_t k_tᵀ, out_t = S_t q_t. α_t decays the
state before; of what it then returns for k_t, a share β_t is replaced by v_t. Three layers of four in Qwen3-Next.
With α_t = 1 it is the rule of Schlag et al. 2021, and with queries and keys of length 1 that of DeltaNet (Yang et al.
2024, arXiv 2406.06484).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from core.attention.kernels.gates import (
    StateKernel,
    head_gate,
    initial_rates,
    initial_steps,
    softplus_decay,
)
from core.attention.kernels.implied import CAUSAL, IMPLIED, STATE, in_chunks, needs_plain_rows
from core.attention.kernels.implied_costs import delta_cost
from core.attention.kernels.linear import CHUNK
from core.entries import Entry, LayerConfig

EPSILON = 1e-6  # of the squared length, as in the authors' own code


def unit(x: Tensor, length: float | Tensor = 1.0) -> Tensor:
    """x at that length, and zero where it is zero."""
    return x * (
        length * torch.rsqrt(torch.linalg.vector_norm(x, dim=-1, keepdim=True).square() + EPSILON)
    )


def delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    write: Tensor,
    chunk: int,
    offset: int = 0,
    past: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """S_t q_t, (B, H, T, E), in chunks, and the last Sᵀ; decay = log α and write = β are (B, H, S).

    Queries begin at position `offset`; `past` is Sᵀ before the first key.
    """
    queries, keys = q.shape[2], k.shape[2]
    q, k, v = in_chunks(q, k, v, chunk, offset)
    length = q.shape[2] * chunk
    decay, write = (
        F.pad(x, (0, length - keys)).unflatten(2, (-1, chunk)).unsqueeze(-1) for x in (decay, write)
    )
    total = decay.cumsum(
        -2
    )  # log of the decay since the chunk's start; padding neither decays nor writes
    between, since, end = decay_between(total), total.exp(), total[..., -1:, :]
    weights, rows = [(row @ k.mT) * between for row in (q, k)], [row * since for row in (q, k)]
    outs, state = correct_in_chunks(
        weights, rows, k * (end - total).exp(), end.exp(), v, write, past
    )
    return join_chunks(outs, v.shape[0])[:, :, offset : offset + queries], state


def correct_in_chunks(
    weights: list[Tensor],
    rows: list[Tensor],
    keys: Tensor,
    remains: Tensor,
    v: Tensor,
    write: Tensor,
    past: Tensor | None,
) -> tuple[list[Tensor], Tensor]:
    """The output of each chunk (B · H, c, E) and the last state (B, H, D, E) of a delta rule, from decayed products.

    weights are the decayed products of queries and of keys with the keys (B, H, n, c, c); rows the queries and keys
    faded since their chunk's start, keys those faded to its end (B, H, n, c, D); remains (B, H, n, D or 1, 1) is the
    decay over a chunk; write = β (B, H, n, c, 1). Token t writes β_t(v_t − S′k_t), where S′ is the faded state, which
    holds what its chunk wrote before: a triangular system, whose inverse meets v_t less what the state at the chunk's
    start returns for k_t. Yang 2024, section 3.3.
    """
    of_queries, of_keys = weights
    batch, state, identity = (
        v.shape[:2],
        past,
        torch.eye(v.shape[-2], dtype=v.dtype, device=v.device),
    )
    inverse = torch.linalg.solve_triangular(
        (of_keys * write).mT,
        identity.expand_as(of_keys),
        upper=True,
        left=False,
        unitriangular=True,
    ).mT
    if state is None:
        state = v.new_zeros(*batch, keys.shape[-1], v.shape[-1])
    state, out = state.flatten(0, 1), []  # heads are in the batch: a product a line
    chunks = (
        x.flatten(0, 1).unbind(1)
        for x in (inverse * write.mT, of_queries, *rows, keys.mT, v, remains)
    )
    for solve, weight, query, key, update, value, remain in zip(*chunks, strict=True):
        values = solve @ torch.baddbmm(value, key, state, alpha=-1)
        out.append(torch.baddbmm(weight @ values, query, state))
        state = torch.baddbmm(state * remain, update, values)
    return out, state.unflatten(0, batch)


def join_chunks(outs: list[Tensor], batch: int) -> Tensor:
    """(B, H, n · c, E) from the outputs of n chunks, (B · H, c, E)."""
    return torch.cat(outs, 1).unflatten(0, (batch, -1))


def decay_between(total: Tensor) -> Tensor:
    """The decay from token j to token i of a chunk, (…, c, c), zero for j > i; total (…, c, 1) is its log so far."""
    ahead = torch.ones(
        total.shape[-2], total.shape[-2], dtype=torch.bool, device=total.device
    ).triu(1)
    return (total - total.mT).masked_fill(ahead, -torch.inf).exp()


class Delta(StateKernel):
    """β = σ(W_b x), one a head and key, from the keys' own x; α = 1."""

    key = "delta"

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.write = nn.Linear(config.d_model, config.score_heads, bias=False)

    def prepare(self, q: Tensor, k: Tensor, scale: float | Tensor = 1.0) -> tuple[Tensor, Tensor]:
        return unit(q, scale), unit(k)

    def gates(self, context: Tensor) -> tuple[Tensor, ...]:
        """log α and β, (B, H, S) each."""
        write = head_gate(self.write, context).sigmoid()
        return torch.zeros_like(write), write

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
        return delta_rule(q, k, v, decay, write, chunk, offset, past)


class GatedDelta(Delta):
    """α = e^(−e^A softplus(W_a x + b)) and β = σ(W_b x), one of each a head and key, from the keys' own x."""

    key = "gated_delta"

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.forget = nn.Linear(config.d_model, config.score_heads)
        self.log_rate = initial_rates(config.score_heads)
        initial_steps(self.forget.bias)

    def gates(self, context: Tensor) -> tuple[Tensor, ...]:
        decay = softplus_decay(self.log_rate, head_gate(self.forget, context))
        return decay, head_gate(self.write, context).sigmoid()


DELTA = Entry(
    "delta",
    "Delta rule",
    Delta,
    r"S_t q_t, \quad S_t = S_{t-1} (I - \beta_t k_t k_t^\top) + \beta_t v_t k_t^\top",
    "A state is passed from token to token. Each token corrects the value that the state holds for its key, instead "
    "of adding to it. Queries and keys have length 1, and a query attends only to itself and earlier tokens.",
    "Schlag et al.",
    2021,
    "https://arxiv.org/abs/2102.11174",
    (CHUNK,),
    short="S(I − βkkᵀ) + βvkᵀ",
    traits=IMPLIED | STATE | {"own positions"},
    cost=delta_cost,
    refuse=needs_plain_rows("delta", *CAUSAL),
)

GATED_DELTA = Entry(
    "gated_delta",
    "Gated delta rule",
    GatedDelta,
    r"S_t q_t, \quad S_t = \alpha_t S_{t-1} (I - \beta_t k_t k_t^\top) + \beta_t v_t k_t^\top",
    "A state is passed from token to token. Each token scales the state by α and corrects the value that the state "
    "holds for its key. Queries and keys have length 1, and a query attends only to itself and earlier tokens.",
    "Yang et al.",
    2024,
    "https://arxiv.org/abs/2412.06464",
    (CHUNK,),
    short="αS(I − βkkᵀ) + βvkᵀ",
    traits=IMPLIED | STATE | {"own positions"},
    cost=delta_cost,
    refuse=needs_plain_rows("gated_delta", *CAUSAL),
)
