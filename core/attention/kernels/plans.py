"""Plans: which stretches of keys a block of queries must meet, since the mask hides all others."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from core.attention.kernels.base import slice_inputs, spans
from core.attention.kernels.exact import AttentionInputs
from core.entries import Choice
from core.score_block import ALL

Reach = tuple[float, float]  # how many keys before and after its own place a query may see at most
EVERYTHING: Reach = (math.inf, math.inf)
NOTHING = (slice(0, 1),)  # queries that see no key meet one all the same, which the mask hides, and so give zeros


def reach(mask: Choice) -> Reach:
    """How far a mask lets a query see, at most: the narrowest part of an `and`, the widest of an `or`."""
    if mask.key in ("and", "or"):
        pick = min if mask.key == "and" else max
        before, after = zip(*map(reach, mask.parts), strict=True)
        return pick(before), pick(after)
    own = BANDS.get(mask.key)
    return own(mask) if own else EVERYTHING


def _number(mask: Choice, *names: str) -> int:
    return math.prod(int(mask[name]) for name in names)


BANDS: dict[str, Callable[[Choice], Reach]] = {
    "causal": lambda mask: (math.inf, 0),
    "local": lambda mask: (_number(mask, "window"),) * 2,
    "causal_local": lambda mask: (_number(mask, "lookback"), 0),
    "dilated": lambda mask: (_number(mask, "window", "dilation"),) * 2,
    "block": lambda mask: (_number(mask, "size") - 1,) * 2,
    "chunked": lambda mask: (_number(mask, "size") - 1, 0),
}


@dataclass(frozen=True)
class MaskGeometry:
    """The numbers of queries and keys, the first query's position, and the mask on some rows and all columns."""

    queries: int
    keys: int
    offset: int
    allowed: Callable[[slice], Tensor | None]
    fixed: bool = True  # the mask depends on positions alone, neither on this call's tokens nor on weights

    @classmethod
    def of(cls, inputs: AttentionInputs) -> MaskGeometry:
        q, k, v, mask = inputs.q, inputs.k, inputs.v, inputs.mask
        learned = mask is not None and any(True for _ in mask.parameters())
        fixed = inputs.call_mask is None and inputs.block.key_mask is None and not learned
        return cls(q.shape[2], k.shape[2], inputs.block.offset,
                   lambda rows: slice_inputs(inputs, rows, ALL, q[:, :, rows], k, v).joined_mask(), fixed)


Stretch = tuple[slice, ...]
Plan = Callable[[MaskGeometry, int], list[Stretch]]  # for each block of queries the stretches of keys that it meets


@dataclass(frozen=True)
class Band:
    """Every query meets keys from `before` its place to `after` it."""

    before: float
    after: float

    def __call__(self, places: MaskGeometry, size: int) -> list[Stretch]:
        plan: list[Stretch] = []
        for rows in spans(places.queries, size):
            start = max(0, places.offset + rows.start - self.before)
            stop = min(places.keys, places.offset + rows.stop + self.after)
            plan.append((slice(int(start), int(stop)),) if start < stop else NOTHING)
        return plan


class Touched:
    """The blocks that a mask touches. Computing them reads each cell, so those of the last lengths are cached."""

    CACHE_SIZE = 8

    def __init__(self) -> None:
        self.cache: dict[tuple[int, ...], list[Stretch]] = {}

    def __call__(self, places: MaskGeometry, size: int) -> list[Stretch]:
        if not places.fixed:
            return touched_blocks(places, size)
        key = (places.queries, places.keys, places.offset)
        if key not in self.cache:
            if len(self.cache) >= self.CACHE_SIZE:
                self.cache.pop(next(iter(self.cache)))
            self.cache[key] = touched_blocks(places, size)
        return self.cache[key]


def touched_blocks(places: MaskGeometry, size: int) -> list[Stretch]:
    """The stretches of keys, in whole blocks, of which a query of each block may see one."""
    keys = places.keys
    plan: list[Stretch] = []
    for rows in spans(places.queries, size):
        allowed = places.allowed(rows)
        if allowed is None:
            plan.append((slice(0, keys),))
            continue
        seen = allowed.expand(*allowed.shape[:-1], keys).flatten(0, -2).any(0)
        blocks = F.pad(seen, (0, -keys % size)).unflatten(0, (-1, size)).any(1).nonzero().flatten().tolist()
        plan.append(merge_blocks(blocks, size, keys) or NOTHING)
    return plan


GAPLESS = ("none", "causal", "local", "causal_local")  # masks that let every key be seen within their reach


def visible_blocks(mask: Choice, places: MaskGeometry, size: int, real: int) -> list[Stretch]:
    """`touched_blocks` of a mask of positions alone, with `real` keys before padding; closed form where possible."""
    if mask.key not in GAPLESS:
        return touched_blocks(places, size)
    before, after = reach(mask)
    plan: list[Stretch] = []
    for rows in spans(places.queries, size):
        start, stop = max(0, rows.start - before), min(real, rows.stop + after)
        whole = slice(int(start) // size * size, min(-(-int(stop) // size) * size, places.keys))
        plan.append((whole,) if start < stop else NOTHING)
    return plan


def merge_blocks(blocks: list[int], size: int, length: int) -> Stretch:
    """Neighbouring blocks as one stretch."""
    stretches: list[slice] = []
    for block in blocks:
        start, stop = block * size, min((block + 1) * size, length)
        if stretches and stretches[-1].stop == start:
            start = stretches.pop().start
        stretches.append(slice(start, stop))
    return tuple(stretches)
