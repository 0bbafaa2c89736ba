"""The cost of the exact and the fused kernel in closed form, and the parts that all kernels' costs share.

T queries, S keys, H heads of sizes D (query, key) and E (value), fp32, batch 1. FLOPs are those of matrix products,
a multiply and an add counted as two, as torch.utils.flop_counter counts them. Bytes are the peak of a forward pass
without gradients on a CPU, beyond q, k, v and x themselves: the largest of the bytes held at each step.
"""

from __future__ import annotations

from core.attention.normalizers import NORMALIZERS
from core.attention.scores import SCORES
from core.entries import Area, Cost, LayerConfig, find
from core.masks import MASKS
from core.positions import POSITIONS, enters

FLOAT, INDEX = 4, 8  # bytes of a number, and of a position i or j
RULE = 4  # bytes a cell while a mask's rule is computed: its comparisons and their conjunction
ENTRIES = {"score": SCORES, "position": POSITIONS, "mask": MASKS, "normalizer": NORMALIZERS}
UNRULED = ("none", "padding")  # masks without a rule over cells


def axis_cost(axis: str, config: LayerConfig, area: Area) -> Cost:
    """The cost of the score, mask, normalizer or position on an area; of a position only what it does to scores."""
    entry = find(ENTRIES[axis], axis, getattr(config, axis).key)
    return Cost() if axis == "position" and entry.enters != "scores" else entry.cost(config, area)


def score_bytes(config: LayerConfig, area: Area) -> float:
    """Bytes of one matrix of scores: a number for each cell and score head."""
    return FLOAT * config.score_heads * area.cells


def output_bytes(config: LayerConfig, queries: int) -> float:
    return FLOAT * config.num_heads * queries * config.v_dim


def kernel_cost(config: LayerConfig, area: Area, flops: float, held: float) -> Cost:
    """The cost of a kernel with these FLOPs and this peak, after the heads are prepared."""
    heads = heads_cost(config, area)
    return Cost(
        heads.flops + flops,
        max(heads.bytes, heads.output + held),
        output_bytes(config, area.queries),
    )


def heads_cost(config: LayerConfig, area: Area) -> Cost:
    """What a layer makes before the kernel: positions, rotated or normed q and k, repeated k and v, tables."""
    held = temporary = float(INDEX * (area.queries + area.keys))  # i and j
    q_bytes = FLOAT * config.score_heads * config.qk_dim * area.queries
    k_bytes = FLOAT * config.kv_heads * config.qk_dim * area.keys
    new_k = "q, k" in enters(config.position) or config.score.key == "qk_norm"
    if new_k:
        held += q_bytes + k_bytes
        temporary = k_bytes
    if config.kv_heads not in (
        1,
        config.score_heads,
    ):  # a single one serves all heads without a copy
        held += (
            FLOAT
            * area.keys
            * (config.score_heads * config.qk_dim + config.num_heads * config.v_dim)
        )
        held -= k_bytes * new_k  # freed once it is repeated
    tables = find(POSITIONS, "position", config.position.key).tables(config, area)
    return Cost(tables.flops, held + max(tables.bytes, temporary), held + tables.output)


def flops(config: LayerConfig, area: Area, mask_reads: int = 1) -> float:
    """FLOPs of scores and weighted sum on one area; its mask is computed `mask_reads` times, and once for a factor."""
    products = (
        2.0 * area.cells * config.score_heads * config.qk_dim
        if config.has("score", "product")
        else 0.0
    )
    choices = sum(
        axis_cost(axis, config, area).flops for axis in ("score", "position", "normalizer")
    )
    weighted_sum = 2.0 * area.cells * config.num_heads * config.v_dim
    masks = mask_reads * axis_cost("mask", config, area).flops + factor_flops(config, area)
    return products + choices + masks + weighted_sum


def factor_flops(config: LayerConfig, area: Area) -> float:
    """FLOPs of the factor by which a learned mask multiplies the weights: those of the mask once more."""
    traits = {"reweighs", "learned"}
    learned = [
        leaf for leaf in config.mask.leaves() if traits <= find(MASKS, "mask", leaf.key).traits
    ]
    return sum(axis_cost("mask", config.with_(mask=leaf), area).flops for leaf in learned)


def mask_cost(config: LayerConfig, area: Area) -> Cost:
    """The mask of an area, joined with the padding."""
    if not area.masked or config.mask.key in UNRULED:
        return Cost()
    rule = axis_cost("mask", config, area)
    output = max(rule.output, area.cells)
    joined = output + area.cells if area.real is not None else 0.0
    return Cost(rule.flops, max(rule.bytes, RULE * area.cells, joined), output)


