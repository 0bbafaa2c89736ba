"""Gated linear attention: a state in which each channel of the keys fades at a pace that every token sets.

Yang et al. 2023: S_t = Diag(α_t) S_{t−1} + k_t v_tᵀ, out_t = S_tᵀ q_t. So query i weighs key j ≤ i by
Σ_d q_id k_jd α_{j+1,d} ⋯ α_id, and α_t = σ(x W_1 W_2 + b)^(1/τ) keeps most of the state at the start.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from core.attention.kernels.costs import SEGMENT, gla_cost, kda_cost, power_of_two
from core.attention.kernels.delta import Delta, correct_in_chunks, join_chunks
from core.attention.kernels.exact import spans
from core.attention.kernels.implied import (
    CAUSAL,
    IMPLIED,
    STATE,
    LowRank,
    Rule,
    StateKernel,
    channel_gate,
    head_gate,
    in_chunks,
    initial_rates,
    initial_steps,
    needs_plain_rows,
    pad_tokens,
    softplus_decay,
    states_before,
)
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
    rule: Rule = staticmethod(gated_linear)

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


# Kimi delta attention: the delta rule on a state in which each channel of the keys fades at a pace of its own.


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
    rule: Rule = staticmethod(kimi_delta)

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.chunk, self.heads = power_of_two(self.chunk), config.score_heads
        self.forget = LowRank(config, config.qk_dim)
        self.log_rate = initial_rates(config.score_heads)
        initial_steps(self.forget.up.bias)

    def gates(self, context: Tensor) -> tuple[Tensor, ...]:
        decay = softplus_decay(self.log_rate, channel_gate(self.forget, context, self.heads))
        return decay, head_gate(self.write, context).sigmoid()


ENTRIES: tuple[Entry, ...] = (
    Entry(
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
        traits=IMPLIED | STATE | {"own positions", "layer only"},
        cost=gla_cost,
        refuse=needs_plain_rows("gla", *CAUSAL),
    ),
    Entry(
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
        traits=IMPLIED | STATE | {"own positions", "layer only"},
        cost=kda_cost,
        refuse=needs_plain_rows("kda", *CAUSAL),
    ),
)
