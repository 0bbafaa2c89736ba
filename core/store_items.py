"""What of a server is copied to a store: runs, measurements of corpora and of claims, sweeps and reports.

Each has an id and lies in one of the server's folders, its home ("" for runs). A sweep and a report are one file, what
else there is is a folder.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.cluster.mirror import list_files
from core.files import (
    CLAIMS,
    CORPORA,
    REPORTS,
    SWEEPS,
    read_object,
    seconds_of,
    text_of,
    write_atomically,
)
from core.run_folder import RUN_ID, RunFolder
from core.run_index import STAMPED, open_index, stamp_of, unfinished

FILES = {SWEEPS: ".json", REPORTS: ".json.gz"}
HOMES = ("", CORPORA, CLAIMS, *FILES)
REPORT_ID = re.compile(r"[0-9a-f]{16}")
MANIFEST = ".stored.json"
STATUS, RECORDS, STATISTICS = "status.json", "metrics.jsonl", "statistics.safetensors"
HELD = (
    RECORDS,
    STATISTICS,
    "run.json",
    STATUS,
)  # read before the other files of a run, and written after them
MEASURED = (*STAMPED, STATISTICS, "cells.jsonl")
LOCAL = ("stop", "lock")  # files that mean nothing on another machine


@dataclass(frozen=True)
class Manifest:
    """What of an item is in the store: its server ("" before the first copy), since when it may write it, its stamp
    there, and its files' sizes and times."""

    server: str = ""
    owned: float = 0.0
    stamp: str = ""
    files: dict[str, list[int]] | None = None


@dataclass(frozen=True)
class Item:
    """One run, measurement, sweep or report below the folder `root`; ValueError for an id that none has."""

    root: Path
    home: str
    id: str

    def __post_init__(self) -> None:
        if self.home not in HOMES or not is_id(self.id):
            raise ValueError(f"{self.home}/{self.id} is nothing that a store holds.")

    @classmethod
    def at(cls, root: Path, path: Path) -> Item | None:
        """The item of this folder, or None where it is not among those of `root`."""
        home = next(
            (home for home in HOMES if home not in FILES and path.parent == root / home), None
        )
        return None if home is None or not is_id(path.name) else cls(root, home, path.name)

    @property
    def single(self) -> bool:
        """Whether it is one file."""
        return self.home in FILES

    @property
    def folder(self) -> Path:
        """The folder of its files."""
        return self.root / self.home / ("" if self.single else self.id)

    @property
    def remote(self) -> str:
        """Its folder in the store."""
        return f"{self.home or 'runs'}/{self.id}"

    @property
    def run(self) -> RunFolder:
        return RunFolder(self.folder)

    def exists(self) -> bool:
        return (self.folder / self.names()[0]).is_file() if self.single else self.run.exists()

    def stamp(self) -> str:
        """What changes with its content."""
        if self.single:
            return stamp_of(self.folder, self.names())
        return stamp_of(self.folder, MEASURED if self.home else STAMPED)

    def names(self) -> list[str]:
        """The names of its files in the order of writing: frames, records, checkpoints, and the status last."""
        if self.single:
            return [f"{self.id}{FILES[self.home]}"]
        names = [name for name in list_files(self.folder) if name not in LOCAL]
        checkpoints = [name for name in names if name.startswith("checkpoints/")]
        others = [
            name for name in names if name not in HELD and not name.startswith("checkpoints/")
        ]
        return [*others, RECORDS, *checkpoints, *HELD[1:]]

    def read_manifest(self) -> Manifest:
        data = read_object(self._manifest)
        files = data.get("files")
        return Manifest(
            text_of(data.get("server")),
            seconds_of(data.get("owned")),
            text_of(data.get("stamp")),
            files if isinstance(files, dict) else {},
        )

    def write_manifest(self, manifest: Manifest) -> None:
        if self.exists():
            with suppress(FileNotFoundError):
                write_atomically(self._manifest, json.dumps(vars(manifest)).encode())

    def delete_manifest(self) -> None:
        self._manifest.unlink(missing_ok=True)

    @property
    def _manifest(self) -> Path:
        return self.folder / (f".{self.id}{MANIFEST}" if self.single else MANIFEST)


def is_id(name: str) -> bool:
    """Whether an item may be called so."""
    return bool(RUN_ID.fullmatch(name) or REPORT_ID.fullmatch(name))


def scan(root: Path) -> tuple[dict[Item, str], list[Item]]:
    """Every item with its stamp, and the runs and measurements that wait or are under way."""
    with open_index(root) as index:
        stamps = {Item(root, "", name): stamp for name, stamp in index.stamps().items()}
        busy = [Item(root, "", name) for name in index.unfinished()]
    for home in (CORPORA, CLAIMS):
        items = [Item(root, home, name) for name in _names(root / home) if RUN_ID.fullmatch(name)]
        stamps |= {item: item.stamp() for item in items if item.exists()}
        busy += [Item(root, home, name) for name in unfinished(root / home)]
    for home, ending in FILES.items():
        names = [name.removesuffix(ending) for name in _names(root / home) if name.endswith(ending)]
        stamps |= {
            item: item.stamp() for item in (Item(root, home, name) for name in names if is_id(name))
        }
    return stamps, busy


def version(path: Path) -> list[int] | None:
    """The size and time of a file; None without it."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return [stat.st_size, stat.st_mtime_ns]


def read(path: Path) -> bytes | None:
    """The bytes of a file; None without it."""
    try:
        return path.read_bytes()
    except OSError:
        return None


def _names(folder: Path) -> Iterable[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return ()


def describe(item: Item) -> dict[str, Any]:
    """The state of an item as its row has it."""
    if item.single:
        modified = (version(item.folder / item.names()[0]) or [0, 0])[1] / 1e9
        return {"state": "", "at": modified, "created": modified}
    status, data = item.run.status(), item.run.metadata()
    return {
        "state": status.state,
        "at": status.at,
        "created": seconds_of(data.get("created")),
        "name": text_of(data.get("name"), 80),
    }
