"""Kernels whose keys stand for blocks of tokens, beside a window of single ones: DeepSeek-V4's HCA and CSA."""

from dataclasses import dataclass, replace
from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from core.attention.base import Product, ScoreBlock, Steps, split_heads, to_float32
from core.attention.kernels.approximate import worth_gathering
from core.attention.kernels.costs import summed
from core.attention.kernels.exact import AttentionInputs, Clash, refuse_when, spans
from core.attention.kernels.implied import full_precision, plain_rows, real_keys, steps
from core.attention.masks.content import (
    EPSILON,
    RealBlocks,
    indexer_loss,
    relu_scores,
    rotate_first,
    top_cells,
)
from core.entries import Area, Cost, Entry, LayerConfig, Param

ROWS = 256  # queries at once
ROTATED = 0.5  # of the indexer's dimensions, as in DeepSeek-V4


class Compressor(nn.Module):
    """One vector for each block: norm(Σ_j softmax_j(z_j + b_j) ⊙ c_j), a softmax for each dimension.

    c and z are maps of a token, b is a bias for each place in a block. With `overlap` there are two of each, and a vector
    sums over two blocks: the one before by the first c, z and b, its own by the second. DeepSeek-V4, section 2.3.
    """

    def __init__(self, d_model: int, dim: int, size: int, overlap: bool) -> None:
        super().__init__()
        series = 2 if overlap else 1
        self.dim, self.overlap = dim, overlap
        self.value, self.gate = (nn.Linear(d_model, series * dim, False) for _ in range(2))
        self.bias, self.norm = (
            nn.Parameter(torch.zeros(size, series * dim)),
            nn.RMSNorm(dim, EPSILON),
        )

    def forward(
        self, context: Float[Tensor, "B S C"], layout: RealBlocks
    ) -> tuple[Float[Tensor, "B N D"], Float[Tensor, "B N W D"]]:
        """The vector of each block, and the shares that its W tokens have in each dimension."""
        c = layout.gather(self.value(context))
        z = layout.gates(to_float32(self.gate(context)), self.bias)
        if self.overlap:
            c, z = (
                torch.cat((F.pad(x[:, :-1, :, : self.dim], (0, 0, 0, 0, 1, 0), value=fill), own), 2)
                for x, own, fill in (
                    (c, c[..., self.dim :], 0.0),
                    (z, z[..., self.dim :], torch.finfo(z.dtype).min),
                )
            )
        shares = z.softmax(2)
        return to_float32(self.norm((shares * c).sum(2).to(self.norm.weight.dtype))), shares


class CompressedIndexer(nn.Module):
    """Scores Σ_h w_h ReLU(q_h · k_b) of queries and compressed keys of its own, by which blocks are chosen."""

    def __init__(self, d_model: int, heads: int, dim: int, size: int) -> None:
        super().__init__()
        self.heads, self.scale = heads, (dim * heads) ** -0.5
        self.compressor = Compressor(d_model, dim, size, overlap=True)
        self.query, self.weight = (
            nn.Linear(d_model, heads * dim, False),
            nn.Linear(d_model, heads, False),
        )

    def keys(self, context: Float[Tensor, "B S C"], layout: RealBlocks) -> Float[Tensor, "B N d"]:
        k, _ = self.compressor(context, layout)
        return rotate_first(k, layout.tokens[:, :, 0], ROTATED, "interleaved")

    def forward(
        self, x: Float[Tensor, "B T C"], k: Float[Tensor, "B N d"], i: Int[Tensor, " T"]
    ) -> Float[Tensor, "B T N"]:
        q = rotate_first(
            to_float32(split_heads(self.query(x), self.heads)), i, ROTATED, "interleaved"
        )
        return relu_scores(q, k, to_float32(self.weight(x)) * self.scale)


