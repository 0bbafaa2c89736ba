"""A run of a claim is a folder, like any other run: workers append to it, and pages read it while it grows.

    run.json         the claim and its settings under "claim", this worker's part of the cells; in the first run of a
                     group the ids of all under "group"
    cells.jsonl      one condition and seed a line
    status.json, stop, lock  as in core.runs.runs

Runs of one group share the cells of one experiment, so that two cores are used; a timed claim has a group of one.
"""

import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from core.claims.base import CellResult, Claim, ClaimResult, Results
from core.claims.catalogue import claim_of
from core.claims.experiment import Cell, measure_cell
from core.entries import Value, quote, refuse_if
from core.files import CLAIMS, append_line, read_lines, runs_folder, with_checksum
from core.runs.folder import Status
from core.runs.runs import Run, find_run, new_id
from core.runs.store import bring_all
from core.runs.worker import record_machine
from core.serialization import check_types, read

CELLS = "cells.jsonl"


@dataclass(frozen=True)
class ClaimConfig:
    """A claim and all its settings; ConfigError for an unknown claim, an invalid setting or seeds that repeat.

    `seeds` are those to measure, whose number then is the setting of that name; empty for 0, 1, … up to it.
    """

    claim: str
    settings: Mapping[str, Value]
    seeds: tuple[Annotated[int, Meta(ge=0)], ...] = ()

    def __post_init__(self) -> None:
        check_types(self)
        seeds = self.seeds
        refuse_if(
            len(set(seeds)) < len(seeds), f"seeds = {quote(list(seeds))}; expected each once."
        )
        settings = {**self.settings, "seeds": len(seeds)} if seeds else self.settings
        object.__setattr__(self, "settings", self.entry.settle(settings))

    @property
    def entry(self) -> Claim:
        return claim_of(self.claim)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Every cell, seed by seed, so that each condition has its first number early."""
        seeds = self.seeds or range(int(self.settings["seeds"]))
        conditions = self.entry.conditions(self.settings)
        return tuple((one, seed) for seed, one in itertools.product(seeds, conditions))

    def to_json(self) -> dict[str, Any]:
        data = {"claim": self.claim, "settings": dict(self.settings)}
        return data | {"seeds": list(self.seeds)} if self.seeds else data

    @classmethod
    def from_json(cls, data: object) -> "ClaimConfig":
        """The config in a dict; ConfigError for anything else."""
        return read(data, cls, "A claim's run")


@dataclass(frozen=True)
class Group:
    """The runs that share the cells of one experiment."""

    runs: tuple[Run, ...]

    @property
    def id(self) -> str:
        return self.runs[0].id

    @cached_property
    def config(self) -> ClaimConfig:
        """The config of the runs; ConfigError when the file does not describe one."""
        return ClaimConfig.from_json(self.runs[0].metadata().get("claim"))

    @cached_property
    def statuses(self) -> tuple[Status, ...]:
        """The state of each run, read once."""
        return tuple(run.status() for run in self.runs)

    @property
    def live(self) -> bool:
        return any(not status.ended for status in self.statuses)

    @cached_property
    def measured(self) -> ClaimResult:
        """What was measured so far, read once; of a group that has ended, by its `statuses`, all."""
        assert self.statuses  # read before the cells
        return ClaimResult(self.config.entry, self.config.settings, self.results())

    def results(self) -> Results:
        """The cells so far, those of this config only."""
        known = set(self.config.cells)
        cells = [cell for run in self.runs for cell in load_cells(run)]
        return Results(tuple(one for one in cells if (one.condition, one.seed) in known))


def claims_folder() -> Path:
    """The folder of the claims' runs, within that of runs, whose list they stay out of."""
    return runs_folder() / CLAIMS


def create(config: ClaimConfig, workers: int = 1, root: Path | None = None) -> Group:
    """New runs that share a config's cells, one a worker; a timed claim has one worker."""
    workers = 1 if config.entry.timed else max(1, min(workers, len(config.cells)))
    runs = tuple(Run((root or claims_folder()) / new_id()) for _ in range(workers))
    for part, run in enumerate(runs):
        group = [one.id for one in runs] if part == 0 else None
        run.create(claim=config.to_json(), part=part, parts=workers, group=group)
    return Group(runs)


def find_group(run_id: object) -> Group | None:
    """The runs that began with the one of this id, from the store where they are not here; None where there is none."""
    bring_all([run_id], CLAIMS)
    first = find_run(run_id, claims_folder())
    ids = first.metadata().get("group") if first else None
    if not isinstance(ids, list) or ids[:1] != [run_id]:
        return None
    bring_all(ids, CLAIMS)
    return Group(tuple(run for one in ids if (run := find_run(one, claims_folder())) is not None))


def load_cells(run: Run) -> list[CellResult]:
    """The cells of one run so far; lines that are not whole, or were damaged, are left out."""
    return [
        cell for _, cell in read_lines(run.path / CELLS, CellResult.from_json) if cell is not None
    ]


def work(
    run: Run, stop: Callable[[], bool], on_cell: Callable[[CellResult], object] = lambda cell: None
) -> tuple[str, str]:
    """Measure the cells of this run that are left; returns the final state and its message."""
    config, done = Group((run,)).config, {(cell.condition, cell.seed) for cell in load_cells(run)}
    record_machine(run, "cpu")
    data = run.metadata()
    own = config.cells[data["part"] :: data["parts"]]
    count = len(own)
    for cell in own:
        if cell in done:
            continue
        result = measure_cell(config.entry, cell, config.settings, stop)
        if result is None:
            return "stopped", f"Stopped after {len(done):,} of {count:,} parts, which are saved."
        run.require()
        append_line(run.path / CELLS, with_checksum(json.dumps(result.to_json())))
        done.add(cell)
        on_cell(result)
    return "finished", f"Measured {count:,} parts."
