"""Short convolutions before linear attention, and a norm and a gate after it, as in Mamba-2, GLA and Gated DeltaNet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from core.attention.basics import Extended, Heads, MultiHead, linear, merge_heads, split_heads
from core.attention.cache import append
from core.entries import ConfigError, Entry, LayerConfig, Param

EPSILON = 1e-5  # of the norm of each head's output
GATES: dict[str, Callable[[Tensor], Tensor]] = {"silu": F.silu, "sigmoid": torch.sigmoid}


class Convolved(MultiHead):
    """SiLU of a causal depthwise convolution of x W_q, x W_k and x W_v; (RMSNorm(out) ⊙ g(x W_g)) W_o a head.

    Yang et al. 2024 (2412.06464), section 3.4. A decoder stores the last `width` − 1 rows of the three maps.
    """

    reads_key_mask = True

    def __init__(self, d_model: int, num_heads: int, bias: bool, width: int, gate: str) -> None:
        super().__init__(d_model, num_heads, bias)
        self.taps = nn.Parameter(
            torch.empty(width, 3 * d_model).uniform_(-1, 1) * width**-0.5
        )  # as nn.Conv1d's
        self.gain = nn.Parameter(torch.ones(d_model // num_heads))
        self.passes = GATES.get(gate)
        self.gate = linear(d_model, d_model) if self.passes else None

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        context: Float[Tensor, "B S C"],
        offset: int = 0,
        key_mask: Bool[Tensor, "B S"] | None = None,
    ) -> Heads:
        """ConfigError for another sequence."""
        if context is not x and 0 not in (x.shape[0], x.shape[1], context.shape[1]):
            raise ConfigError(
                "projection = short_conv mixes neighbouring tokens of one sequence; take self-attention, "
                "or projection = multi_head."
            )
        queries, keys = x.shape[1], context.shape[1]
        q, k, v, _ = self.carry(context if keys else x, (), offset, key_mask if keys else None)
        return q[:, :, :queries], k[:, :, :keys], v[:, :, :keys]

    def carry(
        self,
        x: Float[Tensor, "B T C"],
        stored: tuple[Tensor, ...],
        offset: int,
        key_mask: Bool[Tensor, "B T"] | None = None,
        **_: Any,
    ) -> Extended:
        rows = torch.cat((self.query(x), self.key(x), self.value(x)), dim=-1)
        if key_mask is not None:
            rows = rows.masked_fill(
                ~key_mask.unsqueeze(-1), 0.0
            )  # a bias would be seen by the tokens after padding
        rows = (
            torch.cat((stored[-1], rows), dim=1)
            if stored
            else F.pad(rows, (0, 0, len(self.taps) - 1, 0))
        )
        mixed = torch.stack(
            [tap * rows[:, i : i + x.shape[1]] for i, tap in enumerate(self.taps)]
        ).sum(0)
        q, k, v = (split_heads(one, self.num_heads) for one in F.silu(mixed).chunk(3, dim=-1))
        return q, k, v, (rows[:, x.shape[1] :],)

    def extend(
        self,
        x: Float[Tensor, "B T C"],
        stored: tuple[Tensor, ...],
        offset: int,
        key_mask: Bool[Tensor, "B T"] | None = None,
        **_: Any,
    ) -> Extended:
        q, k, v, last = self.carry(x, stored, offset, key_mask)
        k, v = append(stored[:2], (k, v))
        return q, k, v, (k, v, *last)

    def merge(
        self, out: Float[Tensor, "B H T D"], x: Float[Tensor, "B T C"]
    ) -> Float[Tensor, "B T C"]:
        out = merge_heads(F.rms_norm(out, out.shape[-1:], self.gain, EPSILON))
        return self.output(
            out if self.gate is None or self.passes is None else out * self.passes(self.gate(x))
        )


def _build(config: LayerConfig) -> Convolved:
    return Convolved(config.d_model, config.num_heads, **config.projection.kwargs)


SHORT_CONV = Entry(
    "short_conv",
    "Short convolution, norm and gate",
    _build,
    r"q_i = \mathrm{SiLU}\Big(\sum_w c_w \odot x_{i-w} W_q\Big),\ k,\, v\ \text{alike};\quad "
    r"[\mathrm{RMSNorm}(\mathrm{out}_i) \odot g(x_i W_g)]\,W_o",
    "Queries, keys and values are mixed with those of the few tokens before them, so that one layer can compare a "
    "token with its neighbour. The output of each head is normalized, then multiplied by a gate.",
    "Yang et al.",
    2024,
    "https://arxiv.org/abs/2412.06464",
    (
        Param(
            "bias",
            "Bias",
            False,
            meaning="whether the maps to queries, keys, values and output have a bias",
        ),
        Param(
            "width",
            "Width",
            4,
            1,
            16,
            1,
            meaning="tokens that a convolution reads, the token itself among them",
        ),
        Param(
            "gate",
            "Gate",
            "silu",
            choices=("silu", "sigmoid", "none"),
            labels=("SiLU", "sigmoid", "none"),
            meaning="the function of the gate that multiplies the normalized output",
        ),
    ),
    "conv of {width}, norm, gate",
    traits=frozenset({"one sequence"}),
)
