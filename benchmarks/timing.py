"""Rounds in turn, so that a busy machine slows everyone alike; ratios a round, then their median."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from core.attention.cost import CPU, wait

Clock = Callable[[], float]


@dataclass(frozen=True)
class Row:
    """One line of the table: ours beside a peer, and the budget the ratio must keep."""

    what: str
    peer: str
    ours: str
    theirs: str
    ratio: float
    budget: str

    def markdown(self) -> str:
        ratio = "–" if math.isnan(self.ratio) else f"{self.ratio:.2f} ×"
        return (
            f"| {self.what} | {self.peer} | {self.ours} | {self.theirs} | {ratio} | {self.budget} |"
        )


HEAD = "| what | beside | ours | theirs | ratio | budget |\n| --- | --- | --- | --- | --- | --- |"


def seconds(
    work: Callable[[], object],
    times: int = 1,
    clock: Clock = time.perf_counter,
    device: str = CPU,
) -> float:
    """Seconds a call, to the end of its work on the device."""
    wait(device)
    start = clock()
    for _ in range(times):
        work()
    wait(device)
    return (clock() - start) / times


def clock_of(device: str) -> Clock:
    """Processor time, which leaves out what a busy machine does in between; on CUDA, where it counts no work, all."""
    return time.process_time if device == CPU else time.perf_counter


def rounds(
    contenders: Mapping[str, Callable[[], object]],
    count: int,
    times: int = 1,
    clock: Clock = time.perf_counter,
    device: str = CPU,
) -> dict[str, list[float]]:
    """Seconds a call of each contender, `count` times in turn; the order turns too. One round first, not counted."""
    names = list(contenders)
    results: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(-1, count):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            taken = seconds(contenders[name], times, clock, device)
            if number >= 0:
                results[name].append(taken)
    return results


def median_ratio(over: list[float], under: list[float]) -> float:
    """The median of the rounds' own ratios."""
    return statistics.median(a / b for a, b in zip(over, under, strict=True))
