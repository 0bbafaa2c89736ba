"""The cost of the kernels with a state and learned gates, in closed form; costs.py says what is counted."""

from __future__ import annotations

from core.attention.kernels.implied_costs import (
    chunks_of,
    corrected_flops,
    padding,
    power_of_two,
    summed,
)
from core.entries import Area, Cost, LayerConfig

SEGMENT = 512  # tokens of which KDA holds decayed queries and keys; those of a long text do not fit into a cache


def real_copy(area: Area) -> int:
    """The keys that are copied, since some of them are not real."""
    return 0 if area.real is None else area.keys


def ssd_cost(config: LayerConfig, area: Area) -> Cost:
    """The gate; within chunks the weights, between them a state of D × E."""
    dim, value, (chunk, count, length) = config.qk_dim, config.v_dim, chunks_of(config, area)
    flops = 2.0 * area.keys * config.d_model + length * (
        2.0 * chunk * (dim + value) + 4.0 * dim * value
    )
    states = count * dim * value
    within = max(
        area.keys * dim * (area.keys < length),
        3 * length * chunk,
        length * (chunk + value),
        length * (value + dim) + states,
        length * value + 3 * states,
        length * (2 * value + max(dim, value)) + states,
    )
    numbers = (
        (area.queries + real_copy(area) + length) * dim + padding(area, length, dim, value) + within
    )
    return summed(config, area, flops, numbers, prepared=False)


def gla_cost(config: LayerConfig, area: Area) -> Cost:
    """The gates of all channels; within chunks the weights, between them a state of D × E.

    That of chunks which fade by no more than gla.STRONGEST; others take more products, of ever larger halves.
    """
    dim, value, rank = config.qk_dim, config.v_dim, int(config.kernel["rank"])
    chunk, count, length = chunks_of(config, area, halved=True)
    flops = 2.0 * area.keys * rank * (config.d_model / config.score_heads + dim)
    flops += length * (2.0 * chunk * (dim + value) + 4.0 * dim * value)
    states = count * dim * value
    after = 2 * length * dim + max(3 * states, states + 3 * length * value)
    inputs = (area.queries + area.keys + real_copy(area)) * dim + padding(
        area, length, dim, dim + value
    )
    making = 4 * length * dim + padding(area, length, 0, dim)
    return summed(config, area, flops, inputs + length * chunk + max(making, after), prepared=False)


def kda_cost(config: LayerConfig, area: Area) -> Cost:
    """The gates of all channels, then the work of the delta rule, a segment at a time; as in gla_cost for chunks that
    fade little."""
    dim, value = config.qk_dim, config.v_dim
    chunk, _, length = chunks_of(config, area, halved=True)
    flops = 2.0 * area.keys * (config.d_model + dim * (config.d_model / config.score_heads + dim))
    flops += length * corrected_flops(chunk, dim, value)
    held, outs, padded = length, 0, padding(area, length, dim, 2 * dim + value)
    if area.queries == area.keys > max(chunk, SEGMENT):
        held, outs, padded = max(chunk, SEGMENT), length * value, 0
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
    inputs = (area.queries + real_copy(area) + length) * dim + levels * (area.queries + length)
    inputs += padding(area, length, dim, value)
    index = 2 * chunk**2 / config.score_heads  # the level of each pair, one table for all heads
    between = 2 * filled * (dim + value) + 2 * states
    return summed(
        config, area, flops, inputs + index + max(3 * length * chunk, between), prepared=False
    )
