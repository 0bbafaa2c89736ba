"""A claim's results: the shipped ones and the reader's own, each with its verdict."""

from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from core.claims import shipped as shipping
from core.claims.base import Claim, ClaimResult
from core.claims.run import Group, find_group
from core.entries import ConfigError
from core.files import modified
from core.runs.folder import Status


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
        if not self.done:
            return None
        spent = sum(cell.seconds for cell in self.measured.results.cells)
        return spent / self.done * (self.count - self.done) / len(self.statuses)


def lab_result(claim: Claim) -> shipping.Shipped | None:
    """The shipped result of a claim, read once; None where none was measured."""
    return _read(claim, shipping.FOLDER, modified(shipping.FOLDER / f"{claim.key}.json"))


@lru_cache(maxsize=64)
def _read(claim: Claim, folder: Path, _changed: float) -> shipping.Shipped | None:
    return shipping.shipped(claim, folder)


def own_run(claim: Claim, run_id: object) -> OwnRun | None:
    """The reader's run of this claim; None where there is none, or it is of another claim."""
    with suppress(ConfigError):
        if (group := find_group(run_id)) is not None and group.config.claim == claim.key:
            # before the cells, so that those of an ended one are all
            statuses = tuple(run.status() for run in group.runs)
            return OwnRun(
                group,
                ClaimResult(claim, group.config.settings, group.results()),
                statuses,
                len(group.config.cells),
            )
    return None
