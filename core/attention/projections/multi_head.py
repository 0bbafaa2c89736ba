"""Each head with keys and values of its own: identity, and multi-head (Vaswani 2017)."""

from __future__ import annotations

from typing import Any

from jaxtyping import Float
from torch import Tensor

from core.attention.basics import Extended, Heads, MultiHead, Projection, merge_heads, split_heads
from core.attention.cache import append
from core.entries import Entry, HeadSizes, LayerConfig, Param

SHARES_KEYS = frozenset(
    {"shares keys"}
)  # the trait of a projection that can take another layer's keys and values
BIAS = Param("bias", "Bias", True, meaning="whether the four projections have a bias")
HEAD_SIZE = Param(
    "head_dim",
    "Head size",
    0,
    0,
    1024,
    1,
    meaning="size D of each head; 0 divides d_model among the heads",
)


class Identity(Projection):
    """q is x and k = v is the context, as in the recurrent models, where states are compared as they are."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads

    def forward(
        self, x: Float[Tensor, "B T C"], context: Float[Tensor, "B S C"], offset: int = 0
    ) -> Heads:
        keys = split_heads(context, self.num_heads)
        return split_heads(x, self.num_heads), keys, keys

    def merge(
        self, out: Float[Tensor, "B H T D"], x: Float[Tensor, "B T C"]
    ) -> Float[Tensor, "B T C"]:
        return merge_heads(out)

    def cached(self, context: Float[Tensor, "B S C"], offset: int = 0) -> tuple[Tensor, ...]:
        return (split_heads(context, self.num_heads),)  # keys and values are one tensor

    def extend(
        self, x: Float[Tensor, "B T C"], stored: tuple[Tensor, ...], offset: int, **_: Any
    ) -> Extended:
        (both,) = append(stored, self.cached(x))
        return split_heads(x, self.num_heads), both, both, (both,)


def _identity_sizes(config: LayerConfig) -> HeadSizes:
    heads, size = config.num_heads, config.head_dim
    return HeadSizes(heads, size, size, heads, cached=config.d_model)  # keys and values are one


IDENTITY = Entry(
    "identity",
    "Identity",
    lambda config: Identity(config.d_model, config.num_heads),
    r"q_i = x_i,\quad k_j = v_j = c_j",
    "Queries, keys and values are the states themselves. Nothing is learned here.",
    "Bahdanau et al.",
    2014,
    "https://arxiv.org/abs/1409.0473",
    short="q = x",
    sizes=_identity_sizes,
)
MULTI_HEAD = Entry(
    "multi_head",
    "Multi-head",
    lambda config: MultiHead(config.d_model, config.num_heads, **config.projection.kwargs),
    r"q_i = x_i W_q,\quad k_j = c_j W_k,\quad v_j = c_j W_v",
    "Learned projections give each head its queries, keys and values. The context c is x itself (self-attention) or "
    "another sequence (cross-attention).",
    "Vaswani et al.",
    2017,
    "https://arxiv.org/abs/1706.03762",
    (BIAS, HEAD_SIZE),
    "q = x W_q",
    traits=SHARES_KEYS,
)
