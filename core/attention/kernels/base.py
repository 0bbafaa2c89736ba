"""What several kernels share: blocks of the score matrix, the dot-product score, and sums in fp32."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from core.attention.basics import Product
from core.attention.kernels.exact import AttentionInputs, submatrix

SAME = frozenset(
    {"same"}
)  # the trait of a kernel with exact's own weights, so that exact records its steps


def spans(length: int, size: int) -> Iterator[slice]:
    """0…length in slices of `size`; the last may be shorter."""
    return (slice(start, min(start + size, length)) for start in range(0, length, size))


def slice_inputs(
    inputs: AttentionInputs,
    rows: slice,
    columns: slice | Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
) -> AttentionInputs:
    """The inputs of some rows and columns, whose queries, keys and values are q, k and v."""
    block = inputs.block
    key_mask = None if block.key_mask is None else block.key_mask[..., columns]
    block = replace(block, **block.coordinates(rows, columns), key_mask=key_mask, q=q, k=k)
    mask, bias = (
        None if x is None else submatrix(x, rows, columns)
        for x in (inputs.call_mask, inputs.call_bias)
    )
    return replace(inputs, block=block, v=v, call_mask=mask, call_bias=bias, causal=False)


def product_of(inputs: AttentionInputs) -> Product:
    """The score of a kernel that refuses all but dot products."""
    return cast(Product, inputs.score)


def to_float32(x: Tensor) -> Tensor:
    """x in at least fp32: sums over many keys lose too much in half precision."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
