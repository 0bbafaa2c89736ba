"""A claim's results: the shipped ones and the reader's own, each with its verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from core.claims import shipped as shipping
from core.claims.base import Claim, Figure, Results, Verdict, verdict
from core.claims.run import Group, find_group
from core.claims.shipped import Shipped
from core.entries import ConfigError, Value
from core.runs.folder import Status
from core.training.seed_stats import SeedStats, seed_stats


@dataclass(frozen=True, eq=False)
class ClaimResult:
    """Results of a claim, with the settings that they were measured with."""

    claim: Claim
    settings: Mapping[str, Value]
    results: Results

    @cached_property
    def verdict(self) -> Verdict:
        return verdict(self.claim, self.settings, self.results)

    @property
    def conditions(self) -> tuple[str, ...]:
        return self.claim.conditions(self.settings)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that have every condition."""
        return self.results.complete(self.conditions).seeds

    def stats(self, condition: str, figure: Figure, x: float | None = None) -> SeedStats | None:
        """A figure's measure over the seeds that have it; None before the first."""
        return seed_stats(self.results.values(condition, figure.measure, x), figure.unit)


LabResult = tuple[Shipped, ClaimResult]


@dataclass(frozen=True, eq=False)
class OwnRun:
    """A run of the reader's as it was read: its state and its cells so far."""

    group: Group
    measured: ClaimResult
    statuses: tuple[Status, ...]
    count: int

    @property
    def live(self) -> bool:
        return any(not status.ended for status in self.statuses)

    @property
    def failure(self) -> str:
        """The message of the first worker that failed; empty where none did."""
        return next((status.message for status in self.statuses if status.state == "failed"), "")

    @property
    def done(self) -> int:
        return len(self.measured.results.cells)

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the last cell, from the mean of those so far on cores of their own; None before the first."""
        cells = self.measured.results.cells
        if not cells:
            return None
        return (
            sum(cell.seconds for cell in cells)
            / len(cells)
            * (self.count - len(cells))
            / len(self.statuses)
        )


def lab_result(claim: Claim) -> LabResult | None:
    """The shipped result of a claim with its verdict, read once; None where none was measured."""
    folder = shipping.FOLDER
    try:
        changed = (folder / f"{claim.key}.json").stat().st_mtime_ns
    except OSError:
        return None
    return _read(claim, folder, changed)


@lru_cache(maxsize=64)
def _read(claim: Claim, folder: Path, changed: int) -> LabResult | None:
    result = shipping.shipped(claim, folder)
    return None if result is None else (result, ClaimResult(claim, result.settings, result.results))


def own_run(claim: Claim, run_id: object) -> OwnRun | None:
    """The reader's run of this claim; None where there is none, or it is of another claim."""
    group = find_group(run_id)
    try:
        if group is None or group.config.claim != claim.key:
            return None
        statuses = tuple(
            run.status() for run in group.runs
        )  # before the cells, so that those of an ended one are all
        config = group.config
        return OwnRun(
            group, ClaimResult(claim, config.settings, group.results()), statuses, len(config.cells)
        )
    except ConfigError:
        return None
