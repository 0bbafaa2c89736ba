"""What a kernel takes for one sequence, in closed form, from heads as they are projected to the output of each.

T queries, S keys, H heads of sizes D (query, key) and E (value), fp32, batch 1. FLOPs are those of matrix products,
a multiply and an add counted as two, as torch.utils.flop_counter counts them; bytes are the most alive at once in a
forward pass without gradients on a CPU, beyond q, k, v and x themselves.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

import torch

from core.attention.kernels.base import spans
from core.attention.kernels.plans import NOTHING, MaskGeometry, Stretch, visible_blocks
from core.attention.normalizers import NORMALIZERS
from core.attention.scores import SCORES
from core.entries import Area, Cost, find
from core.layer_config import LayerConfig
from core.masks import MASKS, make_mask
from core.positions import POSITIONS
from core.score_block import ScoreBlock

FLOAT, PLACE = 4, 8  # bytes of a number, and of a position i or j
RULE = 4  # bytes a cell while a mask's rule is computed: comparisons, and what joins them


def axis_cost(axis: str, config: LayerConfig, area: Area) -> Cost:
    """What a score, position, mask or normalizer takes on an area."""
    entries = {"score": SCORES, "position": POSITIONS, "mask": MASKS, "normalizer": NORMALIZERS}[axis]
    return find(entries, axis, getattr(config, axis).key).cost(config, area)


def matrix(config: LayerConfig, area: Area) -> float:
    """Bytes of a score in each cell of each head."""
    return FLOAT * config.score_heads * area.cells


def outputs(config: LayerConfig, queries: int) -> float:
    return FLOAT * config.num_heads * queries * config.v_dim


def flops(config: LayerConfig, area: Area, masks: int = 1) -> float:
    """Query meets key, order enters, and weight meets value, on one area; a mask is read so many times."""
    meets = 2.0 * area.cells * config.score_heads * config.qk_dim if config.has("score", "product") else 0.0
    axes = axis_cost("score", config, area).flops + masks * axis_cost("mask", config, area).flops
    if enters(config) == "scores":
        axes += axis_cost("position", config, area).flops
    return meets + axes + 2.0 * area.cells * config.num_heads * config.v_dim


def enters(config: LayerConfig) -> str:
    return find(POSITIONS, "position", config.position.key).enters


def mask_cost(config: LayerConfig, area: Area) -> Cost:
    """The joined mask of an area: what its rule and the padding make."""
    if not area.masked or config.mask.key in ("none", "padding"):
        return Cost()
    rule = axis_cost("mask", config, area)
    output = max(rule.output, area.cells)
    joined = output + area.cells if area.real is not None else 0.0
    return Cost(rule.flops, max(rule.bytes, RULE * area.cells, joined), output)


def before(config: LayerConfig, area: Area) -> Cost:
    """The cost of a layer between projection and kernel: rotated, normed and repeated heads, positions, tables."""
    sizes, rotated = config.sizes, enters(config) == "q, k" or config.score.key == "qk_norm"
    stored = FLOAT * sizes.kv_heads * area.keys
    shared = FLOAT * area.keys * (config.score_heads - sizes.kv_heads) and FLOAT * area.keys
    held = passing = float(PLACE * (area.queries + area.keys))
    if rotated:
        passing = stored * config.qk_dim
        held += FLOAT * config.score_heads * config.qk_dim * area.queries + stored * config.qk_dim
    if shared:
        held += shared * (config.score_heads * config.qk_dim + config.num_heads * config.v_dim)
        held -= stored * config.qk_dim if rotated else 0.0
    tables = find(POSITIONS, "position", config.position.key).tables(config, area)
    return Cost(tables.flops, held + max(tables.bytes, passing), held + tables.output)


def exact_block(config: LayerConfig, area: Area) -> float:
    """Bytes that exact holds at its highest on one area, step by step."""
    scores, mask, position = matrix(config, area), mask_cost(config, area), Cost()
    if enters(config) == "scores":
        position = axis_cost("position", config, area)
    score, normalizer = axis_cost("score", config, area), axis_cost("normalizer", config, area)
    own_scale = scores if config.score.key == "cosine" else 0.0  # a scale a head is no number: its product is new
    steps = [mask.bytes, mask.output + score.bytes + scores, mask.output + 2 * own_scale,
             mask.output + own_scale + scores + position.bytes]
    if position.output:
        steps.append(mask.output + own_scale + 2 * scores + position.output)
    live = mask.output + position.output + scores
    steps.append(live + normalizer.bytes)
    live += scores  # the weights
    if config.has("mask", "reweighs") and (factor := weight_factor_bytes(config, area)):
        steps += [live + 3 * factor, live + factor + scores]
        live += factor + scores
    if config.has("projection", "folds"):
        steps.append(live + scores)
        live += scores / 2
    clean = FLOAT * config.num_heads * area.keys * config.v_dim if area.masked else 0.0  # values without NaN
    steps += [live + clean, live + clean + outputs(config, area.queries) * (2 if area.masked else 1)]
    if config.has("position", "values") and config.position["values"]:
        steps.append(live + outputs(config, area.queries) + position.bytes - position.output)
    return max(steps)


def weight_factor_bytes(config: LayerConfig, area: Area) -> float:
    """Bytes of what a mask multiplies the weights with."""
    leaves = config.mask.leaves()
    if any(leaf.key == "local_p" for leaf in leaves):
        return matrix(config, area)
    return FLOAT * area.cells if any(leaf.key == "local_m" and leaf["gaussian"] for leaf in leaves) else 0.0


def exact_cost(config: LayerConfig, area: Area) -> Cost:
    """All cells at once, every step a matrix."""
    made, masks = before(config, area), 2 if config.has("mask", "learned") else 1
    return Cost(made.flops + flops(config, area, masks),
                max(made.bytes, made.output + exact_block(config, area)), outputs(config, area.queries))


def fused_block(config: LayerConfig, area: Area) -> float:
    """Bytes beside the output of F.scaled_dot_product_attention on a CPU: mask, bias, and its tiles."""
    mask, scores = mask_cost(config, area), matrix(config, area)
    live, steps = mask.output, [mask.bytes]
    prepared = axis_cost("score", config, area).bytes
    if enters(config) == "scores":
        position = axis_cost("position", config, area)
        steps.append(live + position.bytes)
        live += position.output + position.output  # the bias, and what temperature makes of it
        if area.masked:
            steps.append(live + position.output + area.cells)
            live += position.output
    elif area.masked:
        own = area.keys if config.mask.key in ("none", "padding") else area.cells
        steps.append(live + (FLOAT + 1) * own)
        live += FLOAT * own  # PyTorch makes numbers of truth values
    if config.qk_dim != config.v_dim:  # then PyTorch takes no tiles
        live += 2 * scores + FLOAT * config.score_heads * (area.queries + area.keys) * config.qk_dim
    else:
        live += tiles(area, config.qk_dim) + FLOAT * config.num_heads * area.queries
    return max(*steps, live + prepared)


def tiles(area: Area, dim: int) -> float:
    """PyTorch's buffers, one a thread: scores of 32 to 256 queries and up to 512 keys, and their sums (2.13)."""
    rows = min(area.queries, 256 if area.queries >= 768 else 64 if area.queries >= 192 else 32)
    return FLOAT * torch.get_num_threads() * rows * (min(area.keys, 512) + 2 + dim)


