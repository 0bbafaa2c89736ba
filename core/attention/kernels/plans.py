"""Plans: the stretches of keys that each block of queries can see; the mask hides all others."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch.nn.functional as F
from torch import Tensor

from core.attention.kernels.base import slice_inputs, spans
from core.attention.kernels.exact import AttentionInputs
from core.entries import Choice
from core.score_block import ALL

Reach = tuple[
    float, float
]  # how many keys before and after its own position a query may see at most
EVERYTHING: Reach = (math.inf, math.inf)
NOTHING = (
    slice(0, 1),
)  # for queries that see no key: one key, which the mask hides, so that they give zeros


def reach(mask: Choice) -> Reach:
    """A bound on how far a query sees: that of the narrowest part of an `and`, of the widest of an `or`."""
    if mask.key in ("and", "or"):
        pick = min if mask.key == "and" else max
        before, after = zip(*map(reach, mask.parts), strict=True)
        return pick(before), pick(after)
    band = BANDS.get(mask.key)
    return band(mask) if band else EVERYTHING


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
    fixed: bool = True  # the mask depends on positions alone, not on the numbers of this call

    @classmethod
    def of(cls, inputs: AttentionInputs) -> MaskGeometry:
        q, k, v, mask = inputs.q, inputs.k, inputs.v, inputs.mask
        reads_content = mask is not None and any(
            getattr(part, "reads_content", False) for part in mask.modules()
        )
        fixed = inputs.call_mask is None and inputs.block.key_mask is None and not reads_content
        return cls(
            q.shape[2],
            k.shape[2],
            inputs.block.offset,
            lambda rows: slice_inputs(inputs, rows, ALL, q[:, :, rows], k, v).joined_mask(),
            fixed,
        )


Stretch = tuple[slice, ...]
Plan = Callable[
    [MaskGeometry, int], list[Stretch]
]  # the stretches of keys of each block of queries


@dataclass(frozen=True)
class Band:
    """Keys from `before` a block's first query to `after` its last."""

    before: float
    after: float

    def __call__(self, geometry: MaskGeometry, size: int) -> list[Stretch]:
        plan: list[Stretch] = []
        for rows in spans(geometry.queries, size):
            start = max(0, geometry.offset + rows.start - self.before)
            stop = min(geometry.keys, geometry.offset + rows.stop + self.after)
            plan.append((slice(int(start), int(stop)),) if start < stop else NOTHING)
        return plan


class Touched:
    """The blocks in which a mask shows a cell; cached for the last lengths, since computing them reads every cell."""

    CACHE_SIZE = 8

    def __init__(self) -> None:
        self.cache: dict[tuple[int, ...], list[Stretch]] = {}

    def __call__(self, geometry: MaskGeometry, size: int) -> list[Stretch]:
        if not geometry.fixed:
            return touched_blocks(geometry, size)
        key = (geometry.queries, geometry.keys, geometry.offset)
        if key not in self.cache:
            if len(self.cache) >= self.CACHE_SIZE:
                self.cache.pop(next(iter(self.cache)))
            self.cache[key] = touched_blocks(geometry, size)
        return self.cache[key]


def touched_blocks(geometry: MaskGeometry, size: int) -> list[Stretch]:
    """For each block of queries, the whole blocks of keys of which a query may see one."""
    keys = geometry.keys
    plan: list[Stretch] = []
    for rows in spans(geometry.queries, size):
        allowed = geometry.allowed(rows)
        if allowed is None:
            plan.append((slice(0, keys),))
            continue
        visible = allowed.expand(*allowed.shape[:-1], keys).flatten(0, -2).any(0)
        blocks = (
            F.pad(visible, (0, -keys % size))
            .unflatten(0, (-1, size))
            .any(1)
            .nonzero()
            .flatten()
            .tolist()
        )
        plan.append(merge_blocks(blocks, size, keys) or NOTHING)
    return plan


GAPLESS = (
    "none",
    "causal",
    "local",
    "causal_local",
)  # masks that show every key within their reach


def visible_blocks(mask: Choice, geometry: MaskGeometry, size: int, real: int) -> list[Stretch]:
    """`touched_blocks` of a mask of positions alone, with `real` keys before padding; closed form where possible."""
    if mask.key not in GAPLESS:
        return touched_blocks(geometry, size)
    band = Band(*reach(mask))(replace(geometry, keys=real), size)
    return [
        stretch if stretch is NOTHING else whole_blocks(stretch[0], size, geometry.keys)
        for stretch in band
    ]


def whole_blocks(keys: slice, size: int, length: int) -> Stretch:
    """The stretch of all blocks that these keys touch."""
    return (slice(keys.start // size * size, min(-(-keys.stop // size) * size, length)),)


def merge_blocks(blocks: list[int], size: int, length: int) -> Stretch:
    """Neighbouring blocks as one stretch."""
    stretches: list[slice] = []
    for block in blocks:
        start, stop = block * size, min((block + 1) * size, length)
        if stretches and stretches[-1].stop == start:
            start = stretches.pop().start
        stretches.append(slice(start, stop))
    return tuple(stretches)
