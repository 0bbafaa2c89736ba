"""A store of runs beside the local folder: a shared folder or an object store, through fsspec ($ATTENTION_LAB_STORE).

    runs/ID/…          the files of a run; so are those of corpora, claims, sweeps and reports
    servers/NAME.json  an index of what one server has, which alone writes it
    leases/ID/N.json   which server may train the run, and until when; the highest N counts

A public copy, which forgets its people's runs, has no store.
"""

from __future__ import annotations

import json
import platform
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from core.files import (
    CLAIMS,
    CORPORA,
    REPORTS,
    SWEEPS,
    converted,
    create_atomically,
    hosted,
    read_object,
    seconds_of,
    text_of,
    write_atomically,
)
from core.runs.folder import RUN_ID, RunFolder, list_files
from core.runs.index import STAMPED, open_index, run_names, stamp_of, unfinished
from core.settings import settings

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
    files: dict[str, list[int]] = field(default_factory=dict)


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
        return converted(read_object(self._manifest), Manifest) or Manifest()

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
        items = [Item(root, home, name) for name in run_names(root / home)]
        stamps |= {item: item.stamp() for item in items if item.exists()}
        busy += [Item(root, home, name) for name in unfinished(root / home)]
    for home, ending in FILES.items():
        names = [path.name.removesuffix(ending) for path in (root / home).glob(f"*{ending}")]
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


VARIABLE, NAME_VARIABLE = "ATTENTION_LAB_STORE", "ATTENTION_LAB_STORE_NAME"
LEASE_SECONDS = 60.0
MARGIN = 10.0  # seconds before its end from which on a lease is not prolonged but taken anew
TIMEOUTS = {"connect_timeout": 5, "read_timeout": 30, "retries": {"max_attempts": 1}}  # seconds


class StoreError(OSError):
    """The store cannot be used; the message says why."""


@dataclass(frozen=True)
class StoredRun:
    """A row of a server's index: a run, or another item (core.runs.store) of that home; `owned` is since when the
    server may write it, `stamp` marks its version."""

    id: str
    server: str
    owned: float
    state: str
    at: float
    created: float = 0.0
    name: str = ""
    bytes: int = 0
    stamp: str = ""
    home: str = ""


@dataclass(frozen=True)
class Lease:
    """The right of a server to train a run, until a time in seconds since 1970; the `number`-th of that run."""

    server: str = ""
    until: float = 0.0
    number: int = 0

    def binds(self, server: str) -> bool:
        """Whether another server must leave the run alone now."""
        return self.server != server and self.until > time.time()


