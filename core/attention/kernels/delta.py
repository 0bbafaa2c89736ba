"""Kernels with a state and learned gates: the delta rule, state space duality, log-linear, gated linear and Kimi delta.

The delta rule: a state that a key corrects instead of adding to, without and with a gate that lets it forget. Yang
et al. 2024, section 3.1: S_t = α_t S_{t−1}(I − β_t k_t k_tᵀ) + β_t v_t k_tᵀ, out_t = S_t q_t. α_t decays the
state before; of what it then returns for k_t, a share β_t is replaced by v_t. Three layers of four in Qwen3-Next.
With α_t = 1 it is the rule of Schlag et al. 2021, and with queries and keys of length 1 that of DeltaNet (Yang et al.
2024, arXiv 2406.06484).
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from core.attention.base import ScoreBlock, to_float32
from core.attention.kernels.costs import (
    SEGMENT,
    cost_in_chunks,
    delta_cost,
    gla_cost,
    kda_cost,
    log_linear_cost,
    power_of_two,
    ssd_cost,
)
from core.attention.kernels.exact import refuse_when
from core.attention.kernels.implied import (
    CAUSAL_ROWS,
    CHUNK,
    STATE_TRAITS,
    StateKernel,
    head_gates,
    initial_rates,
    initial_steps,
    low_rank,
    softplus_decay,
    states_before,
)
from core.entries import Entry, LayerConfig, Param

EPSILON = 1e-6  # of the squared length, as in the authors' own code
BETA_MAX = Param(
    "beta_max",
    "Largest β",
    default=1.0,
    low=1.0,
    high=2.0,
    step=0.5,
    meaning="β is a sigmoid times this; above 1 a token can turn the sign of what the state holds for its key",
)


def unit(x: Tensor, length: float | Tensor = 1.0) -> Tensor:
    """x at that length, and zero where it is zero."""
    return x * (
        length * torch.rsqrt(torch.linalg.vector_norm(x, dim=-1, keepdim=True).square() + EPSILON)
    )


# Decayed products of a chunk: weights of rows and keys, rows faded since its start, keys faded to its end, its whole decay
Faded = tuple[list[Tensor], list[Tensor], Tensor, Tensor]


def correct_in_chunks(
    products: Faded,
    v: Tensor,
    write: Tensor | None,
    past: Tensor | None,
    added: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The output of each chunk (B, H, n, c, E) and the last state (B, H, D, E) of a delta rule, from decayed products.

    These are those of queries and of keys with the keys: weights (B, H, n, c, c), rows and keys (B, H, n, c, D), the decay
    over a chunk (B, H, n, D or 1, 1). write = β (B, H, n, c, 1), None where the products hold it. Token t writes
    β_t(v_t − S′k_t), where S′ is the faded state, which holds what its chunk wrote before: a triangular system, whose
    inverse meets v_t less what the state at the chunk's start returns for k_t. Yang 2024, section 3.3. There may be
    several keys a query.
    `added` (B, H, n, D, E) enters the state with each chunk, beside what is corrected.
    """
    ((of_queries, of_keys), rows, keys, remains), batch = products, v.shape[:2]
    inverse = torch.linalg.solve_triangular(
        (of_keys if write is None else of_keys * write).mT,
        torch.eye(v.shape[-2], dtype=v.dtype, device=v.device).expand_as(of_keys),
        upper=True,
        left=False,
        unitriangular=True,
    ).mT
    inverse = inverse if write is None else inverse * write.mT
    state = v.new_zeros(*batch, keys.shape[-1], v.shape[-1]) if past is None else past
    state, out = state.flatten(0, 1), []  # heads are in the batch: a product a line
    more = [None] * v.shape[2] if added is None else added.flatten(0, 1).unbind(1)
    chunks = (x.flatten(0, 1).unbind(1) for x in (inverse, of_queries, *rows, keys.mT, v, remains))
    for solve, weight, query, key, update, value, remain, new in zip(*chunks, more, strict=True):
        values = solve @ torch.baddbmm(value, key, state, alpha=-1)
        out.append(torch.baddbmm(weight @ values, query, state))
        faded = state * remain if new is None else torch.addcmul(new, state, remain)
        state = torch.baddbmm(faded, update, values)
    return torch.stack(out, 1).unflatten(0, batch), state.unflatten(0, batch)


def decay_between(total: Tensor) -> Tensor:
    """The decay from token j to token i of a chunk, (…, c, c), zero for j > i; total (…, c, 1) is its log so far."""
    ahead = torch.ones(
        total.shape[-2], total.shape[-2], dtype=torch.bool, device=total.device
    ).triu(1)
    return (total - total.mT).masked_fill(ahead, -torch.inf).exp()


DELTA_CHUNK = replace(CHUNK, default=32)  # a system of 64 tokens takes longer than it saves


