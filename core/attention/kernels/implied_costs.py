"""The cost of the kernels without a score matrix, in closed form; costs.py says what is counted."""

from __future__ import annotations

from core.attention.kernels.costs import FLOAT, axis_cost, kernel_cost
from core.attention.kernels.refusals import and_parts
from core.entries import Area, Cost, LayerConfig


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


def features_cost(config: LayerConfig, area: Area, features: int, drawn: bool) -> Cost:
    """Two products with a state of R × E and the sums of weights; drawn features take a product of their own."""
    queries, keys, dim, value = area.queries, area.keys, config.qk_dim, config.v_dim
    flops = 2.0 * dim * features * (queries + keys) if drawn else 0.0
    copied = scales(
        config
    )  # the scale goes into copies of q and k, and what a score has made of them is let go
    inputs, features_q, features_k = (
        (queries + keys) * dim * copied,
        queries * features,
        keys * features,
    )
    made = features_q + features_k
    making = made
    if drawn:  # a feature takes four steps that stand beside one another, and two more for keys that are not real
        making = max(4 * features_q, features_q + (4 if area.real is None else 6) * features_k)
    elif area.real is not None:
        making = max(making, made + features_k)
    if not any(part.key == "causal" for part in and_parts(config.mask)):
        flops += 2.0 * features * (queries + value * (queries + keys))
        return summed(
            config, area, flops, inputs + max(making, made + queries * (value + 1)), not copied
        )
    chunk, count, length = chunks_of(config, area)
    wide = value + 1
    flops += 2.0 * length * (chunk * (features + wide) + 2 * features * wide)
    within = max(
        keys * wide * (keys < length),
        2 * length * chunk,
        length * (chunk + wide),
        2 * length * wide + 2 * (count + 1) * features * wide,
    )
    padded = made + length * wide + padding(area, length, features, features)
    return summed(config, area, flops, inputs + max(making, padded + within), not copied)


def scales(config: LayerConfig) -> bool:
    """Whether scores are multiplied by anything but 1."""
    return config.score.key not in ("dot", "general") or config.normalizer["temperature"] != 1.0


def linear_cost(config: LayerConfig, area: Area) -> Cost:
    return features_cost(config, area, config.qk_dim, drawn=False)


def performer_cost(config: LayerConfig, area: Area) -> Cost:
    return features_cost(config, area, int(config.kernel["features"]), drawn=True)


def retention_cost(config: LayerConfig, area: Area) -> Cost:
    """Within chunks the weights, between them a state of D × E."""
    dim, value, (chunk, count, length) = config.qk_dim, config.v_dim, chunks_of(config, area)
    flops = length * (2.0 * chunk * (dim + value) + 4.0 * dim * value)
    states = count * dim * value
    within = max(
        2 * length * chunk + 2 * chunk**2,
        length * (chunk + value),
        length * (dim + value) + states,
        length * value + 3 * states,
        length * (dim + 2 * value) + states,
    )
    return summed(
        config, area, flops, area.keys * dim + padding(area, length, dim, dim + value) + within
    )


def delta_cost(config: LayerConfig, area: Area) -> Cost:
    """The gates; within chunks two products of all pairs and a triangular system; between them a state of D × E."""
    dim, value, (chunk, _, length) = config.qk_dim, config.v_dim, chunks_of(config, area)
    gates = 2 if config.kernel.key == "gated_delta" else 1
    flops = 2.0 * gates * area.keys * config.d_model + length * corrected_flops(chunk, dim, value)
    a_token = 3 * dim + 3 * chunk + max(3 * chunk, 2 * (chunk + value))  # solving, or going through
    numbers = (
        (area.queries + area.keys) * dim
        + padding(area, length, dim, dim + value)
        + length * a_token
    )
    return summed(config, area, flops, numbers, prepared=False)


def corrected_flops(chunk: int, dim: int, value: int) -> float:
    """Of a token in a delta rule: two products of pairs, a triangular system, two sums, three products with a state.

    PyTorch does not count the system: half of its matrix meets each column of the identity.
    """
    return chunk * (4.0 * dim + 4.0 * value + chunk) + 6.0 * dim * value


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
            max(
                queries * dim + (2 if area.real is None else 3) * area.cells,
                area.cells + queries * value,
            ),
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
