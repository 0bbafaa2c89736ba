"""Sparse patterns for long texts: a window, a few global tokens, and random far keys."""

from __future__ import annotations

import torch
from torch import Tensor

from core.entries import Area, Cost, Entry, LayerConfig, Param
from core.masks.patterns import local, rule
from core.score_block import ScoreBlock

# Odd 63-bit constants of a multiplicative hash (SplitMix64's, cut), so that "random" needs no state.
_MIX = (0x1E3779B97F4A7C15, 0x3F58476D1CE4E5B9, 0x14D049BB133111EB)
_LARGEST = 2**63 - 1
_MOST_CELLS = 2**22  # ranked at once: 32 MB


def global_window(block: ScoreBlock, window: int, globals: int) -> Tensor:
    return local(block, window) | (block.i < globals) | (block.j < globals)


def bigbird(
    scores: ScoreBlock, block: int, window: int, globals: int, random: int, seed: int
) -> Tensor:
    rows, columns = (
        scores.i // block,
        scores.j // block,
    )  # (T, 1), (1, S): the block of each query and key
    blocks = torch.arange((scores.num_keys - 1) // block + 1, device=rows.device)[
        None
    ]  # (1, blocks of keys)
    last_column = (scores.ends - 1) // block  # of each text, (B, 1, 1) where padding follows it
    last_row = last_column if scores.owns_queries else (scores.num_queries - 1) // block
    visible = (blocks >= rows - window) & (blocks <= rows + window)
    ends = (
        (blocks < globals)
        | (blocks > last_column - globals)
        | (rows < globals)
        | (rows > last_row - globals)
    )
    visible = visible | ends
    if random:
        free = ~visible & (blocks <= last_column)
        cells = [
            random_cells(rows, blocks, one, random, seed)
            for one in free.reshape(-1, *free.shape[-2:])
        ]
        visible = visible | torch.stack(cells).view(free.shape)
    visible = visible[..., columns[0]]
    return visible if visible.dim() == 2 else visible[:, None]


def random_cells(rows: Tensor, columns: Tensor, free: Tensor, count: int, seed: int) -> Tensor:
    """In each row `count` of the free cells (all where there are fewer), by a hash of seed, row and column.

    Any part of the mask, on any device, agrees with the whole.
    """
    start = ((seed + 1) * _MIX[2]) & _LARGEST
    at_once, parts = max(1, _MOST_CELLS // columns.shape[1]), []
    for some, open_ in zip(rows.split(at_once), free.split(at_once), strict=True):
        rank = scrambled(some * _MIX[0] + columns * _MIX[1] + start).masked_fill(
            ~open_, -1
        )  # an open cell's is ≥ 0
        best = rank.topk(min(count, rank.shape[1]), dim=1).indices
        parts.append(torch.zeros_like(open_).scatter(1, best, True) & open_)
    return torch.cat(parts)


def scrambled(x: Tensor) -> Tensor:
    """A pseudorandom hash of integers to integers ≥ 0 (SplitMix64's finalizer; int64 wraps around)."""
    for shift, factor in ((30, _MIX[1]), (27, _MIX[2])):
        x = (x ^ (x >> shift)) * factor
    return (x ^ (x >> 31)) & _LARGEST


def _bigbird_cost(config: LayerConfig, area: Area) -> Cost:
    """The integers of a hash over the blocks that each query might see."""
    hashed = (
        area.queries * -(-area.keys // int(config.mask["block"])) if config.mask["random"] else 0
    )
    return Cost(0.0, 28 * min(hashed, _MOST_CELLS), area.cells)


SPARSE: tuple[Entry, ...] = (
    Entry(
        "global_window",
        "Window + global",
        rule(global_window),
        r"|i - j| \le w\ \vee\ i < g\ \vee\ j < g",
        "Each query attends to a window and to the first g tokens. The first g tokens attend to all. Two layers "
        "connect all tokens.",
        "Beltagy et al.",
        2020,
        "https://arxiv.org/abs/2004.05150",
        (
            Param(
                "window",
                "Window",
                1,
                0,
                512,
                1,
                meaning="number of keys on each side of the query that it attends to",
            ),
            Param(
                "globals",
                "Global tokens",
                1,
                0,
                64,
                1,
                meaning="number g of tokens at the start that attend to "
                "all, and that all attend to",
            ),
        ),
        "|i − j| ≤ {window} or global",
    ),
    Entry(
        "bigbird",
        "BigBird",
        rule(bigbird),
        r"|I - J| \le w\ \vee\ I, J \in \text{ends}_g\ \vee\ J \in \text{random}_r(I),"
        r"\quad I = \lfloor i / b \rfloor,\ J = \lfloor j / b \rfloor",
        "Each block of queries attends to a window of blocks, to the first and last blocks, and to a few random "
        "blocks. The first and last blocks attend to all. The seed fixes the random blocks.",
        "Zaheer et al.",
        2020,
        "https://arxiv.org/abs/2007.14062",
        (
            Param("block", "Block", 1, 1, 128, 1, meaning="tokens in a block"),
            Param(
                "window",
                "Window",
                1,
                0,
                64,
                1,
                meaning="number of blocks on each side that a block attends to",
            ),
            Param(
                "globals",
                "Global blocks",
                1,
                0,
                16,
                1,
                meaning="number of blocks at each end that attend to all, and that all attend to",
            ),
            Param(
                "random",
                "Random blocks",
                1,
                0,
                16,
                1,
                meaning="number of random blocks that each block attends to",
            ),
            Param("seed", "Seed", 0, 0, 9999, 1, meaning="seed of the random blocks"),
        ),
        "window, ends, {random} random",
        traits=frozenset({"reads length"}),
        cost=_bigbird_cost,
    ),
)