@dataclass(frozen=True, eq=False)
class Prepared:
    """What the queries of one call meet."""

    q: Float[Tensor, "B H T D"]  # times the score's scale
    # compressed ones; G is 1 where the score makes no difference between heads
    keys: Float[Tensor, "B G N D"]
    values: Float[Tensor, "B 1 N D"]
    k: Float[Tensor, "B H S D"]  # single ones
    v: Float[Tensor, "B H S D"]
    shares: Float[Tensor, "B N W D"]
    layout: RealBlocks
    block: ScoreBlock
    x: Float[Tensor, "B T C"]
    context: Float[Tensor, "B S C"]
    index_keys: Float[Tensor, "B N d"] | None  # of the indexer, where there is one

    def reached(self, part: slice) -> int:
        """How many blocks can be full when these queries come."""
        return min(part.stop + self.block.offset, self.block.num_keys) // self.layout.size

    def visible(self, part: slice) -> Bool[Tensor, "B 1 T N"]:
        """Of the blocks that are reached, those that are full when a query of the part comes, or with it."""
        full = self.layout.seen[:, :, part] // self.layout.size
        return self.layout.indices[: self.reached(part)] < full


class Compressed(nn.Module):
    """One softmax over the compressed keys of the blocks that are full, and over a window of single keys. DeepSeek-V4.

    A compressed key is its own value, serves all heads, and is rotated by the position of its block's first token. With
    `turned` values are rotated with their keys, and each output is rotated back by its query's position: so a value
    counts by its distance. With an indexer (CSA) each query attends to the `blocks` compressed keys that it scores
    highest, and `indexer_loss` trains it, as the choice has no gradient. Those are gathered where they are few, and else
    all that a query can reach are computed and masked.

    The weights that are drawn spread the weight of a compressed key over its tokens by their mean shares; as each
    dimension has shares of its own, they do not give the output.
    """

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        kernel = config.kernel
        self.key, self.heads = kernel.key, config.num_heads
        self.size, self.window = int(kernel["size"]), int(kernel["window"])
        self.turned, sparse = bool(kernel["turned"]), kernel.key == "csa"
        self.compressor = Compressor(config.d_model, config.qk_dim, self.size, sparse)
        self.blocks = int(kernel["blocks"]) if sparse else 0
        self.indexer = (
            CompressedIndexer(config.d_model, int(kernel["heads"]), int(kernel["dim"]), self.size)
            if sparse
            else None
        )

    @full_precision
    def forward(self, inputs: AttentionInputs) -> Steps:
        ready = self.prepare(inputs)
        parts = list(spans(inputs.q.shape[2], ROWS))
        shared, blocks = ready.keys.shape[1] == 1, ready.keys.shape[2]
        gathers = bool(self.blocks) and shared and worth_gathering(self.blocks, blocks)

        def output(part: slice) -> Tensor:
            visible = self.visible(ready, part)
            if gathers:
                return self.gathered(inputs, ready, part, visible)
            coarse, fine, near = self.attend(inputs, ready, part, visible)
            return coarse @ ready.values[:, :, : coarse.shape[-1]] + fine @ ready.v[:, :, near]

        def drawn(part: slice) -> Tensor:
            coarse, fine, near = self.attend(inputs, ready, part, self.visible(ready, part))
            fine = F.pad(fine, (near.start, inputs.k.shape[2] - near.stop))
            return coarse @ self.spread(ready)[:, :, : coarse.shape[-1]] + fine

        out = torch.cat([output(part) for part in parts], dim=2)
        if self.turned:
            out = rotate(inputs, out.flip(2), -(inputs.block.offset + out.shape[2] - 1)).flip(2)
        return steps(inputs, out, lambda: torch.cat([drawn(part) for part in parts], dim=2))

    def prepare(self, inputs: AttentionInputs) -> Prepared:
        """All that queries meet: keys and values, compressed and single, in at least fp32."""
        real, dtype = real_keys(inputs, self.key), self.compressor.bias.dtype
        block = replace(inputs.block, real=None if real is None else real[:, 0, 0])
        x, context = (
            block.require(name, f"kernel = {self.key}", kernel="exact").to(dtype)
            for name in ("x", "context")
        )
        if block.real is not None:
            context = context.masked_fill(~block.real[..., None], 0.0)
        layout = RealBlocks.of(block, self.size)
        compressed, shares = self.compressor(context, layout)
        # Rotated by the position of the block's first token: spread over its tokens, rotated, and taken there.
        index = layout.numbers.expand(compressed.shape[0], -1)[..., None]
        spread = compressed.gather(1, index.expand(-1, -1, compressed.shape[-1]))
        far = rotate(inputs, spread[:, None], 0)  # (B, 1, S, D)
        first = layout.tokens[:, None, :, :1].expand(*far.shape[:2], -1, far.shape[-1])
        far = far.gather(2, first)  # (B, 1, N, D)
        score = cast(Product, inputs.score)
        q, keys = score.prepare(inputs.q, far.to(inputs.k.dtype))
        _, k = score.prepare(inputs.q[:, :, :0], inputs.k)
        v = to_float32(inputs.v)
        return Prepared(
            to_float32(q) * score.scale,
            to_float32(keys),
            far if self.turned else compressed[:, None],
            to_float32(k),
            rotate(inputs, v, 0) if self.turned else v,
            shares,
            layout,
            block,
            x,
            context,
            None if self.indexer is None else self.indexer.keys(context, layout),
        )

    def visible(self, ready: Prepared, part: slice) -> Bool[Tensor, "B 1 T N"]:
        """Of the blocks that are reached, those that each query of the part attends to."""
        visible = ready.visible(part)
        if self.indexer is None:
            return visible
        with torch.no_grad():
            return top_cells(self.ranks(ready, part)[:, None], visible, self.blocks)

    def near(
        self, ready: Prepared, part: slice
    ) -> tuple[Float[Tensor, "B H T m"], Bool[Tensor, "b 1 T m"], slice]:
        """The scores of these queries and the keys of their windows, which of these they see, and which keys they are."""
        keys = ready.block.num_keys
        first, last = (min(at + ready.block.offset, keys) for at in (part.start, part.stop))
        near = slice(max(0, first - self.window + 1), last)
        rows = ready.block.part(part, near)
        seen = (rows.j <= rows.i) & (rows.j > rows.i - self.window)
        seen = seen[None, None] if rows.key_mask is None else seen & rows.key_mask
        return ready.q[:, :, part] @ ready.k[:, :, near].mT, seen, near

    def attend(
        self, inputs: AttentionInputs, ready: Prepared, part: slice, visible: Tensor
    ) -> tuple[Tensor, Tensor, slice]:
        """The weights of compressed keys (B, H, rows, N), those of single ones, and which keys these are."""
        scores, seen, near = self.near(ready, part)
        count = visible.shape[-1]
        scores = torch.cat((ready.q[:, :, part] @ ready.keys[:, :, :count].mT, scores), -1)
        weights = inputs.normalizer(scores, joined(visible, seen))
        return weights[..., :count], weights[..., count:], near

    def gathered(
        self, inputs: AttentionInputs, ready: Prepared, part: slice, visible: Tensor
    ) -> Float[Tensor, "B H T D"]:
        """The output of these queries from the n compressed keys alone that each attends to, and from their windows."""
        scores, seen, near = self.near(ready, part)
        earlier = torch.arange(visible.shape[-1], 0, -1, device=visible.device, dtype=torch.int32)
        there, chosen = (visible * earlier).topk(min(self.blocks, visible.shape[-1]), sorted=False)
        there, chosen = (x.squeeze(1).expand(len(scores), -1, -1) for x in (there > 0, chosen))
        query = ready.q[:, :, part].transpose(1, 2)  # (B, T, H, D): one product for all heads
        coarse = (query @ picked(ready.keys, chosen).mT).transpose(1, 2)
        weights = inputs.normalizer(torch.cat((coarse, scores), -1), joined(there[:, None], seen))
        coarse, fine = weights.split((chosen.shape[-1], scores.shape[-1]), dim=-1)
        far = (coarse.transpose(1, 2) @ picked(ready.values, chosen)).transpose(1, 2)
        return far + fine @ ready.v[:, :, near]

    def spread(self, ready: Prepared) -> Float[Tensor, "B 1 N S"]:
        """How much of a compressed key each token is, on average over its dimensions."""
        layout, shares = ready.layout, ready.shares.mean(-1)  # (B, N, W)
        tokens = layout.tokens
        if self.compressor.overlap:
            tokens = torch.cat((tokens.roll(1, 1), tokens), 2)  # the first block has none before it
        table = shares.new_zeros(*shares.shape[:2], ready.block.num_keys)
        return table.scatter_add(2, tokens.expand(shares.shape[0], -1, -1), shares)[:, None]

    def ranks(self, ready: Prepared, part: slice) -> Float[Tensor, "B T N"]:
        """The indexer's score of each query of the part and each compressed key that is reached."""
        assert self.indexer is not None and ready.index_keys is not None
        keys = ready.index_keys[:, : ready.reached(part)]
        return self.indexer(ready.x[:, part], keys, ready.block.i[part, 0])

    @full_precision
    def indexer_loss(self, inputs: AttentionInputs) -> Float[Tensor, ""]:
        """The divergence of the indexer's softmax from the weights that compressed keys have where none is left out."""
        assert self.indexer is not None
        whole = slice(0, inputs.q.shape[2])
        with torch.no_grad():
            ready = self.prepare(inputs)
            visible = ready.visible(whole)
            coarse, *_ = self.attend(inputs, ready, whole, visible)
        learned = replace(ready, index_keys=self.indexer.keys(ready.context, ready.layout))
        rows = inputs.block.real_queries
        loss = indexer_loss(self.ranks(learned, whole), coarse, visible[:, 0], rows)
        return loss.to(inputs.q.dtype)


