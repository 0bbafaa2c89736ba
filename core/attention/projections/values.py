"""What is done to values: made of the keys (K = V, Gemma 4), or the own one left out of the output (Zhai 2026)."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from core.attention.basics import (
    Extended,
    Heads,
    MultiHead,
    Projection,
    linear,
    merge_heads,
    split_heads,
)
from core.attention.cache import append
from core.attention.projections.grouped import MOST_KV_HEADS, refuse_uneven
from core.attention.projections.multi_head import BIAS, HEAD_SIZE
from core.entries import ConfigError, Entry, HeadSizes, LayerConfig, Param

EPSILON = 1e-6  # of the norm of a value, as in Gemma's own code


class KeysAsValues(Projection):
    """v = k / RMS(k) in each of G heads, before positions rotate k: one map W_k serves keys and values. Gemma 4."""

    def __init__(
        self, d_model: int, num_heads: int, kv_heads: int, bias: bool, head_dim: int = 0
    ) -> None:
        super().__init__()
        self.num_heads, self.kv_heads = num_heads, kv_heads
        size = head_dim or d_model // num_heads
        wide = num_heads * size
        self.query, self.output = linear(d_model, wide, bias), linear(wide, d_model, bias)
        self.key = linear(d_model, kv_heads * size, bias)

    def forward(
        self, x: Float[Tensor, "B T C"], context: Float[Tensor, "B S C"], offset: int = 0
    ) -> Heads:
        (k,) = self.cached(context)
        return split_heads(self.query(x), self.num_heads), k, self.values(k)

    def values(self, k: Float[Tensor, "B G S D"]) -> Float[Tensor, "B G S D"]:
        return F.rms_norm(k, k.shape[-1:], eps=EPSILON)

    def cached(self, context: Float[Tensor, "B S C"], offset: int = 0) -> tuple[Tensor, ...]:
        return (split_heads(self.key(context), self.kv_heads),)  # values are computed from it again

    def extend(
        self, x: Float[Tensor, "B T C"], stored: tuple[Tensor, ...], offset: int, **_: Any
    ) -> Extended:
        (k,) = append(stored, self.cached(x))
        return split_heads(self.query(x), self.num_heads), k, self.values(k), (k,)

    def merge(
        self, out: Float[Tensor, "B H T D"], x: Float[Tensor, "B T C"]
    ) -> Float[Tensor, "B T C"]:
        return self.output(merge_heads(out))


class Exclusive(MultiHead):
    """y − ⟨y, v̂⟩ v̂ before W_o, where v̂ is the token's own value over its length. Zhai 2026, section 3.

    The weights stay as they are; what remains of each head's output is orthogonal to what the token itself says.
    """

    def forward(
        self, x: Float[Tensor, "B T C"], context: Float[Tensor, "B S C"], offset: int = 0
    ) -> Heads:
        """ConfigError for another sequence: x must be the context, or its last tokens from position `offset`."""
        queries, keys = x.shape[1], context.shape[1]
        if context is not x and 0 not in (x.shape[0], queries, keys) and offset + queries != keys:
            raise ConfigError(
                f"projection = exclusive leaves out each token's own value, and {queries} queries from "
                f"position {offset} have none among the {keys} keys of another sequence; take "
                "self-attention, or projection = multi_head."
            )
        return super().forward(x, context, offset)

    def merge(
        self, out: Float[Tensor, "B H T D"], x: Float[Tensor, "B T C"]
    ) -> Float[Tensor, "B T C"]:
        own = F.normalize(split_heads(self.value(x), self.num_heads), dim=-1)
        return super().merge(out - (out * own).sum(-1, keepdim=True) * own, x)


def _build(config: LayerConfig) -> KeysAsValues:
    return KeysAsValues(
        config.d_model,
        config.num_heads,
        config.kv_heads,
        bool(config.projection["bias"]),
        config.head_dim,
    )


def _sizes(config: LayerConfig) -> HeadSizes:
    kv_heads, size = int(config.projection["kv_heads"]), config.head_dim
    return HeadSizes(config.num_heads, size, size, kv_heads, cached=kv_heads * size)


def _refuse(config: LayerConfig) -> str | None:
    return refuse_uneven(config, "head of keys", "1")


KEYS_AS_VALUES = Entry(
    "keys_as_values",
    "Keys as values (K = V)",
    _build,
    r"k_j = c_j W_k,\quad v_j = \frac{k_j}{\mathrm{RMS}(k_j)}",
    "Values are the normalized keys, so a layer has no map for values, and a decoder caches the keys alone. Layers of "
    "Gemma 4 that attend to all tokens do this.",
    "Gemma Team",
    2026,
    "https://huggingface.co/docs/transformers/model_doc/gemma4",
    (
        Param(
            "kv_heads",
            "Key/value heads",
            1,
            1,
            MOST_KV_HEADS,
            1,
            meaning="number G of heads of keys and values; it divides the number of query heads",
        ),
        BIAS,
        HEAD_SIZE,
    ),
    "v = norm(k), {kv_heads} heads",
    sizes=_sizes,
    refuse=_refuse,
)
EXCLUSIVE = Entry(
    "exclusive",
    "Exclusive",
    lambda config: Exclusive(config.d_model, config.num_heads, **config.projection.kwargs),
    r"\big[y_i - \langle y_i, \hat{v}_i \rangle\, \hat{v}_i\big]\,W_o,\quad \hat{v}_i = v_i / \lVert v_i \rVert",
    "From each head's output the part along the token's own value is taken away, so that attention adds only what the "
    "token does not already have. It needs self-attention: cross-attention has no own value.",
    "Zhai",
    2026,
    "https://arxiv.org/abs/2603.09078",
    (BIAS,),
    "out − its part along v of i",
    traits=frozenset({"one sequence"}),
)
