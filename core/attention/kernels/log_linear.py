"""Log-linear attention: Mamba-2's state, of which each query weighs stretches of the past by their distance.

Guo et al. 2025: a query at position t sees the tokens before it in stretches of 1, 2, 4, … as a Fenwick tree cuts them:
key j belongs to level 0 if j = t, else to 1 + the highest bit in which t and j differ. Each level has a state, and the
output is Σ_l λ_tl S_tlᵀ q_t, with weights λ_t from the query's own x. Time grows as T log T.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from core.attention.basics import split_heads
from core.attention.kernels.base import to_float32
from core.attention.kernels.delta import decay_between
from core.attention.kernels.implied import CAUSAL, IMPLIED, in_chunks, needs_plain_rows
from core.attention.kernels.implied_costs import power_of_two
from core.attention.kernels.ssd import StateSpace
from core.attention.kernels.state_costs import log_linear_cost
from core.entries import ConfigError, Entry, LayerConfig, Param

CHUNK = Param(
    "chunk", "Chunk", 64, 1, 1024, 1, meaning="tokens in a block, rounded up to a power of two"
)


def tree_levels(chunk: int, levels: int, device: torch.device) -> Tensor:
    """The level of key j for query i within a chunk, (c, c): the number of bits of i xor j, at most levels − 1."""
    position = torch.arange(chunk, device=device)
    bits = torch.frexp((position[:, None] ^ position).double()).exponent
    return bits.clamp(max=levels - 1).long()


def log_linear(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    step: Tensor,
    level_weights: Tensor,
    chunk: int,
    offset: int = 0,
) -> Tensor:
    """Σ_l λ_tl S_tlᵀ q_t, (B, H, T, E), in chunks whose length is a power of two.

    decay = log a and step = Δ are (B, H, S), level_weights = λ (B, H, T, L), queries begin at position `offset`.
    """
    queries, keys = q.shape[2], k.shape[2]
    q, k, v = in_chunks(q, k * step.unsqueeze(-1), v, chunk, offset)
    length = q.shape[2] * chunk
    weights = F.pad(level_weights, (0, 0, offset, length - offset - queries)).unflatten(
        2, (-1, chunk)
    )
    total = F.pad(decay, (0, length - keys)).unflatten(2, (-1, chunk)).unsqueeze(-1).cumsum(-2)
    level = tree_levels(chunk, weights.shape[-1], q.device).expand(*weights.shape[:-1], chunk)
    inside = ((q @ k.mT) * decay_between(total) * weights.gather(-1, level)) @ v
    end = total[..., -1:, :]
    before = chunks_before(q * total.exp(), (k * (end - total).exp()).mT @ v, end.exp(), weights)
    return (inside + before).flatten(2, 3)[:, :, offset : offset + queries]


def chunks_before(q: Tensor, states: Tensor, remains: Tensor, weights: Tensor) -> Tensor:
    """What the queries of each chunk get from earlier chunks, (B, H, n, c, E): halves are joined, from one chunk on.

    q (B, H, n, c, D) has faded since its chunk's start, states (B, H, n, D, E) are what each chunk adds, remains
    (B, H, n, 1, 1) is its decay, and weights (B, H, n, c, L) are those of the levels.
    """
    count, chunk = q.shape[2:4]
    q, states, weights = (
        F.pad(x, (0, 0, 0, 0, 0, power_of_two(count) - count)) for x in (q, states, weights)
    )
    remains = F.pad(remains, (0, 0, 0, 0, 0, power_of_two(count) - count), value=1.0)
    out, size, level = 0.0, 1, chunk.bit_length()
    while size < q.shape[2]:
        left, right = states.unflatten(2, (-1, 2)).unbind(3)
        left_remains, right_remains = remains.unflatten(2, (-1, 2)).unbind(3)  # (B, H, m, 1, 1)
        halves = q.unflatten(2, (-1, 2, size)).flatten(4, 5)  # (B, H, m, 2, size · c, D)
        weight = (
            weights[..., min(level, weights.shape[-1] - 1)]
            .unflatten(2, (-1, 2, size))
            .flatten(4, 5)[:, :, :, 1]
        )
        seen = (halves[:, :, :, 1] @ left) * weight.unsqueeze(-1)
        out = out + torch.stack((torch.zeros_like(seen), seen), 3).flatten(2, 4).unflatten(
            2, (-1, chunk)
        )
        since = torch.stack((torch.ones_like(left_remains), left_remains), 3)
        q = (halves * since).flatten(2, 4).unflatten(2, (-1, chunk))
        states, remains = left * right_remains + right, left_remains * right_remains
        size, level = 2 * size, level + 1
    return (
        out[:, :, :count]
        if isinstance(out, Tensor)
        else q.new_zeros(*q.shape[:-1], states.shape[-1])
    )


class LogLinear(StateSpace):
    """Mamba-2's Δ and a from the keys' own x, and λ = softplus(r_l · W x) of each level from the queries' own x."""

    key = "log_linear"

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.chunk, self.heads, levels = (
            power_of_two(self.chunk),
            config.score_heads,
            int(config.kernel["levels"]),
        )
        self.level = nn.Linear(config.d_model, config.score_heads * levels, bias=False)
        self.level_rate = nn.Parameter(torch.ones(config.score_heads, 1, levels))

    def query_gates(self, x: Tensor | None) -> tuple[Tensor, ...]:
        """λ, (B, H, T, L)."""
        if x is None:
            raise ConfigError(
                "kernel = log_linear weighs its levels by the queries' x, which is not given here; give "
                "it, or take kernel = retention."
            )
        return (
            F.softplus(
                to_float32(self.level_rate) * to_float32(split_heads(self.level(x), self.heads))
            ),
        )

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
        decay, step, level_weights = gates
        return log_linear(q, k, v, decay, step, level_weights, chunk, offset), None


LOG_LINEAR = Entry(
    "log_linear",
    "Log-linear",
    LogLinear,
    r"\sum_l \lambda_{tl}\, q_t^\top S_{tl}, \quad S_{tl} = \sum_{j \in \text{level } l} a_{j+1} \cdots a_t\, \Delta_j "
    r"k_j v_j^\top",
    "The past is cut into stretches that double in length with their distance. Each has a state of its own, and each "
    "query weighs them. A query attends only to itself and earlier tokens. While decoding, keys are stored and no "
    "states, as the number of states grows with the length.",
    "Guo et al.",
    2025,
    "https://arxiv.org/abs/2506.04761",
    (
        Param(
            "levels",
            "Levels",
            12,
            1,
            24,
            1,
            meaning="stretches with a weight of their own; those farther away share "
            "the last weight",
        ),
        CHUNK,
    ),
    short="Σ λ·S of {levels} levels",
    traits=IMPLIED | {"own positions"},
    cost=log_linear_cost,
    refuse=needs_plain_rows("log_linear", *CAUSAL),
)
