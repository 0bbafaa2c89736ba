"""The cost of the exact and the fused kernel in closed form, and the parts that all kernels' costs share.

T queries, S keys, H heads of sizes D (query, key) and E (value), fp32, batch 1. FLOPs are those of matrix products,
a multiply and an add counted as two, as torch.utils.flop_counter counts them. Bytes are the peak of a forward pass
without gradients on a CPU, beyond q, k, v and x themselves: the largest of the bytes held at each step.
"""

from core.attention.kernels.exact import and_parts
from core.attention.masks import MASKS
from core.attention.normalizers import NORMALIZERS
from core.attention.positions import POSITIONS, enters
from core.attention.projections import PROJECTIONS
from core.attention.scores import SCORES
from core.entries import Area, Cost, LayerConfig, find

FLOAT, INDEX = 4, 8  # bytes of a number, and of a position i or j
ENTRIES = {
    "projection": PROJECTIONS,
    "score": SCORES,
    "position": POSITIONS,
    "mask": MASKS,
    "normalizer": NORMALIZERS,
}
UNRULED = ("none", "padding")  # masks without a rule over cells


def axis_cost(axis: str, config: LayerConfig, area: Area) -> Cost:
    """The cost of the score, mask, normalizer or position on an area; of a position only what it does to scores, of a
    projection only where it folds."""
    entry = find(ENTRIES[axis], axis, getattr(config, axis).key)
    return Cost() if axis == "position" and entry.enters != "scores" else entry.cost(config, area)


def score_bytes(config: LayerConfig, area: Area) -> float:
    """Bytes of one matrix of scores: a number for each cell and score head."""
    return FLOAT * config.score_heads * area.cells


def output_bytes(config: LayerConfig, queries: int) -> float:
    return FLOAT * config.num_heads * queries * config.v_dim


def kernel_cost(config: LayerConfig, area: Area, flops: float, peak: float) -> Cost:
    """The cost of a kernel with these FLOPs and this peak, after what the layer makes before it.

    That are positions, rotated or normed q and k, repeated k and v, and tables.
    """
    held = temporary = float(INDEX * (area.queries + area.keys))  # i and j
    q_bytes = FLOAT * config.score_heads * config.scored_dim * area.queries
    k_bytes = FLOAT * config.kv_heads * config.scored_dim * area.keys
    new_k = "q, k" in enters(config.position) or config.score.key in ("qk_norm", "clipped")
    if new_k:
        held += q_bytes + k_bytes
        temporary = k_bytes * (
            1.5 if config.has("position", "doubles") else 1
        )  # lengths, cosines and sines
    if config.kv_heads not in (
        1,
        config.score_heads,
    ):  # a single one serves all heads without a copy
        values = config.num_heads * config.v_dim * (config.kv_heads != config.num_heads)
        held += FLOAT * area.keys * (config.score_heads * config.scored_dim + values)
        held -= k_bytes * new_k  # freed once it is repeated
    tables = find(POSITIONS, "position", config.position.key).tables(config, area)
    return Cost(
        tables.flops + flops,
        held + max(tables.bytes, temporary, tables.output + peak),
        output_bytes(config, area.queries),
    )


def flops(config: LayerConfig, area: Area, mask_reads: int = 1) -> float:
    """FLOPs of scores and weighted sum on one area; its mask is computed `mask_reads` times, and once for a factor."""
    scored = config.score_heads * config.scored_dim * config.has("score", "product")
    total = 2.0 * area.cells * (scored + config.num_heads * config.v_dim)
    for axis in ("projection", "score", "position", "normalizer"):
        total += axis_cost(axis, config, area).flops
    for leaf in config.mask.leaves():  # a learned mask's factor costs as much as the mask
        if {"reweighs", "learned"} <= find(MASKS, "mask", leaf.key).traits:
            total += axis_cost("mask", config.with_(mask=leaf), area).flops
    return total + mask_reads * axis_cost("mask", config, area).flops


