"""The cost of the exact and the fused kernel in closed form, and the parts that all kernels' costs share.

T queries, S keys, H heads of sizes D (query, key) and E (value), fp32, batch 1. FLOPs are those of matrix products,
a multiply and an add counted as two, as torch.utils.flop_counter counts them. Bytes are the peak of a forward pass
without gradients on a CPU, beyond q, k, v and x themselves: the largest of the bytes held at each step.
"""

from collections.abc import Callable

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
        # lengths, cosines and sines
        temporary = k_bytes * (1.5 if config.has("position", "doubles") else 1)
    # a single one serves all heads without a copy
    if config.kv_heads not in (1, config.score_heads):
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
    # one scale a head makes a new matrix; a number does not
    unscaled = scores if config.score.key == "cosine" else 0.0
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
    # with a mask also a copy of the values without NaN, and a second output
    values = FLOAT * config.num_heads * area.keys * config.v_dim
    steps.append(held + out + (values + out) * area.masked)
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
    return kernel_cost(
        config,
        area,
        flops(config, area) + 2.0 * area.cells * config.num_heads * widened(config),
        fused_bytes(config, Area.whole(area.queries, area.keys) if built_in_causal else area)
        + output_bytes(config, area.queries),
    )


# The cost of the kernels without a score matrix, in closed form.


SEGMENT = 512  # tokens of which a kernel holds decayed queries and keys; those of a long text do not fit into a cache


def power_of_two(size: int) -> int:
    """The least power of two that is not smaller."""
    return 1 << (size - 1).bit_length()


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


