"""Masks chosen by content: the best blocks (MoBA), the best keys or blocks by an indexer (DeepSeek, MiniMax-M3, Qwen4,
GLM-5.3), a window that moves (Luong)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from core.attention.base import Mask, ScoreBlock, split_heads
from core.attention.masks.patterns import LONGEST, causal
from core.attention.positions.rotary import plain_frequencies, rotate_pairs, tables_of_pairs
from core.entries import Area, Cost, Entry, LayerConfig, Param, Trait

# What a mask that reads content has chosen, and the loss by which DeepSeek trains its indexer.


@dataclass(frozen=True)
class Selection:
    """A mask's choice, averaged over the rows that see a key: keys a query, and how well they were chosen."""

    keys: float  # keys that a query may attend to
    recall: float  # the share of the keys of the largest full weights that are among them, 0 to 1
    weight: float  # the share of full attention's weight that is on them, 0 to 1


def selection(
    allowed: Bool[Tensor, "... T S"], full: Float[Tensor, "B H T S"], count: int
) -> Selection:
    """The mask `allowed` (True = may attend) held against `full`, the weights of the same layer without it.

    Recall is over the `count` keys of each row that have the largest full weights (all above 0 where there are fewer).
    """
    allowed = allowed.expand(full.shape)
    top = top_cells(full, full > 0, count)
    rows = top.any(-1)
    if not rows.any():
        return Selection(0.0, 0.0, 0.0)
    numbers = (
        allowed.sum(-1).float(),
        (top & allowed).sum(-1) / top.sum(-1).clamp(min=1),
        (full * allowed).sum(-1) / full.sum(-1).clamp(min=torch.finfo(full.dtype).tiny),
    )
    return Selection(*(number[rows].mean().item() for number in numbers))


def top_cells(
    scores: Float[Tensor, "... T S"], candidates: Bool[Tensor, ...], count: int
) -> Bool[Tensor, "... T S"]:
    """In each row the `count` candidates of the highest scores, of equal ones the earlier; all where there are fewer.

    The order is stable, so that every rectangle and every device agree where scores are equal, as zeros of a ReLU are.
    """
    if torch.compiler.is_exporting():  # a graph of any length has no branch on it
        ranked = scores.masked_fill(~candidates, -torch.inf).argsort(
            dim=-1, descending=True, stable=True
        )
        return (ranked.argsort(dim=-1) < count) & candidates
    if count <= 0:
        return torch.zeros_like(scores, dtype=torch.bool) & candidates
    if count >= scores.shape[-1]:
        return torch.ones_like(scores, dtype=torch.bool) & candidates
    scores = scores.masked_fill(~candidates, -torch.inf)
    least = scores.topk(count, sorted=False).values.amin(-1, keepdim=True)  # of the chosen ones
    above, equal = scores > least, scores == least
    free = count - above.sum(-1, keepdim=True)
    return (above | (equal & (equal.cumsum(-1) <= free))) & candidates


def indexer_loss(
    index_scores: Float[Tensor, "B T S"],
    weights: Float[Tensor, "B H T S"],
    allowed: Bool[Tensor, ...],
    rows: Bool[Tensor, ...] | None = None,
) -> Float[Tensor, ""]:
    """Σ_s p_ts log(p_ts / softmax(I_t)_s), averaged over queries. DeepSeek-V3.2, section 2.1.

    p is the weight that all heads together give to each key, summing to 1 in a row; it has no gradient. `allowed`,
    broadcastable to (B, T, S), are the keys compared: all visible ones in the warm-up, then the selected ones alone.
    `rows`, broadcastable to (B, T), are the queries that count: neither padding nor blind.
    """
    target = weights.detach().sum(1) * allowed
    target = target / target.sum(-1, keepdim=True).clamp(min=torch.finfo(target.dtype).tiny)
    least = torch.finfo(index_scores.dtype).min
    predicted = index_scores.masked_fill(~allowed, least).log_softmax(-1)
    losses = F.kl_div(predicted, target, reduction="none").sum(-1)
    if rows is None:
        return losses.mean()
    rows = rows.expand_as(losses)
    return losses.where(rows, 0.0).sum() / rows.sum().clamp(min=1)


