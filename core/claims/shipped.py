"""The results that ship with the lab, one file a claim, and what another person needs to measure and cite them."""

import csv
import io
import json
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy
import torch

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
from core.entries import Value, refuse_if
from core.files import modified, read_object, write_atomically
from core.latex import latex
from core.provenance import lab_version

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
    """The shipped result of a claim, read again only after its file has changed; None where none was measured, or its
    settings are no longer those of the claim."""
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