@dataclass(frozen=True)
class Store:
    """A folder of a file system, and the name of this server in it. Every method may raise StoreError."""

    files: Any  # an fsspec.AbstractFileSystem
    root: str
    server: str
    label: str  # its address without a password

    def read(self, name: str) -> bytes | None:
        """The bytes of an object; None without it."""
        with self._trouble():
            try:
                return bytes(self.files.cat_file(f"{self.root}/{name}"))
            except FileNotFoundError:
                return None

    def write(self, name: str, data: bytes) -> None:
        """Replace an object; a reader sees the old bytes or the new."""
        with self._trouble():
            if "local" in self.files.protocol:
                write_atomically(Path(f"{self.root}/{name}"), data)
            else:
                self.files.pipe_file(f"{self.root}/{name}", data)

    def delete(self, name: str) -> None:
        """Delete an object, or a folder with all that is in it, if it is there."""
        with self._trouble(), suppress(FileNotFoundError):
            self.files.invalidate_cache()
            self.files.rm(f"{self.root}/{name}", recursive=True)

    def list(self, folder: str) -> dict[str, str]:
        """The objects under a folder, by their name in it, each with a mark that changes with its content."""
        with self._trouble():
            self.files.invalidate_cache()
            path = f"{self.root}/{folder}"
            try:
                infos = self.files.find(path, detail=True)
            except FileNotFoundError:
                return {}
            return {
                name[len(path) + 1 :]: _mark(info)
                for name, info in infos.items()
                if not Path(name).name.startswith(".")
            }

    def create(self, name: str, data: bytes) -> bool:
        """Write an object that does not exist yet; False where it does.

        Of several servers at once one gets True: on a disk, in memory, on S3, and where else fsspec's file system
        knows the mode "create".
        """
        with self._trouble():
            try:
                if "local" in self.files.protocol:
                    create_atomically(Path(f"{self.root}/{name}"), data)
                else:
                    self.files.pipe_file(f"{self.root}/{name}", data, mode="create")
            except FileExistsError:
                return False
        return True

    def lease(self, run_id: str) -> Lease | None:
        """Who may train the run; None if anybody may."""
        numbers = [
            int(name[:-5])
            for name in self.list(f"leases/{run_id}")
            if re.fullmatch(r"[0-9]{1,9}\.json", name)
        ]
        if not numbers:
            return None
        data = _object(self.read(f"leases/{run_id}/{max(numbers)}.json"))
        lease = converted(data, Lease) or Lease()  # damaged: it binds nobody
        return replace(lease, number=max(numbers))

    def take(self, run_id: str) -> Lease | None:
        """Take or prolong the lease of a run; returns that of the server that has it instead, or None."""
        lease = self.lease(run_id)
        if lease is not None and lease.binds(self.server):
            return lease
        number = lease.number if lease else 0
        data = json.dumps({"server": self.server, "until": time.time() + LEASE_SECONDS}).encode()
        if lease is not None and lease.server == self.server and lease.until - time.time() > MARGIN:
            self.write(f"leases/{run_id}/{number}.json", data)
        elif not self.create(f"leases/{run_id}/{number + 1}.json", data):
            return self.lease(run_id) or Lease("another server", time.time())
        elif number:
            self.delete(f"leases/{run_id}/{number}.json")
        return None

    def release(self, run_id: str) -> None:
        """Give the lease of a run back, unless it has run out, so that another server may have taken it."""
        lease = self.lease(run_id)
        if lease is not None and lease.server == self.server and lease.until - time.time() > MARGIN:
            self.delete(f"leases/{run_id}")

    def read_rows(self, name: str) -> dict[str, StoredRun]:
        """The runs in the index of a server; those that cannot be read are left out."""
        runs = _object(self.read(f"servers/{name}.json")).get("runs")
        rows = [converted(run, StoredRun) for run in (runs if isinstance(runs, list) else [])]
        return {row.id: row for row in rows if row and is_id(row.id) and row.home in HOMES}

    def write_rows(self, rows: dict[str, StoredRun]) -> None:
        """Replace the index of this server."""
        data = {"runs": [asdict(row) for row in rows.values()]}
        self.write(
            f"servers/{self.server}.json",
            json.dumps(data, ensure_ascii=False).encode("utf-8", "replace"),
        )

    @contextmanager
    def _trouble(self) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, FileExistsError):
            raise
        except Exception as error:  # each file system has errors of its own
            raise StoreError(
                f"The store {self.label} cannot be reached ({type(error).__name__})."
            ) from error


def store() -> Store | None:
    """The store that is set; None without one, and on a public copy. StoreError for an address that cannot be used."""
    url = settings().store
    if not url or hosted():
        return None
    return _open(url, settings().store_name or platform.node())


@lru_cache(maxsize=4)
def _open(url: str, name: str) -> Store:
    from fsspec.core import url_to_fs

    label = re.sub(r"//[^/@]*@", "//", url)
    options = {"config_kwargs": TIMEOUTS} if url.startswith(("s3:", "s3a:")) else {}
    try:
        files, root = url_to_fs(url, **options)
    except Exception as error:
        raise StoreError(f"The store {label} cannot be opened: {error}") from error
    server = re.sub(r"[^\w.-]", "-", name, flags=re.ASCII).strip(".-") or "server"
    return Store(files, root.rstrip("/"), server, label)


def _mark(info: dict[str, Any]) -> str:
    """What a listing says of an object's version."""
    return " ".join(
        str(info[name])
        for name in ("size", "ETag", "mtime", "created", "LastModified")
        if info.get(name)
    )


def _object(data: bytes | None) -> dict[str, Any]:
    try:
        value = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
