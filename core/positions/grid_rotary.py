"""Rotary positions in a grid: patches of a picture, whose rows and columns rotate pairs of their own (Heo 2024)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from core.eager_cache import eager_cache
from core.entries import Entry, Param
from core.positions.rotary import (
    ROTARY_PARAMS,
    Position,
    plain_frequencies,
    refuse_odd,
    rotate_pairs,
    tables_of_pairs,
)


class GridRotary(Position):
    """R_{r,c} q: half of the pairs are rotated by the patch's row r, the others by its column c. Heo 2024.

    Token i is the patch of row ⌊i / columns⌋ and column i mod columns. Each half has the frequencies of RoPE at its own
    size; of an odd number of pairs the columns have one more.
    """

    def __init__(self, head_dim: int, base: float, layout: str, columns: int) -> None:
        super().__init__()
        self.head_dim, self.base, self.layout, self.columns = head_dim, base, layout, columns

    def rotate(self, x: Tensor, offset: int = 0, length: int | None = None) -> Tensor:
        cos, sin = grid_tables(
            self.head_dim,
            self.base,
            self.layout,
            self.columns,
            offset,
            offset + x.shape[-2],
            x.dtype,
            x.device,
        )
        return rotate_pairs(x, cos, sin, self.layout)


@eager_cache(maxsize=32)
def grid_tables(
    head_dim: int,
    base: float,
    layout: str,
    columns: int,
    start: int,
    stop: int,
    dtype: torch.dtype,
    device: torch.device,
) -> tuple[Float[Tensor, "T D"], Float[Tensor, "T D"]]:
    """The `tables_of_pairs` of tokens from start to stop; angles in fp64. Cached: never change the result."""
    with torch.inference_mode(False):
        tokens, by_row = torch.arange(start, stop), head_dim // 4
        places = (tokens // columns, by_row), (tokens % columns, head_dim // 2 - by_row)
        angle = torch.cat(
            [at[:, None] * plain_frequencies(base, 2 * pairs) for at, pairs in places], -1
        )
        return tables_of_pairs(angle.cos().to(device, dtype), angle.sin().to(device, dtype), layout)


GRID_ROPE = Entry(
    "grid_rope",
    "RoPE in a grid",
    lambda config: GridRotary(config.qk_dim, **config.position.kwargs),
    r"(R_{r_i, c_i} q_i)^\top (R_{r_j, c_j} k_j) = q_i^\top R_{r_j - r_i,\, c_j - c_i} k_j",
    "Tokens are the patches of a picture, row by row. Half of each query and key is rotated by the row, the other half "
    "by the column, so a score depends on how far apart two patches are in both directions.",
    "Heo et al.",
    2024,
    "https://arxiv.org/abs/2403.13298",
    (
        Param(
            "columns", "Columns", 4, 2, 256, 1, meaning="number of patches in a row of the picture"
        ),
        *ROTARY_PARAMS[:2],
    ),
    short="(R[r, c] q)·(R[r, c] k)",
    enters="q, k",
    refuse=refuse_odd,
)
