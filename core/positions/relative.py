"""Products of q or k with vectors by distance: Shaw 2018, Transformer-XL (Dai 2019) and DeBERTa (He 2021)."""

from __future__ import annotations

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from core.entries import Area, Cost, Entry, LayerConfig, Param
from core.positions.absolute import sinusoids
from core.positions.distance import clipped_rows, gather_by_distance, require, table_rows
from core.positions.rotary import Position
from core.score_block import ScoreBlock, dot_product_scale


class Shaw(Position):
    """qᵢᵀ(kⱼ + aᴷ)/√D and Σ w (vⱼ + aⱽ), a = the vector of clip(j − i, ±K) for all heads. Shaw 2018, equations 3, 4.

    The key side is a bias, divided by the same √D as the content; the value side is added to the output.
    """

    def __init__(self, qk_dim: int, v_dim: int, distance: int, values: bool) -> None:
        super().__init__()
        self.distance, self.scale = distance, dot_product_scale(qk_dim)
        self.key = nn.Parameter(nn.init.xavier_uniform_(torch.empty(2 * distance + 1, qk_dim)))
        self.value = (
            nn.Parameter(nn.init.xavier_uniform_(torch.empty(2 * distance + 1, v_dim)))
            if values
            else None
        )

    def bias(self, block: ScoreBlock) -> Float[Tensor, "B H T S"]:
        q = require(block, "q", "shaw")
        row, read = clipped_rows(block, self.distance)
        return gather_by_distance(q * self.scale, self.key[None, read], row)

    def values(
        self, weights: Float[Tensor, "B H T S"], block: ScoreBlock
    ) -> Float[Tensor, "B H T E"] | None:
        if self.value is None:
            return None
        row, read = clipped_rows(block, self.distance)
        vectors, row = self.value[read], row.expand(*weights.shape[:2], -1, -1)
        by_distance = weights.new_zeros(*weights.shape[:3], len(vectors)).scatter_add(
            -1, row, weights
        )
        return (
            by_distance @ vectors
        )  # the sum of weights at each distance, times that distance's vector


class TransformerXL(Position):
    """(uᵀkⱼ + (qᵢ + v)ᵀ W r) / √D with r the sinusoids of i − j. Dai 2019, section 3.3: its terms b, c and d."""

    table_count = 1

    def __init__(self, d_model: int, num_heads: int, qk_dim: int, base: float) -> None:
        super().__init__()
        self.d_model, self.base, self.scale = d_model, base, dot_product_scale(qk_dim)
        self.project = nn.Linear(d_model, num_heads * qk_dim, bias=False)
        self.content = nn.Parameter(torch.zeros(num_heads, qk_dim))  # u
        self.place = nn.Parameter(torch.zeros(num_heads, qk_dim))  # v

    def tables(self, block: ScoreBlock) -> tuple[Tensor, ...]:
        """W r of every distance i − j, (H, T + S − 1, D), the least first."""
        q = require(block, "q", "transformer_xl")
        distances = torch.arange(least(block), block.num_queries, dtype=torch.float64)
        waves = sinusoids(distances, self.d_model, self.base).to(q)
        return (rearrange(self.project(waves), "n (h d) -> h n d", h=len(self.place)),)

    def bias(self, block: ScoreBlock) -> Float[Tensor, "B H T S"]:
        q, k = require(block, "q", "transformer_xl"), require(block, "k", "transformer_xl")
        (table,) = block.tables or self.tables(block)
        first = least(block)
        by_distance = gather_by_distance(
            q + self.place[:, None],
            table[:, block.low - first : block.high - first + 1],
            block.i - block.j - block.low,
        )
        by_content = self.content[:, None] @ k.mT  # (B, H, 1, S): the same for every query
        return (by_distance + by_content) * self.scale


class Deberta(Position):
    """(qᵢᵀkⱼ + qᵢᵀKʳ + kⱼᵀQʳ) / √(3D), Kʳ and Qʳ maps of the vector of clip(i − j). He 2021, equation 4.

    The two new terms are a bias over √D, and `adjust` divides all three by √3. The index of Qʳ is i − j, as in the
    authors' code; the paper's δ(j, i) only reverses the learned table.
    """

    table_count = 2

    def __init__(self, d_model: int, num_heads: int, qk_dim: int, distance: int) -> None:
        super().__init__()
        self.distance, self.num_heads, self.scale = distance, num_heads, dot_product_scale(qk_dim)
        self.table = nn.Parameter(nn.init.xavier_uniform_(torch.empty(2 * distance, d_model)))
        self.key = nn.Linear(d_model, num_heads * qk_dim, bias=False)
        self.query = nn.Linear(d_model, num_heads * qk_dim, bias=False)

    def tables(self, block: ScoreBlock) -> tuple[Tensor, ...]:
        """Kʳ and Qʳ, (H, 2k, D) each."""
        return tuple(
            rearrange(turn(self.table), "n (h d) -> h n d", h=self.num_heads)
            for turn in (self.key, self.query)
        )

    def bias(self, block: ScoreBlock) -> Float[Tensor, "B H T S"]:
        q, k = require(block, "q", "deberta"), require(block, "k", "deberta")
        read = table_rows(block.low, block.high, self.distance, 2 * self.distance)
        row = (block.i - block.j + self.distance).clamp(0, 2 * self.distance - 1) - read.start
        keys, queries = (table[:, read] for table in block.tables or self.tables(block))
        content_to_place = gather_by_distance(q, keys, row)
        place_to_content = gather_by_distance(k, queries, row.mT).mT
        return (content_to_place + place_to_content) * self.scale

    def adjust(
        self, scores: Float[Tensor, "B H T S"], block: ScoreBlock
    ) -> Float[Tensor, "B H T S"]:
        return scores * 3**-0.5