# Masks that are chosen by content: the best blocks (MoBA), or the best keys by an indexer of its own (DeepSeek).


ROWS = 256  # queries of an indexer at once: all their scores would be many
EPSILON = 1e-6  # of the indexer's norm, as in DeepSeek's own code
BASE = 10000.0  # of the indexer's rotation


def block_means(x: Tensor, real: Tensor | None, size: int) -> tuple[Tensor, Tensor]:
    """The mean of each of N blocks of x (B, H, S, D), (B, H, N, D), and the real keys in each, (B, 1, 1, N).

    Keys that are not `real`, (B, S), count in no mean; a block without any has zeros.
    """
    numbers = torch.arange(x.shape[2], device=x.device) // size
    weights = torch.ones_like(x[:, 0, :, 0]) if real is None else real.to(x.dtype)  # (B, S)
    total = -(-x.shape[2] // size)
    counts = weights.new_zeros(weights.shape[0], total).index_add(1, numbers, weights)
    sums = x.new_zeros(*x.shape[:2], total, x.shape[3])
    sums = sums.index_add(2, numbers, x if real is None else x * weights[:, None, :, None])
    return sums / counts.clamp(min=1)[:, None, :, None], counts[:, None, None]


class BlockTop(Mask):
    """The query's own block, causally, and the earlier blocks of the highest q · mean(k). Lu 2025, section 2.2.

    `blocks` counts the own one, as the paper's k does. Each head chooses for itself; padding counts in no mean. The
    choice has no gradient: q and k learn through the keys that were chosen.
    """

    def __init__(self, size: int, blocks: int) -> None:
        super().__init__()
        self.size, self.blocks = size, blocks

    def forward(self, block: ScoreBlock) -> Tensor:
        q, keys = (block.require(name, "mask = moba", mask="chunked") for name in ("q", "keys"))
        with torch.no_grad():
            keys = keys.to(torch.promote_types(keys.dtype, torch.float32))
            means, counts = block_means(keys, block.real, self.size)
            own, numbers = block.i // self.size, torch.arange(means.shape[2], device=block.i.device)
            earlier = (numbers < own) & (counts > 0)  # (…, T, N)
            scores = q.to(means.dtype) @ means.mT  # (B, H, T, N)
            selected = top_cells(scores, earlier, self.blocks - 1) | (numbers == own)
        return selected[..., block.j[0] // self.size] & causal(block)


class Indexer(Mask):
    """A mask with a small network that ranks keys. Its choice has no gradient, so a loss of its own trains it."""

    name: str  # of the indexer, for messages

    def loss(
        self, block: ScoreBlock, weights: Float[Tensor, "B H T S"], visible: Tensor
    ) -> Float[Tensor, ""]:
        """The divergence of the indexer's softmax from these weights, which attention to all `visible` keys has.

        Queries that see no key, and those of padding, do not count.
        """
        raise NotImplementedError

    def unchosen(self, block: ScoreBlock) -> Tensor:
        return causal(block)

    def inputs(self, block: ScoreBlock) -> tuple[Tensor, Tensor]:
        """x of this rectangle's queries, and the context of all keys."""
        x, context = (
            block.require(name, self.name, mask="causal_local") for name in ("x", "context")
        )
        return block.own(x), context


class LightningIndexer(Indexer):
    """The `keys` keys up to the query of the highest I = Σ_h w_h ReLU(q_h · k). DeepSeek-V3.2, section 2.1.

    q_h, w and k are small maps of x and of the context; k is normalized, and the first `share` of the dimensions of
    q_h and k is rotated by position. The choice has no gradient, so the attention's loss trains none of these maps:
    `loss` does, which the training loop adds.
    """

    name = "mask = lightning"

    def __init__(self, d_model: int, heads: int, size: int, share: float, keys: int) -> None:
        super().__init__()
        self.heads, self.keys, self.share = heads, keys, share
        self.query, self.key = (
            nn.Linear(d_model, heads * size, False),
            nn.Linear(d_model, size, False),
        )
        self.norm, self.weight = nn.LayerNorm(size, EPSILON), nn.Linear(d_model, heads, False)
        self.scale = (size * heads) ** -0.5

    def forward(self, block: ScoreBlock) -> Tensor:
        with torch.no_grad():
            q, k, weights = self.maps(block)
            candidates = torch.arange(block.num_keys, device=block.i.device) <= block.i  # (T, S)
            if block.real is not None:
                candidates = candidates & block.real[:, None]
            parts = [(q, weights, candidates)]
            if not torch.compiler.is_compiling():  # whose graph is of any length
                cut = q.split(ROWS, 2), weights.split(ROWS, 1), candidates.split(ROWS, -2)
                parts = list(zip(*cut, strict=True))
            selected = torch.cat(
                [top_cells(relu_scores(q, k, w), seen, self.keys) for q, w, seen in parts], dim=-2
            )
        return selected[:, None, :, block.j[0]]

    def maps(self, block: ScoreBlock) -> tuple[Tensor, Tensor, Tensor]:
        """q (B, h, T, d) of this rectangle's queries, k (B, S, d) of all keys, and w (B, T, h)."""
        x, context = self.inputs(block)
        q = rotate_first(split_heads(self.query(x), self.heads), block.i[:, 0], self.share)
        k, every = self.norm(self.key(context)), torch.arange(context.shape[1], device=x.device)
        return q, rotate_first(k, every, self.share), self.weight(x) * self.scale

    def index_scores(self, block: ScoreBlock) -> Tensor:
        """I of this rectangle's queries and of all keys, (B, T, S); with a gradient, for `indexer_loss`."""
        return relu_scores(*self.maps(block))

    def loss(self, block: ScoreBlock, weights: Tensor, visible: Tensor) -> Float[Tensor, ""]:
        seen = visible.any(1) if visible.dim() == 4 else visible  # by a head
        return indexer_loss(self.index_scores(block), weights, seen, counted(seen, block))


def counted(seen: Bool[Tensor, "... T S"], block: ScoreBlock) -> Bool[Tensor, "... T"]:
    """The queries whose loss counts: those that see a key, and no padding."""
    real = block.real_queries
    return seen.any(-1) if real is None else seen.any(-1) & real


def relu_scores(
    q: Float[Tensor, "B h T d"], k: Float[Tensor, "B N d"], weights: Float[Tensor, "B T h"]
) -> Float[Tensor, "B T N"]:
    """Σ_h w_h ReLU(q_h · k): how an indexer's heads score keys that they share."""
    scores = (q @ k[:, None].mT).relu_().transpose(1, 2)  # (B, T, h, N)
    return (weights[:, :, None] @ scores).squeeze(2)


def rotate_first(x: Tensor, positions: Tensor, share: float, layout: str = "halves") -> Tensor:
    """x (…, T, d) with the first `share` of its dimensions rotated by T positions, or by (…, T) of them."""
    rotated = 2 * int(x.shape[-1] * share / 2)
    if not rotated:
        return x
    angles = positions[..., None] * plain_frequencies(BASE, rotated).to(
        x.device, torch.promote_types(x.dtype, torch.float32)
    )
    tables = tables_of_pairs(angles.cos().to(x.dtype), angles.sin().to(x.dtype), layout)
    return torch.cat((rotate_pairs(x[..., :rotated], *tables, layout), x[..., rotated:]), dim=-1)


def _moba_cost(config: LayerConfig, area: Area) -> Cost:
    """Each query with the mean of each block; then the ranks of the blocks, and a bool for each cell and head."""
    heads, dim, cells = config.score_heads, config.scored_dim, config.score_heads * area.cells
    blocks = heads * -(-area.keys // int(config.mask["size"]))
    means, ranks = 4 * blocks * dim, area.queries * blocks
    padded = 4 * heads * area.keys * dim if area.real is not None else 0
    return Cost(2.0 * ranks * dim, max(means + padded, means + 28 * ranks, 2 * cells), cells)


def _lightning_cost(config: LayerConfig, area: Area) -> Cost:
    """The maps of the indexer, its scores, their weighted sum; then the ranks of all keys."""
    heads, size = int(config.mask["heads"]), int(config.mask["size"])
    maps = config.d_model * (area.queries * heads * (size + 1) + area.keys * size)
    scores = area.cells * heads * (size + 1)
    held = min(area.queries, ROWS) * area.keys
    return Cost(2.0 * (maps + scores), max(5 * heads, 22) * held + area.cells, area.cells)


class Monotonic(Mask):
    """|j − p| ≤ D, with the weights times exp(−(j − p)² / 2σ²), σ = D / 2: rows then sum to less than 1.

    p = i: input and output are assumed to be aligned (local-m).
    """

    def __init__(self, window: int, gaussian: bool) -> None:
        super().__init__()
        self.window, self.gaussian = window, gaussian

    def centre(self, block: ScoreBlock) -> Tensor:
        """The position p of each query, broadcastable to (B, H, T, 1)."""
        return block.i

    def forward(self, block: ScoreBlock) -> Tensor:
        centre = self.centre(block)
        return (block.j >= centre - self.window) & (block.j <= centre + self.window)

    def weight_factor(self, block: ScoreBlock) -> Tensor | None:
        if not self.gaussian:
            return None
        deviations = (block.j - self.centre(block)) / (self.window / 2)
        return torch.exp(-deviations.square() / 2).to(block.dtype)


class Predictive(Monotonic):
    """p = S · σ(vᵀ tanh(W q)), predicted from each query (local-p); W (H, D, D) and v (H, D) are learned.

    S is the end of the real keys, so that padding does not move p. The window has no gradient; W and v learn through
    the Gaussian.
    """

    def __init__(self, window: int, num_heads: int, dim: int) -> None:
        super().__init__(window, gaussian=True)
        bound = dim**-0.5
        self.weight = nn.Parameter(torch.empty(num_heads, dim, dim).uniform_(-bound, bound))
        self.vector = nn.Parameter(torch.empty(num_heads, dim).uniform_(-bound, bound))

    def centre(self, block: ScoreBlock) -> Tensor:
        q = block.require("q", "mask = local_p", mask="local_m")
        precise = torch.promote_types(q.dtype, torch.float32)  # S · share in fp16 is off by keys
        hidden = torch.tanh(q.to(precise) @ self.weight.mT.to(precise))  # (B, H, T, D)
        logits = (hidden * self.vector[:, None].to(precise)).sum(-1, keepdim=True)
        ends = block.ends if isinstance(block.ends, int) else block.ends[:, None]
        return ends * logits.sigmoid()


def _cost(config: LayerConfig, area: Area) -> Cost:
    """A small network, and a window for each head."""
    heads, dim, cells = config.score_heads, config.qk_dim, config.score_heads * area.cells
    return Cost(
        2.0 * heads * area.queries * dim**2, max(8 * heads * area.queries * dim, 3 * cells), cells
    )


_PAPER: dict[str, Any] = dict(
    paper="Luong et al.", year=2015, url="https://arxiv.org/abs/1508.04025"
)
_WINDOW = Param(
    "window",
    "Window D",
    default=2,
    low=1,
    high=512,
    step=1,
    meaning="number of keys on each side of the position p; σ of the Gaussian is half of it",
)


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
        every = torch.ones(1, keys, dtype=torch.bool, device=device)
        real = every if block.real is None else block.real
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
        return x.gather(1, index.expand(-1, -1, x.shape[-1])).unflatten(1, self.tokens.shape[1:])

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
    """The keys of the `count` blocks that score highest, and those of the own unfinished block.

    Blocks compete once all of their keys have been read. The choice has no gradient. `loss` trains the indexer's maps:
    the softmax of its scores is to be the weight that attention to all keys gives to each of these blocks.
    """

    name = "a block indexer"
    groups = 1  # choices for each query; each is that of as many heads

    def __init__(self, config: LayerConfig, heads: int, size: int, count: int, dim: int) -> None:
        super().__init__()
        self.heads, self.size, self.count, self.scale = heads, size, count, dim**-0.5
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

    def candidates(self, layout: RealBlocks) -> tuple[Tensor, Tensor]:
        """The blocks that compete for each query, and those that it always attends to, (B or 1, 1, T, N)."""
        whole = layout.seen // self.size
        return layout.indices < whole, layout.indices == whole

    def block_scores(self, block: ScoreBlock, layout: RealBlocks) -> Float[Tensor, "B G T N"]:
        """The score of each of this rectangle's queries and each block; with a gradient, for `loss`."""
        raise NotImplementedError

    def loss(self, block: ScoreBlock, weights: Tensor, visible: Tensor) -> Float[Tensor, ""]:
        layout = RealBlocks.of(block, self.size)
        scores = self.block_scores(block, layout)
        inside = (layout.numbers[..., None] == layout.indices)[:, None, None]  # (…, 1, 1, S, N)
        seen = visible.expand_as(weights).unflatten(1, (self.groups, -1)).any(2)  # (B, G, T, S)
        met = (seen.to(weights) @ inside[:, 0].to(weights)) > 0  # blocks with a visible key
        shares = (weights * visible).unflatten(1, (self.groups, -1)) @ inside.to(weights)
        rows = counted(seen.transpose(0, 1), block).transpose(0, 1)  # (B, G, T)
        candidates = self.candidates(layout)[0] & met
        parts = (x.flatten(0, 1) for x in (scores, shares, candidates, rows))
        return indexer_loss(*parts)


class BlockMaxima(BlockIndexer):
    """A block scores its largest q · k, for each key head by a query of its own. MiniMax-M3.

    The heads that share keys and values choose together; q and k are normalized and their first `share` of dimensions
    rotated. The `local` last blocks, the own one among them, are among the `blocks` that a query attends to.
    """

    def __init__(
        self, config: LayerConfig, size: int, blocks: int, local: int, dim: int, share: float
    ) -> None:
        super().__init__(config, config.kv_heads, size, max(0, blocks - local), dim)
        self.groups, self.local, self.share = config.kv_heads, local, share
        self.query_norm, self.key_norm = nn.RMSNorm(dim, EPSILON), nn.RMSNorm(dim, EPSILON)

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


def _blocks_cost(config: LayerConfig, area: Area) -> Cost:
    """The maps of queries and of keys, their products with keys or with blocks; then the ranks of the blocks."""
    mask, queries, keys = config.mask, area.queries, area.keys
    size, dim, blocks = int(mask["size"]), int(mask["dim"]), -(-keys // int(mask["size"]))
    gated, maxima = mask.key == "block_gated", mask.key == "block_max"
    heads = config.kv_heads if maxima else int(mask["heads"])
    maps = queries * heads * (dim + gated) + keys * dim * (1 + gated)
    met = heads * queries * (blocks * size if maxima else blocks)
    groups = heads if maxima else 1
    shown = (config.score_heads if groups > 1 else 1) * area.cells
    flops = 2.0 * (config.d_model * maps + met * (dim + gated))
    scores, ranks = 4 * queries * heads * dim + 8 * met, 28 * groups * queries * blocks
    return Cost(flops, max(scores, ranks, groups * area.cells + 2 * shown), shown)


def _block_params(*more: Param, heads: bool = True) -> tuple[Param, ...]:
    index_heads = Param(
        "heads",
        "Index heads",
        default=2,
        low=1,
        high=128,
        step=1,
        meaning="heads of the indexer, whose scores are added",
    )
    return (
        Param("size", "Block", default=4, low=1, high=LONGEST, step=1, meaning="keys in a block"),
        Param(
            "blocks",
            "Blocks",
            default=2,
            low=1,
            high=4096,
            step=1,
            meaning="number k of blocks that the indexer chooses for a query",
        ),
        *((index_heads,) if heads else ()),
        Param(
            "dim",
            "Index size",
            default=8,
            low=1,
            high=256,
            step=1,
            meaning="dimensions of the indexer's queries and keys",
        ),
        *more,
    )


_SHARE = Param(
    "share",
    "Rotary share",
    default=0.5,
    low=0.0,
    high=1.0,
    step=0.05,
    meaning="share of those dimensions that are rotated by position, in whole pairs",
)
_LOCAL = Param(
    "local",
    "Local blocks",
    default=1,
    low=0,
    high=16,
    step=1,
    meaning="last blocks that are always among those k, the query's own first",
)
_TRAITS: frozenset[Trait] = frozenset({"learned", "reads content", "whole rows", "causal"})
_TAIL = (
    "The keys of the last block, while it is not full, are always attended to. The choice has no gradient: a loss trains "
    "the indexer to predict the weight that attention to all earlier keys gives to each block."
)


def _block_entry(
    key: str, name: str, *, build: Any, url: str, params: tuple[Param, ...] = (), **fields: Any
) -> Entry:
    return Entry(
        key,
        name,
        build=lambda config, parts, **params: build(config, **params),
        year=2026,
        url=f"https://huggingface.co/docs/transformers/model_doc/{url}",
        params=_block_params(*params, heads=key != "block_max"),
        short="best {blocks} blocks of {size}",
        traits=_TRAITS,
        cost=_blocks_cost,
        **fields,
    )


ENTRIES: tuple[Entry, ...] = (
    Entry(
        "moba",
        "MoBA",
        build=lambda config, parts, **params: BlockTop(**params),
        latex=r"j \le i,\quad B_j = B_i\ \vee\ B_j \in \text{top}_{k - 1}\big(q_i^\top \bar{k}_B : B < B_i\big)",
        meaning="Keys are cut into blocks. Each query attends to its own block and to the earlier blocks whose mean key has "
        "the largest dot product with it. The choice itself has no gradient and no weights: q and k learn through "
        "the chosen keys. All cells are computed here and then masked, so it is slower than fused at any length.",
        paper="Lu et al.",
        year=2025,
        url="https://arxiv.org/abs/2502.13189",
        params=(
            Param(
                "size", "Block", default=2, low=1, high=LONGEST, step=1, meaning="tokens in a block"
            ),
            Param(
                "blocks",
                "Blocks",
                default=2,
                low=1,
                high=64,
                step=1,
                meaning="number k of blocks that a query attends to, its own included",
            ),
        ),
        short="own and best of blocks of {size}, {blocks} in all",
        traits=frozenset({"reads content", "whole rows", "causal"}),
        cost=_moba_cost,
    ),
    Entry(
        "lightning",
        "Lightning indexer (DSA)",
        build=lambda config, parts, **params: LightningIndexer(config.d_model, **params),
        latex=r"j \in \text{top}_k\big(I_{ij} : j \le i\big),\quad I_{ij} = \sum_h w_{ih}\,"
        r"\mathrm{ReLU}(q^I_{ih} \cdot k^I_j)",
        meaning="A small indexer scores all earlier keys, and each query attends to the k best. The choice has no gradient: "
        "a loss of its own (a Kullback–Leibler divergence) trains the indexer to predict the weights that attention "
        "to all earlier keys would have. All cells are computed here and then masked, so it is slower than fused at any "
        "length.",
        paper="DeepSeek-AI",
        year=2025,
        url="https://arxiv.org/abs/2512.02556",
        params=(
            Param(
                "keys",
                "Keys",
                default=4,
                low=1,
                high=4096,
                step=1,
                meaning="number k of keys that a query attends to (2,048 in the paper)",
            ),
            Param(
                "heads",
                "Index heads",
                default=2,
                low=1,
                high=128,
                step=1,
                meaning="heads of the indexer; its keys are shared by all",
            ),
            Param(
                "size",
                "Index size",
                default=8,
                low=1,
                high=256,
                step=1,
                meaning="dimensions of the indexer's queries and keys",
            ),
            Param(
                "share",
                "Rotary share",
                default=0.5,
                low=0.0,
                high=1.0,
                step=0.05,
                meaning="share of those dimensions that are rotated by position, in whole pairs",
            ),
        ),
        short="{keys} best of j ≤ i",
        traits=frozenset({"learned", "reads content", "whole rows", "causal"}),
        cost=_lightning_cost,
    ),
    Entry(
        "local_m",
        "Luong local-m",
        build=lambda config, parts, **params: Monotonic(**params),
        latex=r"|j - p_i| \le D,\quad p_i = i",
        meaning="A query attends to a window of ±D around its own position, as if input and output had the same order.",
        **_PAPER,
        params=(
            _WINDOW,
            Param(
                "gaussian",
                "Gaussian",
                default=False,
                meaning="whether weights are multiplied by exp(−(j − p)² / 2σ²), as in local-p; in the "
                "paper they are not",
            ),
        ),
        short="|j − i| ≤ {window}",
        traits=frozenset({"reweighs"}),
    ),
    Entry(
        "local_p",
        "Luong local-p",
        build=lambda config, parts, window: Predictive(window, config.score_heads, config.qk_dim),
        latex=r"|j - p_i| \le D,\quad p_i = S\,\sigma(v^\top \tanh(W q_i)),\quad "
        r"w_{ij} \leftarrow w_{ij}\, e^{-(j - p_i)^2 / 2\sigma^2},\ \sigma = D / 2",
        meaning="A learned function of the query predicts a position p. The query attends to a window around p, in which "
        "weights are multiplied by a Gaussian.",
        **_PAPER,
        params=(_WINDOW,),
        short="|j − p| ≤ {window}",
        traits=frozenset({"reweighs", "learned", "reads content", "reads length"}),
        cost=_cost,
    ),
    _block_entry(
        "block_max",
        "Block maxima (MiniMax-M3)",
        build=BlockMaxima,
        latex=r"j \le i,\quad B_j \in \text{top}_k\big(\max_{j' \in B,\, j' \le i} q^I_{ig} \cdot k^I_{j'}\big)\ \vee\ "
        r"B_j \text{ local}",
        meaning="A small indexer scores all earlier keys, and a block counts as much as its best key. Each query attends to "
        "the best blocks, its own always among them. Heads that share keys and values choose together. The choice has no "
        "gradient: a loss trains the indexer to predict the weight that attention to all earlier keys gives to each "
        "block.",
        paper="MiniMax",
        url="minimax_m3_vl",
        params=(
            _LOCAL,
            _SHARE,
        ),
    ),
    _block_entry(
        "block_mean",
        "Block means (QSA)",
        build=BlockMeans,
        latex=r"j \le i,\quad B_j \in \text{top}_k\Big(\sum_h \mathrm{ReLU}\big(q^I_{ih} \cdot \bar{k}^I_B\big)\Big)\ \vee\ "
        r"B_j \text{ not full}",
        meaning="A small indexer scores the mean key of each full block, and each query attends to the k best blocks. "
        + _TAIL,
        paper="Qwen Team",
        url="qwen4_exp",
        params=(_SHARE,),
    ),
    _block_entry(
        "block_gated",
        "Gated blocks (GLM-5.3)",
        build=GatedBlocks,
        latex=r"j \le i,\quad B_j \in \text{top}_k\Big(\sum_h w_{ih}\,\mathrm{ReLU}\big(q^I_{ih} \cdot "
        r"\sum_{j' \in B} \text{softmax}_{j'}(z_{j'} + b) \odot k^I_{j'}\big)\Big)\ \vee\ B_j \text{ not full}",
        meaning="A small indexer scores a learned mean of the keys in each full block, and each query attends to the k best "
        "blocks. " + _TAIL,
        paper="Z.ai",
        url="glm5_next",
    ),
)
