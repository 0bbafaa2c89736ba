"""A run's folder: the files that say how it is, readable without PyTorch, and all of it as bytes for another machine;
and an index of a folder of runs.

A node reads the status first, then checkpoints, records and frames; the server writes in the opposite order. What came
back is therefore always a state in which a killed worker could have left the folder: no checkpoint without its records,
no record without its frame.

The index of a folder of runs is in memory, and of many runs also in one file beside them, from which the next process
begins. Either is a cache: the folders stay the truth. Whoever changes a run replaces a file of its folder, whose time the
system then sets.
"""

import json
import os
import re
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
from filelock import FileLock, Timeout

from core.files import (
    folder_bytes,
    is_full,
    modified,
    read_checked,
    read_object,
    seconds_of,
    text_of,
    with_checksum,
    write_atomically,
)

JOBS = (
    "finetune",
    "corpus",
    "pairs",
    "claim",
    "board",
    "config",
)  # what a run is, by its settings' name in run.json
UNDER_WAY = ("queued", "starting", "running")
ENDED = ("finished", "stopped", "paused", "failed")
# the longer one cannot be guessed
RUN_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{6}([0-9a-f]{32})?")
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
        """What a worker does with it: one of JOBS, of which "config" is to train a model. "watched": a training that
        runs elsewhere, which is nobody's work here."""
        metadata = self.metadata()
        return next((name for name in ("watched", *JOBS) if name in metadata), "config")

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
        pid, at = data.get("pid"), seconds_of(data.get("at"))
        known = type(pid) is int and 1 < pid < 2**31  # kill(-1) would end everything
        return Status(data["state"], text_of(data.get("message")), pid if known else None, at)

    def set_status(self, state: str, message: str = "", pid: int | None = None) -> None:
        text = with_checksum(
            json.dumps({"state": state, "message": message, "pid": pid, "at": time.time()})
        )
        try:
            self._write("status.json", text)
        except OSError as error:
            if not is_full(error) or not (self.path / "status.json").exists():
                raise
            with open(
                self.path / "status.json", "r+b"
            ) as file:  # in its place, which takes no room
                file.write(text.ljust(os.fstat(file.fileno()).st_size))
            os.utime(self.path)

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
        with suppress(OSError):
            if (age := time.time() - path.stat().st_mtime) >= 0:
                return age
            os.utime(path)  # the clock was set back: the seconds count from now
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
        except OSError as error:
            return isinstance(error, Timeout)

    def lock(self) -> FileLock:
        """The folder's lock, which a worker holds for as long as it lives."""
        return FileLock(self.path / "lock")


OWN = ("run.json", "status.json", "stop", "lock")  # of each side
# folders that are whole only once the worker has ended
AT_THE_END = re.compile(r"trainer/|[^/]*-tuned/")
NAME = re.compile(r"(?:[\w-][\w.,+@-]*/)*[\w-][\w.,+@-]*")  # no hidden file, no step upwards


Stamp = tuple[int, int, int]  # of a file as it came back: size in bytes, time in ns, checksum
Change = tuple[str, int, bytes]  # the bytes that replace a file's from an offset on


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
    """The files with which a worker starts or continues; frames are empty, as it needs their names alone."""
    return {
        name: b"" if name.startswith("frames/") else (folder / name).read_bytes()
        for name in list_files(folder)
        if name not in ("stop", "lock", "status.json")
    }


def unpack(folder: Path, files: Mapping[str, bytes]) -> dict[str, Stamp]:
    """Write the files of `pack`; returns their stamps, as what the server has."""
    for empty in ("frames", "checkpoints"):
        (folder / empty).mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        if NAME.fullmatch(name):
            write_atomically(folder / name, data)
    return {
        name: _stamp((folder / name).read_bytes(), (folder / name).stat())
        for name in list_files(folder)
    }


def _stamp(data: bytes, stat: os.stat_result) -> Stamp:
    return len(data), stat.st_mtime_ns, zlib.crc32(data)


