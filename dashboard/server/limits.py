"""What a public copy allows a person, and all people of one address together; elsewhere nothing of it holds.

The sums of an address are five to ten times those of a person: a class behind one router is thirty people, of whom some
ten train at once. They stop a browser that throws its cookie away to become another person. A person's things are
deleted when they ask for it, and when they were not here for some hours.
"""

import os
import shutil
import threading
import time
from collections import defaultdict, deque
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import streamlit as st

from core.entries import ConfigError
from core.files import PEOPLE, folder_bytes, hosted, modified, runs_folder, server_folder
from core.runs.folder import Status
from core.runs.runs import MAX_RUNS, Run, list_runs, max_disk_bytes, prune
from core.runs.sweeps import Sweep
from core.settings import settings
from core.training.config import BOUNDS, RunConfig
from dashboard.draw.formats import byte_size
from dashboard.server import people
from dashboard.server.visitors import forget_person, me, neighbours, take

MB, HOUR = 1_000_000, 3_600.0
GRACE = 30.0  # seconds beyond a turn's own, in which a worker starts, and writes what it has
COUNTED = "limits:uploads"  # the session's key of the files that were counted


class QueueFull(Exception):
    """Too many runs wait already."""


class LimitReached(ConfigError, QueueFull):
    """More than a public copy allows; the message says what is allowed, and what to do."""


class NotYours(LimitReached):
    """The run belongs to another person of a public copy."""


def check_owner(item: Run | Sweep) -> None:
    """NotYours where another person made it."""
    if not people.mine(item):
        raise NotYours(
            "This belongs to another person. You can look at it, and copy it, but not change it."
        )


def _refuse_if(over: bool, message: str) -> None:
    if over:
        raise LimitReached(message)


@dataclass(frozen=True)
class Limits:
    """Each limit, for a machine with 1 GB; ATTENTION_LAB_HOSTED_LIMITS, such as steps=500 hours=12, sets others."""

    steps: Annotated[int, "steps of a run"] = 2_000
    seconds: Annotated[
        int, "seconds of a run; a claim, a corpus or a fine-tuning run may continue after them"
    ] = 120
    under_way: Annotated[int, "runs of a person that wait or train"] = 20
    runs: Annotated[int, "runs that are kept for a person; the oldest without a name go first"] = 40
    megabytes: Annotated[int, "MB of disk for a person's runs, reports and data"] = 200
    upload_megabytes: Annotated[int, "MB of one uploaded file"] = 5
    unpacked_megabytes: Annotated[int, "MB of an uploaded run, unpacked"] = 20
    uploads: Annotated[int, "uploaded files of a person in an hour"] = 20
    held_megabytes: Annotated[
        int, "MB of uploaded files that the memory holds for one open page"
    ] = 25
    message_megabytes: Annotated[
        int, "MB of one message of a browser, with all that its page has been given"
    ] = 2
    address_under_way: Annotated[int, "runs of all people of one address that wait or train"] = 200
    address_megabytes: Annotated[int, "MB of disk for all people of one address"] = 1_000
    address_uploads: Annotated[int, "uploaded files of all people of one address in an hour"] = 200
    address_held_megabytes: Annotated[
        int, "MB of uploaded files that the memory holds for one address"
    ] = 150
    address_sessions: Annotated[int, "open pages of all people of one address"] = 80
    sessions: Annotated[int, "open pages of everybody"] = 300
    queue: Annotated[int, "runs of everybody that wait"] = 300
    server_megabytes: Annotated[int, "MB of disk for everybody"] = 4_000
    downloads: Annotated[int, "models that are downloaded at one time"] = 1
    hours: Annotated[
        int,
        "hours after the last visit and the last run, after which a person's things are deleted",
    ] = 24


MEANINGS = {
    name: hint.__metadata__[0] for name, hint in get_type_hints(Limits, include_extras=True).items()
}
VARIABLE = "ATTENTION_LAB_HOSTED_LIMITS"


def limits() -> Limits:
    """The limits as they are set; ValueError names one that is no whole number, or that there is not."""
    values: dict[str, int] = {}
    for name, text in settings().hosted_limits.items():
        if name not in MEANINGS:
            raise ValueError(f"{VARIABLE} has {', '.join(MEANINGS)}, but no {name!r:.60}.")
        if not text.isdecimal():
            raise ValueError(f"{VARIABLE}: {name} = {text!r:.60} is no whole number.")
        values[name] = int(text)
    return Limits(**values)


