"""Maps too large to send whole: the blocks of tokens that one cell stands for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

LIMIT = 512  # cells across and down which travel to the browser; more than that are pooled

Window: TypeAlias = tuple[int, int, int, int]  # rows [from, to), columns [from, to)
Pool: TypeAlias = Literal["mean", "max"]


def edges(start: int, stop: int, limit: int) -> np.ndarray:
    """The edges of at most ``limit`` blocks of [start, stop)."""
    count = min(stop - start, limit)
    return start + (np.arange(count + 1) * (stop - start)) // count


@dataclass(frozen=True)
class Blocks:
    """The cells of a picture as blocks of a map's tokens: n + 1 edges down, m + 1 across."""

    rows: np.ndarray
    columns: np.ndarray

    @classmethod
    def of(cls, shape: tuple[int, int], window: Window | None, limit: int = LIMIT) -> Blocks | None:
        """The blocks for a map of that shape, or for its window; None when every cell can travel as it is."""
        if window is None and max(shape) <= limit:
            return None
        top, bottom, left, right = window or (0, shape[0], 0, shape[1])
        return cls(edges(top, bottom, limit), edges(left, right, limit))

    @property
    def pooled(self) -> bool:
        """Whether a cell stands for several tokens."""
        return any(int(np.diff(axis).max()) > 1 for axis in (self.rows, self.columns))

    def weights(self, weights: np.ndarray, mask: np.ndarray | None, pool: Pool) -> np.ndarray:
        """The mean (or the largest) of the unmasked cells in each block of (…, T, S); 0 where all are masked."""
        values = np.asarray(self._cut(weights), dtype=np.float32)
        if pool == "max":
            return self._each(
                np.maximum, values if mask is None else np.where(self._cut(mask), values, 0.0)
            )
        if mask is None:
            sizes = np.diff(self.rows)[:, None] * np.diff(self.columns)[None, :]
            return self._each(np.add, values) / sizes.astype(np.float32)
        allowed = self._cut(np.broadcast_to(mask, weights.shape))
        return self._each(np.add, values * allowed) / np.maximum(
            self._each(np.add, allowed.astype(np.float32)), 1.0
        )

    def pool_mask(self, mask: np.ndarray) -> np.ndarray:
        """Which blocks of a bool mask (…, T, S) hold an unmasked cell."""
        return self._each(np.logical_or, self._cut(mask))

    def _cut(self, array: np.ndarray) -> np.ndarray:
        return array[..., self.rows[0] : self.rows[-1], self.columns[0] : self.columns[-1]]

    def _each(self, reduce: np.ufunc, values: np.ndarray) -> np.ndarray:
        down = reduce.reduceat(values, self.rows[:-1] - self.rows[0], axis=-2)
        return np.asarray(reduce.reduceat(down, self.columns[:-1] - self.columns[0], axis=-1))

    def payload(self) -> dict[str, Any]:
        return {"rows": self.rows.tolist(), "cols": self.columns.tolist(), "pooled": self.pooled}


def names(tokens: Sequence[str], ends: np.ndarray) -> list[str]:
    """The name of each block: its token's, or its first and last token's."""
    return [
        tokens[start] if stop == start + 1 else f"{tokens[start]}…{tokens[stop - 1]}"
        for start, stop in zip(ends[:-1], ends[1:], strict=True)
    ]
