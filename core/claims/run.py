"""A run of a claim is a folder, like any other run, and a result that ships with the lab a file.

Workers append to a run, and pages read it while it grows.

    run.json         the claim and its settings under "claim", this worker's part of the cells; in the first run of a
                     group the ids of all under "group"
    cells.jsonl      one condition and seed a line
    status.json, stop, lock  as in core.runs.runs

Runs of one group share the cells of one experiment, so that two cores are used; a timed claim has a group of one.
"""

import csv
import io
import itertools
import json
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any

import numpy
import torch
from msgspec import Meta

from core.claims.base import (
    CellResult,
    Claim,
    ClaimResult,
    ClaimSettings,
    Results,
    Verdict,
    rule_lines,
    verdict_line,
)
from core.claims.catalogue import claim_of
from core.claims.experiment import Cell, measure_cell
from core.entries import Value, quote, refuse_if
from core.files import (
    CLAIMS,
    append_line,
    modified,
    read_lines,
    read_object,
    runs_folder,
    with_checksum,
    write_atomically,
)
from core.latex import latex
from core.provenance import lab_version
from core.runs.folder import Status
from core.runs.machine import record_machine
from core.runs.runs import Run, find_run, new_id
from core.runs.store import bring_all
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
    """The runs that began with the one of this id; from the store where they are not here, and None where there is none."""
    bring_all([run_id], CLAIMS)
    first = find_run(run_id, claims_folder())
    ids = first.metadata().get("group") if first else None
    if not isinstance(ids, list) or ids[:1] != [run_id]:
        return None
    bring_all(ids, CLAIMS)
    return Group(tuple(run for one in ids if (run := find_run(one, claims_folder())) is not None))


def judge_group(group: Group) -> Verdict:
    """The verdict from what a run of one's own has measured so far."""
    return group.measured.verdict


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


FOLDER = Path(__file__).with_name("shipped")


@dataclass(frozen=True, eq=False)
class Shipped(ClaimResult):
    """A measured result with the date, machine, versions, command and seconds of the measurement."""

    date: str
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    command: str
    seconds: float  # of all cells, one after another

    def save(self, path: Path) -> None:
        """Write the file, a cell a line, so that a difference of two files can be read."""
        head = {
            "settings": dict(self.settings),
            "date": self.date,
            "machine": dict(self.machine),
            "versions": dict(self.versions),
            "command": self.command,
            "seconds": round(self.seconds, 1),
        }
        lines = ",\n".join(
            json.dumps(cell.to_json(), ensure_ascii=False) for cell in self.results.cells
        )
        text = (
            f'{json.dumps(head, ensure_ascii=False, indent=1)[:-2]},\n "cells": [\n{lines}\n]}}\n'
        )
        write_atomically(path, text.encode())


def shipped(claim: Claim, folder: Path | None = None) -> Shipped | None:
    """What was measured of a claim and ships with the lab; read again only after its file has changed. None where none
    was measured, or its settings are no longer those of the claim."""
    path = (folder or FOLDER) / f"{claim.key}.json"
    return _read(claim, path, modified(path))


@lru_cache(maxsize=64)
def _read(claim: Claim, path: Path, _changed: float) -> Shipped | None:
    data = read_object(path)
    try:
        return Shipped(
            claim,
            claim.settle(data["settings"]),
            Results(tuple(map(CellResult.from_json, data["cells"]))),
            str(data["date"]),
            data["machine"],
            data["versions"],
            str(data["command"]),
            float(data["seconds"]),
        )
    except (KeyError, TypeError, ValueError):  # a ConfigError is a ValueError
        return None


def ship(
    claim: Claim,
    settings: Mapping[str, Value],
    cells: Sequence[CellResult],
    machine: Mapping[str, Any],
    command: str,
    at: float | None = None,
) -> Shipped:
    """A result measured now, or `at` seconds since 1970, its cells in the order of conditions and seeds."""
    refuse_if(not cells, f"Nothing was measured of {claim.key}.")
    order = claim.conditions(settings).index
    return Shipped(
        claim,
        settings,
        Results(tuple(sorted(cells, key=lambda cell: (cell.seed, order(cell.condition))))),
        time.strftime("%Y-%m-%d", time.gmtime(at)),
        machine,
        {
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "numpy": numpy.__version__,
        },
        command,
        sum(cell.seconds for cell in cells),
    )


