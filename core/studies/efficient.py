"""Kernels measured as the text grows, and the weights that a kernel implies; `make measured` saves a measurement."""

from __future__ import annotations

import datetime
import os
import platform
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np
import torch
from torch import Tensor

from core.attention import AXES, AttentionConfig, Choice, ConfigError, Entry
from core.attention.cost import (
    CPU,
    CUDA,
    Limits,
    Measurement,
    Progress,
    attention_cost,
    exponent,
    output_error,
    race,
)
from core.entries import complete
from core.seeding import seeded_layer
from core.tokens import embed

T = TypeVar("T")
HEADS, HEAD_DIM = 4, 64  # of the layers that are measured
SHORTEST = 128
ROUNDS = 5
USUAL = ("exact", "fused", "chunked", "local", "linear", "performer")
LIMITS = Limits(seconds=2.0, bytes=256e6)  # a server of 1 GB holds this beside everything else
ENTRIES: dict[str, Entry] = {item.key: item for item in AXES["kernel"]}
TABLE = "max_len"  # a parameter that follows the longest text
BANDED = ("local", "block_sparse")  # measured on a window; all other kernels see every key
SAVED, SAVED_LONGEST = Path(__file__).parent / "data" / "efficient.json", 8192
D_MODEL, SEED = 64, 126  # of the layer whose implied weights are computed
ONE_AT_A_TIME = threading.Lock()  # two measurements would measure each other, of whatever session


def limits(device: str) -> Limits:
    """Seconds and bytes that a call may take on that device: on a graphics card, half of its free memory."""
    return replace(LIMITS, bytes=torch.cuda.mem_get_info()[0] / 2) if device == CUDA else LIMITS


@dataclass(frozen=True)
class Conditions:
    """Which kernels race, and on what."""

    kernels: tuple[Choice, ...] = tuple(Choice(key) for key in USUAL)
    longest: int = 2048
    causal: bool = False
    backward: bool = False
    window: int = 32
    device: str = CPU

    @classmethod
    def of(cls, keys: Iterable[str], *rest: Any) -> Conditions:
        """Those kernels with their usual parameters."""
        return cls(tuple(Choice(key) for key in keys), *rest)

    @property
    def keys(self) -> list[str]:
        return [choice.key for choice in self.kernels]

    @property
    def lengths(self) -> list[int]:
        """The numbers of tokens that are measured, which double up to the longest."""
        return [length for at in range(20) if (length := SHORTEST << at) < 2 * self.longest]

    @property
    def reports(self) -> int:
        """How many reports a race has: of each length one a round, one of the first call, and its measurements."""
        return len(self.lengths) * (ROUNDS + 2)

    def covers(self, other: Conditions) -> bool:
        """Whether a result for these conditions also answers the other ones; their lengths may differ."""
        mine, others = (
            {complete(choice, AXES["kernel"], "kernel") for choice in each.kernels}
            for each in (self, other)
        )
        return others <= mine and (
            replace(self, kernels=(), longest=0) == replace(other, kernels=(), longest=0)
        )

    def configs(self) -> tuple[dict[str, AttentionConfig], list[str]]:
        """The mechanism of each kernel by its key, and the error of each kernel that is impossible."""
        configs: dict[str, AttentionConfig] = {}
        errors = []
        for kernel in self.keys:
            try:
                configs[kernel] = self.config(kernel)
            except ConfigError as error:
                errors.append(str(error))
        return configs, errors

    def config(self, kernel: str) -> AttentionConfig:
        """The mechanism of a kernel; tables are as long as the longest text. ConfigError for an impossible mask."""
        choice = next((choice for choice in self.kernels if choice.key == kernel), Choice(kernel))
        params = dict(choice.params)
        if any(param.key == TABLE for param in ENTRIES[kernel].params):
            params[TABLE] = max(self.longest, SHORTEST)
        whole, band = Choice("none"), Choice.of("local", window=self.window)
        if self.causal:
            whole, band = Choice("causal"), Choice.of("causal_local", lookback=self.window)
        return AttentionConfig(
            HEADS * HEAD_DIM,
            HEADS,
            mask=band if kernel in BANDED else whole,
            kernel=Choice.of(kernel, **params),
        )


def machine(device: str = CPU, threads: int | None = None) -> str:
    """Device, threads and PyTorch's version; `threads` are those of this process unless given."""
    if device == CUDA:
        return f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}"
    threads = threads or torch.get_num_threads()
    return (
        f"{os.cpu_count()} CPU cores, {threads} {'thread' if threads == 1 else 'threads'}, PyTorch "
        f"{torch.__version__.partition('+')[0]}, {platform.system()} {platform.machine()}"
    )


def start_race(
    conditions: Conditions, clock: Callable[[], float] = time.perf_counter
) -> Iterator[Progress]:
    """Measure these kernels report by report, as `cost.race` does; each report waits for those of other sessions."""
    reports = race(
        conditions.configs()[0],
        conditions.lengths,
        rounds=ROUNDS,
        limits=limits(conditions.device),
        backward=conditions.backward,
        device=conditions.device,
        clock=clock,
    )
    for _ in range(conditions.reports):
        with ONE_AT_A_TIME:
            report = next(reports)
        yield report


