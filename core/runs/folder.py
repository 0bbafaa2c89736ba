"""A run's folder: the files that say how it is, readable without PyTorch, and all of it as bytes for another machine.

A node reads the status first, then checkpoints, records and frames; the server writes in the opposite order. What came
back is therefore always a state in which a killed worker could have left the folder: no checkpoint without its records,
no record without its frame.
"""

from __future__ import annotations

import json
import os
import re
import time
import zlib
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock, Timeout

from core.files import (
    is_full,
    read_checked,
    read_object,
    seconds_of,
    text_of,
    with_checksum,
    write_atomically,
)

JOBS = ("finetune", "corpus", "claim", "config")  # what a run is, by its settings' name in run.json
UNDER_WAY = ("queued", "starting", "running")
ENDED = ("finished", "stopped", "paused", "failed")
RUN_ID = re.compile(
    r"[0-9]{8}-[0-9]{6}-[0-9a-f]{6}([0-9a-f]{32})?"
)  # the longer one cannot be guessed
JOURNAL = ".changes"  # in a folder of runs that has an index: the ids of the runs that were changed
STATUS = {"state", "message", "pid", "at"}
DAMAGED = (
    "The file of its state was damaged. All that it saved is there; Continue takes it up again."
)
PROBE = 0.03  # seconds alive() waits for the lock, so that two probes do not take each other for a worker


@dataclass(frozen=True)
class Status:
    """`state` is queued, starting, running or one of ENDED; `message` says why; `at` is when it was set."""

    state: str
    message: str = ""
    pid: int | None = None
    at: float = 0.0

    @property
    def ended(self) -> bool:
        return self.state in ENDED


@dataclass(frozen=True)
class RunFolder:
    """The files by which a run is followed and stopped; reading never raises on a half-written or missing file."""

    path: Path

    @property
    def id(self) -> str:
        return self.path.name

    def exists(self) -> bool:
        return (self.path / "run.json").is_file()

    def metadata(self) -> dict:
        """The contents of run.json (config, created), or an empty dict."""
        return read_object(self.path / "run.json")

    @property
    def job(self) -> str:
        """What a worker does with it: one of JOBS, of which "config" is to train a model."""
        metadata = self.metadata()
        return next((name for name in JOBS if name in metadata), "config")

    def create(self, **data: object) -> None:
        """Make the folder with its run.json, which holds these values, None left out, and the time."""
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / "run.json").unlink(missing_ok=True)
        self.update_metadata(**data, created=time.time())

    def status(self) -> Status:
        try:
            data = read_checked((self.path / "status.json").read_bytes())
        except FileNotFoundError:
            return Status("queued", at=seconds_of(self.metadata().get("created")))
        except (OSError, ValueError, RecursionError):
            data = {}
        if data.get("state") not in (*UNDER_WAY, *ENDED) or not data.keys() <= STATUS:
            # It is replaced as a whole, so somebody else damaged it.
            return Status("running" if self.alive() else "stopped", DAMAGED)
        pid = data.get("pid")
        known = (
            isinstance(pid, int) and not isinstance(pid, bool) and 1 < pid < 2**31
        )  # kill(-1) would end everything
        return Status(
            data["state"],
            text_of(data.get("message")),
            pid if known else None,
            seconds_of(data.get("at")),
        )

    def set_status(self, state: str, message: str = "", pid: int | None = None) -> None:
        data = {"state": state, "message": message, "pid": pid, "at": time.time()}
        text = with_checksum(json.dumps(data))
        try:
            self._write("status.json", text)
        except OSError as error:
            if not is_full(error) or not (self.path / "status.json").exists():
                raise
            with open(
                self.path / "status.json", "r+b"
            ) as file:  # in its place, which takes no room
                file.write(text.ljust(os.fstat(file.fileno()).st_size))
        self._note_change()

    def _write(self, name: str, data: bytes) -> None:
        """Replace a file; FileNotFoundError in words where the run was deleted, whose folder is not made again."""
        self.require()
        write_atomically(self.path / name, data)

    def require(self) -> None:
        """FileNotFoundError, in words, where the run was deleted."""
        if not self.path.is_dir():
            raise FileNotFoundError(f"The run {self.id} was deleted.")

    def update_metadata(self, **values: object) -> None:
        """Set values in run.json (config, name, …); None deletes one."""
        data = {**self.metadata(), **values}
        data = {key: value for key, value in data.items() if value is not None}
        self._write("run.json", json.dumps(data, indent=1).encode())
        self._note_change()

    def _note_change(self) -> None:
        """Append the run to the journal of its folder's index, where it has one."""
        with suppress(OSError):
            file = os.open(self.path.parent / JOURNAL, os.O_WRONLY | os.O_APPEND)
            try:
                os.write(file, f"{self.id}\n".encode())
            finally:
                os.close(file)

    def request_stop(self, reason: str = "stop") -> None:
        """Request the worker to stop or (reason = "pause") to pause the run."""
        try:
            self._write("stop", reason.encode())
        except OSError as error:
            if not is_full(error):
                raise
            (self.path / "stop").touch()  # an empty file takes no room, and stops

    def requeue(self) -> None:
        """Withdraw a stop request and queue the run again, to continue from its last checkpoint."""
        (self.path / "stop").unlink(missing_ok=True)
        self.set_status("queued")

    def stop_request(self) -> str:
        """The requested end: "stop", "pause", or "" without a request."""
        try:
            return "pause" if (self.path / "stop").read_bytes() == b"pause" else "stop"
        except OSError:
            return ""

    def stop_age(self) -> float:
        """Seconds since the stop request; 0 without one."""
        path = self.path / "stop"
        try:
            age = time.time() - path.stat().st_mtime
            if age < 0:
                os.utime(path)  # the clock was set back: the seconds count from now
            return max(0.0, age)
        except OSError:
            return 0.0

    def alive(self) -> bool:
        """True while a worker holds the folder's lock (a process number may be reused, a lock may not)."""
        path = self.path / "lock"
        try:
            with (
                FileLock(path, timeout=PROBE, poll_interval=0.002)
                if path.exists()
                else nullcontext()
            ):
                return False
        except Timeout:
            return True
        except OSError:
            return False

    def lock(self) -> FileLock:
        """The folder's lock, which a worker holds for as long as it lives."""
        return FileLock(self.path / "lock")


