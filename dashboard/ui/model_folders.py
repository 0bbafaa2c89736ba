"""Names of folders with a model: their paths, on a public copy without what tells of the server or of a person."""

from __future__ import annotations

import re
from pathlib import Path

from core.files import hosted, runs_folder
from dashboard.server.people import find_run
from dashboard.ui.run_data import ROOT, script_path

EXAMPLES = Path(__file__).resolve().parents[1]
HERE = "./"  # begins a name on a public copy
_OF_RUN = re.compile(r"\./([0-9a-f-]+)/((?!\.)[\w.-]+)")


def folder_name(folder: Path) -> str:
    """The name of a folder, as links and the model picker have it."""
    return f"{HERE}{script_path(folder)}" if hosted() else str(folder)


def folder_of(name: str) -> Path:
    """The folder of that name; whoever has a run's id may open the model that was fine-tuned in it."""
    if not hosted() or not name.startswith(HERE):
        return Path(name)
    return _in_run(name) or ROOT / name


def is_open(name: str) -> bool:
    """Whether the lab itself made a folder, by a run or as an example: visitors may open no other."""
    try:
        folder = folder_of(name).expanduser().resolve()
    except (OSError, ValueError, RuntimeError):
        return False
    homes = (EXAMPLES,) if hosted() else (EXAMPLES, runs_folder())
    return _in_run(name) is not None or any(folder.is_relative_to(home.resolve()) for home in homes)


def _in_run(name: str) -> Path | None:
    """The folder in a run that a name of a public copy stands for."""
    match = _OF_RUN.fullmatch(name) if hosted() else None
    run = find_run(match[1]) if match else None
    return None if match is None or run is None else run.path / match[2]
