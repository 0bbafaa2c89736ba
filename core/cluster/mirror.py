"""A run's folder as bytes for a node, and what changed there as bytes for the server.

A node reads the status first, then checkpoints, records and frames; the server writes in the opposite order. What came
back is therefore always a state in which a killed worker could have left the folder: no checkpoint without its records,
no record without its frame.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from core.files import read_object, write_atomically

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
    return {name: _stamp(folder / name) for name in list_files(folder)}


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
            if name in OWN or _rank(name) != rank or (not ended and AT_THE_END.match(name)):
                continue
            try:
                stat = (folder / name).stat()
                before = known.get(name)
                if before is not None and (before.size, before.modified) == (
                    stat.st_size,
                    stat.st_mtime_ns,
                ):
                    stamps[name] = before
                    continue
                data = (folder / name).read_bytes()
            except OSError:  # deleted meanwhile
                continue
            offset = _known_part(name, data, before)
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


def _known_part(name: str, data: bytes, before: Stamp | None) -> int:
    """How many bytes of a file the server has."""
    if before is None or not name.endswith(APPENDED) or len(data) < before.size:
        return 0
    return before.size if zlib.crc32(data[: before.size]) == before.checksum else 0


def _stamp(path: Path) -> Stamp:
    data = path.read_bytes()
    return Stamp(len(data), path.stat().st_mtime_ns, zlib.crc32(data))
