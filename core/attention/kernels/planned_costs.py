"""The cost of the kernels that compute blocks of the score matrix, in closed form; costs.py says what is counted."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

import torch

from core.attention.kernels.base import spans
from core.attention.kernels.costs import (
    FLOAT,
    chunked_bytes,
    exact_bytes,
    flops,
    fused_bytes,
    kernel_cost,
    output_bytes,
)
from core.attention.kernels.plans import NOTHING, MaskGeometry, Stretch, visible_blocks
from core.entries import Area, Cost, LayerConfig
from core.masks import make_mask
from core.score_block import ScoreBlock


def gathered_cost(
    config: LayerConfig, area: Area, plan: list[Stretch], fused: bool, mask_reads: int = 1
) -> Cost:
    """The cost where each block of queries and its keys of the plan are computed at once, exact or fused."""
    size = int(config.kernel["block"])
    areas, blocks = gathered_areas(area, size, plan), -(-area.queries // size)
    peak = max(fused_bytes(config, each) if fused else exact_bytes(config, each) for each in areas)
    copied_keys = max(
        (sum(part.stop - part.start for part in keys) for keys in plan if len(keys) > 1), default=0
    )
    copies = (
        FLOAT * (config.score_heads * config.qk_dim + config.num_heads * config.v_dim) * copied_keys
    )
    out, last_out = (
        output_bytes(config, area.queries),
        output_bytes(config, min(size, area.queries)),
    )
    held = max(2 * out, out * (blocks - 1) / blocks + last_out * fused + peak + copies)
    return kernel_cost(config, area, total_flops(config, areas, mask_reads), held)


@lru_cache(maxsize=256)
def chunked_cost(config: LayerConfig, area: Area) -> Cost:
    """The output, the logarithm of each row's sum, and one block; blocks that the mask hides are skipped."""
    size, rows = int(config.kernel["block"]), min(int(config.kernel["block"]), area.queries)
    areas = block_areas(area, size, blocks_seen(config, area))
    out, block_out = output_bytes(config, area.queries), output_bytes(config, rows)
    logarithms = FLOAT * config.num_heads * (area.queries + 4 * rows)
    peak = max((chunked_bytes(config, each) for each in areas), default=0.0)
    return kernel_cost(
        config,
        area,
        total_flops(config, areas),
        out + logarithms + block_out + max(peak, block_out),
    )


def total_flops(config: LayerConfig, areas: Counter[Area], mask_reads: int = 1) -> float:
    return sum(count * flops(config, area, mask_reads) for area, count in areas.items())


def blocks_seen(config: LayerConfig, area: Area) -> list[Stretch]:
    """The blocks of keys that a mask lets each block of queries see; keys from `area.real` on are padding."""
    real = area.keys if area.real is None else area.real
    whole = ScoreBlock.whole(
        area.queries,
        area.keys,
        num_heads=config.score_heads,
        key_mask=torch.arange(area.keys)[None] < real,
    )
    mask = None if config.mask.key == "none" else make_mask(config.mask, config)

    def allowed(rows: slice) -> torch.Tensor | None:
        block = whole.part(rows)
        if mask is None:
            return None if area.real is None else block.key_mask
        return mask(block) if area.real is None else mask(block) & block.key_mask

    geometry = MaskGeometry(area.queries, area.keys, 0, allowed)
    return visible_blocks(config.mask, geometry, int(config.kernel["block"]), real)


def rectangle(area: Area, rows: slice, first_key: int, last_key: int, keys: int) -> Area:
    """The area of some queries and of so many keys, between the first and the last."""
    return Area(
        rows.stop - rows.start,
        keys,
        rows.start - last_key,
        rows.stop - 1 - first_key,
        area.masked,
        area.real,
    )


def gathered_areas(area: Area, size: int, plan: list[Stretch]) -> Counter[Area]:
    """How often each area occurs among the blocks of queries, each with all its keys of the plan."""
    return Counter(
        rectangle(
            area,
            rows,
            keys[0].start,
            keys[-1].stop - 1,
            sum(part.stop - part.start for part in keys),
        )
        for rows, keys in zip(spans(area.queries, size), plan, strict=True)
    )


def block_areas(area: Area, size: int, plan: list[Stretch]) -> Counter[Area]:
    """How often each area occurs among the square blocks of the plan.

    Whole blocks differ only by their distance from the diagonal. Those of one row and stretch lie on consecutive
    diagonals, so `change` counts +1 where they begin and −1 after their end, and its running sum is the number of
    blocks on each diagonal. Blocks at the ends, which may be smaller, are counted one by one.
    """
    counts: Counter[Area] = Counter()
    change: Counter[int] = Counter()
    for index, (rows, keys) in enumerate(zip(spans(area.queries, size), plan, strict=True)):
        for stretch in () if keys is NOTHING else keys:
            first, last = stretch.start // size, stretch.stop // size
            if rows.stop - rows.start == size:
                change[index - last + 1] += 1
                change[index - first + 1] -= 1
                first = last
            for start in range(first * size, stretch.stop, size):
                stop = min(start + size, stretch.stop)
                counts[rectangle(area, rows, start, stop - 1, stop - start)] += 1
    blocks = 0
    for diagonal in range(min(change, default=0), max(change, default=0)):
        blocks += change[diagonal]
        if blocks:
            rows = slice(diagonal * size, (diagonal + 1) * size)
            counts[rectangle(area, rows, 0, size - 1, size)] += blocks
    return counts
