"""Kernels with a state, of 2025 and 2026: delta products, erase and write gates by channel, and a state that turns."""

import math
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from core.attention.kernels.costs import (
    delta_product_cost,
    gdn2_cost,
    trapezoid_cost,
    turned_pairs,
)
from core.attention.kernels.delta import (
    BETA_MAX,
    GLA_CHUNK,
    GatedDelta,
    KimiDelta,
    correct_in_chunks,
    decay_between,
    decay_products,
    unit,
)
from core.attention.kernels.implied import (
    CAUSAL,
    CHUNK,
    Rule,
    StateKernel,
    head_gates,
    initial_steps,
    needs_plain_rows,
    states_before,
)
from core.attention.positions import enters
from core.attention.positions.rotary import rotate_pairs, tables_of_pairs
from core.entries import ConfigError, Entry, LayerConfig, Param, refuse_if

# Delta products: several corrections a token, whose reflections multiply to any rotation.


def delta_product(
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
    keys = torch.cat((k, keys), -1).unflatten(-1, (steps, -1)).flatten(3, 4)  # (B, H, n, c · N, D)
    total = decay.cumsum(-2)
    by_step, end = total.repeat_interleave(steps, 3), total[..., -1:, :]
    between = decay_between(by_step)
    weights = [(q @ keys.mT) * between[..., steps - 1 :: steps, :], (keys @ keys.mT) * between]
    return correct_in_chunks(
        weights,
        [q * total.exp(), keys * by_step.exp()],
        keys * (end - by_step).exp(),
        end.exp(),
        v.repeat_interleave(steps, 3),
        write.flatten(3, 4).unsqueeze(-1),
        past,
    )


class DeltaProduct(GatedDelta):
    """N keys and N shares β = β_max σ(W_b x) a head and token. Siems et al. 2025 (2502.10297), section 3.

    The projection gives the first key, SiLU(W x) of the keys' own x each further one, all of length 1. All steps write the
    token's one value, so that a map of tokens by tokens gives the output; in the paper each step has its own.
    """

    rule: Rule = staticmethod(delta_product)

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


def refuse_turned_keys(config: LayerConfig) -> ConfigError | None:
    """What any kernel with a state does not go with, and a position that would turn the first key alone."""
    refuse_if(
        "q, k" in enters(config.position),
        f"kernel = delta_product makes further keys, which position = {config.position.key} does not turn",
        axes=("kernel", "position"),
        position="none",
        kernel=("gated_delta", "exact"),
    )
    return needs_plain_rows("delta_product", *CAUSAL)(config)


# Gated DeltaNet 2: a token reads what it erases by one gate a channel of keys, and writes by one a channel of values.


def erase_and_write(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, erase: Tensor, past: Tensor | None
) -> tuple[Tensor, Tensor]:
    """S_tᵀ q_t and the last S; decay = log α and erase = b are (B, H, n, c, D), v is already w ⊙ v."""
    weights, rows, until, total = decay_products([q, erase * k], k, decay)
    return correct_in_chunks(weights, rows, until, total.unsqueeze(-1), v, None, past)


class EraseAndWrite(KimiDelta):
    """KDA's α, and b = b_max σ(W_b x) of each channel of keys, w = σ(W_w x) of each channel of values."""

    rule: Rule = staticmethod(erase_and_write)

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.erase = nn.Linear(config.d_model, config.score_heads * config.qk_dim, bias=False)
        self.write = nn.Linear(config.d_model, config.score_heads * config.v_dim, bias=False)

    def gates(self, context: Tensor) -> tuple[Tensor, ...]:
        """log α and b, (B, H, S, D) each."""
        erase = self.beta_max * head_gates(self.erase, context, self.heads).sigmoid()
        return self.decay(context), erase

    def values(self, v: Tensor, context: Tensor) -> Tensor:
        """w ⊙ v, which is what the weights sum up."""
        return v * head_gates(self.write, context, self.heads).sigmoid()


# Mamba-3: a state that turns by angles of every token, into which a token enters twice.


def turned(x: Tensor, angle: Tensor, back: bool = False) -> Tensor:
    """The first 2P channels of x (…, T, D) in neighbouring pairs, turned by the angles (…, T, P), or `back`."""
    pairs, sine = 2 * angle.shape[-1], -angle.sin() if back else angle.sin()
    tables = tables_of_pairs(angle.cos(), sine, "interleaved")
    rotated = rotate_pairs(x[..., :pairs], *tables, "interleaved")
    return torch.cat((rotated, x[..., pairs:]), -1)


def taken_at(x: Tensor, place: Tensor) -> Tensor:
    """The rows of x (B, H, T, D) at these places (B, 1, N), zeros at place T: (B, H, N, D)."""
    index = place[..., None].expand(*x.shape[:2], -1, x.shape[-1])
    return F.pad(x, (0, 0, 0, 1)).gather(2, index)


def trapezoid(
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
    by (1 − λ)Δ of the real token that follows: from there on its weight is the sum of both. S is in the frame of the last
    token: turned back by all angles so far.
    """
    chunks, (dim, width) = q.shape[2:4], (k.shape[-1], v.shape[-1])
    length = chunks[0] * chunks[1]
    place = torch.arange(length, device=q.device)
    known = real.flatten(2, 3).squeeze(-1) > 0  # (B, 1, T)
    ahead = place.masked_fill(~known, length).flip(-1).cummin(-1).values.flip(-1)  # itself or after
    follows = taken_at(later.flatten(2, 3), F.pad(ahead[..., 1:], (0, 1), value=length))
    follows, total = follows.unflatten(2, chunks) * real, decay.cumsum(-2)
    angle = turn.flatten(2, 3).cumsum(2)
    last, angle = angle[:, :, -1:], angle.unflatten(2, chunks)
    turned_q, turned_k = turned(q, angle), turned(k, angle) * (now + follows)
    end, state = total[..., -1:, :], None
    if past is not None:
        state, *newest = past[..., :dim, :width], past[..., :dim, width:], past[..., dim:, :width]
        state = state + taken_at(later.flatten(2, 3), ahead[..., :1]) * (newest[0] @ newest[1])
    states, state = states_before((turned_k * (end - total).exp()).mT @ v, end.exp(), state)
    inside = ((turned_q @ turned_k.mT) * decay_between(total)).tril(-1) @ v
    itself = (q * k).sum(-1, keepdim=True) * now * v  # which has entered once
    out = inside + itself + (turned_q * total.exp()) @ states
    at = place.masked_fill(~known, -1).amax(-1, keepdim=True)  # (B, 1, 1), −1 without a real token
    key, value = (taken_at(x.flatten(2, 3), at.masked_fill(at < 0, length)) for x in (k, v))
    if past is not None:
        key, value = (
            torch.where(at[..., None] < 0, newest[0].mT, key),
            torch.where(at[..., None] < 0, newest[1], value),
        )
    state = turned(state.mT, last, back=True).mT
    return out, torch.cat((torch.cat((state, key.mT), -1), F.pad(value, (0, 1))), -2)


def refuse_single_channels(config: LayerConfig) -> ConfigError | None:
    """What any kernel with a state does not go with, and heads without a pair of channels."""
    refuse_if(
        config.qk_dim < 2,
        "kernel = trapezoid turns pairs of channels, and a head of size 1 has none",
        "larger heads",
        axes=("kernel",),
        kernel="ssd",
    )
    return needs_plain_rows("trapezoid", *CAUSAL)(config)


LEAST_RATE = 1e-4  # of −A, as in the authors' own code


class Trapezoid(StateKernel):
    """Δ = softplus(W x + b), a = e^(AΔ) with A = −softplus(W_A x), λ = σ(W_λ x) of a head; angles π tanh(W_θ x) Δ.

    Lahoti et al. 2026 (2603.15569), section 3. Queries and keys get a learned bias a head, which begins at 1.
    """

    rule: Rule = staticmethod(trapezoid)

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
        angle = math.pi * head_gates(self.angle, context, 1).tanh() * step
        return (
            -rate.clamp(min=LEAST_RATE) * step,
            share * step,
            (1 - share) * step,
            angle,
            torch.ones_like(step[:, :1]),
        )


ENTRIES: tuple[Entry, ...] = (
    Entry(
        "delta_product",
        "Delta product",
        DeltaProduct,
        r"S_t q_t, \quad S_t = \alpha_t S_{t-1} \prod_n (I - \beta_{tn} k_{tn} k_{tn}^\top) + \ldots",
        "A state is passed from token to token. Each token has several keys of length 1, and for each in turn corrects the "
        "value that the state holds for it. With β up to 2 the corrections are reflections, and two make a rotation. A "
        "query attends only to itself and earlier tokens. The token's one value is written by all steps; in the paper "
        "each has its own.",
        "Siems et al.",
        2025,
        "https://arxiv.org/abs/2502.10297",
        (
            Param(
                "steps",
                "Steps",
                2,
                2,
                8,
                1,
                meaning="corrections of the state a token, each with a key of its own",
            ),
            replace(BETA_MAX, default=2.0),
            GLA_CHUNK,
        ),
        short="{steps} × S(I − βkkᵀ) + βvkᵀ",
        traits=frozenset({"implied", "state", "own positions", "layer only"}),
        cost=delta_product_cost,
        refuse=refuse_turned_keys,
    ),
    Entry(
        "gdn2",
        "Erase and write",
        EraseAndWrite,
        r"q_t^\top S_t, \quad S_t = (I - k_t (b_t \odot k_t)^\top)\, \text{Diag}(\alpha_t)\, S_{t-1} + k_t "
        r"(w_t \odot v_t)^\top",
        "A state is passed from token to token. Each token scales every channel of the state by a gate of its own, erases "
        "what the state holds for its key by one gate a channel of keys, and writes its value by one gate a channel of "
        "values. Queries and keys have length 1, and a query attends only to itself and earlier tokens. The weights sum up "
        "values that are gated already.",
        "Hatamizadeh et al.",
        2026,
        "https://arxiv.org/abs/2605.22791",
        (
            replace(
                BETA_MAX,
                name="Largest erasure",
                meaning="the gate b is a sigmoid times this; above 1 a token can turn the sign of what the state holds "
                "for its key",
            ),
            GLA_CHUNK,
        ),
        short="(I − k(b⊙k)ᵀ)Diag(α)S + k(w⊙v)ᵀ",
        traits=frozenset({"implied", "state", "own positions", "layer only"}),
        cost=gdn2_cost,
        refuse=needs_plain_rows("gdn2", *CAUSAL),
    ),
    Entry(
        "trapezoid",
        "Trapezoidal state space",
        Trapezoid,
        r"q_t^\top S_t, \quad S_t = a_t R_t S_{t-1} + (1 - \lambda_t) \Delta_t a_t\, R_t k_{t-1} v_{t-1}^\top "
        r"+ \lambda_t \Delta_t k_t v_t^\top",
        "A state is passed from token to token. Each token chooses a step Δ: a long one forgets much of the state, turns it "
        "by larger angles, and adds much of the token and of the one before. So a state can count in circles. Queries and "
        "keys get a learned bias, and a query attends only to itself and earlier tokens.",
        "Lahoti et al.",
        2026,
        "https://arxiv.org/abs/2603.15569",
        (
            Param(
                "share",
                "Turned share",
                0.5,
                0.25,
                1.0,
                0.25,
                meaning="share of the channels that turn, in pairs, one at least",
            ),
            CHUNK,
        ),
        short="aRS + (1−λ)Δa·Rkvᵀ₋₁ + λΔkvᵀ",
        traits=frozenset({"implied", "state", "own positions", "layer only"}),
        cost=trapezoid_cost,
        refuse=refuse_single_channels,
    ),
)