def scoring_steps(config: LayerConfig, area: Area) -> list[float]:
    """Bytes held while mask, q kᵀ, scale and bias are computed."""
    scores, mask = score_bytes(config, area), mask_cost(config, area)
    score, position = axis_cost("score", config, area), axis_cost("position", config, area)
    unscaled = (
        scores if config.score.key == "cosine" else 0.0
    )  # one scale a head makes a new matrix; a number does not
    steps = [
        mask.bytes,
        mask.output + score.bytes + scores,
        mask.output + 2 * unscaled,
        mask.output + unscaled + scores + position.bytes,
    ]
    if position.output:
        steps.append(mask.output + unscaled + 2 * scores + position.output)
    return steps


def exact_bytes(config: LayerConfig, area: Area) -> float:
    """The peak of exact on one area."""
    scores, steps = score_bytes(config, area), scoring_steps(config, area)
    position, out = axis_cost("position", config, area), output_bytes(config, area.queries)
    held = mask_cost(config, area).output + position.output + scores
    steps.append(held + axis_cost("normalizer", config, area).bytes)
    held += scores  # the weights
    if config.has("mask", "reweighs") and (factor := weight_factor_bytes(config, area)):
        steps += [held + 3 * factor, held + factor + scores]
        held += factor + scores
    if config.has("projection", "folds"):
        steps.append(held + scores)
        held += scores / 2
    values = (
        FLOAT * config.num_heads * area.keys * config.v_dim if area.masked else 0.0
    )  # a copy without NaN
    steps += [held + values, held + values + out * (2 if area.masked else 1)]
    if any(leaf.kwargs.get("values") for leaf in config.position.leaves()):
        steps.append(held + out + position.bytes - position.output)
    return max(steps)


def chunked_bytes(config: LayerConfig, area: Area) -> float:
    """The peak of the chunked kernel on one block, whose last step holds the masked scores and their exponentials."""
    return max(
        *scoring_steps(config, area),
        2 * score_bytes(config, area) + 2 * mask_cost(config, area).output,
    )


def weight_factor_bytes(config: LayerConfig, area: Area) -> float:
    """Bytes of the factor by which a mask multiplies the weights."""
    leaves = config.mask.leaves()
    if any(leaf.key == "local_p" for leaf in leaves):
        return score_bytes(config, area)
    return (
        FLOAT * area.cells
        if any(leaf.key == "local_m" and leaf["gaussian"] for leaf in leaves)
        else 0.0
    )


def exact_cost(config: LayerConfig, area: Area) -> Cost:
    """All cells at once."""
    return kernel_cost(config, area, flops(config, area), exact_bytes(config, area))


def fused_bytes(config: LayerConfig, area: Area) -> float:
    """The peak of F.scaled_dot_product_attention on a CPU beside its output: mask, bias and tiles."""
    mask, position = mask_cost(config, area), axis_cost("position", config, area)
    held, steps = mask.output, [mask.bytes]
    if "scores" in enters(config.position):
        steps.append(held + position.bytes)
        held += 2 * position.output  # the bias, and the bias divided by the temperature
        if area.masked:
            steps.append(held + position.output + area.cells)
            held += position.output
    elif area.masked:
        cells = area.keys if config.mask.key in UNRULED else mask.output
        steps.append(held + (FLOAT + 1) * cells)
        held += FLOAT * cells  # PyTorch turns a bool mask into numbers
    if more := widened(config):  # values, and then the output
        held += FLOAT * config.num_heads * (area.keys * config.qk_dim + area.queries * more)
    held += tile_bytes(area, config.qk_dim) + FLOAT * config.num_heads * area.queries
    return max(*steps, held + axis_cost("score", config, area).bytes)


def widened(config: LayerConfig) -> int:
    """By how many dimensions `fused` pads values, to the size of keys."""
    return max(0, config.qk_dim - config.v_dim)


def tile_bytes(area: Area, dim: int) -> float:
    """PyTorch's buffer: scores of 32 to 256 queries and up to 512 keys, and their sums (2.13). Each thread has one."""
    rows = min(area.queries, 256 if area.queries >= 768 else 64 if area.queries >= 192 else 32)
    return FLOAT * rows * (min(area.keys, 512) + 2 + dim)


def fused_cost(config: LayerConfig, area: Area) -> Cost:
    """Every cell counts, as in PyTorch's counter, though its causal tiles skip nearly half of them."""
    built_in_causal = (
        config.mask.key == "causal"
        and area.real is None
        and area.queries == area.keys
        and "scores" not in enters(config.position)
    )
    held = fused_bytes(config, Area.whole(area.queries, area.keys) if built_in_causal else area)
    padding = 2.0 * area.cells * config.num_heads * widened(config)
    return kernel_cost(
        config, area, flops(config, area) + padding, held + output_bytes(config, area.queries)
    )
