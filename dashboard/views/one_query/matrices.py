"""Q, K and V as a person types them: to and from the text in the link, validated and resized."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import torch

from core.entries import quote

WORKED = "1,2|1,0;0,1;1,1|0.5,0.3;0.8,0.2;0.1,0.9"
MAX_ROWS, MAX_COLUMNS = 32, 16
Rows = list[list[float]]


class MatrixError(ValueError):
    """The matrices cannot be multiplied; the message says which, and what would fit."""


@dataclass(frozen=True)
class Matrices:
    """Three matrices that fit: Q (T, D), K (S, D), V (S, E)."""

    q: Rows
    k: Rows
    v: Rows

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Each as (1, 1, rows, columns): one batch, one head."""
        return tuple(torch.tensor(part, dtype=torch.float32)[None, None] for part in (self.q, self.k, self.v))


def parse(text: str) -> list[Rows]:
    """`1,2|1,0;0,1|…` → three lists of rows; MatrixError when there are not three, or a cell is not a number."""
    parts = text.split("|")
    if len(parts) != 3:
        raise MatrixError("The link holds no Q, K and V: three matrices are written as 1,2|1,0;0,1|3;4.")
    return [[[_cell(c) for c in row.split(",")] for row in re.split("[;\n]", part) if row.strip()] for part in parts]


def _cell(text: str) -> float:
    try:
        return float(text.replace("−", "-"))
    except ValueError as error:
        raise MatrixError(f"{quote(text.strip())} in the link's matrix is not a number.") from error


def write(parts: list[Rows]) -> str:
    return "|".join(";".join(",".join(f"{value:.9g}" for value in row) for row in part) for part in parts)


def check(parts: list[Rows]) -> Matrices:
    """The three as one problem; MatrixError names the first thing that does not fit, counting rows from 0."""
    for name, rows in zip("QKV", parts, strict=True):
        if not rows or not rows[0]:
            raise MatrixError(f"{name} has no rows; give it at least one.")
        if len(rows) > MAX_ROWS or max(map(len, rows)) > MAX_COLUMNS:
            raise MatrixError(f"{name} is larger than {MAX_ROWS} × {MAX_COLUMNS}; take fewer rows or columns.")
        if len({len(row) for row in rows}) > 1:
            raise MatrixError(f"{name}'s rows have {' and '.join(map(str, sorted({len(r) for r in rows})))} numbers; "
                              "every row needs the same.")
        for i, row in enumerate(rows):
            for j, value in enumerate(row):
                if not math.isfinite(value) or abs(value) > 1e6:
                    raise MatrixError(f"{name} row {i}, column {j} is {_describe(value)}; "
                                      "every cell needs a number between −1,000,000 and 1,000,000.")
    q, k, v = parts
    if len(q[0]) != len(k[0]):
        raise MatrixError(f"Q has {len(q[0])} columns and K has {len(k[0])}; a query meets a key number by number, "
                          "so give both the same.")
    if len(k) != len(v):
        raise MatrixError(f"K has {len(k)} rows and V has {len(v)}; each key brings one value, so give both the same.")
    return Matrices(q, k, v)


def _describe(value: float) -> str:
    if math.isnan(value):
        return "empty or not a number (NaN)"
    return "infinite" if math.isinf(value) else f"{value:g}"


def widen(rows: Rows, columns: int) -> Rows:
    """The rows cut or filled with 0 to that many columns."""
    return [(row + [0.0] * columns)[:columns] for row in rows]