def mask_cost(config: LayerConfig, area: Area) -> Cost:
    """The mask of an area, joined with the padding."""
    if not area.masked or config.mask.key in UNRULED:
        return Cost()
    rule = axis_cost("mask", config, area)
    return Cost(rule.flops, rule.bytes, max(rule.output, area.cells))


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
    leaves = config.mask.leaves()  # whose factor multiplies the weights: one a head, or one for all
    gaussian = any(leaf.key == "local_m" and leaf["gaussian"] for leaf in leaves)
    by_head = any(leaf.key == "local_p" for leaf in leaves)
    if factor := scores if by_head else FLOAT * area.cells * gaussian:
        steps.append(held + 3 * factor)
        held += factor + scores
    if config.has("projection", "folds"):
        steps.append(held + scores + axis_cost("projection", config, area).bytes)
        held += scores / 2
    values = (
        FLOAT * config.num_heads * area.keys * config.v_dim if area.masked else 0.0
    )  # a copy without NaN
    steps.append(held + values + out * (2 if area.masked else 1))
    if any(leaf.kwargs.get("values") for leaf in config.position.leaves()):
        steps.append(held + out + position.bytes - position.output)
    return max(steps)


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
        held += FLOAT * config.num_heads * (area.keys * config.scored_dim + area.queries * more)
    # PyTorch's buffer: scores of 32 to 256 queries and up to 512 keys, and their sums (2.13). Each thread has one.
    tile = 256 if area.queries >= 768 else 64 if area.queries >= 192 else 32
    held += FLOAT * min(area.queries, tile) * (min(area.keys, 512) + 2 + config.scored_dim)
    held += FLOAT * config.num_heads * area.queries
    return max(*steps, held + axis_cost("score", config, area).bytes)


def widened(config: LayerConfig) -> int:
    """By how many dimensions `fused` pads values, to the size of keys."""
    return max(0, config.scored_dim - config.v_dim)


def fused_cost(config: LayerConfig, area: Area) -> Cost:
    """Every cell counts, as in PyTorch's counter, though its causal tiles skip nearly half of them."""
    built_in_causal = (
        config.mask.key == "causal"
        and area.real is None
        and area.queries == area.keys
        and "scores" not in enters(config.position)
    )
    held = fused_bytes(config, Area.whole(area.queries, area.keys) if built_in_causal else area)
    return kernel_cost(
        config,
        area,
        flops(config, area) + 2.0 * area.cells * config.num_heads * widened(config),
        held + output_bytes(config, area.queries),
    )


# The cost of the kernels without a score matrix, in closed form.


def summed(
    config: LayerConfig, area: Area, flops: float, numbers: float, prepared: bool = True
) -> Cost:
    """A kernel with these FLOPs a head that holds so many numbers a head at once.

    With `prepared` it holds the score's prepared q and k too.
    """
    score = axis_cost("score", config, area)
    return kernel_cost(
        config,
        area,
        score.flops + config.score_heads * flops,
        score.output * prepared + FLOAT * config.score_heads * numbers,
    )


def power_of_two(size: int) -> int:
    """The least power of two that is not smaller."""
    return 1 << (size - 1).bit_length()


