"""What the controls of Cost and speed ask, the mechanisms that this makes, and a race's result as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from core.attention import AXES, AttentionConfig, Choice, ConfigError, Entry
from core.benchmark import CPU, CUDA, Limits, Measured
from core.entries import complete

HEADS, SIZE = 4, 64
SHORTEST = 128
LONGEST = (512, 1024, 2048, 4096, 8192)
USUAL_LONGEST = 2048
WINDOWS = (16, 32, 64, 128, 256)
USUAL_WINDOW = 32
ROUNDS = 5
MOST = 6  # curves in one figure
USUAL = ("exact", "fused", "chunked", "local", "linear", "performer")
LIMITS = Limits(seconds=2.0, bytes=256e6)  # a server of 1 GB holds this beside everything else
ENTRIES: dict[str, Entry] = {item.key: item for item in AXES["kernel"]}
TABLE = "max_len"  # a parameter that follows the longest text
BANDED = ("local", "block_sparse")  # measured on a window, which is what they are for; all others see every key


def key(name: str) -> str:
    """A widget's key, which is also its name in the link."""
    return f"efficient:{name}"


def limits(device: str) -> Limits:
    """What a call may take on that device: a graphics card's memory is nobody else's here, so half of what is free."""
    return replace(LIMITS, bytes=torch.cuda.mem_get_info()[0] / 2) if device == CUDA else LIMITS


def usual(choice: Choice) -> Choice:
    """The choice with every parameter, so that one left out equals its default."""
    return complete(choice, AXES["kernel"], "kernel")


def lengths(longest: int) -> list[int]:
    """Doubling from the shortest."""
    found = [SHORTEST]
    while found[-1] < longest:
        found.append(found[-1] * 2)
    return found


@dataclass(frozen=True)
class Asked:
    """Which kernels race, and on what."""

    kernels: tuple[Choice, ...] = tuple(Choice(key) for key in USUAL)
    longest: int = USUAL_LONGEST
    causal: bool = False
    backward: bool = False
    window: int = USUAL_WINDOW
    device: str = CPU

    @classmethod
    def of(cls, keys: Iterable[str], *rest: Any) -> Asked:
        """Those kernels with their usual parameters."""
        return cls(tuple(Choice(key) for key in keys), *rest)

    @property
    def keys(self) -> list[str]:
        return [choice.key for choice in self.kernels]

    def covers(self, other: Asked) -> bool:
        """Whether what was measured for this answers the other, but for its length."""
        return {*map(usual, other.kernels)} <= {*map(usual, self.kernels)} and (
            replace(self, kernels=(), longest=0) == replace(other, kernels=(), longest=0))

    def configs(self) -> tuple[dict[str, AttentionConfig], list[str]]:
        """The mechanism of each kernel by its key, and a sentence for each that cannot be had."""
        able: dict[str, AttentionConfig] = {}
        refused = []
        for kernel in self.keys:
            try:
                able[kernel] = self.config(kernel)
            except ConfigError as error:
                refused.append(str(error))
        return able, refused

    def config(self, kernel: str) -> AttentionConfig:
        """ConfigError where the kernel cannot do that mask. A table is as long as the text gets."""
        choice = next((choice for choice in self.kernels if choice.key == kernel), Choice(kernel))
        params = dict(choice.params)
        if any(param.key == TABLE for param in ENTRIES[kernel].params):
            params[TABLE] = max(self.longest, SHORTEST)
        return AttentionConfig(HEADS * SIZE, HEADS, mask=self.mask(kernel), kernel=Choice.of(kernel, **params))

    def mask(self, kernel: str) -> Choice:
        if kernel not in BANDED:
            return Choice("causal" if self.causal else "none")
        if self.causal:
            return Choice.of("causal_local", lookback=self.window)
        return Choice.of("local", window=self.window)


@dataclass(frozen=True)
class Result:
    """What a race found, and under which conditions."""

    asked: Asked
    points: tuple[Measured, ...]
    machine: str

    def of(self, kernel: str) -> list[Measured]:
        """The points of one kernel that were measured, shortest first."""
        return [point for point in self.points if point.name == kernel and not point.skipped]

    def skipped(self) -> list[Measured]:
        """The first length that each kernel did not get to."""
        first: dict[str, Measured] = {}
        for point in self.points:
            if point.skipped:
                first.setdefault(point.name, point)
        return list(first.values())

    def to_json(self) -> dict[str, Any]:
        asked = {**asdict(self.asked), "kernels": [choice.to_json() for choice in self.asked.kernels]}
        return {"machine": self.machine, "asked": asked, "points": [asdict(point) for point in self.points]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Result:
        kernels = tuple(Choice.from_json(choice) for choice in data["asked"]["kernels"])
        asked = Asked(**{**data["asked"], "kernels": kernels})
        return cls(asked, tuple(Measured(**point) for point in data["points"]), data["machine"])
