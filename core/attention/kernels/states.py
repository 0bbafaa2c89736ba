"""Kernels with a state, of 2025 and 2026: delta products, erase and write gates by channel, and a state that turns."""

import math
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from core.attention.base import to_float32
from core.attention.kernels.costs import (
    SEGMENT,
    cost_in_chunks,
    delta_cost,
    delta_product_cost,
    gla_cost,
    kda_cost,
    power_of_two,
    rwkv7_cost,
    trapezoid_cost,
    turned_pairs,
)
from core.attention.kernels.delta import (
    BETA_MAX,
    DELTA_CHUNK,
    GLA_CHUNK,
    GatedDelta,
    GatedLinear,
    KimiDelta,
    correct_in_chunks,
    decay_between,
    decay_products,
    unit,
)
from core.attention.kernels.exact import Clash, refuse_when
from core.attention.kernels.implied import (
    CAUSAL_ROWS,
    CHUNK,
    STATE_TRAITS,
    StateKernel,
    head_gates,
    initial_steps,
    low_rank,
    states_before,
)
from core.attention.positions import enters
from core.attention.positions.rotary import rotate_pairs, tables_of_pairs
from core.entries import ConfigError, Entry, LayerConfig, Param, refuse_if

# Delta products: several corrections a token, whose reflections multiply to any rotation.


