"""Masks that choose blocks of keys by a small indexer: by a block's largest score (MiniMax-M3), by its mean key (Qwen4)
and by a learned mean (GLM-5.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from core.attention.basics import ScoreBlock, split_heads
from core.attention.masks.content import (
    EPSILON,
    Indexer,
    indexer_loss,
    relu_scores,
    rotate_first,
    top_cells,
)
from core.attention.masks.patterns import LONGEST, causal
from core.entries import Area, Cost, Entry, LayerConfig, Param


@dataclass(frozen=True, eq=False)
class RealBlocks:
    """The real keys of a text in N blocks of `size`, in their order: padding is in none, so it moves no block.

    `tokens` are the positions of a block's keys; `filled` is False beyond the last real one. `numbers` is the block of
    each key, and `seen` how many real keys are not later than each query. The first dimension is 1 where all are real.
    """

    size: int
    tokens: Int[Tensor, "B N size"]
    filled: Bool[Tensor, "B N size"]
    numbers: Int[Tensor, "B S"]
    seen: Int[Tensor, "B 1 T 1"]

    @classmethod
    def of(cls, block: ScoreBlock, size: int) -> RealBlocks:
        """The blocks of all keys, as this rectangle's queries meet them."""
        keys, device = block.num_keys, block.i.device
        real = block.real
        if real is None:
            real = torch.ones(1, keys, dtype=torch.bool, device=device)
        ranks = real.cumsum(-1)  # from 1
        order = real.to(torch.uint8).argsort(dim=-1, descending=True, stable=True)
        count = (keys + size - 1) // size
        places = torch.arange(count * size, device=device)
        tokens = order[:, places.clamp(max=keys - 1)].unflatten(-1, (count, size))
        filled = (places < ranks[:, -1:]).unflatten(-1, (count, size))
        seen = ranks[:, block.i[:, 0].clamp(0, keys - 1)]
        return cls(size, tokens, filled, (ranks - 1).clamp(min=0) // size, seen[:, None, :, None])

    @property
    def indices(self) -> Int[Tensor, " N"]:
        return torch.arange(self.tokens.shape[1], device=self.tokens.device)

    def gather(self, x: Float[Tensor, "B S D"]) -> Float[Tensor, "B N size D"]:
        """The vectors of each block's tokens; those that are not `filled` hold anything."""
        index = self.tokens.flatten(1).expand(x.shape[0], -1)[..., None]
        gathered = x.gather(1, index.expand(-1, -1, x.shape[-1]))
        return gathered.unflatten(1, self.tokens.shape[1:])

    def gates(
        self, gate: Float[Tensor, "B S D"], bias: Float[Tensor, "size D"]
    ) -> Float[Tensor, "B N size D"]:
        """The gates of each block's tokens, with a bias for each place; those that are not `filled` get no share."""
        gates = self.gather(gate) + bias
        return gates.masked_fill(~self.filled[..., None], torch.finfo(gates.dtype).min)

    def cells(
        self, selected: Bool[Tensor, "B G T N"], columns: Int[Tensor, " S"]
    ) -> Bool[Tensor, "B G T S"]:
        """Which of these keys are in a selected block."""
        if self.numbers.shape[0] == 1:
            return selected[..., self.numbers[0, columns]]
        index = self.numbers[:, None, None, columns]
        return selected.gather(-1, index.expand(*selected.shape[:-1], -1))


class BlockIndexer(Indexer):
    """The keys of the `blocks` blocks that score highest, and those of the own unfinished block.

    Blocks compete once all of their keys have been read. The choice has no gradient. `loss` trains the indexer's maps:
    the softmax of its scores is to be the weight that attention to all keys gives to each of these blocks.
    """

    groups = 1  # choices for each query; each is that of as many heads

    def __init__(self, config: LayerConfig, heads: int, size: int, blocks: int, dim: int) -> None:
        super().__init__()
        self.heads, self.size, self.blocks, self.scale = heads, size, blocks, dim**-0.5
        self.query = nn.Linear(config.d_model, heads * dim, False)
        self.key = nn.Linear(config.d_model, dim, False)

    def forward(self, block: ScoreBlock) -> Tensor:
        layout = RealBlocks.of(block, self.size)
        with torch.no_grad():
            candidates, always = self.candidates(layout)
            scores = self.block_scores(block, layout)
            best = top_cells(scores, candidates & ~always, self.count) | always
        shown = layout.cells(best, block.j[0]).repeat_interleave(
            block.num_heads // self.groups if self.groups > 1 else 1, dim=1
        )
        return shown & causal(block)

    @property
    def count(self) -> int:
        """How many blocks are chosen beside those that always are."""
        return self.blocks

    def candidates(self, layout: RealBlocks) -> tuple[Tensor, Tensor]:
        """The blocks that compete for each query, and those that it always attends to, (B or 1, 1, T, N)."""
        whole = layout.seen // self.size
        return layout.indices < whole, layout.indices == whole

    def block_scores(self, block: ScoreBlock, layout: RealBlocks) -> Float[Tensor, "B G T N"]:
        """The score of each of this rectangle's queries and each block; with a gradient, for `loss`."""
        raise NotImplementedError

    def inputs(self, block: ScoreBlock) -> tuple[Tensor, Tensor]:
        """x of this rectangle's queries, and the context of all keys."""
        x, context = (
            block.require(name, "a block indexer", mask="causal_local") for name in ("x", "context")
        )
        return x[:, block.i[:, 0] - block.offset], context

    def loss(self, block: ScoreBlock, weights: Tensor, visible: Tensor) -> Float[Tensor, ""]:
        layout = RealBlocks.of(block, self.size)
        scores = self.block_scores(block, layout)
        candidates = self.candidates(layout)[0].expand_as(scores)
        inside = layout.numbers[..., None] == layout.indices  # (B or 1, S, N)
        shares = (weights * visible).unflatten(1, (self.groups, -1)) @ inside[:, None, None].to(
            weights
        )
        return indexer_loss(scores.flatten(0, 1), shares.flatten(0, 1), candidates.flatten(0, 1))


class BlockMaxima(BlockIndexer):
    """A block scores its largest q · k, for each key head by a query of its own. MiniMax-M3.

    The heads that share keys and values choose together; q and k are normalized and their first `share` of dimensions
    rotated. The `local` last blocks, the own one among them, are among the `blocks` that a query attends to.
    """

    def __init__(
        self, config: LayerConfig, size: int, blocks: int, local: int, dim: int, share: float
    ) -> None:
        super().__init__(config, config.kv_heads, size, blocks, dim)
        self.groups, self.local, self.share = config.kv_heads, local, share
        self.query_norm, self.key_norm = nn.RMSNorm(dim, EPSILON), nn.RMSNorm(dim, EPSILON)

    @property
    def count(self) -> int:
        return max(0, self.blocks - self.local)

    def candidates(self, layout: RealBlocks) -> tuple[Tensor, Tensor]:
        own = (layout.seen - 1).div(self.size, rounding_mode="floor")
        seen = layout.indices <= own
        return seen, seen & (layout.indices > own - self.local)

    def block_scores(self, block: ScoreBlock, layout: RealBlocks) -> Tensor:
        x, context = self.inputs(block)
        q = self.query_norm(split_heads(self.query(x), self.heads))
        q = rotate_first(q, block.i[:, 0], self.share)
        k = self.key_norm(self.key(context))
        k = rotate_first(k, torch.arange(k.shape[1], device=k.device), self.share)
        k = layout.gather(k).flatten(1, 2)  # (B, N · size, d)
        scores = (q @ k[:, None].mT).unflatten(-1, layout.tokens.shape[1:]) * self.scale
        later = (layout.tokens[:, None, None] > block.i[..., None]) | ~layout.filled[:, None, None]
        return scores.masked_fill(later, torch.finfo(scores.dtype).min).amax(-1)


class BlockMeans(BlockIndexer):
    """A block scores Σ_h ReLU(q_h · norm(mean of its k)), for all heads together. Qwen4's QSA.

    The first `share` of q's dimensions is rotated by its position, of a mean by that of the block's first key.
    """

    def __init__(
        self, config: LayerConfig, heads: int, size: int, blocks: int, dim: int, share: float
    ) -> None:
        super().__init__(config, heads, size, blocks, dim)
        self.share = share
        self.query_norm, self.key_norm = nn.RMSNorm(dim, EPSILON), nn.RMSNorm(dim, EPSILON)

    def block_scores(self, block: ScoreBlock, layout: RealBlocks) -> Tensor:
        x, context = self.inputs(block)
        q = self.query_norm(split_heads(self.query(x), self.heads))
        q = rotate_first(q, block.i[:, 0], self.share)
        k = self.key_norm(layout.gather(self.key(context)).mean(2))
        k = rotate_first(k, layout.tokens[:, :, 0], self.share)
        return (q @ k[:, None].mT).relu().sum(1, keepdim=True) * self.scale


class GatedBlocks(BlockIndexer):
    """A block scores Σ_h w_h ReLU(q_h · Σ_j softmax_j(z_j + b_j) ⊙ k_j), for all heads together. GLM-5.3.

    z is a map of the context and b a bias for each place in a block: both have a number for each dimension of k, and
    start at 0. Nothing is rotated.
    """

    def __init__(self, config: LayerConfig, heads: int, size: int, blocks: int, dim: int) -> None:
        super().__init__(config, heads, size, blocks, dim)
        self.norm, self.weight = nn.LayerNorm(dim, EPSILON), nn.Linear(config.d_model, heads, False)
        self.gate, self.bias = (
            nn.Linear(config.d_model, dim, False),
            nn.Parameter(torch.zeros(size, dim)),
        )
        nn.init.zeros_(self.gate.weight)
        self.scale *= heads**-0.5

    def block_scores(self, block: ScoreBlock, layout: RealBlocks) -> Tensor:
        x, context = self.inputs(block)
        shares = layout.gates(self.gate(context), self.bias).softmax(2)
        k = (shares * layout.gather(self.norm(self.key(context)))).sum(2)
        q, weights = split_heads(self.query(x), self.heads), self.weight(x) * self.scale
        return relu_scores(q, k, weights)[:, None]


def _cost(config: LayerConfig, area: Area) -> Cost:
    """The maps of queries and of keys, their products with keys or with blocks; then the ranks of the blocks."""
    mask, queries, keys = config.mask, area.queries, area.keys
    size, dim, key = int(mask["size"]), int(mask["dim"]), mask.key
    blocks = -(-keys // size)
    heads = config.kv_heads if key == "block_max" else int(mask["heads"])
    gated, maxima = key == "block_gated", key == "block_max"
    maps = queries * heads * (dim + gated) + keys * dim * (1 + gated)
    met = heads * queries * (blocks * size if maxima else blocks)
    flops = 2.0 * (config.d_model * maps + met * (dim + gated))
    groups = heads if maxima else 1
    cells = groups * area.cells
    shown = config.score_heads * area.cells if groups > 1 else cells
    bytes_ = 4 * queries * heads * dim + 8 * met
    return Cost(flops, max(bytes_, 28 * groups * queries * blocks, cells + 2 * shown), shown)


def _params(*more: Param, heads: bool = True) -> tuple[Param, ...]:
    index_heads = Param(
        "heads", "Index heads", 2, 1, 128, 1, meaning="heads of the indexer, whose scores are added"
    )
    return (
        Param("size", "Block", 4, 1, LONGEST, 1, meaning="keys in a block"),
        Param(
            "blocks",
            "Blocks",
            2,
            1,
            512,
            1,
            meaning="number k of blocks that the indexer chooses for a query",
        ),
        *((index_heads,) if heads else ()),
        Param(
            "dim",
            "Index size",
            8,
            1,
            256,
            1,
            meaning="dimensions of the indexer's queries and keys",
        ),
        *more,
    )


_SHARE = Param(
    "share",
    "Rotary share",
    0.5,
    0.0,
    1.0,
    0.05,
    meaning="share of those dimensions that are rotated by position, in whole pairs",
)
_LOCAL = Param(
    "local",
    "Local blocks",
    1,
    0,
    16,
    1,
    meaning="last blocks that are always among those k, the query's own first",
)
_TRAITS = frozenset({"learned", "reads content", "whole rows", "causal"})
_TAIL = (
    "The keys of the last block, while it is not full, are always attended to. The choice has no gradient: a loss trains "
    "the indexer to predict the weight that attention to all earlier keys gives to each block."
)


def _entry(
    key: str, name: str, build: Any, latex: str, meaning: str, paper: str, url: str, *more: Param
) -> Entry:
    return Entry(
        key,
        name,
        lambda config, parts, **params: build(config, **params),
        latex,
        meaning,
        paper,
        2026,
        f"https://huggingface.co/docs/transformers/model_doc/{url}",
        _params(*more, heads=key != "block_max"),
        "best {blocks} blocks of {size}",
        traits=_TRAITS,
        cost=_cost,
    )


ENTRIES: tuple[Entry, ...] = (
    _entry(
        "block_max",
        "Block maxima (MiniMax-M3)",
        BlockMaxima,
        r"j \le i,\quad B_j \in \text{top}_k\big(\max_{j' \in B,\, j' \le i} q^I_{ig} \cdot k^I_{j'}\big)\ \vee\ "
        r"B_j \text{ local}",
        "A small indexer scores all earlier keys, and a block counts as much as its best key. Each query attends to "
        "the best blocks, its own always among them. Heads that share keys and values choose together. The choice has no "
        "gradient: a loss trains the indexer to predict the weight that attention to all earlier keys gives to each "
        "block.",
        "MiniMax",
        "minimax_m3_vl",
        _LOCAL,
        _SHARE,
    ),
    _entry(
        "block_mean",
        "Block means (QSA)",
        BlockMeans,
        r"j \le i,\quad B_j \in \text{top}_k\Big(\sum_h \mathrm{ReLU}\big(q^I_{ih} \cdot \bar{k}^I_B\big)\Big)\ \vee\ "
        r"B_j \text{ not full}",
        "A small indexer scores the mean key of each full block, and each query attends to the k best blocks. "
        + _TAIL,
        "Qwen Team",
        "qwen4_exp",
        _SHARE,
    ),
    _entry(
        "block_gated",
        "Gated blocks (GLM-5.3)",
        GatedBlocks,
        r"j \le i,\quad B_j \in \text{top}_k\Big(\sum_h w_{ih}\,\mathrm{ReLU}\big(q^I_{ih} \cdot "
        r"\sum_{j' \in B} \text{softmax}_{j'}(z_{j'} + b) \odot k^I_{j'}\big)\Big)\ \vee\ B_j \text{ not full}",
        "A small indexer scores a learned mean of the keys in each full block, and each query attends to the k best "
        "blocks. " + _TAIL,
        "Z.ai",
        "glm5_next",
    ),
)