class Chunks:
    """The sizes of a kernel in chunks: the length of one, how many there are, and how many places they fill.

    `halved` for chunks of a power of two. Between chunks there are states of D × E; the numbers of a token's x are
    shared among the heads.
    """

    def __init__(self, config: LayerConfig, area: Area, halved: bool = False) -> None:
        self.config, self.area, self.kernel = config, area, config.kernel
        self.queries, self.keys, self.copied_keys = area.queries, area.keys, area.copied_keys
        self.dim, self.value, self.heads = config.qk_dim, config.v_dim, config.score_heads
        self.d_model, self.own = config.d_model, config.d_model / config.score_heads
        chunk = int(config.kernel["chunk"])
        self.chunk = power_of_two(chunk) if halved else chunk
        self.count = -(-max(area.queries, area.keys) // self.chunk)
        self.length, self.states = self.chunk * self.count, self.count * self.dim * self.value

    def padding(self, of_query: int, of_key: int) -> int:
        """Numbers of the copies that fill whole chunks, of so many numbers a token; nothing to fill takes no copy."""
        short_q, short_k = self.queries < self.length, self.keys < self.length
        return self.length * (of_query * short_q + of_key * short_k)

    @property
    def summing(self) -> float:
        """FLOPs of a token: within chunks two products of pairs, between them two with a state."""
        return 2.0 * self.chunk * (self.dim + self.value) + 4.0 * self.dim * self.value

    def correcting(self, steps: int = 1) -> float:
        """FLOPs of a token of so many steps in a delta rule: two products of pairs, a triangular system, two sums, three
        products with a state.

        PyTorch does not count the system: half of its matrix meets each column of the identity.
        """
        pairs = 2.0 * (1 + steps) * (self.dim + self.value) + steps**2 * self.chunk
        return self.chunk * steps * pairs + 2.0 * (1 + 2 * steps) * self.dim * self.value

    def cost(self, gates: float, products: float, numbers: float, prepared: bool = False) -> Cost:
        """Of so many products for the gates of a key, so many FLOPs for each place, and numbers at once; as `summed`."""
        flops = 2.0 * self.keys * gates + self.length * products
        return summed(self.config, self.area, flops, numbers, prepared)

    def in_segments(self, inputs: int, a_token: int, padded: int) -> int:
        """The numbers held where SEGMENT tokens are computed at once, if there are more, and the outputs of each stay."""
        segment = max(self.chunk, SEGMENT // self.chunk * self.chunk)
        if not self.queries == self.keys > segment:
            return inputs + padded + self.length * a_token
        outs = self.length * self.value
        return inputs + outs + max(segment * a_token, outs)


def cost_in_chunks(
    formula: Callable[[Chunks], Cost], halved: bool = False
) -> Callable[[LayerConfig, Area], Cost]:
    """The `cost` of an entry from a formula of its chunks."""
    return lambda config, area: formula(Chunks(config, area, halved))


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
        making += features_k
    if not any(part.key == "causal" for part in and_parts(config.mask)):
        flops += 2.0 * features * (queries + value * (queries + keys))
        return summed(
            config, area, flops, inputs + max(making, made + queries * (value + 1)), not copied
        )
    sizes, wide = Chunks(config, area), value + 1
    flops += 2.0 * sizes.length * (sizes.chunk * (features + wide) + 2 * features * wide)
    outs = sizes.length * wide
    within = 2 * max(sizes.length * sizes.chunk, outs + (sizes.count + 1) * features * wide)
    padded = made + outs + sizes.padding(features, features)
    return summed(config, area, flops, inputs + max(making, padded + within), not copied)


def retention_cost(sizes: Chunks) -> Cost:
    """Within chunks the weights, between them a state of D × E."""
    within = max(
        2 * sizes.length * sizes.chunk + 2 * sizes.chunk**2,
        sizes.length * sizes.value + 3 * sizes.states,
        sizes.length * (sizes.dim + 2 * sizes.value) + sizes.states,
    )
    padded = sizes.padding(sizes.dim, sizes.dim + sizes.value)
    return sizes.cost(0, sizes.summing, sizes.keys * sizes.dim + padded + within, prepared=True)


def linformer_cost(config: LayerConfig, area: Area) -> Cost:
    """Keys and values mixed into r, then a softmax over those."""
    dim, value, rank = config.qk_dim, config.v_dim, int(config.kernel["rank"])
    met = area.queries * rank
    # A product of one table with all heads copies k, then v; tables that are masked for each text are held themselves.
    own = 2 * area.keys * rank / config.score_heads if area.real is not None else 0
    copies = area.keys * (config.score_heads > 1 and not own)
    numbers = own + max(
        copies * dim + 2 * rank * dim,
        rank * dim + 2 * met,
        met + copies * value + 2 * rank * value,
        met + rank * value + area.queries * value,
    )
    flops = 2.0 * rank * (dim + value) * (area.keys + area.queries)
    return summed(config, area, flops, numbers)


def nystrom_cost(config: LayerConfig, area: Area) -> Cost:
    """Three softmaxes through m landmarks, and four products of m × m in each round towards the inverse."""
    queries, keys, dim, value = area.queries, area.keys, config.qk_dim, config.v_dim
    landmarks, copies = int(config.kernel["landmarks"]), 2 if area.real is None else 3
    if keys <= landmarks:
        flops = 2.0 * area.cells * (dim + value)
        return summed(config, area, flops, queries * dim + copies * area.cells)
    means_q, means_k = min(landmarks, queries), landmarks
    left, right, square = queries * means_k, means_q * keys, means_q * (means_q + means_k)
    flops = 2.0 * dim * (queries * means_q + keys * means_k)  # means
    flops += 2.0 * dim * (left + means_q * means_k + right)
    flops += 2.0 * value * (right + means_k * means_q + left)
    flops += 0.0 if area.real is None else 2.0 * value * means_k * keys  # as for texts of few keys
    flops += int(config.kernel["rounds"]) * 4.0 * means_q * square  # the inverse
    averages = (means_q * queries + means_k * keys) / config.score_heads  # one for all heads
    softmaxes = max(
        copies * left,
        left + copies * right,
        left + right + 3 * square,
        left + right + queries * value,
    )
    numbers = averages + max(
        2 * means_k * keys / config.score_heads,  # while averages are made
        (means_q + 2 * means_k) * dim + softmaxes,
    )
    return summed(config, area, flops, numbers)


# The cost of the kernels with a state and learned gates, in closed form.


def delta_cost(sizes: Chunks) -> Cost:
    """The gates; within chunks two products of all pairs and a triangular system; between them a state of D × E."""
    a_token = 3 * (sizes.dim + sizes.chunk)  # then solving, or going through
    a_token += max(3 * sizes.chunk, 2 * (sizes.chunk + sizes.value))
    if sizes.kernel.key == "comba":  # two keys, one of them scaled, and corrected queries
        a_token += 4 * sizes.dim
    numbers = (sizes.queries + sizes.keys) * sizes.dim + sizes.length * a_token
    numbers += sizes.padding(sizes.dim, sizes.dim + sizes.value)
    gates = 1 if sizes.kernel.key == "delta" else 2
    return sizes.cost(sizes.d_model * gates, sizes.correcting(), numbers)


def ssd_cost(sizes: Chunks) -> Cost:
    """The gate; within chunks the weights, between them a state of D × E."""
    numbers = (sizes.queries + sizes.copied_keys + sizes.length) * sizes.dim
    numbers += sizes.padding(sizes.dim, sizes.value)
    numbers += max(
        3 * sizes.length * sizes.chunk,
        sizes.length * sizes.value + 3 * sizes.states,
        sizes.length * (2 * sizes.value + max(sizes.dim, sizes.value)) + sizes.states,
    )
    return sizes.cost(sizes.d_model, sizes.summing, numbers)


def gla_cost(sizes: Chunks) -> Cost:
    """The gates of all channels, which HGRN2 does without; within chunks the weights, between them a state of D × E.

    That of chunks which fade by no more than delta.STRONGEST; others take more products, of ever larger halves.
    """
    gated, of_channels = sizes.kernel.key != "hgrn2", sizes.length * sizes.dim
    numbers = (sizes.queries + sizes.copied_keys) * sizes.dim + sizes.length * sizes.chunk
    numbers += sizes.padding(sizes.dim, sizes.dim + sizes.value)
    numbers += sizes.keys * sizes.dim if gated else 3 * of_channels
    numbers += max(
        4 * of_channels + sizes.padding(0, sizes.dim) * gated,
        2 * of_channels + 3 * sizes.states,
        2 * of_channels + sizes.states + 3 * sizes.length * sizes.value,
    )
    if sizes.kernel.key == "rwkv6":  # a second gate, and keys, decays and values one place later
        numbers += sizes.keys * sizes.dim + sizes.length * (3 * sizes.dim + sizes.value)
    gates = int(sizes.kernel["rank"]) * (sizes.own + sizes.dim) if gated else 0
    return sizes.cost(gates, sizes.summing, numbers)


def kda_cost(sizes: Chunks) -> Cost:
    """The gates of all channels, in gdn2 also of what is erased and written; then the work of the delta rule, a segment
    at a time. As in gla_cost for chunks that fade little."""
    two, dim, value, chunk = sizes.kernel.key == "gdn2", sizes.dim, sizes.value, sizes.chunk
    going = 3 * dim + (2 - two) * chunk + max(chunk, 2 * value)
    inputs = (sizes.queries + (2 + two) * sizes.keys + 2 * two * sizes.copied_keys) * dim
    numbers = sizes.in_segments(
        inputs + two * sizes.keys * value,
        2 * chunk + two * dim + max(5 * dim, going),
        sizes.padding(dim, (2 + two) * dim + value),
    )
    gates = sizes.d_model * (dim + value if two else 1) + dim * (sizes.own + dim)
    return sizes.cost(gates, sizes.correcting(), numbers)


def log_linear_cost(sizes: Chunks) -> Cost:
    """The gates; within chunks the weights; between them, at every level, a state of D × E for half of the tokens."""
    levels, count = int(sizes.kernel["levels"]), power_of_two(sizes.count)
    of_token, state = sizes.chunk * (sizes.dim + sizes.value), sizes.dim * sizes.value
    flops = 2.0 * sizes.d_model * (sizes.keys + levels * sizes.queries)  # the gates
    flops += 2.0 * sizes.length * (of_token + state)
    flops += (count.bit_length() - 1) * count * sizes.chunk * state  # of ever larger halves
    numbers: float = (sizes.queries + sizes.copied_keys + sizes.length) * sizes.dim
    numbers += levels * (sizes.queries + sizes.length) + sizes.padding(sizes.dim, sizes.value)
    numbers += max(3 * sizes.length * sizes.chunk, 2 * count * (of_token + state))
    numbers += 2 * sizes.chunk**2 / sizes.heads  # the level of each pair, one table for all heads
    return summed(sizes.config, sizes.area, flops, numbers, prepared=False)


def delta_product_cost(sizes: Chunks) -> Cost:
    """The gates and further keys; then the work of the delta rule with some keys a token."""
    steps, dim = int(sizes.kernel["steps"]), sizes.dim
    pairs = steps**2 * sizes.chunk
    a_token = dim + steps * (3 * dim + sizes.value + sizes.chunk)
    numbers = sizes.in_segments(
        (sizes.queries + steps * sizes.keys) * dim,
        a_token + 2 * pairs + max(2 * pairs, pairs + 2 * sizes.value),
        sizes.padding(dim, steps * dim + sizes.value),
    )
    return sizes.cost(
        sizes.d_model * (1 + steps + (steps - 1) * dim), sizes.correcting(steps), numbers
    )


def turned_pairs(config: LayerConfig) -> int:
    """The pairs of channels that turn, one at least."""
    return max(1, int(config.qk_dim * float(config.kernel["share"])) // 2)


def trapezoid_cost(sizes: Chunks) -> Cost:
    """The gates; within chunks the weights, between them a state of D × E."""
    pairs = turned_pairs(sizes.config)
    within = sizes.states + sizes.length * max(3 * sizes.chunk, 5 * sizes.value)
    numbers = (sizes.queries + sizes.keys + 2 * sizes.length) * sizes.dim
    numbers += sizes.padding(sizes.dim, sizes.dim + sizes.value)
    numbers += 2 * sizes.length * pairs + max(3 * sizes.states, within)
    return sizes.cost(3 * sizes.d_model + sizes.own * pairs, sizes.summing, numbers)


def rwkv7_cost(sizes: Chunks) -> Cost:
    """Two gates of all channels; then the work of a delta rule, with products of queries and reads with two sets of keys."""
    dim, value, chunk = sizes.dim, sizes.value, sizes.chunk
    products = sizes.correcting() + 4.0 * chunk * (dim + value) + 2.0 * dim * value
    a_token = 6 * dim + value + 4 * chunk + max(4 * dim, 3 * chunk, 3 * value)
    numbers = (sizes.queries + 6 * sizes.keys) * dim + sizes.padding(dim, 5 * dim + value)
    gates = 2 * int(sizes.kernel["rank"]) * (sizes.own + dim)
    return sizes.cost(gates, products, numbers + sizes.length * a_token + sizes.states)
