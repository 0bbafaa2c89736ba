"""Whose a run is, and what each person of a public copy may have.

A person has one folder, which is `core.files.runs_folder` wherever their page asks. So lists, names, searches, menus,
counts and errors hold nothing of anybody else. A link opens a run of another person, to be looked at and copied:
`find_run` and the like are for links, and whatever changes a run asks `mine` before.

The sums of an address are five to ten times those of a person: a class behind one router is thirty people, of whom some
ten train at once. They stop a browser that throws its cookie away to become another person. A person's things are
deleted when they ask for it, and when they were not here for some hours. Elsewhere nothing of it holds.
"""

import os
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import streamlit as st

from core.entries import ConfigError
from core.files import (
    MEASUREMENTS,
    PEOPLE,
    folder_bytes,
    hosted,
    modified,
    remove_tree,
    runs_folder,
    server_folder,
)
from core.runs.folder import Status, list_statuses, unfinished
from core.runs.runs import (
    MAX_RUNS,
    Run,
    find_run as find_run_in,
    list_runs,
    max_disk_bytes,
    prune,
)
from core.runs.store import bring_all
from core.runs.sweeps import Sweep
from core.training.config import BOUNDS, RunConfig
from dashboard.draw.formats import byte_size
from dashboard.server.visitors import (
    ID,
    MB,
    at_most,
    forget_person,
    limits,
    me,
    neighbours,
    take,
)


def folders() -> list[Path]:
    """The folders of all people, or the server's alone where this is no public copy."""
    if not hosted():
        return [server_folder()]
    return sorted(path for path in (server_folder() / PEOPLE).glob("*") if ID.fullmatch(path.name))


def homes(folders: Iterable[Path]) -> list[Path]:
    return [folder / name for folder in folders for name in ("", *MEASUREMENTS)]


def unfinished_runs(of: Iterable[Path] | None = None) -> list[Run]:
    """What workers work on or will, of everybody or in these folders."""
    return [
        Run(home / name)
        for home in homes(folders() if of is None else of)
        for name in unfinished(home)
    ]


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
    core.files.CORPORA.
    """
    bring_all([run_id], folder)
    return next(
        (run for home in homes_of(run_id) if (run := find_run_in(run_id, home / folder))), None
    )


def homes_of(name: object) -> Iterator[Path]:
    """The folder of the person who asks; then those of others, for an id that nobody guesses."""
    yield runs_folder()
    if hosted() and isinstance(name, str) and len(name) > 32:
        yield from folders()


def below_home(path: Path) -> Path:
    """A path from the folder of the person whose it is: on a public copy below the server's, else ~; any other as it is."""
    if not hosted():
        home = Path(os.path.expanduser("~")).resolve()  # pathlib raises where there is none
        return Path("~", path.relative_to(home)) if path.is_relative_to(home) else path
    owner = next((one for one in folders() if path.is_relative_to(one)), None)
    return path if owner is None else path.relative_to(owner)


# What a public copy allows.


HOUR = 3_600.0
GRACE = 30.0  # seconds beyond a turn's own, in which a worker starts, and writes what it has


class QueueFull(Exception):
    """Too many runs wait already."""


class LimitReached(ConfigError, QueueFull):
    """More than a public copy allows; the message says what is allowed, and what to do."""


class NotYours(LimitReached):
    """The run belongs to another person of a public copy."""


def check_owner(item: Run | Sweep) -> None:
    if not mine(item):
        raise NotYours(
            "This belongs to another person. You can look at it, and copy it, but not change it."
        )


def _refuse_if(over: bool, message: str) -> None:
    if over:
        raise LimitReached(message)


def max_run_steps() -> int:
    return at_most("steps", int(BOUNDS["steps"][1]))


def max_run_seconds() -> float:
    return float(at_most("seconds", int(BOUNDS["max_seconds"][1])))


def within(config: RunConfig) -> RunConfig:
    """The config with no more steps and seconds than a run may have; a page begins with it."""
    return replace(
        config,
        steps=min(config.steps, max_run_steps()),
        max_seconds=min(config.max_seconds, max_run_seconds()),
    )


def spent(run: Run, step: int | None = None) -> float:
    return max(
        (record.elapsed for record in run.records() if step is None or record.step <= step),
        default=0.0,
    )


def admit_config(config: RunConfig, seconds: float = 0.0) -> RunConfig:
    """The config with the limit on its time, of which `seconds` are spent.

    LimitReached where none is left, and for more steps, unless the seconds of training end it before.
    """
    if not hosted():
        return config
    _refuse_if(
        seconds >= max_run_seconds(),
        f"This run has had the {max_run_seconds():.0f} s that a run may take here.",
    )
    _refuse_if(
        config.steps > max_run_steps() and config.max_train_seconds > max_run_seconds(),
        f"This run would have {config.steps:,} steps; here a run may have {max_run_steps():,} and take "
        f"{max_run_seconds():.0f} s. Choose fewer steps.",
    )
    return replace(config, max_seconds=min(config.max_seconds, max_run_seconds()))