class Delta(StateKernel):
    """β = β_max σ(W_b x), one a head and key, from the keys' own x; α = 1.

    Along k_t the state is multiplied by 1 − β_t: with β_max = 2 that reaches −1, a reflection, so that a state can count
    modulo two. Grazzi et al. 2024 (2411.12537), section 4.
    """

    @staticmethod
    def rule(
        q: Tensor, k: Tensor, v: Tensor, decay: Tensor, write: Tensor, past: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """S_t q_t and the last Sᵀ; decay = log α and write = β are (B, H, n, c, 1)."""
        total = decay.cumsum(-2)  # log of the decay since the chunk's start
        between, since, end = decay_between(total), total.exp(), total[..., -1:, :]
        weights, rows = [(row @ k.mT) * between for row in (q, k)], [row * since for row in (q, k)]
        return correct_in_chunks(
            (weights, rows, k * (end - total).exp(), end.exp()), v, write, past
        )

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.beta_max = float(config.kernel["beta_max"])
        self.write = nn.Linear(config.d_model, config.score_heads, bias=False)

    def prepare(self, q: Tensor, k: Tensor, scale: float | Tensor = 1.0) -> tuple[Tensor, Tensor]:
        return unit(q, scale), unit(k)

    def gates(self, context: Tensor) -> tuple[Tensor, ...]:
        """log α and β, (B, H, S, 1) each."""
        write = self.beta_max * head_gates(self.write, context, self.heads).sigmoid()
        return torch.zeros_like(write), write


class GatedDelta(Delta):
    """α = e^(−e^A softplus(W_a x + b)) and β = β_max σ(W_b x), one of each a head and key, from the keys' own x."""

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.forget = self.decay_map(config)
        self.log_rate = initial_rates(config.score_heads)
        initial_steps(self.forget)

    def decay_map(self, config: LayerConfig) -> nn.Module:
        return nn.Linear(config.d_model, config.score_heads)

    def decay(self, context: Tensor) -> Tensor:
        """log α, (B, H, S, 1 or D)."""
        return softplus_decay(self.log_rate, head_gates(self.forget, context, self.heads))

    def gates(self, context: Tensor) -> tuple[Tensor, ...]:
        return self.decay(context), super().gates(context)[1]


# State space duality: Mamba-2 as attention, whose mask holds decays that the tokens decide.


class StateSpace(StateKernel):
    """Δ = softplus(W x + b) and a = e^(−e^A Δ), one of each a head and key, from the keys' own x."""

    @staticmethod
    def rule(
        q: Tensor, k: Tensor, v: Tensor, decay: Tensor, step: Tensor, past: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """S_tᵀ q_t and the last S; decay = log a and step = Δ are (B, H, n, c, 1)."""
        k, total = k * step, decay.cumsum(-2)
        inside, end = ((q @ k.mT) * decay_between(total)) @ v, total[..., -1:, :]
        states, state = states_before((k * (end - total).exp()).mT @ v, end.exp(), past)
        return inside + (q * total.exp()) @ states, state

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.step = nn.Linear(config.d_model, config.score_heads)
        self.log_rate = initial_rates(config.score_heads)
        initial_steps(self.step)

    def gates(self, context: Tensor) -> tuple[Tensor, ...]:
        """log a and Δ, (B, H, S, 1) each."""
        gate = head_gates(self.step, context, self.heads)
        return softplus_decay(self.log_rate, gate), F.softplus(gate)


# Log-linear attention: Mamba-2's state, of which each query weighs stretches of the past by their distance.


def tree_levels(chunk: int, levels: int, device: torch.device) -> Tensor:
    """The level of key j for query i within a chunk, (c, c): the number of bits of i xor j, at most levels − 1."""
    position = torch.arange(chunk, device=device)
    bits = torch.frexp((position[:, None] ^ position).double()).exponent
    return bits.clamp(max=levels - 1).long()


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

    @staticmethod
    def rule(  # type: ignore[override]  # of further gates
        q: Tensor,
        k: Tensor,
        v: Tensor,
        decay: Tensor,
        step: Tensor,
        weights: Tensor,
        past: None,
    ) -> tuple[Tensor, None]:
        """Σ_l λ_tl S_tlᵀ q_t, in chunks whose length is a power of two, and no state, as there are many.

        decay = log a and step = Δ are (B, H, n, c, 1), weights = λ (B, H, n, c, L).
        """
        k, total = k * step, decay.cumsum(-2)
        level = tree_levels(q.shape[3], weights.shape[-1], q.device).expand(*q.shape[:4], -1)
        inside = ((q @ k.mT) * decay_between(total) * weights.gather(-1, level)) @ v
        end = total[..., -1:, :]
        before = chunks_before(
            q * total.exp(), (k * (end - total).exp()).mT @ v, end.exp(), weights
        )
        return inside + before, None

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.chunk, levels = power_of_two(self.chunk), int(config.kernel["levels"])
        self.level = nn.Linear(config.d_model, config.score_heads * levels, bias=False)
        self.level_rate = nn.Parameter(torch.ones(config.score_heads, 1, levels))

    def query_gates(self, block: ScoreBlock) -> tuple[Tensor, ...]:
        """λ, (B, H, T, L)."""
        x = block.require("x", "kernel = log_linear", kernel="retention")
        levels = head_gates(self.level, x.to(self.level.weight.dtype), self.heads)
        return (F.softplus(to_float32(self.level_rate) * levels),)


# Gated linear attention: a state in which each channel of the keys fades at a pace that every token sets.


# −log of a decay whose halves e^40 and e^−40, and scores times both, stay within fp32
STRONGEST = 80.0
GLA_CHUNK = Param(
    "chunk",
    "Chunk",
    default=32,
    low=1,
    high=1024,
    step=1,
    meaning="tokens in a block, rounded up to a power of two",
)


def decay_products(
    rows: list[Tensor],
    keys: Tensor,
    decay: Tensor,
) -> Faded:
    """Σ_d r_id k_jd α_{j+1,d} ⋯ α_id for j ≤ i within chunks of c tokens, a power of two; zero for j > i.

    Each of rows, keys and decay = log α are (B, H, n, c, D). Returns these weights (B, H, n, c, c) for each of the
    rows, the rows faded since the chunk's start, the keys faded to its end, and the decay over it, (B, H, n, D, 1). A
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
        half.square().mT,
    )


def by_halves(
    rows: list[Tensor],
    keys: Tensor,
    decay: Tensor,
) -> Faded:
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
    return weights, rows, keys, total.mT


def right_of(weights: Tensor, size: int) -> Tensor:
    """A view of the blocks in which rows of a right half meet keys of the left one, (…, m, size, size)."""
    # (…, m, 2, size, m, 2, size)
    blocks = weights.unflatten(-1, (-1, 2, size)).unflatten(-4, (-1, 2, size))
    return blocks[..., 1, :, :, 0, :].diagonal(dim1=-4, dim2=-2).movedim(-1, -3)


class GatedLinear(StateKernel):
    """log α = log σ(W_2 W_1 x + b) / τ, one of each head, channel and key, from the keys' own x."""

    @staticmethod
    def rule(
        q: Tensor, k: Tensor, v: Tensor, decay: Tensor, past: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """S_tᵀ q_t and the last S; decay = log α is (B, H, n, c, D)."""
        (weights,), (since,), until, remains = decay_products([q], k, decay)
        states, state = states_before(until.mT @ v, remains, past)
        return weights @ v + since @ states, state

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.chunk, self.tau = power_of_two(self.chunk), float(config.kernel["tau"])
        self.forget = low_rank(config, int(config.kernel["rank"]))

    def gates(self, context: Tensor) -> tuple[Tensor, ...]:
        return (F.logsigmoid(head_gates(self.forget, context, self.heads)) / self.tau,)


# Kimi delta attention: the delta rule on a state in which each channel of the keys fades at a pace of its own.


class KimiDelta(GatedDelta):
    """α = e^(−e^A softplus(W_2 W_1 x + b)) of each channel, through D numbers, and β = β_max σ(W_b x) of each head."""

    segment = SEGMENT

    @staticmethod
    def rule(
        q: Tensor, k: Tensor, v: Tensor, decay: Tensor, write: Tensor, past: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """S_tᵀ q_t and the last S; decay = log α is (B, H, n, c, D), write = β (B, H, n, c, 1)."""
        return correct_in_chunks(decay_products([q, k], k, decay), v, write, past)

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.chunk = power_of_two(self.chunk)

    def decay_map(self, config: LayerConfig) -> nn.Module:
        return low_rank(config, config.qk_dim)


ENTRIES: tuple[Entry, ...] = (
    Entry(
        "delta",
        "Delta rule",
        build=Delta,
        latex=r"S_t q_t, \quad S_t = S_{t-1} (I - \beta_t k_t k_t^\top) + \beta_t v_t k_t^\top",
        meaning="A state is passed from token to token. Each token corrects the value that the state holds for its key, "
        "instead of adding to it. Queries and keys have length 1, and a query attends only to itself and earlier tokens.",
        paper="Schlag et al.",
        year=2021,
        url="https://arxiv.org/abs/2102.11174",
        params=(BETA_MAX, DELTA_CHUNK),
        short="S(I − βkkᵀ) + βvkᵀ",
        traits=STATE_TRAITS,
        cost=cost_in_chunks(delta_cost),
        refuse=refuse_when("delta", *CAUSAL_ROWS),
    ),
    Entry(
        "gated_delta",
        "Gated delta rule",
        build=GatedDelta,
        latex=r"S_t q_t, \quad S_t = \alpha_t S_{t-1} (I - \beta_t k_t k_t^\top) + \beta_t v_t k_t^\top",
        meaning="A state is passed from token to token. Each token scales the state by α and corrects the value that the "
        "state holds for its key. Queries and keys have length 1, and a query attends only to itself and earlier tokens.",
        paper="Yang et al.",
        year=2024,
        url="https://arxiv.org/abs/2412.06464",
        params=(BETA_MAX, DELTA_CHUNK),
        short="αS(I − βkkᵀ) + βvkᵀ",
        traits=STATE_TRAITS,
        cost=cost_in_chunks(delta_cost),
        refuse=refuse_when("gated_delta", *CAUSAL_ROWS),
    ),
    Entry(
        "ssd",
        "State space dual",
        build=StateSpace,
        latex=r"q_t^\top S_t, \quad S_t = a_t S_{t-1} + \Delta_t k_t v_t^\top",
        meaning="A state is passed from token to token. Each token chooses a step Δ: a long one forgets much of the state "
        "and adds much of the token. A query attends only to itself and earlier tokens.",
        paper="Dao & Gu",
        year=2024,
        url="https://arxiv.org/abs/2405.21060",
        params=(CHUNK,),
        short="aS + Δkvᵀ",
        traits=STATE_TRAITS,
        cost=cost_in_chunks(ssd_cost),
        refuse=refuse_when("ssd", *CAUSAL_ROWS),
    ),
    Entry(
        "log_linear",
        "Log-linear",
        build=LogLinear,
        latex=r"\sum_l \lambda_{tl}\, q_t^\top S_{tl}, \quad S_{tl} = \sum_{j \in \text{level } l} a_{j+1} \cdots a_t\, "
        r"\Delta_j k_j v_j^\top",
        meaning="The past is cut into stretches that double in length with their distance. Each has a state of its own, "
        "and each "
        "query weighs them. A query attends only to itself and earlier tokens. While decoding, keys are stored and no "
        "states, as the number of states grows with the length.",
        paper="Guo et al.",
        year=2025,
        url="https://arxiv.org/abs/2506.04761",
        params=(
            Param(
                "levels",
                "Levels",
                default=12,
                low=1,
                high=24,
                step=1,
                meaning="stretches with a weight of their own; those farther away share "
                "the last weight",
            ),
            replace(GLA_CHUNK, default=64),
        ),
        short="Σ λ·S of {levels} levels",
        traits=frozenset({"implied", "own positions", "layer only"}),
        cost=cost_in_chunks(log_linear_cost, halved=True),
        refuse=refuse_when("log_linear", *CAUSAL_ROWS),
    ),
    Entry(
        "gla",
        "Gated linear",
        build=GatedLinear,
        latex=r"q_t^\top S_t, \quad S_t = \text{Diag}(\alpha_t)\, S_{t-1} + k_t v_t^\top",
        meaning="A state is passed from token to token. Each token first scales every channel of the state by a gate of "
        "its own, then adds its key and value. A query attends only to itself and earlier tokens.",
        paper="Yang et al.",
        year=2023,
        url="https://arxiv.org/abs/2312.06635",
        params=(
            Param(
                "tau",
                "Gate root τ",
                default=16.0,
                low=1.0,
                high=64.0,
                step=1.0,
                meaning="gates are the τ-th root of a sigmoid, so a larger τ forgets more slowly",
            ),
            Param(
                "rank",
                "Gate rank",
                default=16,
                low=1,
                high=256,
                step=1,
                meaning="numbers of x from which all gates are computed",
            ),
            GLA_CHUNK,
        ),
        short="Diag(α)S + kvᵀ",
        traits=STATE_TRAITS,
        cost=cost_in_chunks(gla_cost, halved=True),
        refuse=refuse_when("gla", *CAUSAL_ROWS),
    ),
    Entry(
        "kda",
        "Kimi delta",
        build=KimiDelta,
        latex=r"q_t^\top S_t, \quad S_t = (I - \beta_t k_t k_t^\top)\, \text{Diag}(\alpha_t)\, S_{t-1} + \beta_t k_t "
        r"v_t^\top",
        meaning="A state is passed from token to token. Each token scales every channel of the state by a gate of its own "
        "and "
        "corrects the value that the state holds for its key. Queries and keys have length 1, and a query attends only to "
        "itself and earlier tokens.",
        paper="Kimi Team",
        year=2025,
        url="https://arxiv.org/abs/2510.26692",
        params=(BETA_MAX, GLA_CHUNK),
        short="(I − βkkᵀ)Diag(α)S + βkvᵀ",
        traits=STATE_TRAITS,
        cost=cost_in_chunks(kda_cost, halved=True),
        refuse=refuse_when("kda", *CAUSAL_ROWS),
    ),
)