def least(block: ScoreBlock) -> int:
    """The least distance i − j of the whole matrix."""
    return block.offset - block.num_keys + 1


def _gathered_cost(config: LayerConfig, area: Area, vectors: int, contents: int) -> Cost:
    """Products of so many contents and vectors, and a bias gathered from them by a matrix of distances."""
    products = contents * vectors * config.score_heads
    bias = 4 * config.score_heads * area.cells
    return Cost(2.0 * products * config.qk_dim, 4 * products + 8 * area.cells + bias, bias)


def _shaw_cost(config: LayerConfig, area: Area) -> Cost:
    most = int(config.position["distance"])
    read = table_rows(-area.high, -area.low, most, 2 * most + 1)
    vectors = read.stop - read.start
    keys = _gathered_cost(config, area, vectors, area.queries)
    if not config.position["values"]:
        return keys
    sums = config.num_heads * area.queries * vectors
    return Cost(
        keys.flops + 2.0 * sums * config.v_dim,
        max(keys.bytes, 8 * sums + 16 * area.cells),
        keys.output,
    )


def _transformer_xl_cost(config: LayerConfig, area: Area) -> Cost:
    met, cells = (
        _gathered_cost(config, area, area.high - area.low + 1, area.queries),
        config.score_heads * area.cells,
    )
    key_bias = 2.0 * config.score_heads * area.keys * config.qk_dim
    return Cost(met.flops + key_bias, max(met.bytes, 12 * cells), met.output)


def _transformer_xl_tables(config: LayerConfig, area: Area) -> Cost:
    vectors, wide = area.high - area.low + 1, config.score_heads * config.qk_dim
    return Cost(
        2.0 * vectors * config.d_model * wide,
        4 * vectors * max(wide + config.d_model, 6 * config.d_model),
        4 * vectors * wide,
    )


def _deberta_cost(config: LayerConfig, area: Area) -> Cost:
    most = int(config.position["distance"])
    read = table_rows(area.low, area.high, most, 2 * most)
    met = _gathered_cost(config, area, read.stop - read.start, area.queries + area.keys)
    return Cost(met.flops, max(met.bytes, 4 * met.output), met.output)


def _deberta_tables(config: LayerConfig, area: Area) -> Cost:
    vectors, wide = 2 * int(config.position["distance"]), config.score_heads * config.qk_dim
    return Cost(4.0 * vectors * config.d_model * wide, 8 * vectors * wide, 8 * vectors * wide)


SHAW = Entry(
    "shaw",
    "Relative (Shaw)",
    lambda config: Shaw(config.qk_dim, config.v_dim, **config.position.kwargs),
    r"\frac{q_i^\top a^K_c}{\sqrt{D}},\quad o_i \mathrel{+}= \sum_j w_{ij}\,a^V_c,\quad c = \mathrm{clip}(j-i,\,\pm K)",
    "Each distance, up to a largest one, has a learned vector that is added to the key, and another that is added to "
    "the value.",
    "Shaw et al.",
    2018,
    "https://arxiv.org/abs/1803.02155",
    (
        Param(
            "distance",
            "Farthest distance",
            16,
            1,
            512,
            1,
            meaning="distance K; larger distances share the last vector",
        ),
        Param(
            "values",
            "Value term",
            True,
            meaning="whether a vector for the distance is also added to the value",
        ),
    ),
    short="q·a[j−i]/√D",
    enters="scores",
    traits=frozenset({"values"}),
    cost=_shaw_cost,
)
TRANSFORMER_XL = Entry(
    "transformer_xl",
    "Transformer-XL",
    lambda config: TransformerXL(
        config.d_model, config.score_heads, config.qk_dim, **config.position.kwargs
    ),
    r"\frac{u_h^\top k_j + (q_i + v_h)^\top W_r\, r_{i-j}}{\sqrt{D}}",
    "Queries are also compared with sinusoids of the distance, and each head has two learned vectors: one for "
    "content, one for distance.",
    "Dai et al.",
    2019,
    "https://arxiv.org/abs/1901.02860",
    (
        Param(
            "base",
            "Base",
            10000.0,
            2.0,
            1e6,
            1.0,
            meaning="ratio of the longest wavelength to the shortest",
        ),
    ),
    short="(u·k + (q+v)·r[i−j])/√D",
    enters="scores",
    cost=_transformer_xl_cost,
    tables=_transformer_xl_tables,
)
DEBERTA = Entry(
    "deberta",
    "Disentangled (DeBERTa)",
    lambda config: Deberta(
        config.d_model, config.score_heads, config.qk_dim, **config.position.kwargs
    ),
    r"\frac{q_i^\top k_j + q_i^\top K^r_{\mathrm{clip}(i-j)} + k_j^\top Q^r_{\mathrm{clip}(i-j)}}{\sqrt{3D}}",
    "The score has three terms: query with key, query with distance, and key with distance. Their sum is divided by "
    "√(3D).",
    "He et al.",
    2021,
    "https://arxiv.org/abs/2006.03654",
    (
        Param(
            "distance",
            "Farthest distance",
            128,
            1,
            512,
            1,
            meaning="distance k; larger distances share the last vectors",
        ),
    ),
    short="(qk + q·K[i−j] + k·Q[i−j])/√3D",
    enters="scores",
    traits=frozenset({"adjusts"}),
    cost=_deberta_cost,
    tables=_deberta_tables,
)
