"""A store of runs beside the local folder: a shared folder or an object store, through fsspec ($ATTENTION_LAB_STORE).

    runs/ID/…          the files of a run
    servers/NAME.json  an index of the runs of one server, which alone writes it
    leases/ID.json     which server may train the run, and until when

A public copy, which forgets its people's runs, has no store.
"""

from __future__ import annotations

import json
import os
import platform
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from core.files import hosted, write_atomically
from core.run_folder import RUN_ID

VARIABLE, NAME_VARIABLE = "ATTENTION_LAB_STORE", "ATTENTION_LAB_STORE_NAME"
LEASE_SECONDS = 60.0
TIMEOUTS = {"connect_timeout": 5, "read_timeout": 30, "retries": {"max_attempts": 1}}  # seconds


class StoreError(OSError):
    """The store cannot be used; the message says why."""


@dataclass(frozen=True)
class StoredRun:
    """A row of a server's index; `owned` is since when the server may write the run, `stamp` marks its version."""

    id: str
    server: str
    owned: float
    state: str
    at: float
    created: float = 0.0
    name: str = ""
    bytes: int = 0
    stamp: str = ""


@dataclass(frozen=True)
class Lease:
    """The right of a server to train a run, until a time in seconds since 1970."""

    server: str
    until: float

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
            return {name[len(path) + 1 :]: _mark(info) for name, info in infos.items()
                    if not Path(name).name.startswith(".")}

    def lease(self, run_id: str) -> Lease | None:
        """Who may train the run; None if anybody may."""
        data = _object(self.read(f"leases/{run_id}.json"))
        server, until = data.get("server"), data.get("until")
        return Lease(server, float(until)) if isinstance(server, str) and isinstance(until, int | float) else None

    def renew(self, run_id: str) -> None:
        """Take or prolong the lease of a run."""
        lease = Lease(self.server, time.time() + LEASE_SECONDS)
        self.write(f"leases/{run_id}.json", json.dumps(asdict(lease)).encode())

    def read_rows(self, name: str) -> dict[str, StoredRun]:
        """The runs in the index of a server; those that cannot be read are left out."""
        runs = _object(self.read(f"servers/{name}.json")).get("runs")
        rows = map(_row, runs if isinstance(runs, list) else [])
        return {row.id: row for row in rows if row is not None}

    def write_rows(self, rows: dict[str, StoredRun]) -> None:
        """Replace the index of this server."""
        data = {"runs": [asdict(row) for row in rows.values()]}
        self.write(f"servers/{self.server}.json", json.dumps(data, ensure_ascii=False).encode("utf-8", "replace"))

    @contextmanager
    def _trouble(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except Exception as error:  # each file system has errors of its own
            raise StoreError(f"The store {self.label} cannot be reached ({type(error).__name__}).") from error


def store() -> Store | None:
    """The store that is set; None without one, and on a public copy. StoreError for an address that cannot be used."""
    url = os.environ.get(VARIABLE, "")
    if not url or hosted():
        return None
    return _open(url, os.environ.get(NAME_VARIABLE) or platform.node())


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
    return " ".join(str(info[name]) for name in ("size", "ETag", "mtime", "created", "LastModified") if info.get(name))


def _object(data: bytes | None) -> dict[str, Any]:
    try:
        value = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _row(data: object) -> StoredRun | None:
    types: dict[str, Any] = {"str": str, "float": int | float, "int": int}
    if not isinstance(data, dict):
        return None
    values = {each.name: data[each.name] for each in fields(StoredRun) if each.name in data}
    if not all(isinstance(values.get(each.name, each.default), types[str(each.type)]) for each in fields(StoredRun)):
        return None
    return StoredRun(**values) if RUN_ID.fullmatch(values["id"]) else None
