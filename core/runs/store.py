"""A store of runs beside the local folder: a shared folder or an object store, through fsspec ($ATTENTION_LAB_STORE).

    runs/ID/…          the files of a run; so are those of corpora, claims, sweeps and reports
    servers/NAME.json  an index of what one server has, which alone writes it
    leases/ID/N.json   which server may train the run, and until when; the highest N counts

Without a store each function of this module does nothing; a public copy, which forgets its people's runs, has none.
"""

import json
import os
import platform
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from filelock import FileLock

from core.files import (
    MEASUREMENTS,
    REPORTS,
    SWEEPS,
    converted,
    hosted,
    modified,
    object_of,
    read_bytes,
    read_object,
    remove_tree,
    seconds_of,
    server_folder,
    text_of,
    write_atomically,
)
from core.runs.folder import (
    ENDED,
    NAME,
    RUN_ID,
    STAMPED,
    RunFolder,
    list_files,
    open_index,
    run_names,
    stamp_of,
    unfinished,
    version,
)
from core.settings import settings

FILES = {SWEEPS: ".json", REPORTS: ".json.gz"}
HOMES = ("", *MEASUREMENTS, *FILES)
MANIFEST = ".stored.json"
LOCK, FORGET = ".store.lock", ".store-forget"
STATUS, RECORDS, STATISTICS = "status.json", "metrics.jsonl", "statistics.safetensors"
# Read before the other files of a run, and written after them.
READ_FIRST = (RECORDS, STATISTICS, "run.json", STATUS)
MEASURED = (*STAMPED, STATISTICS, "cells.jsonl")
LOCAL = ("stop", "lock")  # files that mean nothing on another machine
LEASE_SECONDS = 60.0
MARGIN = 10.0  # seconds before its end from which on a lease is not prolonged but taken anew
PASS_SECONDS = 3.0
FRESH_SECONDS = 1.0  # for which what the store lacked is not looked for again


