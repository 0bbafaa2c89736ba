"""What a kernel is given and what it gives back: Problem and Steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from core.masks import Mask
from core.positions import Position
from core.score_block import ALL, ScoreBlock

Columns = slice | Tensor  # some keys: a stretch, or their places
SAME = frozenset({"same"})  # the trait of a kernel of exact's own weights, which exact then draws


@dataclass(frozen=True)
class Steps:
    """Every intermediate of one attention, by name; B batch, H heads, T queries, S keys, D head size.

    A kernel that never makes `raw`, `scores`, `masked` and `weights` leaves them None. Before a projection folds its
    heads there are Hs of them, else Hs = H.
    """

    q: Float[Tensor, "B Hs T D"]  # as they meet: projected and rotated
    k: Float[Tensor, "B Hs S D"]
    v: Float[Tensor, "B H S E"]
    scale: float | Tensor
    bias: Tensor | None  # broadcastable to (B, Hs, T, S)
    mask: Tensor | None  # bool, True = may attend, broadcastable to (B, Hs, T, S)
    out: Float[Tensor, "B H T E"]  # weights · v, and `extra` where there is one
    raw: Float[Tensor, "B Hs T S"] | None = None  # how query meets key, before scale and bias
    scores: Float[Tensor, "B Hs T S"] | None = None  # raw · scale + bias
    masked: Float[Tensor, "B Hs T S"] | None = None  # scores, −∞ where nothing may be seen
    normalized: Float[Tensor, "B Hs T S"] | None = None  # after the normalizer, where weights are not the same
    weights: Float[Tensor, "B H T S"] | None = None  # what meets the values, before dropout
    position_values: Float[Tensor, "B H T E"] | None = None  # what positions add to weights · v
    merged: Float[Tensor, "B T C"] | None = None  # heads merged and projected; the layer's output
    implied: bool = False  # the kernel never made these weights: they are what its output amounts to


@dataclass(frozen=True, eq=False)
class AttentionInputs:
    """What a kernel is given: q, k, v as they meet, and the choices that are already made."""

    q: Tensor
    k: Tensor
    v: Tensor
    score: Any  # a Score, from q and k to raw scores
    normalizer: Any  # from scores and mask to weights
    block: ScoreBlock
    position: Position | None = None
    mask: Mask | None = None
    call_mask: Tensor | None = None  # a mask that came with the call, bool, broadcastable to (B, H, T, S)
    call_bias: Tensor | None = None  # a bias that came with the call
    combine_heads: Callable[[Tensor], Tensor] | None = None
    causal: bool = False  # the mask is exactly the square causal one, so a kernel may use its own
    dropout: float = 0.0
    record: bool = False  # return the weights, even from a kernel that does not make them

    @property
    def empty(self) -> bool:
        """No query, no key or no text."""
        return 0 in (self.q.shape[0], self.q.shape[2], self.k.shape[2])

    def allowed(self, rows: slice = ALL, columns: slice = ALL) -> Tensor | None:
        """The joined mask of these rows and columns; None where everything may be seen."""
        block = self.block.part(rows, columns)
        parts = [] if self.mask is None else [self.mask(block)]
        if block.key_mask is not None:
            parts.append(block.key_mask)
        if self.call_mask is not None:
            parts.append(submatrix(self.call_mask, rows, columns))
        return reduce(and_, parts) if parts else None

    def bias(self, rows: slice = ALL, columns: slice = ALL) -> Tensor | None:
        """What is added to the scores of these rows and columns; None for nothing."""
        found = None if self.position is None else self.position.bias(self.block.part(rows, columns))
        if self.call_bias is None:
            return found
        added = submatrix(self.call_bias, rows, columns)
        return added if found is None else found + added

    def part(self, rows: slice, columns: Columns, q: Tensor, k: Tensor, v: Tensor) -> AttentionInputs:
        """The same problem for some queries q and keys k and values v alone, which are those rows and columns."""
        block = self.block
        real = None if block.key_mask is None else block.key_mask[..., columns]
        block = replace(block, **block.places(rows, columns), key_mask=real, q=q, k=k)
        given, added = (None if x is None else submatrix(x, rows, columns) for x in (self.call_mask, self.call_bias))
        return replace(self, q=q, k=k, v=v, block=block, call_mask=given, call_bias=added, causal=False)


def spans(length: int, size: int) -> Iterator[slice]:
    """0…length in stretches of size; the last may be shorter."""
    return (slice(start, min(start + size, length)) for start in range(0, length, size))


def submatrix(matrix: Tensor, rows: slice, columns: Columns) -> Tensor:
    """Those rows and columns of a matrix that may be broadcast, as (…, 1, S) or (…, T, 1)."""
    if matrix.dim() > 1 and matrix.shape[-2] > 1:
        matrix = matrix[..., rows, :]
    return matrix[..., columns] if matrix.shape[-1] > 1 else matrix


def empty_steps(inputs: AttentionInputs) -> Steps:
    """The Steps of no query, no key or no text at all: zeros, since there is nothing to see."""
    q, k, v = inputs.q, inputs.k, inputs.v
    scores, weights = (q.new_zeros(*x.shape[:2], q.shape[2], k.shape[2]) for x in (q, v))
    return Steps(q, k, v, inputs.score.scale, None, None, weights @ v, scores, scores, scores, None, weights)


def to_float32(x: Tensor) -> Tensor:
    """In at least fp32: sums over many keys lose too much in half."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def weighted_sum(weights: Tensor, v: Tensor, allowed: Tensor | None) -> Tensor:
    """weights · v, in which a value that may not be seen cannot leak, not even as 0 · NaN or 0 · ∞.

    A row that may see a NaN or infinity is NaN. No branch asks whether there is one: that would wait for the device.
    """
    if allowed is None:
        return weights @ v
    broken = (v * 0.0).sum((1, 3)).isnan()  # (B, S)
    taint = torch.where(sees(allowed, broken), torch.nan, 0.0).to(v.dtype)
    return weights @ v.nan_to_num(0.0, 0.0, 0.0) + taint


def sees(allowed: Bool[Tensor, ...], keys: Bool[Tensor, "B S"]) -> Bool[Tensor, "B 1 T 1"]:
    """Which rows may see one of those keys, in any head."""
    if allowed.dim() > 2:
        allowed = allowed.any(-3)
    return (allowed & keys[:, None]).any(-1)[:, None, :, None]
