"""Copy the runs of this machine to the store, and runs of other servers from there.

The local folder is the working copy. One server writes a run in the store: the one that made it, or the one that has
continued it since under a lease. It copies frames first and the status last, so that the store always has a state in
which a killed worker could have left the folder.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from filelock import FileLock

from core.cluster.mirror import NAME, list_files
from core.files import read_object, seconds_of, text_of, write_atomically
from core.run_folder import RUN_ID, RunFolder
from core.run_index import open_index
from core.store import LEASE_SECONDS, Store, StoredRun, StoreError

MANIFEST, LOCK, FORGET = ".stored.json", ".store.lock", ".store-forget"
LOCAL = ("stop", "lock")  # files that mean nothing on another machine
STATUS, RECORDS = "status.json", "metrics.jsonl"


class Copier:
    """What one process knows of the store: the rows of all servers, and which versions were copied."""

    def __init__(self, place: Store, root: Path) -> None:
        self.place, self.root = place, root
        self.trouble = ""
        self.waiting = 0  # runs that are not copied yet
        self.read_at = 0.0
        self._marks: dict[str, str] = {}
        self._rows: dict[str, dict[str, StoredRun]] = {}
        self._copied: dict[str, str] = {}
        self._renewed: dict[str, float] = {}

    def step(self) -> None:
        """Copy what has changed since the last step; `trouble` says why it could not."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with FileLock(self.root / LOCK):
                self.read_rows()
                self._copy()
            self.trouble = ""
        except StoreError as error:
            self.trouble = str(error)
        except OSError as error:
            self.trouble = f"The runs cannot be copied to the store: {error.strerror or error}."

    def read_rows(self) -> None:
        """Read the servers' indexes that have changed."""
        marks = {name.removesuffix(".json"): mark for name, mark in self.place.list("servers").items()}
        for name, mark in marks.items():
            if self._marks.get(name) != mark:
                self._rows[name] = self.place.read_rows(name)
        self._marks, self.read_at = marks, time.monotonic()
        self._rows = {name: rows for name, rows in self._rows.items() if name in marks}

    def newest(self) -> dict[str, StoredRun]:
        """Each run of the store, as the server says that owned it last."""
        every = sorted((row for rows in self._rows.values() for row in rows.values()), key=lambda row: row.owned)
        return {row.id: row for row in every}

    def newer(self, run: RunFolder) -> bool:
        """Whether another server has another version of a run, and is the one that may write it."""
        rows = [rows[run.id] for rows in self._rows.values() if run.id in rows]
        row = max(rows, key=lambda row: row.owned, default=None)
        if row is None or row.server == self.place.server:
            return False
        manifest = read_manifest(run.path)
        return manifest["stamp"] != row.stamp and (manifest["server"] == row.server or row.owned > manifest["owned"])

    def _copy(self) -> None:
        with open_index(self.root) as index:
            stamps, busy = index.stamps(), index.unfinished()
        own = dict(self._rows.get(self.place.server, {}))
        before, newest = dict(own), self.newest()
        changed = [name for name, stamp in stamps.items() if self._copied.get(name) != stamp]
        self.waiting = len(changed)
        for name in busy:
            if time.time() - self._renewed.get(name, 0.0) > LEASE_SECONDS / 3 and self._owns(name, newest):
                self._renew(name)
        for name in changed:
            if self._owns(name, newest) and (row := self._copy_run(name, stamps[name], own)) is not None:
                own[name] = row
            self._copied[name] = stamps[name]
            self.waiting -= 1
        self._forget(own)
        if own != before:
            self.place.write_rows(own)
            self._rows[self.place.server] = own

    def _renew(self, name: str) -> None:
        """Prolong the lease of a run that trains here, unless another server has taken it over."""
        lease = self.place.lease(name)
        if lease is not None and lease.binds(self.place.server):
            write_manifest(self.root / name, read_manifest(self.root / name) | {"server": lease.server})
            return
        self.place.renew(name)
        self._renewed[name] = time.time()

    def _owns(self, name: str, newest: dict[str, StoredRun]) -> bool:
        """Whether this server may write the run: nobody else has continued it since."""
        manifest = read_manifest(self.root / name)
        if manifest["server"] not in ("", self.place.server):
            return False
        row = newest.get(name)
        if row is None or row.server == self.place.server or row.owned <= manifest["owned"]:
            return True
        write_manifest(self.root / name, manifest | {"server": row.server})
        return False

    def _copy_run(self, name: str, stamp: str, own: dict[str, StoredRun]) -> StoredRun | None:
        """Copy what has changed of a run; returns its row, or None where its folder went away meanwhile."""
        run, manifest = RunFolder(self.root / name), read_manifest(self.root / name)
        if manifest["stamp"] == stamp and name in own:
            return own[name]
        known = manifest["files"]
        if name not in own and (known or any(name in rows for rows in self._rows.values())):
            known = dict.fromkeys(self.place.list(f"runs/{name}"))  # what another server wrote, or was lost
        status, data = run.status(), run.metadata()
        checkpoints = [file for file in list_files(run.path) if file.startswith("checkpoints/")]
        held = {file: _read(run.path / file) for file in (STATUS, "run.json", RECORDS)}
        others = [file for file in list_files(run.path)
                  if file not in (*held, *LOCAL) and not file.startswith("checkpoints/")]
        sizes: dict[str, list[int]] = {}
        for file in (*others, RECORDS, *checkpoints, "run.json", STATUS):
            if (now := _version(run.path / file)) is None:
                continue
            if file in held or known.get(file) != now:
                content = held[file] if file in held else _read(run.path / file)
                if content is None:
                    continue
                self.place.write(f"runs/{name}/{file}", content)
            sizes[file] = now
        for file in known.keys() - sizes.keys():
            self.place.delete(f"runs/{name}/{file}")
        if not run.exists():
            return None
        if status.ended and self._renewed.pop(name, 0.0):
            self.place.delete(f"leases/{name}.json")
        owned = manifest["owned"] or seconds_of(data.get("created")) or time.time()
        write_manifest(run.path, {"server": self.place.server, "owned": owned, "stamp": stamp, "files": sizes})
        return StoredRun(name, self.place.server, owned, status.state, status.at, seconds_of(data.get("created")),
                         text_of(data.get("name"), 80), sum(size for size, _ in sizes.values()), stamp)

    def _forget(self, own: dict[str, StoredRun]) -> None:
        """Delete from the store what was deleted here for good."""
        path = self.root / FORGET
        for name in filter(RUN_ID.fullmatch, (_read(path) or b"").decode("ascii", "replace").split("\n")):
            if own.pop(name, None) is not None:
                self.place.delete(f"runs/{name}")
                self.place.delete(f"leases/{name}.json")
        path.unlink(missing_ok=True)

    def elsewhere(self) -> list[StoredRun]:
        """The runs of the store that are not in the local folder, the newest first; StoreError."""
        if not self.read_at:
            self.read_rows()
        homes = filter(Path.is_dir, (self.root, self.root / ".deleted"))
        here = {name for home in homes for name in os.listdir(home)}
        return [row for name, row in sorted(self.newest().items(), reverse=True) if name not in here]

    def fetch(self, name: str) -> bool:
        """Bring a run of the store into the local folder, or a newer version; False where the store has none.

        What is still under way elsewhere is paused here: a copy that another server alone continues.
        """
        row, path = self.newest().get(name), self.root / name
        if row is None:
            return path.exists()
        files = [file for file in self.place.list(f"runs/{name}") if NAME.fullmatch(file) and file not in LOCAL]
        draft = self.root / f".draft-{name}"
        shutil.rmtree(draft, ignore_errors=True)
        for file in sorted(files, key=lambda file: file != STATUS):  # in the opposite order of writing: status first
            if (content := self.place.read(f"runs/{name}/{file}")) is not None:
                write_atomically(draft / file, content)
        for folder in ("frames", "checkpoints"):
            (draft / folder).mkdir(parents=True, exist_ok=True)
        run = RunFolder(draft)
        if not run.exists():
            shutil.rmtree(draft, ignore_errors=True)
            return False
        if not run.status().ended:
            run.set_status("paused", f"It trains on {row.server}; this is a copy.")
        sizes = {file: version for file in files if (version := _version(draft / file)) is not None}
        write_manifest(draft, {"server": row.server, "owned": row.owned, "stamp": row.stamp, "files": sizes})
        if path.exists():
            path.rename(self.root / f".draft-old-{name}")
            shutil.rmtree(self.root / f".draft-old-{name}", ignore_errors=True)
        draft.rename(path)
        return True

    def take_over(self, run: RunFolder) -> None:
        """Make this server the one that may train and write the run. StoreError where another one may."""
        manifest = read_manifest(run.path)
        own = manifest["server"] in ("", self.place.server)
        try:
            with FileLock(self.root / LOCK):
                self.read_rows()
                own = self._owns(run.id, self.newest())
                lease = self.place.lease(run.id)
                if lease is not None and lease.binds(self.place.server):
                    raise InUse(f"{lease.server} trains this run. Continue it once {lease.server} has ended it, or "
                                f"{lease.until - time.time():.0f} s after it was last heard of; or fork it now.")
                if self.newer(run):
                    self.fetch(run.id)
                self.place.renew(run.id)
                self._renewed[run.id] = time.time()
                lease = self.place.lease(run.id)
                if lease is not None and lease.binds(self.place.server):
                    raise InUse(f"{lease.server} has just continued this run.")
                if not own:
                    write_manifest(run.path, read_manifest(run.path) | {"server": self.place.server,
                                                                        "owned": time.time()})
        except InUse:
            raise
        except StoreError as error:
            if not own:
                raise StoreError(f"{error} So it is not known whether another server trains this run; fork it to train "
                                 "it here.") from error


class InUse(StoreError):
    """Another server trains the run."""


def read_manifest(folder: Path) -> dict[str, Any]:
    """What of a run is in the store: its server ("" before the first copy), since when, its stamp, and its files."""
    data = read_object(folder / MANIFEST)
    files = data.get("files")
    return {"server": text_of(data.get("server")), "owned": seconds_of(data.get("owned")),
            "stamp": text_of(data.get("stamp")), "files": files if isinstance(files, dict) else {}}


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    with suppress(FileNotFoundError):
        write_atomically(folder / MANIFEST, json.dumps(manifest).encode())


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _version(path: Path) -> list[int] | None:
    """The size and time of a file."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return [stat.st_size, stat.st_mtime_ns]