@dataclass(frozen=True)
class Manifest:
    """What of an item is in the store: its server ("" before the first copy), since when it may write it, its stamp
    there, and its files' sizes and times."""

    server: str = ""
    owned: float = 0.0
    stamp: str = ""
    files: Mapping[str, list[int] | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Item:
    """One run, measurement, sweep or report below the folder `root`."""

    root: Path
    home: str
    id: str

    @classmethod
    def at(cls, root: Path, path: Path) -> "Item | None":
        """The item of this folder, or None where it is not among those of `root`."""
        homes = {root / home: home for home in HOMES if home not in FILES}
        known = path.parent in homes and is_id(path.name)
        return cls(root, homes[path.parent], path.name) if known else None

    @property
    def single(self) -> bool:
        """Whether it is one file."""
        return self.home in FILES

    @property
    def folder(self) -> Path:
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
        return stamp_of(
            self.folder, self.names() if self.single else (MEASURED if self.home else STAMPED)
        )

    def names(self) -> list[str]:
        """The names of its files in the order of writing: frames, records, checkpoints, and the status last."""
        if self.single:
            return [f"{self.id}{FILES[self.home]}"]
        names = [name for name in list_files(self.folder) if name not in (*LOCAL, *READ_FIRST)]
        others, checkpoints = (
            [name for name in names if name.startswith("checkpoints/") == late]
            for late in (False, True)
        )
        return [*others, RECORDS, *checkpoints, *READ_FIRST[1:]]

    @property
    def manifest_path(self) -> Path:
        return self.folder / (f".{self.id}{MANIFEST}" if self.single else MANIFEST)

    def manifest(self) -> Manifest:
        return converted(read_object(self.manifest_path), Manifest) or Manifest()

    def write_manifest(self, manifest: Manifest) -> None:
        if self.exists():
            with suppress(FileNotFoundError):
                write_atomically(self.manifest_path, json.dumps(vars(manifest)).encode())

    def changed_here(self) -> bool:
        """Whether a sweep or a report was changed on this machine since it was copied or fetched."""
        name = self.names()[0] if self.single else ""
        return self.single and version(self.folder / name) not in (
            None,
            self.manifest().files.get(name),
        )


def is_id(name: str) -> bool:
    return bool(RUN_ID.fullmatch(name) or re.fullmatch("[0-9a-f]{16}", name))  # that of a report


def scan(root: Path) -> tuple[dict[Item, str], list[Item]]:
    """Every item with its stamp, and the runs and measurements that wait or are under way."""
    with open_index(root) as index:
        stamps = {Item(root, "", name): row.stamp for name, row in index.rows.items()}
        busy = [Item(root, "", name) for name in index.unfinished()]
    names = {home: run_names(root / home) for home in MEASUREMENTS}
    busy += [Item(root, home, name) for home in names for name in unfinished(root / home)]
    for home, ending in FILES.items():
        paths = (root / home).glob(f"*{ending}")
        names[home] = {name for path in paths if is_id(name := path.name.removesuffix(ending))}
    items = (Item(root, home, name) for home in names for name in names[home])
    return stamps | {item: item.stamp() for item in items if item.exists()}, busy


class StoreError(OSError):
    """The store cannot be used; the message says why."""


@dataclass(frozen=True)
class StoredRun:
    """A row of a server's index: a run, or another item of that home; `owned` is since when the server may write it,
    `stamp` marks its version."""

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

    def write(self, name: str, data: bytes, new: bool = False) -> bool:
        """Replace an object; a reader sees the old bytes or the new. With `new` nothing is replaced: False where there
        is one already.

        Of several servers that write a new one at once one gets True: on a disk, in memory, on S3, and where else
        fsspec's file system knows the mode "create".
        """
        with self._trouble(), suppress(FileExistsError):
            if "local" in self.files.protocol:
                write_atomically(Path(f"{self.root}/{name}"), data, new)
            else:
                mode = {"mode": "create"} if new else {}
                self.files.pipe_file(f"{self.root}/{name}", data, **mode)
            return True
        return False

    def delete(self, name: str) -> None:
        """Delete an object, or a folder with all that is in it, if it is there."""
        with self._trouble(), suppress(FileNotFoundError):
            self.files.invalidate_cache()
            self.files.rm(f"{self.root}/{name}", recursive=True)

    def list(self, folder: str) -> dict[str, str]:
        """The objects under a folder, by their name in it, each with a mark that changes with its content."""
        # The last mark is of a disk, where two writes of one size may have one time
        marks = ("size", "ETag", "mtime", "created", "LastModified", "ino")
        path = f"{self.root}/{folder}"
        with self._trouble(), suppress(FileNotFoundError):
            self.files.invalidate_cache()
            return {
                name[len(path) + 1 :]: " ".join(str(info[mark]) for mark in marks if info.get(mark))
                for name, info in self.files.find(path, detail=True).items()
                if not Path(name).name.startswith(".")
            }
        return {}

    def lease(self, run_id: str) -> Lease | None:
        """Who may train the run; None if anybody may."""
        names = filter(re.compile(r"[0-9]{1,9}\.json").fullmatch, self.list(f"leases/{run_id}"))
        number = max((int(name.removesuffix(".json")) for name in names), default=None)
        if number is None:
            return None
        lease = converted(object_of(self.read(f"leases/{run_id}/{number}.json")), Lease)
        return replace(lease or Lease(), number=number)  # a damaged one binds nobody

    def take(self, run_id: str) -> Lease | None:
        """Take or prolong the lease of a run; returns that of the server that has it instead, or None."""
        lease = self.lease(run_id)
        if lease is not None and lease.binds(self.server):
            return lease
        number = lease.number if lease else 0
        data = json.dumps({"server": self.server, "until": time.time() + LEASE_SECONDS}).encode()
        if self._holds(lease):
            self.write(f"leases/{run_id}/{number}.json", data)
        elif not self.write(f"leases/{run_id}/{number + 1}.json", data, new=True):
            return self.lease(run_id) or Lease("another server", time.time())
        elif number:
            self.delete(f"leases/{run_id}/{number}.json")
        return None

    def release(self, run_id: str) -> None:
        """Give the lease of a run back, unless it has run out, so that another server may have taken it."""
        if self._holds(self.lease(run_id)):
            self.delete(f"leases/{run_id}")

    def _holds(self, lease: Lease | None) -> bool:
        return bool(lease and lease.server == self.server and lease.until - time.time() > MARGIN)

    def read_rows(self, name: str) -> dict[str, StoredRun]:
        """The runs in the index of a server; those that cannot be read are left out."""
        runs = object_of(self.read(f"servers/{name}.json")).get("runs")
        rows = [converted(run, StoredRun) for run in (runs if isinstance(runs, list) else [])]
        return {row.id: row for row in rows if row and is_id(row.id) and row.home in HOMES}

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
    return _open(settings().store, settings().store_name or platform.node()) if in_use() else None


def in_use() -> bool:
    return bool(settings().store) and not hosted()


@lru_cache(maxsize=4)
def _open(url: str, name: str) -> Store:
    from fsspec.core import url_to_fs

    label = re.sub(r"//[^/@]*@", "//", url)
    patience = {"connect_timeout": 5, "read_timeout": 30, "retries": {"max_attempts": 1}}  # seconds
    try:
        files, root = url_to_fs(
            url, **({"config_kwargs": patience} if url.startswith(("s3:", "s3a:")) else {})
        )
    except Exception as error:
        raise StoreError(f"The store {label} cannot be opened: {error}") from error
    server = re.sub(r"[^\w.-]", "-", name, flags=re.ASCII).strip(".-") or "server"
    return Store(files, root.rstrip("/"), server, label)


class Copier:
    """What one process knows of the store: the rows of all servers, and which versions were copied."""

    def __init__(self, place: Store, root: Path) -> None:
        self.place, self.root = place, root
        self.trouble = ""
        self.waiting = 0  # items that are not copied yet
        self.read_at = 0.0
        self._marks: dict[str, str] = {}
        self._rows: dict[str, dict[str, StoredRun]] = {}
        self._copied: dict[str, str] = {}
        self._renewed: dict[str, float] = {}

    def step(self) -> str:
        """Copy what has changed since the last step; returns why it could not, which `trouble` says from then on."""
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
        return self.trouble

    def read_rows(self) -> None:
        """Read the servers' indexes that have changed."""
        marks = {
            name.removesuffix(".json"): mark for name, mark in self.place.list("servers").items()
        }
        for name, mark in marks.items():
            if self._marks.get(name) != mark:
                self._rows[name] = self.place.read_rows(name)
        self._marks, self.read_at = marks, time.monotonic()
        self._rows = {name: rows for name, rows in self._rows.items() if name in marks}

    def newest(self) -> dict[str, StoredRun]:
        """Each item of the store, as the server says that owned it last."""
        every = (row for rows in self._rows.values() for row in rows.values())
        return {row.id: row for row in sorted(every, key=lambda row: row.owned)}

    def newer(self, item: Item) -> bool:
        """Whether another server has another version of an item, and is the one that may write it."""
        row, manifest = self.newest().get(item.id), item.manifest()
        if row is None or row.server == self.place.server or item.changed_here():
            return False
        return manifest.stamp != row.stamp and (
            manifest.server == row.server or row.owned > manifest.owned
        )

    def _copy(self) -> None:
        stamps, busy = scan(self.root)
        own = dict(self._rows.get(self.place.server, {}))
        before, newest = dict(own), self.newest()
        changed = [item for item, stamp in stamps.items() if self._copied.get(item.id) != stamp]
        self.waiting = len(changed)
        for item in busy:  # prolong the lease, unless another server has taken the run over
            old = time.time() - self._renewed.get(item.id, 0.0) > LEASE_SECONDS / 3
            if old and self._owns(item, newest):
                if (lease := self.place.take(item.id)) is not None:
                    item.write_manifest(replace(item.manifest(), server=lease.server))
                else:
                    self._renewed[item.id] = time.time()
        for item in changed:
            row = self._copy_item(item, stamps[item], own) if self._owns(item, newest) else None
            if row is not None:
                own[item.id] = row
            self._copied[item.id] = stamps[item]
            self.waiting -= 1
        # What was deleted here for good.
        forgotten = self.root / FORGET
        for name in (read_bytes(forgotten) or b"").decode("ascii", "replace").split("\n"):
            if (row := own.pop(name, None)) is not None:
                item = Item(self.root, row.home, name)
                self.place.delete(item.remote)
                self.place.delete(f"leases/{name}")
                item.manifest_path.unlink(missing_ok=True)
        forgotten.unlink(missing_ok=True)
        if own != before:
            text = json.dumps({"runs": [*map(asdict, own.values())]}, ensure_ascii=False)
            self.place.write(f"servers/{self.place.server}.json", text.encode("utf-8", "replace"))
            self._rows[self.place.server] = own

    def _owns(self, item: Item, newest: Mapping[str, StoredRun]) -> bool:
        """Whether this server may write the item: nobody else has continued it since."""
        manifest, row = item.manifest(), newest.get(item.id)
        if item.changed_here():
            self._own(item)
            return True
        if manifest.server not in ("", self.place.server):
            return False
        if row is None or row.server == self.place.server or row.owned <= manifest.owned:
            return True
        item.write_manifest(replace(manifest, server=row.server))
        return False

    def _own(self, item: Item) -> None:
        item.write_manifest(replace(item.manifest(), server=self.place.server, owned=time.time()))

    def _copy_item(self, item: Item, stamp: str, own: Mapping[str, StoredRun]) -> StoredRun | None:
        """Copy what has changed of an item; returns its row, or None where it was deleted meanwhile."""
        manifest = item.manifest()
        if manifest.stamp == stamp and item.id in own:
            return own[item.id]
        known = manifest.files
        if item.id not in own:  # another server may have written it
            known = dict.fromkeys(self.place.list(item.remote))
        status, data = item.run.status(), item.run.metadata()
        first = {name: read_bytes(item.folder / name) for name in READ_FIRST}
        sizes: dict[str, list[int]] = {}
        for name in item.names():
            if (now := version(item.folder / name)) is None:
                continue
            if name in first or known.get(name) != now:
                content = first[name] if name in first else read_bytes(item.folder / name)
                if content is None:
                    continue
                self.place.write(f"{item.remote}/{name}", content)
            sizes[name] = now
        for name in known.keys() - sizes.keys():
            self.place.delete(f"{item.remote}/{name}")
        if not item.exists():
            return None
        state, at, created = status.state, status.at, seconds_of(data.get("created"))
        if item.single:
            state = ""
            at = created = modified(item.folder / item.names()[0])
        elif state in ENDED and self._renewed.pop(item.id, 0.0):
            self.place.release(item.id)
        owned = manifest.owned or created or time.time()
        item.write_manifest(Manifest(self.place.server, owned, stamp, sizes))
        size, name = sum(size for size, _ in sizes.values()), text_of(data.get("name"), 80)
        return StoredRun(
            item.id, self.place.server, owned, state, at, created, name, size, stamp, item.home
        )

    def elsewhere(self) -> list[StoredRun]:
        """The runs of the store that are not in the local folder, the newest first; StoreError."""
        if not self.read_at:
            self.read_rows()
        here = {
            name
            for home in filter(Path.is_dir, (self.root, self.root / ".deleted"))
            for name in os.listdir(home)
        }
        return [
            row
            for name, row in sorted(self.newest().items(), reverse=True)
            if not row.home and name not in here
        ]

    def fetch(self, name: str) -> None:
        """Bring an item of the store into the local folder, or a newer version, where the store has one.

        A run that is still under way elsewhere is paused here: a copy that another server alone continues.
        """
        if (row := self.newest().get(name)) is None:
            return
        item = Item(self.root, row.home, name)
        draft, old = (self.root / item.home / f".draft-{mark}{name}" for mark in ("", "old-"))
        remove_tree(draft)
        stored = item.names() if item.single else self.place.list(item.remote)
        files = [one for one in stored if NAME.fullmatch(one) and one not in LOCAL]
        files.sort(key=lambda one: one != STATUS)  # in the opposite order of writing
        for file in files:
            if (content := self.place.read(f"{item.remote}/{file}")) is not None:
                write_atomically(draft / file, content)
        copied = RunFolder(draft)
        whole = (draft / files[0]).is_file() if item.single else copied.exists()
        if not whole:
            remove_tree(draft)
            return
        if item.single:
            os.replace(draft / files[0], item.folder / files[0])
        else:
            for folder in () if item.home else ("frames", "checkpoints"):
                (draft / folder).mkdir(exist_ok=True)
            if not copied.status().ended:
                copied.set_status("paused", f"It trains on {row.server}; this is a copy.")
            if item.folder.exists():
                item.folder.rename(old)
            draft.rename(item.folder)
        for left in (draft, old):
            remove_tree(left)
        sizes = {file: now for file in files if (now := version(item.folder / file)) is not None}
        item.write_manifest(Manifest(row.server, row.owned, row.stamp, sizes))

    def take_over(self, run: RunFolder) -> None:
        """Make this server the one that may train and write the run. StoreError where another one may."""
        if (item := Item.at(self.root, run.path)) is None:
            return
        own = item.manifest().server in ("", self.place.server)
        try:
            with FileLock(self.root / LOCK):
                # The lease first: what follows reads what its last owner left.
                if (lease := self.place.take(item.id)) is None:
                    self._renewed[item.id] = time.time()
                    self.read_rows()
                    own = self._owns(item, self.newest())
                    if self.newer(item):
                        self.fetch(item.id)
                    if not own:
                        self._own(item)
        except StoreError as error:
            if own:
                return
            raise StoreError(
                f"{error} So it is not known whether another server trains this run; fork it to train it here."
            ) from error
        if lease is not None:
            raise StoreError(
                f"{lease.server} trains this run. Continue it once {lease.server} has ended it, or "
                f"{max(0.0, lease.until - time.time()):.0f} s after it was last heard of; or fork it now."
            )


_copiers: dict[tuple[Store, Path], Copier] = {}


def copier() -> Copier | None:
    """This process's copier of the runs folder; None without a store. StoreError for an address that cannot be used."""
    place, root = store(), server_folder()
    return None if place is None else _copiers.setdefault((place, root), Copier(place, root))


def copy_now() -> str:
    """Copy what has changed; returns why that was not possible."""
    try:
        now = copier()
    except StoreError as error:
        return str(error)
    return "" if now is None else now.step()


@cache
def begin_copying() -> None:
    """Begin to copy in a thread, where there is a store."""

    def watch() -> None:
        while True:
            started = time.monotonic()
            copy_now()
            time.sleep(max(PASS_SECONDS, 5 * (time.monotonic() - started)))

    if settings().store:
        threading.Thread(target=watch, daemon=True, name="store").start()


def take_over(run: RunFolder) -> None:
    """Make this server the one that may train a run of its folder. StoreError where another one may."""
    if (now := copier()) is not None:
        now.take_over(run)


def bring(name: str, home: str = "") -> None:
    """Fetch a run, or another item of that home, that is not here, or of which another server has a newer version.

    StoreError where the store cannot be reached and it is not here.
    """
    now = copier()
    if now is None or not is_id(name):
        return
    item = Item(now.root, home, name)
    here = item.exists()
    # As of the last pass: no page waits for the store.
    lacked = name not in now.newest() and time.monotonic() - now.read_at < FRESH_SECONDS
    if now.read_at and (not now.newer(item) if here else lacked):
        return
    try:
        now.root.mkdir(parents=True, exist_ok=True)
        with FileLock(now.root / LOCK):
            now.read_rows()
            row = now.newest().get(name)
            # What a worker of this machine writes stays as it is.
            at_rest = item.single or (item.run.status().ended and not item.run.alive())
            if row and row.home == home and (not here or (now.newer(item) and at_rest)):
                now.fetch(name)
    except StoreError:
        if not here:
            raise


def bring_all(names: Iterable[object], home: str = "") -> None:
    """`bring` for each id among the names; where the store cannot be reached, nothing."""
    with suppress(OSError):  # the page Runs says what is wrong with the store
        for name in names:
            bring(str(name), home)


def may_leave(folder: Path) -> bool:
    """Whether a run can leave the local disk: without a store, or once all of it is there."""
    item = Item.at(server_folder(), folder) if in_use() else None
    return item is None or item.manifest().stamp == item.stamp()


def forget(home: Path, name: str) -> None:
    """Note that what was deleted from a folder cannot be restored any more, so that it leaves the store, too."""
    if in_use() and home.is_relative_to(server_folder()):
        with open(server_folder() / FORGET, "a", encoding="ascii") as file:
            file.write(f"{name}\n")
