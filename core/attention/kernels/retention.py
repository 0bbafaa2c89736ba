"""Retention: scores that decay with distance are the weights, unnormalised, so that one state sums up all keys before.

Sun et al. 2023, equations 5 to 7: out_i = Σ_{j ≤ i} γ^(i−j) s_ij v_j, one γ a head. With ALiBi's slopes for −log γ it
is the lightning attention of MiniMax-01 (Qin et al. 2024).
"""

from __future__ import annotations

import torch
from torch import Tensor

from core.attention.kernels.base import to_float32
from core.attention.kernels.exact import AttentionInputs, Steps
from core.attention.kernels.implied import (
    CAUSAL,
    IMPLIED,
    STATE,
    chunk_length,
    full_precision,
    in_chunks,
    needs_plain_rows,
    real_keys,
    scaled_qk,
    states_before,
    steps,
)
from core.attention.kernels.implied_costs import retention_cost
from core.attention.kernels.linear import CHUNK
from core.eager_cache import eager_cache
from core.entries import ConfigError, Entry, LayerConfig, Param


def retnet_slopes(num_heads: int) -> Tensor:
    """−log γ with γ_h = 1 − 2^(−5−h), h from 0. Sun 2023, section 2.2."""
    return -torch.log1p(-(2.0 ** -(5.0 + torch.arange(num_heads, dtype=torch.float64))))


def lightning_slopes(num_heads: int) -> Tensor:
    """2^(−8h/H), h from 1. MiniMax-01, section 2.2.1."""
    return 2.0 ** (-8.0 * torch.arange(1, num_heads + 1, dtype=torch.float64) / num_heads)


SLOPES = {"retnet": retnet_slopes, "lightning": lightning_slopes}


@eager_cache(maxsize=32)
def slopes_of(rule: str, num_heads: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The slopes by that rule, (H, 1, 1), rounded from fp64. Cached: never change the result."""
    with torch.inference_mode(False):
        return SLOPES[rule](num_heads).to(device, dtype)[:, None, None]


def retain(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    slopes: Tensor,
    chunk: int,
    offset: int = 0,
    past: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Σ_{j ≤ i} e^(−slope·(i−j)) (q_i·k_j) v_j in chunks, and the state at the last key: the sum with k_jᵀ for q_i·k_j.

    slopes (H, 1, 1); queries begin at position `offset`; `past` is the state before the first key.
    """
    queries, keys = q.shape[2], k.shape[2]
    q, k, v = in_chunks(q, k, v, chunk, offset)
    position = torch.arange(chunk, dtype=slopes.dtype, device=q.device)  # within a chunk
    rate = slopes.unsqueeze(1)  # (H, 1, 1, 1), beside n, chunk, chunk
    out = ((q @ k.mT) * decay(rate, position[:, None] - position)) @ v
    starts = chunk * torch.arange(k.shape[2], dtype=slopes.dtype, device=q.device)
    filled = (keys - starts).clamp(0, chunk)[:, None, None]  # the keys of each chunk
    until = torch.exp(-rate * (filled - 1 - position[:, None]).clamp(min=0))
    states, state = states_before((k * until).mT @ v, torch.exp(-rate * filled)[None], past)
    out = out + (q * torch.exp(-rate * (position + 1)[:, None])) @ states
    return out.flatten(2, 3)[:, :, offset : offset + queries], state


def decay(slopes: Tensor, distance: Tensor) -> Tensor:
    """e^(−slope·distance) where distance ≥ 0, else 0."""
    return torch.exp(-slopes * distance.clamp(min=0)) * (distance >= 0)


class Retention:
    def __init__(self, config: LayerConfig) -> None:
        if config is None:
            raise ConfigError(
                "kernel = retention needs a decay for each head; take Attention(config), or kernel = "
                "linear."
            )
        self.chunk, self.rule, self.heads = (
            int(config.kernel["chunk"]),
            str(config.kernel["decay"]),
            config.score_heads,
        )

    @full_precision
    def __call__(self, inputs: AttentionInputs) -> Steps:
        real = real_keys(inputs, "retention")
        q, k, scale = scaled_qk(inputs)
        k, v, slopes = (
            k * scale,
            to_float32(inputs.v),
            slopes_of(self.rule, self.heads, q.dtype, q.device),
        )
        if real is not None:
            k = k.masked_fill(~real.mT, 0.0)
        out, state = retain(
            q, k, v, slopes, chunk_length(inputs, self.chunk), inputs.block.offset, inputs.past
        )
        return steps(
            inputs,
            out,
            lambda: (q @ k.mT) * decay(slopes, (inputs.block.i - inputs.block.j).to(q.dtype)),
            state,
        )


RETENTION = Entry(
    "retention",
    "Retention",
    Retention,
    r"\sum_{j \le i} \gamma_h^{\,i-j}\, s_{ij}\, v_j",
    "Scores decay with distance and are the weights without a normalizer, so weights may be negative and rows may "
    "have any sum. A query attends only to itself and earlier tokens, which a state sums up.",
    "Sun et al.",
    2023,
    "https://arxiv.org/abs/2307.08621",
    (
        Param(
            "decay",
            "Decay",
            "retnet",
            choices=("retnet", "lightning"),
            labels=("RetNet", "Lightning"),
            meaning="decay γ of each head: 1 − 2^(−5−h), or e to the power of ALiBi's slope",
        ),
        CHUNK,
    ),
    short="γ^(i−j)·s",
    traits=IMPLIED | STATE | {"own positions"},
    cost=retention_cost,
    refuse=needs_plain_rows("retention", *CAUSAL),
)
