"""Keys and values from fewer numbers a token: sums of outer products (TPA, 2025), or one tied state (GTA, 2025)."""

from __future__ import annotations

from typing import Any

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from core.attention.basics import Extended, Heads, Projection, linear, merge_heads, split_heads
from core.attention.cache import append
from core.attention.projections.grouped import MOST_KV_HEADS
from core.entries import Entry, HeadSizes, LayerConfig, Param
from core.positions import enters
from core.positions.rotary import Rotary


class TensorProduct(Projection):
    """q, k and v of a token are (1/R) Σ_r a_r ⊗ b_r: a_r has a number for each head, b_r one for each dimension.

    Zhang 2025, section 3.1. Both are linear in the token; a decoder stores those of keys and values. A rotary position
    rotates every head alike, so that it may as well rotate the sum.
    """

    def __init__(self, d_model: int, num_heads: int, query_rank: int, rank: int) -> None:
        super().__init__()
        self.num_heads, size = num_heads, d_model // num_heads
        (
            (self.query_heads, self.query_dims),
            (self.key_heads, self.key_dims),
            (self.value_heads, self.value_dims),
        ) = (
            (linear(d_model, r * num_heads), linear(d_model, r * size))
            for r in (query_rank, rank, rank)
        )
        self.output = linear(d_model, d_model)

    def outer(
        self, heads: Float[Tensor, "B S a"], dims: Float[Tensor, "B S b"]
    ) -> Float[Tensor, "B H S D"]:
        """The mean of the outer products of R vectors of H numbers with R vectors of D."""
        heads = heads.unflatten(-1, (-1, self.num_heads))
        rank = heads.shape[2]
        return einsum(heads, dims.unflatten(-1, (rank, -1)), "b s r h, b s r d -> b h s d") / rank

    def queries(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B H T D"]:
        return self.outer(self.query_heads(x), self.query_dims(x))

    def forward(
        self, x: Float[Tensor, "B T C"], context: Float[Tensor, "B S C"], offset: int = 0
    ) -> Heads:
        key_heads, key_dims, value_heads, value_dims = self.cached(context)
        return self.queries(x), self.outer(key_heads, key_dims), self.outer(value_heads, value_dims)

    def cached(self, context: Float[Tensor, "B S C"], offset: int = 0) -> tuple[Tensor, ...]:
        parts = (self.key_heads, self.key_dims, self.value_heads, self.value_dims)
        return tuple(part(context) for part in parts)

    def extend(
        self, x: Float[Tensor, "B T C"], stored: tuple[Tensor, ...], offset: int, **_: Any
    ) -> Extended:
        stored = append(stored, self.cached(x))
        return self.queries(x), self.outer(*stored[:2]), self.outer(*stored[2:]), stored

    def merge(
        self, out: Float[Tensor, "B H T D"], x: Float[Tensor, "B T C"]
    ) -> Float[Tensor, "B T C"]:
        return self.output(merge_heads(out))


class GroupedTied(Projection):
    """One state of D numbers in each of G groups: it is the value, and its first half the first half of the key.

    Zadouri 2025, section 3.3. The other half of every key is one rotated vector, shared by all heads.
    """

    def __init__(
        self, d_model: int, num_heads: int, kv_heads: int, base: float, layout: str
    ) -> None:
        super().__init__()
        size = d_model // num_heads
        self.num_heads, self.kv_heads, self.rotated = num_heads, kv_heads, rotated_size(size)
        self.query, self.output = linear(d_model, d_model), linear(d_model, d_model)
        self.tied = linear(d_model, kv_heads * size)
        self.turned_key = linear(d_model, self.rotated) if self.rotated else None
        self.turn = Rotary(self.rotated, base, layout) if self.rotated else None

    def queries_at(self, x: Float[Tensor, "B T C"], offset: int) -> Float[Tensor, "B H T D"]:
        q = split_heads(self.query(x), self.num_heads)
        if self.turn is None:
            return q
        return torch.cat(
            (q[..., : -self.rotated], self.turn.rotate(q[..., -self.rotated :], offset)), -1
        )

    def keys(
        self, tied: Float[Tensor, "B G S D"], shared: Float[Tensor, "B 1 S P"]
    ) -> Float[Tensor, "B G S D"]:
        plain = tied[..., : tied.shape[-1] - self.rotated]
        return torch.cat((plain, shared.expand(-1, self.kv_heads, -1, -1)), -1)

    def forward(
        self, x: Float[Tensor, "B T C"], context: Float[Tensor, "B S C"], offset: int = 0
    ) -> Heads:
        tied, shared = self.cached(context)
        return self.queries_at(x, offset), self.keys(tied, shared), tied

    def cached(self, context: Float[Tensor, "B S C"], offset: int = 0) -> tuple[Tensor, ...]:
        """The tied states (B, G, S, D), and the shared rotated key (B, 1, S, P)."""
        tied = split_heads(self.tied(context), self.kv_heads)
        if self.turn is None or self.turned_key is None:
            return tied, tied.new_empty(tied.shape[0], 1, tied.shape[2], 0)
        return tied, self.turn.rotate(split_heads(self.turned_key(context), 1), offset)

    def extend(
        self, x: Float[Tensor, "B T C"], stored: tuple[Tensor, ...], offset: int, **_: Any
    ) -> Extended:
        tied, shared = append(stored, self.cached(x, offset))
        return self.queries_at(x, offset), self.keys(tied, shared), tied, (tied, shared)

    def merge(
        self, out: Float[Tensor, "B H T D"], x: Float[Tensor, "B T C"]
    ) -> Float[Tensor, "B T C"]:
        return self.output(merge_heads(out))


def rotated_size(size: int) -> int:
    """Half of a head's dimensions, in whole pairs."""
    return size // 4 * 2


def _tensor_sizes(config: LayerConfig) -> HeadSizes:
    heads, size = config.num_heads, config.head_dim
    return HeadSizes(
        heads, size, size, heads, cached=2 * int(config.projection["rank"]) * (heads + size)
    )


def _tied_sizes(config: LayerConfig) -> HeadSizes:
    kv_heads, size = int(config.projection["kv_heads"]), config.head_dim
    return HeadSizes(
        config.num_heads, size, size, kv_heads, cached=kv_heads * size + rotated_size(size)
    )


def _refuse_tied(config: LayerConfig) -> str | None:
    heads, shared, position = config.num_heads, config.kv_heads, config.position.key
    if heads % shared:
        return (
            f"projection = grouped_tied shares each tied state among the same number of query heads, but kv_heads "
            f"= {shared} does not divide num_heads = {heads}; take kv_heads = 1, or projection = multi_query."
        )
    if "q, k" in enters(config.position):
        return (
            f"projection = grouped_tied has rotary positions already, and position = {position} would be a second "
            "position; take position = none, or projection = grouped_query."
        )
    return None


TENSOR_PRODUCT = Entry(
    "tensor_product",
    "Tensor product (TPA)",
    lambda config: TensorProduct(config.d_model, config.num_heads, **config.projection.kwargs),
    r"k_j = \tfrac{1}{R} \sum_r a_r(c_j) \otimes b_r(c_j)\ \text{for all heads},\quad q, v\ \text{alike}",
    "The queries, keys and values of all heads are sums of a few outer products: one vector says how much each head "
    "takes, the other what it takes. A decoder caches these vectors.",
    "Zhang et al.",
    2025,
    "https://arxiv.org/abs/2501.06425",
    (
        Param(
            "rank", "Rank", 2, 1, 64, 1, meaning="number R of outer products in keys, and in values"
        ),
        Param(
            "query_rank", "Query rank", 6, 1, 64, 1, meaning="number of outer products in queries"
        ),
    ),
    "k, v of rank {rank}",
    sizes=_tensor_sizes,
)
GROUPED_TIED = Entry(
    "grouped_tied",
    "Grouped-tied (GTA)",
    lambda config: GroupedTied(config.d_model, config.num_heads, **config.projection.kwargs),
    r"s_j = c_j W_s,\quad v_j = s_j,\quad k_j = [s_j^{\text{first half}};\ R_j(c_j W_r)]",
    "Each group of heads has one state that is the value and half of the key. The other half of every key is one "
    "rotated vector for all heads. A decoder caches about half as much as with grouped-query heads.",
    "Zadouri et al.",
    2025,
    "https://arxiv.org/abs/2505.21487",
    (
        Param(
            "kv_heads",
            "Tied heads",
            1,
            1,
            MOST_KV_HEADS,
            1,
            meaning="number G of tied states; it divides the number of query heads",
        ),
        Param(
            "base",
            "Base",
            10000.0,
            2.0,
            1e7,
            1.0,
            meaning="ratio of the longest wavelength to the shortest",
        ),
        Param(
            "layout",
            "Layout",
            "halves",
            choices=("halves", "interleaved"),
            meaning="which dimensions form a pair: m with m + D/2, or 2m with 2m + 1",
        ),
    ),
    "v and half of k tied",
    traits=frozenset({"own positions"}),
    sizes=_tied_sizes,
    refuse=_refuse_tied,
)