def list_files(folder: Path) -> list[str]:
    """The names of a folder's files, without hidden ones (drafts), in order."""
    names = []
    for path, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        inside = [Path(path, name) for name in files if not name.startswith(".")]
        names += [file.relative_to(folder).as_posix() for file in inside]
    return sorted(names)


def read_changes(folder: Path, known: Mapping[str, Stamp], ended: bool) -> Changes:
    """What differs from `known`; a file that grew at its end as that end only."""
    status, metadata = read_object(folder / "status.json"), read_object(folder / "run.json")
    deleted = tuple(sorted(known.keys() - {*list_files(folder), *OWN}))
    files: list[Change] = []
    stamps: dict[str, Stamp] = {}
    for rank in (0, 1, 2):
        for name in list_files(folder):
            if name in OWN or _rank(name) != rank or not ended and AT_THE_END.match(name):
                continue
            try:
                stat, before = (folder / name).stat(), known.get(name)
                if before and before[:2] == (stat.st_size, stat.st_mtime_ns):
                    stamps[name] = before
                    continue
                data = (folder / name).read_bytes()
            except OSError:  # deleted meanwhile
                continue
            offset = before[0] if before and name.endswith((".jsonl", ".f32", ".log")) else 0
            if before and zlib.crc32(data[:offset]) != before[2]:  # not that alone and more
                offset = 0
            stamps[name] = _stamp(data, stat)
            if not offset or offset < len(data):
                files.append((name, offset, data[offset:]))
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


FILE = ".index.json"
MAX_UNSAVED = 100  # runs of which no file is written
SAVE_SECONDS = 60.0  # between two files of an index
TURN = 100  # further runs that a refresh compares with their folders
FILL_SECONDS = 0.3
STAMPED = ("status.json", "run.json", "metrics.jsonl", "checkpoints")


@dataclass(frozen=True)
class Details:
    """What a search and a comparison need of a run: casefolded words; digests of its task and config, and its best
    result (higher is better), where it has them; seconds trained; whether it has measured a loss."""

    text: str
    task: str | None = None
    config: str | None = None
    score: float | None = None
    trained: float = 0.0
    measured: bool = False

    def has(self, words: Sequence[str]) -> bool:
        return all(word in self.text for word in words)


@dataclass
class Row:
    """A run as it was read: when its folder was changed, and what changes with its files; its state, since when,
    and whether it has a name; its details and its bytes once they are known."""

    changed: float
    stamp: str
    state: str
    at: float
    named: bool
    details: Details | None = None
    bytes: int | None = None


