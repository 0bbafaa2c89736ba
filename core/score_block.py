"""Cells: a rectangle of the score matrix, and everything that the rule of a mask or a position may read of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

ALL = slice(None)


def dot_product_scale(head_dim: int) -> float:
    """1/√D: it keeps the standard deviation of a dot product of D numbers the same for every D. Vaswani 2017, 3.2.1."""
    return head_dim**-0.5


@dataclass(frozen=True, eq=False)
class ScoreBlock:
    """Some rows and columns of the score matrix, as places, with the tensors that meet there.

    B batch, H heads that meet, T queries and S keys of this rectangle. `num_queries` and `num_keys` count the whole
    matrix (queries from place 0, so a cache's are counted too). x, context and `real` are the layer's inputs, never
    cut: index them by i − `offset` and by j. A field is None where the caller has nothing to give. i − j lies between
    `low` and `high`; `tables` is what the position made once for the whole matrix.
    """

    i: Int[Tensor, "T 1"]
    j: Int[Tensor, "1 S"]
    num_queries: int
    num_keys: int
    num_heads: int = 1
    offset: int = 0
    low: int = 0
    high: int = 0
    tables: tuple[Tensor, ...] = ()
    key_mask: Bool[Tensor, "B 1 1 S"] | None = None  # which keys of this rectangle are real
    real: Bool[Tensor, "B Sx"] | None = None  # which keys of the whole matrix are real
    q: Float[Tensor, "B H T D"] | None = None
    k: Float[Tensor, "B H S D"] | None = None
    x: Float[Tensor, "B Tx C"] | None = None
    context: Float[Tensor, "B Sx C"] | None = None

    @property
    def dtype(self) -> torch.dtype:
        """That of the scores."""
        return torch.float32 if self.q is None else self.q.dtype

    @classmethod
    def whole(
        cls, num_queries: int, num_keys: int, *, num_heads: int = 1, offset: int = 0, key_mask: Tensor | None = None,
        device: torch.device | str = "cpu", **tensors: Tensor | None,
    ) -> ScoreBlock:
        """All cells of a matrix whose first query stands at place `offset`; key_mask is (B, S)."""
        i = torch.arange(offset, offset + num_queries, device=device)[:, None]
        j = torch.arange(num_keys, device=device)[None, :]
        real = None if key_mask is None else key_mask[:, None, None, :]
        low, high = offset - num_keys + 1, offset + num_queries - 1
        return cls(i, j, offset + num_queries, num_keys, num_heads, offset, low, high, (), real, key_mask, **tensors)

    def part(self, rows: slice = ALL, columns: slice = ALL) -> ScoreBlock:
        """The rectangle of these rows and columns."""
        if rows == ALL and columns == ALL:
            return self
        key_mask = None if self.key_mask is None else self.key_mask[..., columns]
        q, k = None if self.q is None else self.q[:, :, rows], None if self.k is None else self.k[:, :, columns]
        return replace(self, **self.places(rows, columns), key_mask=key_mask, q=q, k=k)

    def places(self, rows: slice, columns: slice | Tensor) -> dict[str, Any]:
        """The fields i, j, low and high of these rows and columns; columns are a stretch, or their growing places."""
        (num_rows, num_columns), (first, stop, _) = (len(self.i), self.j.shape[1]), rows.indices(len(self.i))
        if isinstance(columns, slice):
            start, end, _ = columns.indices(num_columns)
        else:
            start, end = int(columns[0]), int(columns[-1]) + 1
        return {"i": self.i[rows], "j": self.j[:, columns], "low": self.low + first + num_columns - end,
                "high": self.high - (num_rows - stop) - start}
