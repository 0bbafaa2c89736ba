"""What a public copy deletes: the things of a person who asks for it, or was not here for some hours."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

from core.files import PEOPLE, hosted, runs_folder
from dashboard.runtime import jobs, people
from dashboard.runtime.limits import HOUR, limits
from dashboard.runtime.person import forget_person

INTERVAL = 600.0  # seconds between two looks for what is old


def delete_mine() -> None:
    """Delete all that the person who asks has stored, and end what trains for them; they go on with nothing."""
    folder = runs_folder()
    if folder.parent.name != PEOPLE:
        raise AssertionError("only a person's folder is deleted")
    runs = people.unfinished_of(folder)
    for run in sorted(
        runs, key=lambda run: run.status().state != "queued"
    ):  # else one takes the worker of another
        jobs.stop(run)
    for run in runs:
        # End a worker at once: what it would still save is deleted anyway
        pid = run.status().pid if run.alive() else None
        if pid is not None:
            with suppress(OSError):
                os.kill(pid, 9)
    shutil.rmtree(folder, ignore_errors=True)
    forget_person(folder.name)


def delete_old() -> None:
    """Delete the things of everybody who was not here for `limits().hours`, and for whom nothing has run since."""
    for folder in people.folders() if hosted() else ():
        runs = people.runs_of(folder)
        if not all(run.status().ended for run in runs):
            continue
        if (
            time.time() - max([_changed(folder), *(run.status().at for run in runs)])
            > limits().hours * HOUR
        ):
            shutil.rmtree(folder, ignore_errors=True)
            forget_person(folder.name)


def _changed(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:
        return time.time()


def watch() -> None:
    """Delete what is old from now on, for a thread of its own."""
    while True:
        delete_old()
        time.sleep(INTERVAL)
