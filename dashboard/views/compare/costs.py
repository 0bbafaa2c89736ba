"""The time and memory of each mechanism, as measured here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from core.attention import AttentionConfig, ConfigError
from core.benchmark import Measurement, race
from dashboard.runtime.racing import ONE_AT_A_TIME
from dashboard.views.compare.controls import Controls

ROUNDS = 5
POLL_INTERVAL = 0.1  # seconds between two tries while another measurement runs
UNABLE = (ConfigError, ValueError, RuntimeError)

Measurements = dict[tuple[AttentionConfig, int], Measurement]  # by mechanism at its sizes, and length


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