def joined(coarse: Bool[Tensor, "B 1 T n"], fine: Bool[Tensor, "b 1 T m"]) -> Tensor:
    """Both masks side by side, of as many texts."""
    batch = max(coarse.shape[0], fine.shape[0])
    return torch.cat([x.expand(batch, -1, -1, -1) for x in (coarse, fine)], dim=-1)


def picked(x: Float[Tensor, "B 1 N D"], chosen: Int[Tensor, "B T n"]) -> Float[Tensor, "B T n D"]:
    """The rows of each query's own choice."""
    starts = torch.arange(0, x.shape[0] * x.shape[2], x.shape[2], device=x.device)
    return F.embedding(chosen + starts[:, None, None], x.flatten(0, 2))


def rotate(inputs: AttentionInputs, x: Float[Tensor, "B H T D"], first: int) -> Tensor:
    """x rotated by the layer's position; `first` is that of its first token, and may be negative to rotate back."""
    length = max(inputs.block.num_queries, inputs.block.num_keys)
    return x if inputs.position is None else inputs.position.rotate(x, first, length)


def _cost(config: LayerConfig, area: Area) -> Cost:
    """The maps of compressors and indexer; queries with the compressed keys that they reach, or those that are gathered,
    and with their window, ROWS queries at once."""
    kernel, queries, keys, dim = config.kernel, area.queries, area.keys, config.qk_dim
    sparse, size, window = kernel.key == "csa", int(kernel["size"]), int(kernel["window"])
    blocks = -(-keys // size)
    flops, held = 4.0 * keys * config.d_model * dim * (1 + sparse), 0.0
    heads = index = picked = 0
    if sparse:
        heads, index, picked = (int(kernel[name]) for name in ("heads", "dim", "blocks"))
        flops += 8.0 * keys * config.d_model * index
        flops += 2.0 * queries * heads * (index + 1) * config.d_model
        held = 9.2 * keys * index  # by the indexer's compressor
    gathers = sparse and worth_gathering(picked, blocks) and config.score.key != "unit_vectors"
    offset, met, widest = area.low + keys - 1, 0, 0.0
    for part in spans(queries, ROWS):
        rows = part.stop - part.start
        first, last = (min(at + offset, keys) for at in (part.start, part.stop))
        reached, near = last // size, last - max(0, first - window + 1)
        flops += 2.0 * rows * heads * (index + 1) * reached
        cells = rows * ((min(picked, reached) if gathers else reached) + near)
        ranks = sparse * rows * max((2 * heads + 1.4) * reached + heads * index, 5.4 * reached)
        copied = rows * min(picked, reached) * dim * gathers
        met, widest = (
            met + cells,
            max(
                widest,
                (3 + gathers) * cells + copied / config.score_heads,
                ranks / config.score_heads,
            ),
        )
    turned = bool(kernel["turned"]) and config.position.key != "none"
    numbers = float((3 * queries + 3 * turned * keys + blocks) * dim)
    numbers += max(widest, held / config.score_heads)
    return summed(config, area, flops / config.score_heads + 4.0 * met * dim, numbers)


_SIZE = Param(
    "size",
    "Block",
    default=4,
    low=1,
    high=512,
    step=1,
    meaning="tokens that one compressed key stands for",
)
_WINDOW = Param(
    "window",
    "Window",
    default=4,
    low=1,
    high=4096,
    step=1,
    meaning="number of single keys that a query attends to, its own included",
)
_TURNED = Param(
    "turned",
    "Rotated values",
    default=True,
    meaning="whether values are rotated as keys are, and outputs rotated back by their query's position",
)
_PAPER: dict[str, Any] = dict(
    paper="DeepSeek-AI",
    year=2026,
    url="https://huggingface.co/docs/transformers/model_doc/deepseek_v4",
)
_DRAWN = (
    "A picture spreads the weight of a compressed key over its tokens by their mean shares, which differ from dimension "
    "to dimension."
)


_CLASHES = (
    *plain_rows(
        "none",
        "causal",
        "padding",
        normalizer=Clash(
            "normalizer",
            "computes one softmax over keys and blocks, not normalizer = {}",
            {"normalizer": "sink"},
            lambda config: config.normalizer.key not in ("softmax", "softmax_one", "sink"),
        ),
    ),
    Clash(
        "projection",
        "has compressed keys that are values too, and projection = {} makes keys and values of two sizes",
        {"projection": "multi_head"},
        lambda config: config.qk_dim != config.v_dim,
    ),
    Clash(  # which have no rotation by minus the position
        "position",
        "rotates values and then outputs back, which position = {} cannot do",
        {"position": "rope"},
        lambda config: (
            bool(config.kernel["turned"]) and config.position.key in ("grid_rope", "pope", "and")
        ),
    ),
)


ENTRIES: tuple[Entry, ...] = (
    Entry(
        "hca",
        "Heavily compressed (HCA)",
        build=Compressed,
        latex=r"\text{softmax}\big(q_i [C;\, K_{i-w+1 \ldots i}]^\top\big)\, [C;\, V_{i-w+1 \ldots i}],\quad "
        r"c_b = \text{norm}\sum_{j \in b} \text{softmax}_j(z_j + \beta_j) \odot u_j",
        meaning="Each block of tokens becomes one key, which is its own value: a sum of its tokens, in which every "
        "dimension has shares of its own. A query attends to all blocks that are full, and to a window of single tokens. "
        + _DRAWN,
        **_PAPER,
        params=(_SIZE, _WINDOW, _TURNED),
        short="blocks of {size} + window",
        traits=frozenset({"pooled", "own positions", "layer only"}),
        cost=_cost,
        refuse=refuse_when("hca", *_CLASHES),
    ),
    Entry(
        "csa",
        "Compressed sparse (CSA)",
        build=Compressed,
        latex=r"\text{softmax}\big(q_i [C_{\text{top}_k};\, K_{i-w+1 \ldots i}]^\top\big)\, "
        r"[C_{\text{top}_k};\, V_{i-w+1 \ldots i}],\quad c_b = \text{norm}\sum_{j \in b-1,\, b} "
        r"\text{softmax}_j(z_j + \beta_j) \odot u_j",
        meaning="Blocks of tokens become single keys, each of its own tokens and of the block before. A small indexer, which "
        "compresses for itself, chooses the k keys that a query attends to, beside a window of single tokens. A loss "
        "of its own trains the indexer. " + _DRAWN,
        **_PAPER,
        params=(
            _SIZE,
            Param(
                "blocks",
                "Blocks",
                default=4,
                low=1,
                high=1024,
                step=1,
                meaning="number k of compressed keys that a query attends to",
            ),
            _WINDOW,
            Param(
                "heads",
                "Index heads",
                default=2,
                low=1,
                high=128,
                step=1,
                meaning="heads of the indexer",
            ),
            Param(
                "dim",
                "Index size",
                default=8,
                low=1,
                high=256,
                step=1,
                meaning="dimensions of the indexer's queries and keys",
            ),
            _TURNED,
        ),
        short="{blocks} blocks of {size} + window",
        traits=frozenset({"pooled", "own positions", "layer only"}),
        cost=_cost,
        refuse=refuse_when("csa", *_CLASHES),
    ),
)