@dataclass
class RunIndex:
    """The runs of a folder as of the last refresh, by id."""

    root: Path
    rows: dict[str, Row] = field(default_factory=dict)
    last: str = ""  # the last run of the turn before
    saved: float = 0.0
    lock: threading.RLock = field(default_factory=threading.RLock)

    def unfinished(self) -> list[str]:
        """The runs that wait or are under way."""
        return sorted(name for name, row in self.rows.items() if row.state not in ENDED)

    def search(self, words: Sequence[str] = ()) -> list[str]:
        """The runs that have every word in their text, or as their id, the newest first."""
        return [
            name
            for name, row in sorted(self.rows.items(), reverse=True)
            if (row.details or Details("")).has([word for word in words if word != name])
        ]

    def best(self, task: str, config: str) -> str | None:
        """The run of this task with the best result among those with another config; of equals the faster."""
        results = [
            (-one.score, one.trained, name)
            for name, row in self.rows.items()
            if (one := row.details) and one.task == task
            if one.config != config and one.score is not None
        ]
        return min(results)[-1] if results else None

    def first_measured(self, words: Sequence[str]) -> str | None:
        """The newest run of a search that has measured something."""
        details = ((name, self.rows[name].details) for name in self.search(words))
        return next((name for name, one in details if one and one.measured), None)

    def sizes(self) -> dict[str, int]:
        """The bytes of every run; those that are not known are counted."""
        for name, row in self.rows.items():
            row.bytes = folder_bytes(self.root / name) if row.bytes is None else row.bytes
        return {name: row.bytes or 0 for name, row in self.rows.items()}

    def oldest_first(self) -> list[str]:
        """The ended runs in the order in which they may go: without a name, then with one, each the oldest first."""
        ended = [(row.named, name) for name, row in self.rows.items() if row.state in ENDED]
        return [name for _, name in sorted(ended)]

    def fill(self, describe: Callable[[str], Details], seconds: float = FILL_SECONDS) -> int:
        """Read the details of runs without any, the newest first, for some seconds; returns how many are left."""
        end = time.monotonic() + seconds
        missing = [one for one in sorted(self.rows.items(), reverse=True) if one[1].details is None]
        for count, (name, row) in enumerate(missing):
            if count >= MAX_UNSAVED and time.monotonic() > end:
                return len(missing) - count
            row.details = describe(name)
        return 0

    def refresh(self) -> None:
        """Read what has changed: runs that are new or have not ended or whose folder was changed, and the next in turn,
        so that what other programs change within a file is noticed too."""
        changed = dict[str, float]()
        with suppress(OSError), os.scandir(self.root) as entries:
            changed = {one.name: modified(one) for one in entries if RUN_ID.fullmatch(one.name)}
        turn = {*[name for name in sorted(changed) if name > self.last][:TURN]}
        self.last = max(turn) if len(turn) == TURN else ""
        self.rows = {name: row for name, row in self.rows.items() if name in changed}
        for name, at in changed.items():
            row = self.rows.get(name)
            ended = row is not None and row.state in ENDED
            if row and ended and row.changed == at and name not in turn:
                continue
            run, stamp = RunFolder(self.root / name), stamp_of(self.root / name)
            if row and ended and row.stamp == stamp:
                row.changed = at
            elif run.exists():
                status, named = run.status(), bool(run.metadata().get("name"))
                self.rows[name] = Row(at, stamp, status.state, status.at, named)
            else:
                self.rows.pop(name, None)


def unfinished(root: Path) -> list[str]:
    """The ids of the runs of a folder that wait or are under way, the oldest first."""
    with open_index(root) as index:
        return index.unfinished()


def list_statuses(root: Path) -> list[Status]:
    """The state of every run of a folder, and since when."""
    with open_index(root) as index:
        return [Status(row.state, at=row.at) for row in index.rows.values()]


@contextmanager
def open_index(root: Path) -> Iterator[RunIndex]:
    """The index of a folder of runs, refreshed; nobody else in this process has it during the block. Of many runs it is
    saved once in SAVE_SECONDS."""
    index = _index(root)
    with index.lock:
        index.refresh()
        yield index
        if len(index.rows) > MAX_UNSAVED and time.monotonic() - index.saved > SAVE_SECONDS:
            index.saved = time.monotonic()
            with suppress(OSError):
                write_atomically(root / FILE, msgspec.json.encode(index.rows))


@lru_cache(maxsize=1_000)
def _index(root: Path) -> RunIndex:
    with suppress(OSError, msgspec.MsgspecError):
        rows = msgspec.json.decode((root / FILE).read_bytes(), type=dict[str, Row])
        return RunIndex(root, rows)
    return RunIndex(root)


def run_names(root: Path) -> set[str]:
    with suppress(OSError):
        return {name for name in os.listdir(root) if RUN_ID.fullmatch(name)}
    return set()


def version(path: Path) -> list[int] | None:
    """The size and time of a file; None without it."""
    with suppress(OSError):
        stat = path.stat()
        return [stat.st_size, stat.st_mtime_ns]
    return None


def stamp_of(folder: Path, names: Sequence[str] = STAMPED) -> str:
    """The times and sizes of the files that a row is read from."""
    return " ".join(
        f"{one[1]}:{one[0]}" if (one := version(folder / name)) else "" for name in names
    )