@dataclass(frozen=True)
class Result:
    """The points of a race, and their conditions."""

    conditions: Conditions
    points: tuple[Measurement, ...]
    machine: str

    def of(self, kernel: str) -> list[Measurement]:
        """The points of one kernel that were measured, shortest first."""
        return [point for point in self.points if point.name == kernel and not point.skipped]

    def faster_from(self, kernel: str, beside: str = "fused") -> int | None:
        """The shortest measured length from which a kernel is faster than another at every length of both; None where it
        is not, or they share none."""
        other = {point.length: point.seconds for point in self.of(beside)}
        shared = [point for point in self.of(kernel) if point.length in other]
        slower = [point.length for point in shared if point.seconds >= other[point.length]]
        return next((one.length for one in shared if one.length > max(slower, default=0)), None)

    def skipped(self) -> list[Measurement]:
        """The first skipped length of each kernel."""
        skipped = [point for point in self.points if point.skipped]
        names = dict.fromkeys(point.name for point in skipped)
        return [next(point for point in skipped if point.name == name) for name in names]


def measure(conditions: Conditions) -> Result:
    """The time of a call and its peak memory by the number of tokens, measured here."""
    points = [point for report in start_race(conditions) for point in report.points]
    return Result(conditions, tuple(points), machine(conditions.device))


LAST = 3  # lengths that an exponent is fitted to: short ones are overhead


@dataclass(frozen=True)
class Growth:
    """One kernel by the number of tokens: what was measured, and FLOPs and bytes in closed form."""

    kernel: str
    lengths: tuple[int, ...]
    seconds: tuple[float, ...]
    bytes: tuple[int, ...]
    closed_flops: tuple[float, ...]
    closed_bytes: tuple[float, ...]
    error: float  # of its output, beside exact's

    def power(self, values: tuple[float, ...]) -> float:
        """The exponent with which these grow over the last lengths; ValueError before there are two."""
        return exponent(self.lengths[-LAST:], values[-LAST:])


def growth_of(result: Result, kernel: str) -> Growth:
    """Time and memory of a kernel as measured, FLOPs and memory in closed form, and the error of its output."""
    points, config = result.of(kernel), result.conditions.config(kernel)
    costs = [attention_cost(config, point.length, point.length) for point in points]
    return Growth(
        kernel,
        tuple(point.length for point in points),
        tuple(point.seconds for point in points),
        tuple(point.bytes for point in points),
        tuple(cost.flops for cost in costs),
        tuple(cost.bytes for cost in costs),
        output_error(config, SEED),
    )


@dataclass(frozen=True)
class Implied:
    """The weights (H, T, T) of one kernel on the sentence, and their error."""

    kernel: str
    weights: np.ndarray
    mean_error: float  # mean |difference| from exact's over all cells of all heads


def implied(choice: Choice, tokens: tuple[str, ...], causal: bool) -> Implied:
    """The weights that give a kernel's outputs, of one layer with the same seeded weights for every kernel."""
    config = AttentionConfig(D_MODEL, HEADS, mask="causal" if causal else "none", kernel=choice)
    weights, exact_weights = (
        weights_of(config, tokens),
        weights_of(config.with_(kernel=Choice("exact")), tokens),
    )
    return Implied(choice.key, weights.numpy(), float((weights - exact_weights).abs().mean()))


def weights_of(config: AttentionConfig, tokens: tuple[str, ...]) -> Tensor:
    """The weights (H, T, T) of the seeded layer on these tokens."""
    with torch.no_grad():
        return seeded_layer(config, SEED)(embed(tokens, D_MODEL, SEED)).weights[0]


@dataclass(frozen=True)
class Saved(Generic[T]):
    """What was measured for a page to show, the day, and the machine."""

    measured: T
    date: str = field(default_factory=lambda: datetime.date.today().isoformat())
    machine: str = field(default_factory=machine)


@contextmanager
def alone(seconds: float = 2.0) -> Iterator[None]:
    """Measure while nothing else here is measured; who has waited so long shares the machine."""
    locked = ONE_AT_A_TIME.acquire(timeout=seconds)
    try:
        yield
    finally:
        if locked:
            ONE_AT_A_TIME.release()


def save(path: Path, measured: Any) -> None:
    """Write a measurement as JSON, for a page to show."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(measured), indent=1) + b"\n")


def load_result() -> Result:
    """What `make measured` measured: all kernels, no mask, forward."""
    return msgspec.json.decode(SAVED.read_bytes(), type=Result)


def main() -> None:
    """Measure on one thread in processor time, and write the file."""
    torch.set_num_threads(1)
    conditions = Conditions.of(ENTRIES, SAVED_LONGEST)
    points = list[Measurement]()
    for report in start_race(conditions, time.process_time):
        points += report.points
        print(f"{report.fraction:.0%}", flush=True)
    save(SAVED, Result(conditions, tuple(points), machine(conditions.device)))