class DeltaProduct(GatedDelta):
    """N keys and N shares β = β_max σ(W_b x) a head and token. Siems et al. 2025 (2502.10297), section 3.

    The projection gives the first key, SiLU(W x) of the keys' own x each further one, all of length 1. All steps write the
    token's one value, so that a map of tokens by tokens gives the output; in the paper each step has its own.
    """

    segment = SEGMENT

    @staticmethod
    def rule(  # type: ignore[override]  # of further gates
        q: Tensor,
        k: Tensor,
        v: Tensor,
        decay: Tensor,
        write: Tensor,
        keys: Tensor,
        past: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """S_t q_t and the last Sᵀ, where each token takes N steps of the delta rule.

        decay = log α is (B, H, n, c, 1), write = β of each step (B, H, n, c, N), keys those of the second step and later ones
        (B, H, n, c, (N − 1) · D). A state decays before the first step, and is read after the last.
        """
        steps = write.shape[-1]
        # (B, H, n, c · N, D)
        keys = torch.cat((k, keys), -1).unflatten(-1, (steps, -1)).flatten(3, 4)
        total = decay.cumsum(-2)
        by_step, end = total.repeat_interleave(steps, 3), total[..., -1:, :]
        between = decay_between(by_step)
        weights = [(q @ keys.mT) * between[..., steps - 1 :: steps, :], (keys @ keys.mT) * between]
        rows = [q * total.exp(), keys * by_step.exp()]
        return correct_in_chunks(
            (weights, rows, keys * (end - by_step).exp(), end.exp()),
            v.repeat_interleave(steps, 3),
            write.flatten(3, 4).unsqueeze(-1),
            past,
        )

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.steps = int(config.kernel["steps"])
        self.write = nn.Linear(config.d_model, config.score_heads * self.steps, bias=False)
        self.keys = nn.Linear(
            config.d_model, config.score_heads * (self.steps - 1) * config.qk_dim, bias=False
        )

    def gates(self, context: Tensor) -> tuple[Tensor, ...]:
        """log α (B, H, S, 1), β (B, H, S, N), and the further keys (B, H, S, (N − 1) · D)."""
        keys = F.silu(head_gates(self.keys, context, self.heads))
        keys = unit(keys.unflatten(-1, (self.steps - 1, -1))).flatten(-2)
        return *super().gates(context), keys


turns_first_key = Clash(
    "position",
    "makes further keys, which position = {} does not turn",
    {"position": "none", "kernel": "gated_delta"},
    lambda config: "q, k" in enters(config.position),
)


# Gated DeltaNet 2: a token reads what it erases by one gate a channel of keys, and writes by one a channel of values.


class EraseAndWrite(KimiDelta):
    """KDA's α, and b = b_max σ(W_b x) of each channel of keys, w = σ(W_w x) of each channel of values."""

    @staticmethod
    def rule(
        q: Tensor, k: Tensor, v: Tensor, decay: Tensor, erase: Tensor, past: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """S_tᵀ q_t and the last S; decay = log α and erase = b are (B, H, n, c, D), v is already w ⊙ v."""
        return correct_in_chunks(decay_products([q, erase * k], k, decay), v, None, past)

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.erase = nn.Linear(config.d_model, config.score_heads * config.qk_dim, bias=False)
        self.write = nn.Linear(config.d_model, config.score_heads * config.v_dim, bias=False)

    def gates(self, context: Tensor) -> tuple[Tensor, ...]:
        """log α and b, (B, H, S, D) each."""
        erase = head_gates(self.erase, context, self.heads).sigmoid()
        return self.decay(context), self.beta_max * erase

    def values(self, v: Tensor, context: Tensor) -> Tensor:
        """w ⊙ v, which is what the weights sum up."""
        return v * head_gates(self.write, context, self.heads).sigmoid()


# Mamba-3: a state that turns by angles of every token, into which a token enters twice.


def turned(x: Tensor, angle: Tensor, back: bool = False) -> Tensor:
    """The first 2P channels of x (…, T, D) in neighbouring pairs, turned by the angles (…, T, P), or `back`."""
    pairs, sine = 2 * angle.shape[-1], -angle.sin() if back else angle.sin()
    tables = tables_of_pairs(angle.cos(), sine, "interleaved")
    return torch.cat((rotate_pairs(x[..., :pairs], *tables, "interleaved"), x[..., pairs:]), -1)


def refuse_single_channels(config: LayerConfig) -> ConfigError | None:
    """What any kernel with a state does not go with, and heads without a pair of channels."""
    refuse_if(
        config.qk_dim < 2,
        "kernel = trapezoid turns pairs of channels, and a head of size 1 has none",
        "larger heads",
        axes=("kernel",),
        kernel="ssd",
    )
    return refuse_when("trapezoid", *CAUSAL_ROWS)(config)


MIN_RATE = 1e-4  # of −A, as in the authors' own code


class Trapezoid(StateKernel):
    """Δ = softplus(W x + b), a = e^(AΔ) with A = −softplus(W_A x), λ = σ(W_λ x) of a head; angles π tanh(W_θ x) Δ.

    Lahoti et al. 2026 (2603.15569), section 3. Queries and keys get a learned bias a head, which begins at 1.
    """

    @staticmethod
    def rule(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        decay: Tensor,
        now: Tensor,
        later: Tensor,
        turn: Tensor,
        real: Tensor,
        past: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """S_tᵀ q_t and the last S, with the last real key and value beside it: (B, H, D + 1, E + 1).

        decay = log a, now = λΔ and later = (1 − λ)Δ are (B, H, n, c, 1), turn the angles of each token (B, H, n, c, P), real
        (B, 1, n, c, 1) is 1 for a token that is no padding and else 0. A token enters the state by its own λΔ, and once more
        by (1 − λ)Δ of the real token that follows: from there on its weight is the sum of both. Padding in between holds that
        token's key and value, so that the second part enters one place before the token that follows. S is in the frame of
        the last token: turned back by all angles so far.
        """
        chunks, (dim, width) = q.shape[2:4], (k.shape[-1], v.shape[-1])
        known = real.flatten(2, 3) > 0  # (B, 1, T, 1)
        place = torch.arange(1, known.shape[2] + 1, device=q.device)[:, None]
        latest = place.masked_fill(~known, 0).cummax(2).values  # the last real token so far, from 1
        newest = [x.new_zeros(*x.shape[:2], 1, x.shape[-1]) for x in (k, v)]  # before the first
        if past is not None:
            newest = [past[..., :dim, width:].mT, past[..., dim:, :width]]
        k, v = (
            torch.cat((first, x.flatten(2, 3)), 2)
            .gather(2, latest.expand(*x.shape[:2], -1, x.shape[-1]))
            .unflatten(2, chunks)
            for first, x in zip(newest, (k, v), strict=True)
        )
        follows = F.pad(later.flatten(2, 3)[:, :, 1:], (0, 0, 0, 1)).unflatten(2, chunks)
        state = None
        if past is not None:
            state = past[..., :dim, :width] + later[:, :, 0, :1] * (newest[0].mT @ newest[1])
        total, angle = decay.cumsum(-2), turn.flatten(2, 3).cumsum(2)
        last, angle = angle[:, :, -1:], angle.unflatten(2, chunks)
        turned_q, turned_k = turned(q, angle), turned(k, angle) * (now + follows)
        end = total[..., -1:, :]
        states, state = states_before((turned_k * (end - total).exp()).mT @ v, end.exp(), state)
        inside = ((turned_q @ turned_k.mT) * decay_between(total)).tril(-1) @ v
        itself = (q * k).sum(-1, keepdim=True) * now * v  # which has entered once
        out = inside + itself + (turned_q * total.exp()) @ states
        state = turned(state.mT, last, back=True).mT
        key, value = k[:, :, -1, -1:], v[:, :, -1, -1:]
        return out, torch.cat((torch.cat((state, key.mT), -1), F.pad(value, (0, 1))), -2)

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.step = nn.Linear(config.d_model, config.score_heads)
        self.rate, self.mix = (
            nn.Linear(config.d_model, config.score_heads, bias=False) for _ in range(2)
        )
        self.angle = nn.Linear(config.d_model, turned_pairs(config), bias=False)
        self.query_bias, self.key_bias = (
            nn.Parameter(torch.ones(config.score_heads, 1, config.qk_dim)) for _ in range(2)
        )
        initial_steps(self.step)

    def prepare(self, q: Tensor, k: Tensor, scale: float | Tensor = 1.0) -> tuple[Tensor, Tensor]:
        return (q + self.query_bias) * scale, k + self.key_bias

    def gates(self, context: Tensor) -> tuple[Tensor, ...]:
        """log a, λΔ and (1 − λ)Δ, (B, H, S, 1), the angles (B, H, S, P), and a one for every token."""
        step, rate = (
            F.softplus(head_gates(layer, context, self.heads)) for layer in (self.step, self.rate)
        )
        share = head_gates(self.mix, context, self.heads).sigmoid()
        return (
            -rate.clamp(min=MIN_RATE) * step,
            share * step,
            (1 - share) * step,
            math.pi * head_gates(self.angle, context, 1).tanh() * step,
            torch.ones_like(step[:, :1]),
        )


# RWKV-7: a token erases by another key than it writes with.


SLOWEST = math.exp(-0.5)  # −log of the strongest decay of a channel


class AnotherKey(StateKernel):
    """w = e^(−e^(−1/2) σ(W_2 tanh(W_1 x) + b)) and a = σ(W_4 W_3 x + c) of each channel; κ̂ = (ξ ⊙ k) / |ξ ⊙ k|.

    The key that writes is k ⊙ (1 + (a − 1) ⊙ m), with ξ and m learned a head and channel. Peng et al. 2025 (2503.14456),
    section 4.
    """

    @staticmethod
    def rule(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        decay: Tensor,
        rate: Tensor,
        gain: Tensor,
        past: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """S_tᵀ q_t and the last S.

        decay = log w, rate = a and gain are (B, H, n, c, D); k (B, H, n, c, 2D) holds the key that writes, and κ̂. A token
        erases what κ̂ reads: of the state at its chunk's start, and of what its chunk erased and wrote before. It is read
        before the state decays, so κ̂ is divided by w, which is 0.54 or more.
        """
        k, erased = k.chunk(2, -1)
        rows = [q, erased * (-decay).exp()]
        faded = decay_products(rows, rate * erased, decay)
        (reads, meets), _, written, _ = decay_products(rows, gain * k, decay)
        out, state = correct_in_chunks(faded, meets.tril(-1) @ -v, None, past, written.mT @ v)
        return out + reads @ v, state

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.chunk, rank = power_of_two(self.chunk), int(config.kernel["rank"])
        self.forget, self.rate = (low_rank(config, rank) for _ in range(2))
        self.forget = nn.Sequential(self.forget[0], nn.Tanh(), self.forget[1])
        self.erased, self.mix = (
            nn.Parameter(torch.ones(config.score_heads, 1, config.qk_dim)) for _ in range(2)
        )

    def prepare(self, q: Tensor, k: Tensor, scale: float | Tensor = 1.0) -> tuple[Tensor, Tensor]:
        return q * scale, torch.cat((k, unit(k * self.erased)), -1)

    def gates(self, context: Tensor) -> tuple[Tensor, ...]:
        """log w, a, and what multiplies the key that writes, (B, H, S, D) each."""
        decay, rate = (
            head_gates(layer, context, self.heads).sigmoid() for layer in (self.forget, self.rate)
        )
        return -SLOWEST * decay, rate, 1 + (rate - 1) * self.mix


# Comba: the gated delta rule that erases less than it reads, and whose queries leave out their own key.


class Comba(GatedDelta):
    """α and β of the gated delta rule; σ(b) of what is read is erased, and d of its own key leaves each query.

    b and d are one a head. A token erases before the state decays: its transition is α − σ(b) β k kᵀ, and that of the
    gated delta rule α (I − β k kᵀ). Hu et al. 2025 (2506.02475), section 3.
    """

    @staticmethod
    def rule(  # type: ignore[override]  # of further gates
        q: Tensor,
        k: Tensor,
        v: Tensor,
        decay: Tensor,
        write: Tensor,
        erase: Tensor,
        correct: Tensor,
        past: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """S_t(q_t − d k_t) and the last Sᵀ; the gates are (B, H, n, c, 1), k is (B, H, n, c, 2D), as it is and scaled."""
        k, scaled = k.chunk(2, -1)
        total = decay.cumsum(-2)
        between, since, end = decay_between(total), total.exp(), total[..., -1:, :]
        # erased before the state decays: as it was after the token before
        earlier, start = F.pad(between, (0, 0, 1, -1)), F.pad(since, (0, 0, 1, -1), value=1.0)
        reads, erased = q - correct * scaled, erase * k
        weights = [(reads @ k.mT) * between, (erased @ k.mT) * earlier]
        rows = [reads * since, erased * start]
        return correct_in_chunks(
            (weights, rows, k * (end - total).exp(), end.exp()), v, write, past
        )

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.erase, self.correct = (
            nn.Parameter(torch.ones(config.score_heads, 1, 1)) for _ in range(2)
        )

    def prepare(self, q: Tensor, k: Tensor, scale: float | Tensor = 1.0) -> tuple[Tensor, Tensor]:
        return unit(q, scale), torch.cat((unit(k), unit(k, scale)), -1)

    def gates(self, context: Tensor) -> tuple[Tensor, ...]:
        """log α, β, σ(b) and d, (B, H, S, 1) each."""
        decay, write = super().gates(context)
        return decay, write, self.erase.sigmoid().expand_as(write), self.correct.expand_as(write)


# HGRN2: gated linear attention whose key is what its gate forgets.


class ForgottenKeys(StateKernel):
    """The projection's keys are the gates: α = g + (1 − g) σ(k), with g the least gate. Qin et al. 2024 (2404.07904)."""

    @staticmethod
    def rule(
        q: Tensor, k: Tensor, v: Tensor, share: Tensor, past: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """S_tᵀ q_t and the last S, with k = share · σ(−k) and α = 1 − k; share is (B, H, n, c, 1)."""
        k = share * (-k).sigmoid()
        return GatedLinear.rule(q, k, v, torch.log1p(-k.clamp(max=1 - 1e-6)), past)

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.chunk, self.least = power_of_two(self.chunk), float(config.kernel["least"])

    def gates(self, context: Tensor) -> tuple[Tensor, ...]:
        """1 − g of every token, (B, 1, S, 1)."""
        ones = context.new_ones(len(context), 1, context.shape[1], 1)
        return (to_float32(ones) * (1 - self.least),)


# RWKV-6: a token is read with a weight of its own before it enters the state.


class Bonus(StateKernel):
    """w = e^(−e^(W_2 tanh(W_1 x) + b)) of each channel, from the keys' own x; u, a head and channel, is learned.

    Peng et al. 2024 (2404.05892), section 4.2. e^(…) begins between 0.0025 and 1, as the paper spreads it over channels.
    """

    @staticmethod
    def rule(
        q: Tensor, k: Tensor, v: Tensor, decay: Tensor, bonus: Tensor, past: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """(S_{t-1} + Diag(u) k_t v_tᵀ)ᵀ q_t and the last S; decay = log w and bonus = u are (B, H, n, c, D).

        S_{t-1} is the state of gated linear attention to which each token comes one place later.
        """
        chunks = k.shape[2:4]
        later, faded, values = (
            F.pad(x.flatten(2, 3), (0, 0, 1, -1)).unflatten(2, chunks) for x in (k, decay, v)
        )
        out, state = GatedLinear.rule(q, later, values, faded, past)
        itself = (q * bonus * k).sum(-1, keepdim=True) * v
        added = k[:, :, -1, -1, :, None] * v[:, :, -1, -1:]  # by the last token
        return out + itself, decay[:, :, -1, -1, :, None].exp() * state + added

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.chunk = power_of_two(self.chunk)
        down, up = low_rank(config, int(config.kernel["rank"]))
        self.forget = nn.Sequential(down, nn.Tanh(), up)
        self.bonus = nn.Parameter(torch.zeros(config.score_heads, 1, config.qk_dim))
        nn.init.uniform_(up.get_parameter("bias"), -6, 0)

    def gates(self, context: Tensor) -> tuple[Tensor, ...]:
        """log w and u, (B, H, S, D) each."""
        decay = -head_gates(self.forget, context, self.heads).exp()
        return decay, to_float32(self.bonus).expand_as(decay)


GATE_RANK = Param(
    "rank",
    "Gate rank",
    default=32,
    low=1,
    high=256,
    step=1,
    meaning="numbers of x from which the gates of all channels are computed",
)
ENTRIES: tuple[Entry, ...] = (
    Entry(
        "rwkv6",
        "RWKV-6",
        build=Bonus,
        latex=r"q_t^\top \big(S_{t-1} + \text{Diag}(u)\, k_t v_t^\top\big), \quad S_t = \text{Diag}(w_t)\, S_{t-1} + k_t "
        r"v_t^\top",
        meaning="A state is passed from token to token. A query reads the state of the tokens before, and its own token by "
        "a learned "
        "weight a channel; then each channel of the state fades by a gate of its own, and the token is added. In the paper "
        "each input is mixed with that of the token before.",
        paper="Peng et al.",
        year=2024,
        url="https://arxiv.org/abs/2404.05892",
        params=(
            GATE_RANK,
            GLA_CHUNK,
        ),
        short="S₋₁ + Diag(u)kvᵀ, Diag(w)S + kvᵀ",
        traits=STATE_TRAITS,
        cost=cost_in_chunks(gla_cost, halved=True),
        refuse=refuse_when("rwkv6", *CAUSAL_ROWS),
    ),
    Entry(
        "delta_product",
        "Delta product",
        build=DeltaProduct,
        latex=r"S_t q_t, \quad S_t = \alpha_t S_{t-1} \prod_n (I - \beta_{tn} k_{tn} k_{tn}^\top) + \ldots",
        meaning="A state is passed from token to token. Each token has several keys of length 1, and for each in turn "
        "corrects the "
        "value that the state holds for it. With β up to 2 the corrections are reflections, and two make a rotation. A "
        "query attends only to itself and earlier tokens. The token's one value is written by all steps; in the paper "
        "each has its own.",
        paper="Siems et al.",
        year=2025,
        url="https://arxiv.org/abs/2502.10297",
        params=(
            Param(
                "steps",
                "Steps",
                default=2,
                low=2,
                high=8,
                step=1,
                meaning="corrections of the state a token, each with a key of its own",
            ),
            replace(BETA_MAX, default=2.0),
            replace(CHUNK, default=16),  # a system of all corrections of a chunk is solved
        ),
        short="{steps} × S(I − βkkᵀ) + βvkᵀ",
        traits=STATE_TRAITS,
        cost=cost_in_chunks(delta_product_cost),
        refuse=refuse_when("delta_product", turns_first_key, *CAUSAL_ROWS),
    ),
    Entry(
        "gdn2",
        "Erase and write",
        build=EraseAndWrite,
        latex=r"q_t^\top S_t, \quad S_t = (I - k_t (b_t \odot k_t)^\top)\, \text{Diag}(\alpha_t)\, S_{t-1} + k_t "
        r"(w_t \odot v_t)^\top",
        meaning="A state is passed from token to token. Each token scales every channel of the state by a gate of its own, "
        "erases "
        "what the state holds for its key by one gate a channel of keys, and writes its value by one gate a channel of "
        "values. Queries and keys have length 1, and a query attends only to itself and earlier tokens. The weights sum up "
        "values that are gated already.",
        paper="Hatamizadeh et al.",
        year=2026,
        url="https://arxiv.org/abs/2605.22791",
        params=(
            replace(
                BETA_MAX,
                name="Largest erasure",
                meaning="the gate b is a sigmoid times this; above 1 a token can turn the sign of what the state holds "
                "for its key",
            ),
            GLA_CHUNK,
        ),
        short="(I − k(b⊙k)ᵀ)Diag(α)S + k(w⊙v)ᵀ",
        traits=STATE_TRAITS,
        cost=cost_in_chunks(kda_cost, halved=True),
        refuse=refuse_when("gdn2", *CAUSAL_ROWS),
    ),
    Entry(
        "trapezoid",
        "Trapezoidal state space",
        build=Trapezoid,
        latex=r"q_t^\top S_t, \quad S_t = a_t R_t S_{t-1} + (1 - \lambda_t) \Delta_t a_t\, R_t k_{t-1} v_{t-1}^\top "
        r"+ \lambda_t \Delta_t k_t v_t^\top",
        meaning="A state is passed from token to token. Each token chooses a step Δ: a long one forgets much of the state, "
        "turns it "
        "by larger angles, and adds much of the token and of the one before. So a state can count in circles. Queries and "
        "keys get a learned bias, and a query attends only to itself and earlier tokens.",
        paper="Lahoti et al.",
        year=2026,
        url="https://arxiv.org/abs/2603.15569",
        params=(
            Param(
                "share",
                "Turned share",
                default=0.5,
                low=0.25,
                high=1.0,
                step=0.25,
                meaning="share of the channels that turn, in pairs, one at least",
            ),
            CHUNK,
        ),
        short="aRS + (1−λ)Δa·Rkvᵀ₋₁ + λΔkvᵀ",
        traits=STATE_TRAITS,
        cost=cost_in_chunks(trapezoid_cost),
        refuse=refuse_single_channels,
    ),
    Entry(
        "rwkv7",
        "RWKV-7",
        build=AnotherKey,
        latex=r"q_t^\top S_t, \quad S_t = \big(\text{Diag}(w_t) - (a_t \odot \hat\kappa_t)\, \hat\kappa_t^\top\big) "
        r"S_{t-1} + \tilde k_t v_t^\top",
        meaning="A state is passed from token to token. Each token scales every channel of the state by a gate of its own, "
        "erases "
        "what the state holds for one key, and writes its value under another. A query attends only to itself and earlier "
        "tokens. In the paper each input is mixed with that of the token before, and later layers reuse the first one's "
        "values.",
        paper="Peng et al.",
        year=2025,
        url="https://arxiv.org/abs/2503.14456",
        params=(
            GATE_RANK,
            GLA_CHUNK,
        ),
        short="(Diag(w) − (a⊙κ̂)κ̂ᵀ)S + k̃vᵀ",
        traits=STATE_TRAITS,
        cost=cost_in_chunks(rwkv7_cost, halved=True),
        refuse=refuse_when("rwkv7", *CAUSAL_ROWS),
    ),
    Entry(
        "comba",
        "Comba",
        build=Comba,
        latex=r"S_t (q_t - d k_t), \quad S_t = S_{t-1} (\alpha_t I - \sigma(b) \beta_t k_t k_t^\top) + \beta_t v_t k_t^\top",
        meaning="The gated delta rule, where a learned share of what the state holds for a key is erased, before it "
        "decays, and a "
        "learned share of its own key is taken out of each query. Queries and keys have length 1, and a query attends only "
        "to itself and earlier tokens.",
        paper="Hu et al.",
        year=2025,
        url="https://arxiv.org/abs/2506.02475",
        params=(BETA_MAX, DELTA_CHUNK),
        short="S(α − σ(b)βkkᵀ) + βvkᵀ, q − dk",
        traits=STATE_TRAITS,
        cost=cost_in_chunks(delta_cost),
        refuse=refuse_when("comba", *CAUSAL_ROWS),
    ),
    Entry(
        "hgrn2",
        "Keys as forget gates",
        build=ForgottenKeys,
        latex=r"q_t^\top S_t, \quad S_t = \text{Diag}(\alpha_t)\, S_{t-1} + (1 - \alpha_t) v_t^\top, \quad \alpha_t = g + "
        r"(1 - g)\, \sigma(k_t)",
        meaning="Gated linear attention whose keys are its gates: as much as a channel of the state forgets, so much of "
        "the value is written there. A query attends only to itself and earlier tokens.",
        paper="Qin et al.",
        year=2024,
        url="https://arxiv.org/abs/2404.07904",
        params=(
            Param(
                "least",
                "Least gate g",
                default=0.0,
                low=0.0,
                high=0.99,
                step=0.01,
                meaning="what every gate keeps of the state at least; it grows from layer to layer in the paper",
            ),
            GLA_CHUNK,
        ),
        short="Diag(α)S + (1 − α)vᵀ",
        traits=STATE_TRAITS,
        cost=cost_in_chunks(gla_cost, halved=True),
        refuse=refuse_when("hgrn2", *CAUSAL_ROWS),
    ),
)
