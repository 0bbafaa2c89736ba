"""What each person of a public copy has made: one folder, which is `core.files.runs_folder` wherever their page asks.

So lists, names, searches, menus, counts and errors hold nothing of anybody else. A link opens a run of another person,
to be looked at and copied: `find_run` and the like are for links, and whatever changes a run asks `mine` before.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from core.files import CLAIMS, CORPORA, PEOPLE, hosted, runs_folder, server_folder
from core.runs.folder import Status, list_statuses, unfinished
from core.runs.runs import Run, find_run as find_run_in
from core.runs.store import bring_all
from core.runs.sweeps import Sweep
from dashboard.server.visitors import ID

SECRET = 32  # characters at the end of an id that nobody guesses


def folders() -> list[Path]:
    """The folders of all people, or the server's alone where this is no public copy."""
    if not hosted():
        return [server_folder()]
    with suppress(OSError):
        return [
            server_folder() / PEOPLE / name
            for name in sorted(os.listdir(server_folder() / PEOPLE))
            if ID.fullmatch(name)
        ]
    return []


def homes(folders: Iterable[Path]) -> list[Path]:
    """The folders of runs, and of measurements of corpora and of claims, in these folders."""
    return [folder / name for folder in folders for name in ("", CORPORA, CLAIMS)]


def unfinished_runs(of: Iterable[Path] | None = None) -> list[Run]:
    """What workers work on or will, of everybody or in these folders."""
    every = homes(folders() if of is None else of)
    return [Run(home / name) for home in every for name in unfinished(home)]


def statuses() -> list[Status]:
    return [status for home in homes(folders()) for status in list_statuses(home)]


def owner(run: Run) -> str:
    """The name of the folder of the person who made a run; "" where this is no public copy."""
    home = server_folder() / PEOPLE
    return run.path.relative_to(home).parts[0] if run.path.is_relative_to(home) else ""


def mine(item: Run | Sweep) -> bool:
    """Whether the person who asks made it, and so may change it; where this is no public copy, anybody may."""
    return not hosted() or item.path.is_relative_to(runs_folder())


def find_run(run_id: object, folder: str = "") -> Run | None:
    """The run of this id, of the person who asks or of one who gave them its link; None where there is none.

    With a store it may be a run of another server, which is fetched. Measurements of a corpus are in the `folder`
    CORPORA.
    """
    bring_all([run_id], folder)
    return next(
        (run for home in homes_of(run_id) if (run := find_run_in(run_id, home / folder))), None
    )


def homes_of(name: object) -> Iterator[Path]:
    """The folder of the person who asks; then those of others, for an id that nobody guesses."""
    yield runs_folder()
    if hosted() and isinstance(name, str) and len(name) > SECRET:
        yield from folders()
