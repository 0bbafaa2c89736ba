"""Gated attention (Qiu 2025): a gate from the query's own token on the output of each head."""

from __future__ import annotations

from einops import repeat
from jaxtyping import Float
from torch import Tensor

from core.attention.basics import linear, merge_heads
from core.attention.projections.grouped import MOST_KV_HEADS, GroupedQuery, refuse_uneven
from core.attention.projections.multi_head import BIAS, HEAD_SIZE, SHARES_KEYS
from core.entries import Entry, HeadSizes, LayerConfig, Param


class Gated(GroupedQuery):
    """σ(W_g x) ⊙ out before W_o: the query's own token says how much of each head passes. Qiu 2025, section 2.2.

    `grain` is "elementwise" (a gate for each of the H · D numbers) or "headwise" (one for each head).
    """

    def __init__(
        self, d_model: int, num_heads: int, kv_heads: int, bias: bool, grain: str, head_dim: int = 0
    ) -> None:
        super().__init__(d_model, num_heads, kv_heads, bias, head_dim)
        self.gate = linear(
            d_model, self.query.out_features if grain == "elementwise" else num_heads
        )

    def merge(
        self, out: Float[Tensor, "B H T D"], x: Float[Tensor, "B T C"]
    ) -> Float[Tensor, "B T C"]:
        joined, gate = merge_heads(out), self.gate(x).sigmoid()
        if gate.shape[-1] != joined.shape[-1]:
            gate = repeat(gate, "b t h -> b t (h d)", d=out.shape[-1])
        return self.output(gate * joined)


def _build(config: LayerConfig) -> Gated:
    return Gated(
        config.d_model,
        config.num_heads,
        config.kv_heads,
        bool(config.projection["bias"]),
        str(config.projection["grain"]),
        config.head_dim,
    )


def _sizes(config: LayerConfig) -> HeadSizes:
    kv_heads = int(config.projection["kv_heads"]) or config.num_heads
    return HeadSizes(config.num_heads, config.head_dim, config.head_dim, kv_heads)


def _refuse(config: LayerConfig) -> str | None:
    return refuse_uneven(config, "key head", "0")


GATED = Entry(
    "gated",
    "Gated output",
    _build,
    r"[\sigma(x_i W_g) \odot \mathrm{out}_i]\,W_o",
    "A gate, computed from the query's token, multiplies the output of each head by numbers from 0 to 1.",
    "Qiu et al.",
    2025,
    "https://arxiv.org/abs/2505.06708",
    (
        BIAS,
        Param(
            "grain",
            "Gate",
            "elementwise",
            choices=("elementwise", "headwise"),
            labels=("each number", "each head"),
            meaning="whether each number of the output has a gate, or each head",
        ),
        Param(
            "kv_heads",
            "Key/value heads",
            0,
            0,
            MOST_KV_HEADS,
            1,
            meaning="number G of heads of keys and values, which divides the number of query heads; 0 for as many",
        ),
        HEAD_SIZE,
    ),
    "q = x W_q, σ(x W_g) ⊙ out",
    traits=SHARES_KEYS,
    sizes=_sizes,
    refuse=_refuse,
)
