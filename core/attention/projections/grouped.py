"""Fewer key and value heads than query heads: grouped-query (Ainslie 2023) and multi-query (Shazeer 2019)."""

from __future__ import annotations

from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from core.attention.basics import Heads, MultiHead, Projection, linear, merge_heads, split_heads
from core.attention.projections.multi_head import BIAS, HEAD_SIZE, SHARES_KEYS
from core.entries import Entry, HeadSizes, LayerConfig, Param

MOST_KV_HEADS = 256


class GroupedQuery(Projection):
    """H query heads and G key/value heads of D (C / H unless given); each of the G serves H / G neighbouring queries.

    Ainslie 2023, section 2.2; G = 1 is Shazeer's multi-query, G = H is multi-head.
    """

    def __init__(
        self, d_model: int, num_heads: int, kv_heads: int, bias: bool, head_dim: int = 0
    ) -> None:
        super().__init__()
        self.num_heads, self.kv_heads = num_heads, kv_heads
        size = head_dim or d_model // num_heads
        wide, narrow = num_heads * size, kv_heads * size
        self.query, self.output = linear(d_model, wide, bias), linear(wide, d_model, bias)
        self.key, self.value = linear(d_model, narrow, bias), linear(d_model, narrow, bias)

    @classmethod
    def pooled(cls, many: MultiHead, kv_heads: int) -> GroupedQuery:
        """A multi-head layer's maps, with each group's keys and values averaged into one. Ainslie 2023, section 2.1."""
        bias = many.query.bias is not None
        size = many.query.out_features // many.num_heads
        few = cls(many.query.in_features, many.num_heads, kv_heads, bias, size)
        few.load_state_dict(
            many.state_dict()
            | {
                f"{name}.{part}": rearrange(
                    weight, "(g n d) ... -> n g d ...", g=kv_heads, n=many.num_heads // kv_heads
                )
                .mean(0)
                .flatten(0, 1)
                for name in ("key", "value")
                for part, weight in getattr(many, name).state_dict().items()
            }
        )
        return few

    def forward(
        self, x: Float[Tensor, "B T C"], context: Float[Tensor, "B S C"], offset: int = 0
    ) -> Heads:
        k, v = (
            split_heads(self.key(context), self.kv_heads),
            split_heads(self.value(context), self.kv_heads),
        )
        return self.queries(x), k, v

    def queries(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B H T D"]:
        return split_heads(self.query(x), self.num_heads)

    def merge(
        self, out: Float[Tensor, "B H T D"], x: Float[Tensor, "B T C"]
    ) -> Float[Tensor, "B T C"]:
        return self.output(merge_heads(out))


def _build(config: LayerConfig) -> GroupedQuery:
    return GroupedQuery(
        config.d_model,
        config.num_heads,
        config.kv_heads,
        bool(config.projection["bias"]),
        config.head_dim,
    )


def _sizes(config: LayerConfig) -> HeadSizes:
    kv_heads = 1 if config.projection.key == "multi_query" else int(config.projection["kv_heads"])
    return HeadSizes(config.num_heads, config.head_dim, config.head_dim, kv_heads)


def _refuse(config: LayerConfig) -> str | None:
    return refuse_uneven(config, "key head")


def refuse_uneven(config: LayerConfig, shared: str, take: str = "") -> str | None:
    """Why the query heads cannot be divided evenly among the key heads, and which number to take (any that divides
    them, unless given); None if they can."""
    heads = config.num_heads
    if heads % config.kv_heads == 0:
        return None
    fits = [str(number) for number in range(1, heads + 1) if heads % number == 0]
    take = take or (f"one of {', '.join(fits)}" if len(fits) > 1 else fits[0])
    return (
        f"projection = {config.projection.key} shares each {shared} among the same number of query heads, but "
        f"kv_heads = {config.kv_heads} does not divide num_heads = {heads}; take kv_heads = {take}, or projection "
        "= multi_query."
    )


GROUPED_QUERY = Entry(
    "grouped_query",
    "Grouped-query",
    _build,
    r"k^{(g)}_j = W^{(g)}_k c_j,\quad v^{(g)}_j = W^{(g)}_v c_j,\quad g = \lfloor h\,G / H \rfloor",
    "Neighbouring query heads share one head of keys and values, so a decoder caches fewer numbers for each token.",
    "Ainslie et al.",
    2023,
    "https://arxiv.org/abs/2305.13245",
    (
        Param(
            "kv_heads",
            "Key/value heads",
            2,
            1,
            MOST_KV_HEADS,
            1,
            meaning="number G of heads of keys and values; it divides the number of query heads",
        ),
        BIAS,
        HEAD_SIZE,
    ),
    "{kv_heads} heads of k, v",
    traits=SHARES_KEYS,
    sizes=_sizes,
    refuse=_refuse,
)
MULTI_QUERY = Entry(
    "multi_query",
    "Multi-query",
    _build,
    r"k_j = c_j W_k,\quad v_j = c_j W_v\ \text{for all heads}",
    "All query heads share one head of keys and values.",
    "Shazeer",
    2019,
    "https://arxiv.org/abs/1911.02150",
    (BIAS, HEAD_SIZE),
    "one head of k, v",
    traits=SHARES_KEYS,
    sizes=_sizes,
)
