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
from dashboard.views.compare.link import Controls

ROUNDS = 5
PATIENCE = 0.1  # seconds between two looks whether another measurement is over
UNABLE = (ConfigError, ValueError, RuntimeError)
DENSE = ("exact", "fused")  # kernels that compute every cell, masked or not

Key = tuple[AttentionConfig, int]  # a mechanism at its sizes, and the length
Measurements = dict[Key, Measurement]


@dataclass(frozen=True)
class ClosedFormCost:
    """One mechanism in closed form: learned numbers, FLOPs at that length, and whether those are done densely.

    `at_most` says that the FLOPs are a bound, since they hang on the numbers themselves.
    """

    parameters: int
    flops: float
    dense: bool
    at_most: bool = False


def closed_form_cost(config: AttentionConfig, length: int) -> ClosedFormCost:
    """The layer's learned numbers; the FLOPs from projected heads to outputs, on the cells that may be seen.

    A kernel that computes each cell and then masks it spends more than that: `dense` says so.
    """
    share = visible_share(config, length) if config.kernel.key in DENSE else 1.0
    flops = attention_cost(config, length, length).flops * share
    return ClosedFormCost(sum(parameters(config).values()), flops, share < 1.0, at_most(config))


def visible_share(config: AttentionConfig, length: int) -> float:
    """Which share of the cells the mask lets be seen at that length; 1 where it depends on the numbers themselves."""
    if config.mask.key == "none" or config.has("mask", "learned"):
        return 1.0
    cells = ScoreBlock.whole(length, length, key_mask=torch.ones(1, length, dtype=torch.bool))
    try:
        return float(make_mask(config.mask, config)(cells).float().mean())
    except (ConfigError, ValueError):  # a rule that needs more than places
        return 1.0


def sized_configs(controls: Controls) -> list[AttentionConfig | None]:
    """Every mechanism at the sizes compared; None for one that cannot be had there."""
    out: list[AttentionConfig | None] = []
    for config in controls.mechanisms:
        try:
            out.append(controls.sized(config))
        except ConfigError:
            out.append(None)
    return out


def measure_costs(configs: Sequence[AttentionConfig], length: int, measurements: Measurements) -> Iterator[float]:
    """Measure the mechanisms at one length in turn, into `measurements`; yields how far it has come, 0 to 1.

    Nothing is measured beside anything else that this server measures: it waits for its turn.
    """
    while not ONE_AT_A_TIME.acquire(timeout=PATIENCE):
        yield 0.0
    try:
        yield from _measure_costs(configs, length, measurements)
    finally:
        ONE_AT_A_TIME.release()


def _measure_costs(configs: Sequence[AttentionConfig], length: int, measurements: Measurements) -> Iterator[float]:
    able: Mapping[str, AttentionConfig] = {str(place): each for place, each in enumerate(dict.fromkeys(configs))}
    try:
        yield from _race_configs(able, length, measurements)
    except UNABLE:  # one of them cannot have that length: each runs alone, and that one says why
        for done, (name, config) in enumerate(able.items(), 1):
            try:
                for _ in _race_configs({name: config}, length, measurements):
                    pass
            except UNABLE as error:
                measurements[config, length] = Measurement(name, length, skipped=str(error))
            yield done / len(able)


def _race_configs(able: Mapping[str, AttentionConfig], length: int, measurements: Measurements) -> Iterator[float]:
    for progress in race(able, [length], rounds=ROUNDS):
        for point in progress.points:
            measurements[able[point.name], length] = point
        yield progress.fraction


def conditions(controls: Controls) -> str:
    """Under which conditions time and memory were measured."""
    d_model, heads = controls.sizes
    threads = torch.get_num_threads()
    return (f"T = {controls.length}, d_model {d_model}, {heads} heads, float32, {threads} CPU "
            f"{'thread' if threads == 1 else 'threads'}; the kernel's forward pass, median of {ROUNDS}. "
            "FLOPs are those of its matrix products.")
