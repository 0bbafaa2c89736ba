"""Gated linear attention: a state in which each channel of the keys fades at a pace that every token sets.

Yang et al. 2023: S_t = Diag(α_t) S_{t−1} + k_t v_tᵀ, out_t = S_tᵀ q_t. So query i weighs key j ≤ i by
Σ_d q_id k_jd α_{j+1,d} ⋯ α_id, and α_t = σ(x W_1 W_2 + b)^(1/τ) keeps most of the state at the start.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from core.attention.kernels.gates import LowRank, StateKernel, channel_gate
from core.attention.kernels.implied import (
    CAUSAL,
    IMPLIED,
    STATE,
    in_chunks,
    needs_plain_rows,
    pad_tokens,
    states_before,
)
from core.attention.kernels.implied_costs import power_of_two
from core.attention.kernels.state_costs import gla_cost
from core.entries import Entry, LayerConfig, Param

STRONGEST = (
    80.0  # −log of a decay whose halves e^40 and e^−40, and scores times both, stay within fp32
)
CHUNK = Param(
    "chunk", "Chunk", 32, 1, 1024, 1, meaning="tokens in a block, rounded up to a power of two"
)


def decay_products(
    rows: list[Tensor],
    keys: Tensor,
    decay: Tensor,
) -> tuple[list[Tensor], list[Tensor], Tensor, Tensor]:
    """Σ_d r_id k_jd α_{j+1,d} ⋯ α_id for j ≤ i within chunks of c tokens, a power of two; zero for j > i.

    Each of rows, keys and decay = log α are (B, H, n, c, D). Returns these weights (B, H, n, c, c) for each of the
    rows, the rows faded since the chunk's start, the keys faded to its end, and the decay over it, (B, H, n, D). A
    chunk that fades by no more than e^(−STRONGEST) takes one product, of rows and keys as they would be in the middle
    of the decay: none grows by more than e^(STRONGEST / 2), which leaves room in fp32 for scores and their gradients.
    """
    total = decay.cumsum(-2)
    if torch.compiler.is_compiling() or not bool((total[..., -1, :] > -STRONGEST).all()):
        return by_halves(rows, keys, decay.exp())
    middle = total[..., -1:, :] / 2
    fade, half = (total - middle).exp(), middle.exp()
    rows, keys = [row * fade for row in rows], keys / fade
    return (
        [(row @ keys.mT).tril_() for row in rows],
        [row * half for row in rows],
        keys * half,
        half.square().squeeze(-2),
    )


def by_halves(
    rows: list[Tensor],
    keys: Tensor,
    decay: Tensor,
) -> tuple[list[Tensor], list[Tensor], Tensor, Tensor]:
    """`decay_products` of any decay = α: halves of a chunk are joined, from single tokens up to the whole chunk.

    A row in the right half fades since the boundary and a key in the left half up to it, so that factors ≤ 1 are
    multiplied and nothing is divided, which would overflow.
    """
    weights = [torch.diag_embed((row * keys).sum(-1)) for row in rows]
    rows, total, size = [row * decay for row in rows], decay, 1
    while size < keys.shape[-2]:
        left, right = total.unflatten(-2, (-1, 2)).unbind(-2)  # (B, H, n, m, D)
        halves = keys.unflatten(-2, (-1, 2, size))  # (B, H, n, m, 2, size, D)
        for row, weight in zip(rows, weights, strict=True):
            right_of(weight, size).copy_(
                row.unflatten(-2, (-1, 2, size))[..., 1, :, :] @ halves[..., 0, :, :].mT
            )
        since = torch.stack((torch.ones_like(left), left), -2).unsqueeze(-2)
        until = torch.stack((right, torch.ones_like(right)), -2).unsqueeze(-2)
        rows = [(row.unflatten(-2, (-1, 2, size)) * since).flatten(-4, -2) for row in rows]
        keys, total, size = (halves * until).flatten(-4, -2), left * right, 2 * size
    return weights, rows, keys, total.squeeze(-2)


def right_of(weights: Tensor, size: int) -> Tensor:
    """A view of the blocks in which rows of a right half meet keys of the left one, (…, m, size, size)."""
    blocks = weights.unflatten(-1, (-1, 2, size)).unflatten(
        -4, (-1, 2, size)
    )  # (…, m, 2, size, m, 2, size)
    return blocks[..., 1, :, :, 0, :].diagonal(dim1=-4, dim2=-2).movedim(-1, -3)


def chunk_decay(decay: Tensor, chunk: int, count: int) -> Tensor:
    """log α of every token, (B, H, n, c, D), from that of S tokens and the number of chunks; 0 after the last token."""
    return pad_tokens(decay, 0, count * chunk - decay.shape[2]).unflatten(2, (-1, chunk))


def gated_linear(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    chunk: int,
    offset: int = 0,
    past: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """S_tᵀ q_t, (B, H, T, E), in chunks, and the last S; decay = log α is (B, H, S, D).

    Queries begin at position `offset`; `past` is the state before the first key.
    """
    queries = q.shape[2]
    q, k, v = in_chunks(q, k, v, chunk, offset)
    (weights,), (since,), until, total = decay_products(
        [q], k, chunk_decay(decay, chunk, q.shape[2])
    )
    states, state = states_before(until.mT @ v, total.unsqueeze(-1), past)
    return (weights @ v + since @ states).flatten(2, 3)[:, :, offset : offset + queries], state


class GatedLinear(StateKernel):
    """log α = log σ(W_2 W_1 x + b) / τ, one of each head, channel and key, from the keys' own x."""

    key = "gla"

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.chunk, self.heads, self.tau = (
            power_of_two(self.chunk),
            config.score_heads,
            float(config.kernel["tau"]),
        )
        self.forget = LowRank(config, int(config.kernel["rank"]))

    def gates(self, context: Tensor) -> tuple[Tensor, ...]:
        return (F.logsigmoid(channel_gate(self.forget, context, self.heads)) / self.tau,)

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
        (decay,) = gates
        return gated_linear(q, k, v, decay, chunk, offset, past)


GLA = Entry(
    "gla",
    "Gated linear",
    GatedLinear,
    r"q_t^\top S_t, \quad S_t = \text{Diag}(\alpha_t)\, S_{t-1} + k_t v_t^\top",
    "A state is passed from token to token. Each token first scales every channel of the state by a gate of its own, "
    "then adds its key and value. A query attends only to itself and earlier tokens.",
    "Yang et al.",
    2023,
    "https://arxiv.org/abs/2312.06635",
    (
        Param(
            "tau",
            "Gate root τ",
            16.0,
            1.0,
            64.0,
            1.0,
            meaning="gates are the τ-th root of a sigmoid, so a larger τ forgets more slowly",
        ),
        Param(
            "rank",
            "Gate rank",
            16,
            1,
            256,
            1,
            meaning="numbers of x from which all gates are computed",
        ),
        CHUNK,
    ),
    short="Diag(α)S + kvᵀ",
    traits=IMPLIED | STATE | {"own positions"},
    cost=gla_cost,
    refuse=needs_plain_rows("gla", *CAUSAL),
)
