"""The results that ship with the lab: one file a claim, with what they were measured on."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.claims.base import Claim
from core.claims.results import CellResult, Results
from core.entries import ConfigError
from core.files import read_object, write_atomically
from core.params import Value

FOLDER = Path(__file__).with_name("shipped")


@dataclass(frozen=True)
class Shipped:
    """A measured result: settings, cells, and the date, machine, versions, command and seconds of the measurement."""

    settings: Mapping[str, Value]
    results: Results
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


def shipped(claim: Claim, folder: Path = FOLDER) -> Shipped | None:
    """The shipped result of a claim; None where none was measured, or its settings are no longer those of the claim."""
    data = read_object(folder / f"{claim.key}.json")
    try:
        return Shipped(
            claim.settle(data["settings"]),
            Results.of(map(CellResult.from_json, data["cells"])),
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
) -> Shipped:
    """A result measured now, its cells in the order of conditions and seeds."""
    if not cells:
        raise ConfigError(f"Nothing was measured of {claim.key}.")
    order = {condition: index for index, condition in enumerate(claim.conditions(settings))}
    by_place = sorted(cells, key=lambda cell: (cell.seed, order[cell.condition]))
    return Shipped(
        settings,
        Results.of(by_place),
        time.strftime("%Y-%m-%d", time.gmtime()),
        machine,
        versions(),
        command,
        sum(cell.seconds for cell in cells),
    )


def versions() -> dict[str, str]:
    """The versions of what measures."""
    import numpy
    import torch

    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": numpy.__version__,
    }