OWN = ("run.json", "status.json", "stop", "lock")  # of each side
APPENDED = (".jsonl", ".f32", ".log")
AT_THE_END = re.compile(
    r"trainer/|[^/]*-tuned/"
)  # folders that are whole only once the worker has ended
STUBS = "frames/"  # a worker that continues needs their names alone
NAME = re.compile(r"(?:[\w-][\w.,+@-]*/)*[\w-][\w.,+@-]*")  # no hidden file, no step upwards


class Stamp(NamedTuple):
    """A file as it came back: its size in bytes, its time in ns, and its checksum."""

    size: int
    modified: int
    checksum: int


class Change(NamedTuple):
    """`data` replaces a file from `offset` on."""

    name: str
    offset: int
    data: bytes


@dataclass(frozen=True)
class Changes:
    """What is new in a node's folder; `ended`: the worker's process has ended, and nothing will follow."""

    files: tuple[Change, ...]
    deleted: tuple[str, ...]
    known: Mapping[str, Stamp]
    metadata: Mapping[str, Any]
    status: Mapping[str, Any]
    ended: bool


def pack(folder: Path) -> dict[str, bytes]:
    """The files with which a worker starts or continues; frames are empty."""
    names = [name for name in list_files(folder) if name not in ("stop", "lock", "status.json")]
    return {name: b"" if name.startswith(STUBS) else (folder / name).read_bytes() for name in names}


def unpack(folder: Path, files: Mapping[str, bytes]) -> dict[str, Stamp]:
    """Write the files of `pack`; returns their stamps, as what the server has."""
    for empty in ("frames", "checkpoints"):
        (folder / empty).mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        if NAME.fullmatch(name):
            write_atomically(folder / name, data)
    stamps = {}
    for name in list_files(folder):
        data, modified = (folder / name).read_bytes(), (folder / name).stat().st_mtime_ns
        stamps[name] = Stamp(len(data), modified, zlib.crc32(data))
    return stamps


def list_files(folder: Path) -> list[str]:
    """The names of a folder's files, without hidden ones (drafts), in order."""
    names = []
    for path, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        inside = Path(path).relative_to(folder).as_posix()
        names += [
            name if inside == "." else f"{inside}/{name}"
            for name in files
            if not name.startswith(".")
        ]
    return sorted(names)


def read_changes(folder: Path, known: Mapping[str, Stamp], ended: bool) -> Changes:
    """What differs from `known`; a file that grew at its end as that end only."""
    status, metadata = read_object(folder / "status.json"), read_object(folder / "run.json")
    here = set(list_files(folder))
    deleted = tuple(sorted(name for name in known if name not in here and name not in OWN))
    files: list[Change] = []
    stamps: dict[str, Stamp] = {}
    for rank in range(3):
        for name in list_files(folder):
            late = not ended and AT_THE_END.match(name)
            if name in OWN or _rank(name) != rank or late:
                continue
            try:
                stat = (folder / name).stat()
                size, modified, checksum = before = known.get(name, Stamp(0, 0, 0))
                if name in known and (size, modified) == (stat.st_size, stat.st_mtime_ns):
                    stamps[name] = before
                    continue
                data = (folder / name).read_bytes()
            except OSError:  # deleted meanwhile
                continue
            grew = name.endswith(APPENDED) and 0 < size <= len(data)
            offset = size if grew and zlib.crc32(data[:size]) == checksum else 0
            stamps[name] = Stamp(len(data), stat.st_mtime_ns, zlib.crc32(data))
            if not offset or offset < len(data):
                files.append(Change(name, offset, data[offset:]))
    return Changes(tuple(files), deleted, stamps, metadata, status, ended)


def apply(folder: Path, changes: Changes) -> None:
    """Write the changes into the server's folder; names that lead out of it are ignored."""
    for name, offset, data in reversed(changes.files):
        if not NAME.fullmatch(name) or name in OWN:
            continue
        path = folder / name
        if not offset:
            write_atomically(path, data)
            continue
        with open(path, "r+b") as file:
            file.seek(offset)
            file.write(data)
            file.truncate()
    for name in changes.deleted:
        if NAME.fullmatch(name) and name not in OWN:
            (folder / name).unlink(missing_ok=True)
            with suppress(OSError):  # a folder that is not empty
                if AT_THE_END.match(name):
                    os.removedirs((folder / name).parent)


def _rank(name: str) -> int:
    if name.startswith("checkpoints/") or name == "statistics.safetensors":
        return 0
    return 1 if name.endswith((".jsonl", ".f32")) else 2