def chunks_of(config: LayerConfig, area: Area, halved: bool = False) -> tuple[int, int, int]:
    """The length of a chunk, how many there are, and how many places they fill; `halved` for a power of two."""
    chunk = int(config.kernel["chunk"])
    chunk = power_of_two(chunk) if halved else chunk
    count = -(-max(area.queries, area.keys) // chunk)
    return chunk, count, chunk * count


def padding(area: Area, length: int, of_query: int, of_key: int) -> int:
    """Numbers of the copies that fill whole chunks, of so many numbers a token; nothing to fill takes no copy."""
    return length * (of_query * (area.queries < length) + of_key * (area.keys < length))


def features_cost(config: LayerConfig, area: Area) -> Cost:
    """Two products with a state of R × E and the sums of weights; drawn features take a product of their own."""
    queries, keys, dim, value = area.queries, area.keys, config.qk_dim, config.v_dim
    drawn = config.kernel.key == "performer"
    features = int(config.kernel["features"]) if drawn else dim
    flops = 2.0 * dim * features * (queries + keys) if drawn else 0.0
    # a scale other than 1 goes into copies of q and k, and what a score has made of them is let go
    copied = config.score.key not in ("dot", "general") or config.normalizer["temperature"] != 1.0
    inputs, features_q, features_k = (
        (queries + keys) * dim * copied,
        queries * features,
        keys * features,
    )
    making = made = features_q + features_k
    if drawn:  # a feature takes four steps that stand beside one another, and two more for keys that are not real
        making = max(4 * features_q, features_q + (4 if area.real is None else 6) * features_k)
    elif area.real is not None:
        making = max(making, made + features_k)
    if not any(part.key == "causal" for part in and_parts(config.mask)):
        flops += 2.0 * features * (queries + value * (queries + keys))
        return summed(
            config, area, flops, inputs + max(making, made + queries * (value + 1)), not copied
        )
    (chunk, count, length), wide = chunks_of(config, area), value + 1
    flops += 2.0 * length * (chunk * (features + wide) + 2 * features * wide)
    within = 2 * max(length * chunk, length * wide + (count + 1) * features * wide)
    padded = made + length * wide + padding(area, length, features, features)
    return summed(config, area, flops, inputs + max(making, padded + within), not copied)


def retention_cost(config: LayerConfig, area: Area) -> Cost:
    """Within chunks the weights, between them a state of D × E."""
    dim, value, (chunk, count, length) = config.qk_dim, config.v_dim, chunks_of(config, area)
    flops = length * (2.0 * chunk * (dim + value) + 4.0 * dim * value)
    states = count * dim * value
    within = max(
        2 * length * chunk + 2 * chunk**2,
        length * value + 3 * states,
        length * (dim + 2 * value) + states,
    )
    return summed(
        config, area, flops, area.keys * dim + padding(area, length, dim, dim + value) + within
    )


def delta_cost(config: LayerConfig, area: Area) -> Cost:
    """The gates; within chunks two products of all pairs and a triangular system; between them a state of D × E."""
    dim, value, (chunk, _, length) = config.qk_dim, config.v_dim, chunks_of(config, area)
    gates = 1 if config.kernel.key == "delta" else 2
    flops = 2.0 * gates * area.keys * config.d_model + length * corrected_flops(chunk, dim, value)
    a_token = 3 * dim + 3 * chunk + max(3 * chunk, 2 * (chunk + value))  # solving, or going through
    if config.kernel.key == "comba":  # two keys, one of them scaled, and corrected queries
        a_token += 4 * dim
    numbers = (
        (area.queries + area.keys) * dim
        + padding(area, length, dim, dim + value)
        + length * a_token
    )
    return summed(config, area, flops, numbers, prepared=False)


def corrected_flops(chunk: int, dim: int, value: int, steps: int = 1) -> float:
    """Of a token of so many steps in a delta rule of so many tokens a chunk: two products of pairs, a triangular system,
    two sums, three products with a state.

    PyTorch does not count the system: half of its matrix meets each column of the identity.
    """
    pairs = chunk * steps * (2.0 * (1 + steps) * (dim + value) + steps**2 * chunk)
    return pairs + 2.0 * (1 + 2 * steps) * dim * value


def linformer_cost(config: LayerConfig, area: Area) -> Cost:
    """Keys and values mixed into r, then a softmax over those."""
    dim, value, rank = config.qk_dim, config.v_dim, int(config.kernel["rank"])
    flops = 2.0 * rank * (dim + value) * (area.keys + area.queries)
    met = area.queries * rank
    # A product of one table with all heads copies k, then v; tables that are masked for each text are held themselves.
    own = 2 * area.keys * rank / config.score_heads if area.real is not None else 0
    copy_k, copy_v = (
        area.keys * size * (config.score_heads > 1 and not own) for size in (dim, value)
    )
    numbers = own + max(
        copy_k + 2 * rank * dim,
        rank * dim + 2 * met,
        met + copy_v + 2 * rank * value,
        met + rank * value + area.queries * value,
    )
    return summed(config, area, flops, numbers)


def nystrom_cost(config: LayerConfig, area: Area) -> Cost:
    """Three softmaxes through m landmarks, and four products of m × m in each round towards the inverse."""
    queries, keys, dim, value = area.queries, area.keys, config.qk_dim, config.v_dim
    few = int(config.kernel["landmarks"])
    few_q, few_k = min(few, queries), min(few, keys)
    if keys <= few:
        return summed(
            config,
            area,
            2.0 * area.cells * (dim + value),
            queries * dim + (2 if area.real is None else 3) * area.cells,
        )
    means = 2.0 * dim * (queries * few_q + keys * few_k)
    met = 2.0 * dim * (queries * few_k + few_q * few_k + few_q * keys)
    mixing = 2.0 * value * (few_q * keys + few_k * few_q + queries * few_k)
    mixing += 0.0 if area.real is None else 2.0 * value * few_k * keys  # as for texts of few keys
    inverting = int(config.kernel["rounds"]) * 4.0 * few_q * few_q * (few_q + few_k)
    left, right, square, held = (
        queries * few_k,
        few_q * keys,
        few_q * (few_q + few_k),
        2 if area.real is None else 3,
    )
    softmaxes = max(
        held * left, left + held * right, left + right + 3 * square, left + right + queries * value
    )
    averages = (few_q * queries + few_k * keys) / config.score_heads  # one for all heads
    making = averages + 2 * few_k * keys / config.score_heads
    return summed(
        config,
        area,
        means + met + mixing + inverting,
        max(making, averages + (few_q + 2 * few_k) * dim + softmaxes),
    )


# The cost of the kernels with a state and learned gates, in closed form.


SEGMENT = 512  # tokens of which a kernel holds decayed queries and keys; those of a long text do not fit into a cache


def ssd_cost(config: LayerConfig, area: Area) -> Cost:
    """The gate; within chunks the weights, between them a state of D × E."""
    dim, value, (chunk, count, length) = config.qk_dim, config.v_dim, chunks_of(config, area)
    flops = 2.0 * area.keys * config.d_model + length * (
        2.0 * chunk * (dim + value) + 4.0 * dim * value
    )
    states = count * dim * value
    within = max(
        3 * length * chunk,
        length * value + 3 * states,
        length * (2 * value + max(dim, value)) + states,
    )
    numbers = (
        (area.queries + area.copied_keys + length) * dim
        + padding(area, length, dim, value)
        + within
    )
    return summed(config, area, flops, numbers, prepared=False)


def gla_cost(config: LayerConfig, area: Area) -> Cost:
    """The gates of all channels; within chunks the weights, between them a state of D × E.

    That of chunks which fade by no more than delta.STRONGEST; others take more products, of ever larger halves.
    """
    dim, value, rank = config.qk_dim, config.v_dim, int(config.kernel["rank"])
    chunk, count, length = chunks_of(config, area, halved=True)
    flops = 2.0 * area.keys * rank * (config.d_model / config.score_heads + dim)
    flops += length * (2.0 * chunk * (dim + value) + 4.0 * dim * value)
    states = count * dim * value
    after = 2 * length * dim + max(3 * states, states + 3 * length * value)
    inputs = (area.queries + area.keys + area.copied_keys) * dim + padding(
        area, length, dim, dim + value
    )
    making = 4 * length * dim + padding(area, length, 0, dim)
    return summed(config, area, flops, inputs + length * chunk + max(making, after), prepared=False)


def at_once(area: Area, chunk: int, length: int, outs: int, padded: int) -> tuple[int, int, int]:
    """How many tokens a kernel in segments computes at once, and of `outs` and `padded` what it then holds beside them."""
    segment = max(chunk, SEGMENT // chunk * chunk)
    return (segment, outs, 0) if area.queries == area.keys > segment else (length, 0, padded)


def kda_cost(config: LayerConfig, area: Area) -> Cost:
    """The gates of all channels, then the work of the delta rule, a segment at a time; as in gla_cost for chunks that
    fade little."""
    dim, value = config.qk_dim, config.v_dim
    chunk, _, length = chunks_of(config, area, halved=True)
    flops = 2.0 * area.keys * (config.d_model + dim * (config.d_model / config.score_heads + dim))
    flops += length * corrected_flops(chunk, dim, value)
    held, outs, padded = at_once(
        area, chunk, length, length * value, padding(area, length, dim, 2 * dim + value)
    )
    work = padded + held * (
        2 * chunk + max(5 * dim, 3 * dim + 3 * chunk, 3 * dim + 2 * chunk + 2 * value)
    )
    numbers = (area.queries + 2 * area.keys) * dim + outs + max(work, outs)
    return summed(config, area, flops, numbers, prepared=False)


def log_linear_cost(config: LayerConfig, area: Area) -> Cost:
    """The gates; within chunks the weights; between them, at every level, a state of D × E for half of the tokens."""
    dim, value, levels = config.qk_dim, config.v_dim, int(config.kernel["levels"])
    chunk, count, length = chunks_of(config, area, halved=True)
    filled, states = power_of_two(count) * chunk, power_of_two(count) * dim * value
    doublings = power_of_two(count).bit_length() - 1
    flops = 2.0 * config.d_model * (area.keys + levels * area.queries)
    flops += 2.0 * length * (chunk * (dim + value) + dim * value) + doublings * filled * dim * value
    inputs = (area.queries + area.copied_keys + length) * dim + levels * (area.queries + length)
    inputs += padding(area, length, dim, value)
    index = 2 * chunk**2 / config.score_heads  # the level of each pair, one table for all heads
    between = 2 * filled * (dim + value) + 2 * states
    return summed(
        config, area, flops, inputs + index + max(3 * length * chunk, between), prepared=False
    )


def delta_product_cost(config: LayerConfig, area: Area) -> Cost:
    """The gates and further keys; then the work of the delta rule with some keys a token."""
    dim, value, steps = config.qk_dim, config.v_dim, int(config.kernel["steps"])
    chunk, _, length = chunks_of(config, area)
    flops = 2.0 * area.keys * config.d_model * (1 + steps + (steps - 1) * dim)
    flops += length * corrected_flops(chunk, dim, value, steps)
    wide, pairs = steps * chunk, steps**2 * chunk
    a_token = dim + steps * (3 * dim + value) + 2 * pairs + wide
    a_token += max(2 * pairs, pairs + 2 * value)
    held, outs, padded = at_once(
        area, chunk, length, length * value, padding(area, length, dim, steps * dim + value)
    )
    inputs = (area.queries + steps * area.keys) * dim
    numbers = inputs + outs + max(padded + held * a_token, outs)
    return summed(config, area, flops, numbers, prepared=False)


def gdn2_cost(config: LayerConfig, area: Area) -> Cost:
    """The gates, one of each channel of keys and of values for what is erased and written; then as kda_cost."""
    dim, value, own = config.qk_dim, config.v_dim, config.d_model / config.score_heads
    chunk, _, length = chunks_of(config, area, halved=True)
    flops = 2.0 * area.keys * (config.d_model * (dim + value) + dim * (own + dim))
    flops += length * corrected_flops(chunk, dim, value)
    held, outs, padded = at_once(
        area, chunk, length, length * value, padding(area, length, dim, 3 * dim + value)
    )
    work = padded + held * (
        2 * chunk + dim + max(5 * dim, 3 * dim + 2 * chunk, 3 * dim + chunk + 2 * value)
    )
    numbers = (area.queries + 3 * area.keys + 2 * area.copied_keys) * dim + area.keys * value
    numbers += outs + max(work, outs)
    return summed(config, area, flops, numbers, prepared=False)


def turned_pairs(config: LayerConfig) -> int:
    """The pairs of channels that turn, one at least."""
    return max(1, int(config.qk_dim * float(config.kernel["share"])) // 2)


def trapezoid_cost(config: LayerConfig, area: Area) -> Cost:
    """The gates; within chunks the weights, between them a state of D × E."""
    dim, value, (chunk, count, length) = config.qk_dim, config.v_dim, chunks_of(config, area)
    flops = 2.0 * area.keys * config.d_model * (3 + turned_pairs(config) / config.score_heads)
    flops += length * (2.0 * chunk * (dim + value) + 4.0 * dim * value)
    states, pairs = count * dim * value, turned_pairs(config)
    within = max(3 * states, states + length * max(3 * chunk, 5 * value))
    numbers = (area.queries + area.keys) * dim + padding(area, length, dim, dim + value)
    numbers += length * (2 * dim + 2 * pairs) + within
    return summed(config, area, flops, numbers, prepared=False)


def rwkv7_cost(config: LayerConfig, area: Area) -> Cost:
    """Two gates of all channels; then the work of a delta rule, with products of queries and reads with two sets of keys."""
    dim, value, rank = config.qk_dim, config.v_dim, int(config.kernel["rank"])
    chunk, count, length = chunks_of(config, area, halved=True)
    flops = 4.0 * area.keys * rank * (config.d_model / config.score_heads + dim)
    flops += length * (corrected_flops(chunk, dim, value) + 4.0 * chunk * (dim + value))
    flops += 2.0 * length * dim * value
    a_token = 6 * dim + value + 4 * chunk + max(4 * dim, 3 * chunk, 3 * value)
    inputs = (area.queries + 6 * area.keys) * dim + padding(area, length, dim, 5 * dim + value)
    numbers = inputs + length * a_token + count * dim * value
    return summed(config, area, flops, numbers, prepared=False)


def hgrn2_cost(config: LayerConfig, area: Area) -> Cost:
    """As gla_cost, without gates of its own."""
    dim, value = config.qk_dim, config.v_dim
    chunk, count, length = chunks_of(config, area, halved=True)
    flops = length * (2.0 * chunk * (dim + value) + 4.0 * dim * value)
    states = count * dim * value
    after = 2 * length * dim + max(3 * states, states + 3 * length * value)
    inputs = area.queries * dim + area.copied_keys * dim + padding(area, length, dim, dim + value)
    held = length * (3 * dim + chunk)
    return summed(config, area, flops, inputs + held + max(4 * length * dim, after), prepared=False)
