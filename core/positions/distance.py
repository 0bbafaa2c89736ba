"""What position entries share: checked access to a block, and products with a table of vectors by distance."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from core.entries import ConfigError
from core.score_block import ScoreBlock


def require(block: ScoreBlock, name: str, owner: str) -> Tensor:
    """A tensor of the block (q, k, x or context); ConfigError names the position that needs it when it is None."""
    tensor = getattr(block, name)
    if tensor is None:
        raise ConfigError(
            f"position = {owner} reads {name}, which is not given here; give it, or take a position "
            "that needs only distances (alibi, t5)."
        )
    return tensor


def clipped_rows(block: ScoreBlock, most: int) -> tuple[Int[Tensor, "T S"], slice]:
    """For each cell the row of a table of 2·most + 1 vectors, and the slice of rows that the block reads.

    A cell reads row j − i, clipped to −most … most and counted from the slice's start.
    """
    rows = table_rows(-block.high, -block.low, most, 2 * most + 1)
    return (block.j - block.i).clamp(-most, most) + (most - rows.start), rows


def table_rows(low: int, high: int, zero: int, vectors: int) -> slice:
    """The rows of a table for distances low … high, clipped at both ends; row `zero` is distance 0.

    All rows in a compiled graph, which serves all lengths.
    """
    if torch.compiler.is_compiling():
        return slice(0, vectors)
    first, last = (min(max(distance + zero, 0), vectors - 1) for distance in (low, high))
    return slice(first, last + 1)


def gather_by_distance(
    content: Float[Tensor, "B H T D"],
    table: Float[Tensor, "H_ N D"],
    row: Int[Tensor, "T S"],
) -> Float[Tensor, "B H T S"]:
    """contentᵢ · table[row of (i, j)]: each query's products with the N vectors, from which each cell takes one.

    `table` is one for all heads, (1, N, D), or one a head, (H, N, D).
    """
    products = content @ table.mT  # (B, H, T, N)
    return products.gather(-1, row.expand(*products.shape[:2], *row.shape))