def check_runs(more: int) -> None:
    """LimitReached where a person, an address or the disk has no room for more runs."""
    if not hosted():
        return
    now, own = limits(), len(unfinished_runs([runs_folder()]))
    _refuse_if(
        own + more > now["under_way"],
        f"{own} of your runs wait or train; with {more} more they would be over the "
        f"{now['under_way']} that a person may have here. Stop some, or wait until they have ended.",
    )
    _refuse_if(
        len(unfinished_runs(_near())) + more > now["address_under_way"],
        "Too many runs from your network wait or train. Wait until some of them have ended.",
    )


def make_room(
    size: int = 0,
    more: int = 1,
    keep: int = MAX_RUNS,
    root: Path | None = None,
    max_bytes: int | None = None,
    source: Run | None = None,
) -> None:
    """Delete the oldest runs in `root` but `source` until `more` fit in, of `size` bytes, among `keep` of `max_bytes` bytes.

    LimitReached where that is not enough.
    """
    max_bytes = max_disk_bytes() if max_bytes is None else max_bytes
    if hosted():
        keep, max_bytes = at_most("runs", keep), min(max_bytes, limits()["megabytes"] * MB)
    _refuse_if(
        size > max_bytes,
        f"This takes {byte_size(size)}, and all runs together may take {byte_size(max_bytes)}.",
    )
    prune(keep - more, root, max_bytes - size, source)
    check_disk(size)


def check_disk(more: int = 0) -> None:
    """LimitReached where a person, their address or everybody would store more than the disk is for, with `more` bytes
    to come."""
    if not hosted():
        return
    now, own = limits(), folder_bytes(runs_folder()) + more
    _refuse_if(
        own > now["megabytes"] * MB,
        f"Your runs, reports and data take {byte_size(own)}{' with this' if more else ''}, and here "
        f"a person has {byte_size(now['megabytes'] * MB)}. Delete some of them on the page Runs.",
    )
    _refuse_if(
        sum(map(folder_bytes, _near())) + more > now["address_megabytes"] * MB,
        "What people of your network store takes all the room that one network has here.",
    )
    _refuse_if(
        sum(map(folder_bytes, folders())) + more > now["server_megabytes"] * MB,
        f"The disk of this copy is full. Things are deleted {now['hours']} h after their last use; try "
        "again later.",
    )


def _near() -> list[Path]:
    keys = neighbours()
    return [folder for folder in folders() if folder.name in keys]


def is_over(run: Run, status: Status) -> bool:
    """Whether a worker has had its turn on a public copy: the time of a run, or its person's disk.

    The sums of an address and of everybody are over by at most what the runs under way add: they are read at a start,
    since all folders take too long for each second.
    """
    if not hosted() or status.state != "running":
        return False
    now = limits()
    late = time.time() - status.at > now["seconds"] + GRACE
    return late or folder_bytes(server_folder() / PEOPLE / owner(run)) > now["megabytes"] * MB


def where_stored() -> str:
    """Where a person's own data is stored, and for how long, in a sentence."""
    if not hosted():
        return "The data stays on this machine, in the run's folder."
    return f"The data stays on this server, for you alone, until {limits()['hours']} h after your last visit and run."


_uploads: list[tuple[float, str]] = []  # when files came in the last hour, and of whom
_uploads_lock = threading.Lock()


def admit_upload(file: Any) -> None:
    """Count an uploaded file, once in a session; LimitReached where it is too large, or one too many."""
    if not hosted():
        return
    now, counted = limits(), st.session_state.setdefault("limits:uploads", set())  # ids of files
    if file.file_id in counted:
        return
    max_bytes = now["upload_megabytes"] * MB
    _refuse_if(
        file.size > max_bytes,
        f"This file has {byte_size(file.size)}; here a file may have {byte_size(max_bytes)}.",
    )
    check_disk(file.size)
    with _uploads_lock:
        _uploads[:] = [one for one in _uploads if time.monotonic() - one[0] < HOUR]
        count = Counter(person for _, person in _uploads)
        _refuse_if(
            count[me()] >= now["uploads"],
            f"Here a person may upload {now['uploads']} files in an hour. Try again later.",
        )
        _refuse_if(
            sum(count[person] for person in neighbours()) >= now["address_uploads"],
            "Too many files were uploaded from your network within an hour. Try again later.",
        )
        _uploads.append((time.monotonic(), me()))
    counted.add(file.file_id)
    take(file.file_id)


def delete_old() -> None:
    """Delete the things of everybody who was not here for `limits()['hours']`, and for whom nothing has run since."""
    for folder in folders() if hosted() else ():
        runs = [run for home in homes([folder]) for run in list_runs(home)]
        if not all(run.status().ended for run in runs):
            continue
        if (
            time.time() - max([modified(folder, time.time()), *(run.status().at for run in runs)])
            > limits()["hours"] * HOUR
        ):
            remove_tree(folder)
            forget_person(folder.name)


def watch() -> None:
    while True:
        delete_old()
        time.sleep(600.0)