def at_most(name: str, value: int) -> int:
    """A limit by its name, where it is less than `value`, which holds elsewhere."""
    return min(value, getattr(limits(), name)) if hosted() else value


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
    now, own = limits(), len(people.unfinished_runs([runs_folder()]))
    _refuse_if(
        own + more > now.under_way,
        f"{own} of your runs wait or train; with {more} more they would be over the "
        f"{now.under_way} that a person may have here. Stop some, or wait until they have ended.",
    )
    _refuse_if(
        len(people.unfinished_runs(_near())) + more > now.address_under_way,
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
        keep, max_bytes = at_most("runs", keep), min(max_bytes, limits().megabytes * MB)
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
        own > now.megabytes * MB,
        f"Your runs, reports and data take {byte_size(own)}{' with this' if more else ''}, and here "
        f"a person has {byte_size(now.megabytes * MB)}. Delete some of them on the page Runs.",
    )
    _refuse_if(
        sum(map(folder_bytes, _near())) + more > now.address_megabytes * MB,
        "What people of your network store takes all the room that one network has here.",
    )
    _refuse_if(
        sum(map(folder_bytes, people.folders())) + more > now.server_megabytes * MB,
        f"The disk of this copy is full. Things are deleted {now.hours} h after their last use; try "
        "again later.",
    )


def _near() -> list[Path]:
    keys = neighbours()
    return [folder for folder in people.folders() if folder.name in keys]


def is_over(run: Run, status: Status) -> bool:
    """Whether a worker has had its turn on a public copy: the time of a run, or its person's disk.

    The sums of an address and of everybody are over by at most what the runs under way add: they are read at a start,
    since all folders take too long for each second.
    """
    if not hosted() or status.state != "running":
        return False
    now = limits()
    late = time.time() - status.at > now.seconds + GRACE
    return late or folder_bytes(server_folder() / PEOPLE / people.owner(run)) > now.megabytes * MB


def where_stored() -> str:
    """Where a person's own data is stored, and for how long, in a sentence."""
    if not hosted():
        return "The data stays on this machine, in the run's folder."
    return f"The data stays on this server, for you alone, until {limits().hours} h after your last visit and run."


_uploads: dict[str, deque[float]] = defaultdict(
    deque
)  # when each person's files came, in the last hour
_uploads_lock = threading.Lock()


def admit_upload(file: Any) -> None:
    """Count an uploaded file, once in a session; LimitReached where it is too large, or one too many."""
    if not hosted():
        return
    now, counted = limits(), st.session_state.setdefault(COUNTED, set())
    if file.file_id in counted:
        return
    most = now.upload_megabytes * MB
    _refuse_if(
        file.size > most,
        f"This file has {byte_size(file.size)}; here a file may have {byte_size(most)}.",
    )
    check_disk(file.size)
    with _uploads_lock:
        for key in [key for key in _uploads if not _recent(key)]:
            del _uploads[key]
        _refuse_if(
            _recent(me()) >= now.uploads,
            f"Here a person may upload {now.uploads} files in an hour. Try again later.",
        )
        _refuse_if(
            sum(map(_recent, neighbours())) >= now.address_uploads,
            "Too many files were uploaded from your network within an hour. Try again later.",
        )
        _uploads[me()].append(time.monotonic())
    counted.add(file.file_id)
    take(file.file_id)


def _recent(key: str) -> int:
    times = _uploads[key]
    while times and time.monotonic() - times[0] > HOUR:
        times.popleft()
    return len(times)


INTERVAL = 600.0  # seconds between two looks for what is old


def delete_mine() -> None:
    """Delete all that the person who asks has stored, and end what trains for them; they go on with nothing."""
    from dashboard.server import jobs  # which imports this module

    folder = runs_folder()
    if folder.parent.name != PEOPLE:  # no assert, which python -O leaves out: a folder is deleted
        raise AssertionError("only a person's folder is deleted")
    runs = people.unfinished_runs([folder])
    # those that wait first: else one takes the worker of another
    for run in sorted(runs, key=lambda run: run.status().state != "queued"):
        jobs.stop(run)
    for run in runs:
        # End a worker at once: what it would still save is deleted anyway
        if run.alive() and (pid := run.status().pid) is not None:
            with suppress(OSError):
                os.kill(pid, 9)
    shutil.rmtree(folder, ignore_errors=True)
    forget_person(folder.name)


def delete_old() -> None:
    """Delete the things of everybody who was not here for `limits().hours`, and for whom nothing has run since."""
    for folder in people.folders() if hosted() else ():
        runs = [run for home in people.homes([folder]) for run in list_runs(home)]
        if not all(run.status().ended for run in runs):
            continue
        last = max([modified(folder, time.time()), *(run.status().at for run in runs)])
        if time.time() - last > limits().hours * HOUR:
            shutil.rmtree(folder, ignore_errors=True)
            forget_person(folder.name)


def watch() -> None:
    while True:
        delete_old()
        time.sleep(INTERVAL)