def fused_cost(config: LayerConfig, area: Area) -> Cost:
    """Every cell is counted, as PyTorch counts, though a causal mask lets its tiles skip nearly half of them."""
    made = before(config, area)
    own = config.mask.key == "causal" and area.real is None and area.queries == area.keys and enters(config) != "scores"
    rows = Area.whole(area.queries, area.keys) if own else area
    held = fused_block(config, rows) + outputs(config, area.queries)
    return Cost(made.flops + flops(config, area), max(made.bytes, made.output + held), outputs(config, area.queries))


def mask_geometry(config: LayerConfig, area: Area) -> MaskGeometry:
    """The mask of an area as a plan reads it; keys from `real` on are padding."""
    real = torch.arange(area.keys)[None] < (area.keys if area.real is None else area.real)
    whole = ScoreBlock.whole(area.queries, area.keys, num_heads=config.score_heads, key_mask=real)
    rule = None if config.mask.key == "none" else make_mask(config.mask, config)

    def allowed(rows: slice) -> torch.Tensor | None:
        block = whole.part(rows)
        if rule is None:
            return None if area.real is None else block.key_mask
        return rule(block) if area.real is None else rule(block) & block.key_mask

    return MaskGeometry(area.queries, area.keys, 0, allowed)


def areas_met(area: Area, size: int, met: list[Stretch]) -> Counter[Area]:
    """How often a plan computes which areas, a block of queries and its keys each (equal ones counted together)."""
    counts: Counter[Area] = Counter()
    for rows, seen in zip(spans(area.queries, size), met, strict=True):
        keys = sum(stretch.stop - stretch.start for stretch in seen)
        counts[Area(rows.stop - rows.start, keys, rows.start - seen[-1].stop + 1, rows.stop - 1 - seen[0].start,
                   area.masked, area.real)] += 1
    return counts


