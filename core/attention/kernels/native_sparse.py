"""Native sparse attention (Yuan 2025): three attentions to the same keys, mixed by gates that each query computes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from core.attention.kernels.base import spans, to_float32
from core.attention.kernels.exact import AttentionInputs, Steps
from core.attention.kernels.implied import (
    CAUSAL,
    IMPLIED,
    full_precision,
    needs_plain_rows,
    real_keys,
    scaled_qk,
    steps,
)
from core.attention.kernels.implied_costs import summed
from core.entries import Area, ConfigError, Cost, Entry, LayerConfig, Param
from core.masks.content import block_means
from core.masks.selection import top_cells
from core.score_block import ScoreBlock

ROWS = 256  # queries at once


class NativeSparse(nn.Module):
    """g₁ · (attention to the means of blocks) + g₂ · (to the keys of the best blocks) + g₃ · (to a window).

    Yuan 2025, sections 3.2 and 3.3, in its smallest form: a mean stands for the learned compression of a block, the
    three branches share their keys and values, and every cell is computed and then masked. Blocks are selected as they
    are compressed, so a block's weight in the first branch is its importance in the second; heads that share keys add
    theirs up and select together. The choice has no gradient; the first branch trains what it is made by.
    """

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        if config is None:
            raise ConfigError(
                "kernel = nsa has learned gates; take Attention(config), or kernel = exact."
            )
        self.size, self.blocks, self.window = (
            int(config.kernel[name]) for name in ("size", "blocks", "window")
        )
        self.shared = config.score_heads // config.kv_heads
        self.gate = nn.Linear(config.d_model, 3 * config.score_heads)

    @full_precision
    def forward(self, inputs: AttentionInputs) -> Steps:
        real, block = real_keys(inputs, "nsa"), inputs.block
        q, k, scale = scaled_qk(inputs)
        v, gates, rows = (
            to_float32(inputs.v),
            self.gates(block.x),
            None if real is None else real[:, 0, 0],
        )
        (keys, counts), (values, _) = (
            block_means(k, rows, self.size),
            block_means(v, rows, self.size),
        )

        def branches(part: slice) -> tuple[Tensor, Tensor]:
            query = q[:, :, part] * scale
            return self.branches(
                query @ keys.mT, query @ k.mT, gates[:, :, part], block.part(part), counts, real
            )

        def output(part: slice) -> Tensor:
            coarse, fine = branches(part)
            return coarse @ values + fine @ v

        def weights() -> Tensor:
            """A block's weight is spread evenly over its real keys."""
            coarse, fine = branches(slice(0, q.shape[2]))
            inside = block.j // self.size == torch.arange(keys.shape[2], device=k.device)[:, None]
            return (
                coarse @ ((inside if real is None else inside & real) / counts.mT.clamp(min=1))
                + fine
            )

        return steps(
            inputs, torch.cat([output(part) for part in spans(q.shape[2], ROWS)], dim=2), weights
        )

    def branches(
        self,
        block_scores: Tensor,
        scores: Tensor,
        gates: Tensor,
        block: ScoreBlock,
        counts: Tensor,
        real: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """The gated weights of block means (B, H, T, N), and of keys in the two other branches (B, H, T, S)."""
        compress, select, slide = gates.split(1, dim=-1)
        numbers = torch.arange(block_scores.shape[-1], device=scores.device)
        whole = (
            numbers * self.size + self.size - 1 <= block.i
        )  # (T, N): the block ends with the query, or before it
        seen = whole & (counts > 0)
        coarse = masked_softmax(block_scores, seen)
        selected = self.select(block_scores, seen, block.i // self.size, numbers)[
            ..., block.j[0] // self.size
        ]
        visible = block.j <= block.i if real is None else (block.j <= block.i) & real
        fine = select * masked_softmax(scores, visible & selected)
        fine = fine + slide * masked_softmax(scores, visible & (block.j > block.i - self.window))
        return compress * coarse, fine

    def gates(self, x: Tensor | None) -> Tensor:
        """The three gates of each query and head, (B, H, T, 3), between 0 and 1."""
        if x is None:
            raise ConfigError(
                "kernel = nsa computes its gates from the queries' x, which is not given here; give it, "
                "or take kernel = exact."
            )
        return (
            to_float32(self.gate(x.to(self.gate.weight.dtype)))
            .sigmoid()
            .unflatten(-1, (3, -1))
            .permute(0, 3, 1, 2)
        )

    def select(self, block_scores: Tensor, seen: Tensor, own: Tensor, numbers: Tensor) -> Tensor:
        """Each query's own block and its most important earlier ones, bool (B, H, T, N).

        Importance is a sum of weights; logarithms rank those too that would all be 0 in fp32.
        """
        logs = (
            block_scores.detach()
            .masked_fill(~seen, torch.finfo(block_scores.dtype).min)
            .log_softmax(-1)
        )
        importance = logs.unflatten(1, (-1, self.shared)).logsumexp(2)  # (B, G, T, N)
        best = top_cells(importance, (numbers < own) & seen, self.blocks - 1)
        return (best | (numbers == own)).repeat_interleave(self.shared, dim=1)


def masked_softmax(scores: Tensor, allowed: Tensor) -> Tensor:
    """The softmax over the allowed cells of each row; zeros elsewhere, and in a row without any."""
    least = torch.finfo(scores.dtype).min
    return scores.masked_fill(~allowed, least).softmax(-1).masked_fill(~allowed, 0.0)


def _cost(config: LayerConfig, area: Area) -> Cost:
    """The gates; queries with the means and with all keys; the branches as two weighted sums, ROWS queries at once."""
    queries, keys, dim, value = area.queries, area.keys, config.qk_dim, config.v_dim
    blocks, rows = -(-keys // int(config.kernel["size"])), min(queries, ROWS)
    flops = 6.0 * queries * config.d_model + 2.0 * queries * (blocks + keys) * (dim + value)
    ranks = rows * (keys + blocks * (3 + 7 * config.kv_heads / config.score_heads))
    branches = rows * (
        2.25 * blocks + keys * (4 + 0.75 / config.score_heads)
    )  # three masks of a byte a cell
    held = blocks * (dim + value) + queries * value + rows * dim + max(ranks, branches)
    return summed(config, area, flops, max(held, 2 * queries * value), prepared=False)


NSA = Entry(
    "nsa",
    "Native sparse (NSA)",
    NativeSparse,
    r"\sum_{c} g^c_i\, \text{softmax}(q_i K_c^\top)\, V_c,\quad c \in \{\text{block means},\ \text{best blocks},\ "
    r"\text{window}\}",
    "Each query attends three times to itself and earlier tokens: to the means of blocks, to the keys of the blocks "
    "whose means weigh most, and to a window; gates of its own mix the three. Here a mean replaces the learned "
    "compression, the branches share keys and values, and all cells are computed and then masked, so it is no faster.",
    "Yuan et al.",
    2025,
    "https://arxiv.org/abs/2502.11089",
    (
        Param(
            "size",
            "Block",
            4,
            1,
            512,
            1,
            meaning="tokens in a block, which are compressed and selected together",
        ),
        Param(
            "blocks",
            "Blocks",
            2,
            1,
            64,
            1,
            meaning="number of blocks that a query selects, its own included",
        ),
        Param(
            "window",
            "Window",
            4,
            1,
            4096,
            1,
            meaning="number of keys in the window, the query's own included",
        ),
    ),
    short="means + best blocks + window",
    traits=IMPLIED | {"own positions"},
    cost=_cost,
    refuse=needs_plain_rows("nsa", *CAUSAL),
)
