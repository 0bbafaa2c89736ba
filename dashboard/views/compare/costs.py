"""What each mechanism costs: parameters and operations in closed form, time and memory as measured here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from core.attention import AttentionConfig, ConfigError
from core.benchmark import Measurement, race
from core.cost import at_most, attention_cost, parameters
from core.masks import make_mask
from core.score_block import ScoreBlock
from dashboard.runtime.racing import ONE_AT_A_TIME
from dashboard.views.compare.controls import Controls

ROUNDS = 5
POLL_INTERVAL = 0.1  # seconds between two tries while another measurement runs
UNABLE = (ConfigError, ValueError, RuntimeError)
DENSE = ("exact", "fused")  # kernels that compute every cell, masked or not

Measurements = dict[tuple[AttentionConfig, int], Measurement]  # by mechanism at its sizes, and length


@dataclass(frozen=True)
class ClosedFormCost:
    """Learned numbers, and FLOPs at a length: of visible cells alone while the kernel computes all (`dense`).

    `at_most`: the FLOPs are a bound, since they depend on the numbers themselves.
    """

    parameters: int
    flops: float
    dense: bool
    at_most: bool = False


def closed_form_cost(config: AttentionConfig, length: int) -> ClosedFormCost:
    """The layer's learned numbers; the FLOPs from projected heads to outputs, on the visible cells.

    `dense`: the kernel computes every cell and then masks, so it spends more than that.
    """
    share = visible_share(config, length) if config.kernel.key in DENSE else 1.0
    flops = attention_cost(config, length, length).flops * share
    return ClosedFormCost(sum(parameters(config).values()), flops, share < 1.0, at_most(config))


def visible_share(config: AttentionConfig, length: int) -> float:
    """The share of visible cells at that length; 1 where the mask depends on the numbers themselves."""
    if config.mask.key == "none" or config.has("mask", "learned"):
        return 1.0
    cells = ScoreBlock.whole(length, length, key_mask=torch.ones(1, length, dtype=torch.bool))
    try:
        return float(make_mask(config.mask, config)(cells).float().mean())
    except (ConfigError, ValueError):  # a rule that needs more than positions
        return 1.0


def sized_configs(controls: Controls) -> list[AttentionConfig | None]:
    """Every mechanism at the sizes compared; None where they do not fit it."""
    configs: list[AttentionConfig | None] = []
    for config in controls.mechanisms:
        try:
            configs.append(controls.sized(config))
        except ConfigError:
            configs.append(None)
    return configs


def measure_costs(configs: Sequence[AttentionConfig], length: int, measurements: Measurements) -> Iterator[float]:
    """Measure the mechanisms at one length in turn, into `measurements`; yields the progress, 0 to 1.

    It waits while this server measures anything else.
    """
    while not ONE_AT_A_TIME.acquire(timeout=POLL_INTERVAL):
        yield 0.0
    try:
        yield from _measure_costs(configs, length, measurements)
    finally:
        ONE_AT_A_TIME.release()


def _measure_costs(configs: Sequence[AttentionConfig], length: int, measurements: Measurements) -> Iterator[float]:
    named = {str(index): config for index, config in enumerate(dict.fromkeys(configs))}
    try:
        yield from _race_configs(named, length, measurements)
    except UNABLE:  # one of them cannot run at that length: each runs alone, and the error is recorded for that one
        for count, (name, config) in enumerate(named.items(), 1):
            try:
                for _ in _race_configs({name: config}, length, measurements):
                    pass
            except UNABLE as error:
                measurements[config, length] = Measurement(name, length, skipped=str(error))
            yield count / len(named)


def _race_configs(configs: Mapping[str, AttentionConfig], length: int, measurements: Measurements) -> Iterator[float]:
    for progress in race(configs, [length], rounds=ROUNDS):
        for point in progress.points:
            measurements[configs[point.name], length] = point
        yield progress.fraction


def conditions(controls: Controls) -> str:
    """The conditions under which time and memory were measured."""
    d_model, heads = controls.sizes
    threads = torch.get_num_threads()
    return (f"T = {controls.length}, d_model {d_model}, {heads} heads, float32, {threads} CPU "
            f"{'thread' if threads == 1 else 'threads'}. Time and memory: the kernel's forward pass, median of "
            f"{ROUNDS} runs. FLOPs: its matrix products. Entropy is in nats; distance is the mean "
            "distance of the weight, in tokens.")