def blocks_met(area: Area, size: int, met: list[Stretch]) -> Counter[Area]:
    """How often square blocks are computed, by how far they lie from the diagonal; those at the ends may be smaller."""
    counts: Counter[Area] = Counter()
    ends = Counter[int]()  # of a row of whole blocks: +1 on the diagonal where it begins, −1 after its last
    for at, (rows, seen) in enumerate(zip(spans(area.queries, size), met, strict=True)):
        for stretch in () if seen is NOTHING else seen:
            first, last = stretch.start // size, stretch.stop // size
            if rows.stop - rows.start == size:
                ends[at - last + 1] += 1
                ends[at - first + 1] -= 1
                first = last
            for start in range(first * size, stretch.stop, size):
                stop = min(start + size, stretch.stop)
                counts[Area(rows.stop - rows.start, stop - start, rows.start - stop + 1, rows.stop - 1 - start,
                           area.masked, area.real)] += 1
    count = 0
    for diagonal in range(min(ends, default=0), max(ends, default=0)):
        count += ends[diagonal]
        if count:
            away = diagonal * size
            counts[Area(size, size, away - size + 1, away + size - 1, area.masked, area.real)] += count
    return counts


def total_flops(config: LayerConfig, areas: Counter[Area], masks: int = 1) -> float:
    return sum(count * flops(config, area, masks) for area, count in areas.items())


def blocks_seen(config: LayerConfig, area: Area) -> list[Stretch]:
    """The blocks of keys that a mask lets each block of queries see."""
    real = area.keys if area.real is None else area.real
    return visible_blocks(config.mask, mask_geometry(config, area), int(config.kernel["block"]), real)


def gathered_cost(config: LayerConfig, area: Area, met: list[Stretch], fused: bool, masks: int) -> Cost:
    """Blocks of queries and the keys that they meet: each is exact or fused on an area of its own."""
    size, made = int(config.kernel["block"]), before(config, area)
    areas, blocks = areas_met(area, size, met), -(-area.queries // size)
    copied = FLOAT * (config.score_heads * config.qk_dim + config.num_heads * config.v_dim)
    apart = max((sum(s.stop - s.start for s in seen) for seen in met if len(seen) > 1), default=0)
    block = max(fused_block(config, each) if fused else exact_block(config, each) for each in areas)
    out = outputs(config, area.queries)
    held = max(2 * out, out * (blocks - 1) / blocks + outputs(config, min(size, area.queries)) * fused
               + block + copied * apart)
    return Cost(made.flops + total_flops(config, areas, masks), max(made.bytes, made.output + held), out)


@lru_cache(maxsize=256)
def chunked_cost(config: LayerConfig, area: Area) -> Cost:
    """The output, each row's logarithm, and one block; blocks that the mask hides are passed by."""
    size, made, out = int(config.kernel["block"]), before(config, area), outputs(config, area.queries)
    areas = blocks_met(area, size, blocks_seen(config, area))
    rows, block = min(size, area.queries), max((chunked_block(config, each) for each in areas), default=0.0)
    logarithms = FLOAT * config.num_heads * (area.queries + 4 * rows)
    held = out + logarithms + outputs(config, rows) + max(block, outputs(config, rows))
    return Cost(made.flops + total_flops(config, areas), max(made.bytes, made.output + held), out)


def chunked_block(config: LayerConfig, area: Area) -> float:
    """Scores, then scores without what is masked, then their exponentials: two of them at a time."""
    scores, mask, position = matrix(config, area), mask_cost(config, area), Cost()
    if enters(config) == "scores":
        position = axis_cost("position", config, area)
    score = axis_cost("score", config, area)
    own_scale = scores if config.score.key == "cosine" else 0.0
    steps = [mask.bytes, mask.output + score.bytes + scores, mask.output + own_scale + scores + position.bytes,
             mask.output + scores + (scores + position.output if position.output else 0.0)]
    return max(*steps, 2 * scores + 2 * mask.output)
