"""What kernels share: cutting a matrix into blocks, and sums in full precision."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

Columns = slice | Tensor  # some keys: a stretch, or their positions
SAME = frozenset({"same"})  # the trait of a kernel of exact's own weights, which exact then draws


def spans(length: int, size: int) -> Iterator[slice]:
    """0…length in stretches of size; the last may be shorter."""
    return (slice(start, min(start + size, length)) for start in range(0, length, size))


def submatrix(matrix: Tensor, rows: slice, columns: Columns) -> Tensor:
    """Those rows and columns of a matrix that may be broadcast, as (…, 1, S) or (…, T, 1)."""
    if matrix.dim() > 1 and matrix.shape[-2] > 1:
        matrix = matrix[..., rows, :]
    return matrix[..., columns] if matrix.shape[-1] > 1 else matrix


def to_float32(x: Tensor) -> Tensor:
    """x in at least fp32: sums over many keys lose too much in half precision."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