def command(claim: Claim, settings: ClaimSettings, seeds: Sequence[int] = ()) -> str:
    """The command that measures a claim with these settings and seeds, or without them 0, 1, …"""
    plain = tuple(seeds) == tuple(range(len(seeds)))
    changed = [
        f" --set {key}={str(value).lower() if isinstance(value, bool) else value}"
        for key, value in settings.items()
        if value != claim.settle()[key] and (plain or key != "seeds")
    ]
    chosen = "" if plain else f" --seeds {' '.join(map(str, seeds))}"
    return f"python -m core.claims run {claim.key}{''.join(changed)}{chosen}"


def text_files(result: Shipped) -> dict[str, bytes]:
    """A text on the claim, the config, every number (x is empty where a measure is no curve), the parts as a LaTeX
    table, what it was measured with, and BibTeX, by file name."""
    claim, judged = result.claim, result.verdict
    facts = {
        "date": result.date,
        "command": result.command,
        "seconds of one core": round(result.seconds, 1),
        "machine": dict(result.machine),
        "versions": {"attention-lab": lab_version(), **result.versions},
    }
    out = io.StringIO()
    rows = [
        (cell.condition, cell.seed, measure, "" if x is None else f"{x:g}", value)
        for cell in result.results.cells
        for measure, value, x in cell.values
    ]
    csv.writer(out).writerows([("condition", "seed", "measure", "x", "value"), *rows])
    files = {
        "README.txt": (
            f"{claim.statement}\n{claim.source.text}: {claim.source.title}, {claim.source.url}\n\n"
            f"{verdict_line(claim, judged, len(result.results.seeds))} Measured on {result.date}.\n"
            f"{''.join(f'{one}{chr(10)}' for one in rule_lines(claim))}"
            f"What would have refuted it: {claim.refutation}\nWhat this does not show: {claim.limits}\n\n"
            f"In a checkout of Attention Lab {lab_version()} this measures it again:\n\n"
            f"    {command(claim, result.settings, result.results.seeds)}\n\n"
            "results.csv has every number, a row each; parts.tex is a table of the parts, for \\input; measured.json "
            "says what it was measured with.\n"
        ),
        "config.json": json.dumps(
            {"claim": claim.key, "settings": dict(result.settings)}, indent=1
        ),
        "measured.json": json.dumps(facts, indent=1, ensure_ascii=False),
        "results.csv": out.getvalue(),
        "parts.tex": latex_table(claim, judged),
        "references.bib": claim.source.bibtex + citation(claim, result.date),
    }
    return {name: text.encode() for name, text in files.items()}


def latex_table(claim: Claim, judged: Verdict) -> str:
    """The parts as a tabular: statement, mean, interval, outcome; shares are shares of 1."""

    def written(value: float) -> str:
        return latex(f"{value:.4g}".replace("-", "−").replace("inf", "∞"))

    rows = "".join(
        f"{latex(one.part.statement)} & {latex(one.part.name)} & {written(one.mean)} & "
        f"[{written(one.low)}, {written(one.high)}] & {one.outcome} \\\\\n"
        for one in judged.effects
    )
    scope = f", {latex(claim.scope)}" if claim.scope else ""
    return (
        f"% {claim.key}: {judged.state}{scope}. Intervals cover all parts together (95 %, Student's t, "
        "Bonferroni).\n"
        "\\begin{tabular}{p{0.4\\linewidth}p{0.2\\linewidth}rrl}\n\\hline\n"
        "Statement & Quantity & Mean & Interval & Outcome \\\\\n\\hline\n"
        + rows
        + "\\hline\n\\end{tabular}\n"
    )


def citation(claim: Claim, date: str) -> str:
    """BibTeX of a claim's page."""
    return (
        f"@misc{{attentionlab-{claim.key},\n  author = {{{{Attention Lab}}}},\n"
        f"  title = {{Claim: {latex(claim.name)}}},\n  year = {{{date[:4]}}},\n"
        f"  howpublished = {{Attention Lab, version {lab_version()}, page Claims, claim={claim.key}}},\n"
        f"  note = {{Measured on {date}}},\n}}\n"
    )
