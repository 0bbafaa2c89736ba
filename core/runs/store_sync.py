"""This machine and the store ($ATTENTION_LAB_STORE): what the rest of the lab asks of it.

Without a store each function does nothing.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

from filelock import FileLock

from core.files import hosted, server_folder, write_atomically
from core.runs.folder import ENDED, NAME, RunFolder
from core.runs.store import (
    HELD,
    LEASE_SECONDS,
    LOCAL,
    STATUS,
    Item,
    Manifest,
    Store,
    StoredRun,
    StoreError,
    describe,
    is_id,
    read,
    scan,
    store,
    version,
)
from core.settings import settings

# Copy what is on this machine to the store, and what other servers have copied from there.


LOCK, FORGET = ".store.lock", ".store-forget"


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
        every = sorted(
            (row for rows in self._rows.values() for row in rows.values()),
            key=lambda row: row.owned,
        )
        return {row.id: row for row in every}

    def row(self, name: str) -> StoredRun | None:
        """The item of that id, as `newest` has it."""
        rows = [rows[name] for rows in self._rows.values() if name in rows]
        return max(rows, key=lambda row: row.owned, default=None)

    def newer(self, item: Item) -> bool:
        """Whether another server has another version of an item, and is the one that may write it."""
        row, manifest = self.row(item.id), item.read_manifest()
        if row is None or row.server == self.place.server or _changed_here(item, manifest):
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
        for item in busy:
            if time.time() - self._renewed.get(item.id, 0.0) > LEASE_SECONDS / 3 and self._owns(
                item, newest
            ):
                self._renew(item)
        for item in changed:
            if (
                self._owns(item, newest)
                and (row := self._copy_item(item, stamps[item], own)) is not None
            ):
                own[item.id] = row
            self._copied[item.id] = stamps[item]
            self.waiting -= 1
        self._forget(own)
        if own != before:
            self.place.write_rows(own)
            self._rows[self.place.server] = own

    def _renew(self, item: Item) -> None:
        """Prolong the lease of a run that trains here, unless another server has taken it over."""
        if (lease := self.place.take(item.id)) is not None:
            item.write_manifest(replace(item.read_manifest(), server=lease.server))
            return
        self._renewed[item.id] = time.time()

    def _owns(self, item: Item, newest: dict[str, StoredRun]) -> bool:
        """Whether this server may write the item: nobody else has continued it since."""
        manifest = item.read_manifest()
        if _changed_here(item, manifest):
            item.write_manifest(replace(manifest, server=self.place.server, owned=time.time()))
            return True
        if manifest.server not in ("", self.place.server):
            return False
        row = newest.get(item.id)
        if row is None or row.server == self.place.server or row.owned <= manifest.owned:
            return True
        item.write_manifest(replace(manifest, server=row.server))
        return False

    def _copy_item(self, item: Item, stamp: str, own: dict[str, StoredRun]) -> StoredRun | None:
        """Copy what has changed of an item; returns its row, or None where it was deleted meanwhile."""
        manifest = item.read_manifest()
        if manifest.stamp == stamp and item.id in own:
            return own[item.id]
        known: Mapping[str, list[int] | None] = manifest.files
        if item.id not in own and (known or any(item.id in rows for rows in self._rows.values())):
            known = dict.fromkeys(
                self.place.list(item.remote)
            )  # what another server wrote, or was lost
        state = describe(item)
        held = {name: read(item.folder / name) for name in HELD}
        sizes: dict[str, list[int]] = {}
        for name in item.names():
            if (now := version(item.folder / name)) is None:
                continue
            if name in held or known.get(name) != now:
                content = held[name] if name in held else read(item.folder / name)
                if content is None:
                    continue
                self.place.write(f"{item.remote}/{name}", content)
            sizes[name] = now
        for name in known.keys() - sizes.keys():
            self.place.delete(f"{item.remote}/{name}")
        if not item.exists():
            return None
        if state["state"] in ENDED and self._renewed.pop(item.id, 0.0):
            self.place.release(item.id)
        owned = manifest.owned or state["created"] or time.time()
        item.write_manifest(Manifest(self.place.server, owned, stamp, sizes))
        return StoredRun(
            item.id,
            self.place.server,
            owned,
            **state,
            stamp=stamp,
            home=item.home,
            bytes=sum(size for size, _ in sizes.values()),
        )

    def _forget(self, own: dict[str, StoredRun]) -> None:
        """Delete from the store what was deleted here for good."""
        path = self.root / FORGET
        for name in (read(path) or b"").decode("ascii", "replace").split("\n"):
            if (row := own.pop(name, None)) is not None:
                item = Item(self.root, row.home, name)
                self.place.delete(item.remote)
                self.place.delete(f"leases/{name}")
                item.delete_manifest()
        path.unlink(missing_ok=True)

    def elsewhere(self) -> list[StoredRun]:
        """The runs of the store that are not in the local folder, the newest first; StoreError."""
        if not self.read_at:
            self.read_rows()
        homes = filter(Path.is_dir, (self.root, self.root / ".deleted"))
        here = {name for home in homes for name in os.listdir(home)}
        return [
            row
            for name, row in sorted(self.newest().items(), reverse=True)
            if not row.home and name not in here
        ]

    def fetch(self, name: str) -> bool:
        """Bring an item of the store into the local folder, or a newer version; False where the store has none.

        A run that is still under way elsewhere is paused here: a copy that another server alone continues.
        """
        if (row := self.row(name)) is None:
            return False
        item = Item(self.root, row.home, name)
        return self._fetch_file(item, row) if item.single else self._fetch_folder(item, row)

    def _fetch_file(self, item: Item, row: StoredRun) -> bool:
        content = self.place.read(f"{item.remote}/{item.names()[0]}")
        if content is None:
            return False
        path = item.folder / item.names()[0]
        write_atomically(path, content)
        item.write_manifest(
            Manifest(row.server, row.owned, row.stamp, {path.name: version(path) or []})
        )
        return True

    def _fetch_folder(self, item: Item, row: StoredRun) -> bool:
        files = [
            file
            for file in self.place.list(item.remote)
            if NAME.fullmatch(file) and file not in LOCAL
        ]
        home = item.folder.parent
        draft = home / f".draft-{item.id}"
        shutil.rmtree(draft, ignore_errors=True)
        for file in sorted(
            files, key=lambda file: file != STATUS
        ):  # in the opposite order of writing: status first
            if (content := self.place.read(f"{item.remote}/{file}")) is not None:
                write_atomically(draft / file, content)
        if not item.home:
            for folder in ("frames", "checkpoints"):
                (draft / folder).mkdir(parents=True, exist_ok=True)
        run = RunFolder(draft)
        if not run.exists():
            shutil.rmtree(draft, ignore_errors=True)
            return False
        if not run.status().ended:
            run.set_status("paused", f"It trains on {row.server}; this is a copy.")
        sizes = {file: now for file in files if (now := version(draft / file)) is not None}
        if item.folder.exists():
            item.folder.rename(home / f".draft-old-{item.id}")
            shutil.rmtree(home / f".draft-old-{item.id}", ignore_errors=True)
        draft.rename(item.folder)
        item.write_manifest(Manifest(row.server, row.owned, row.stamp, sizes))
        return True

    def take_over(self, run: RunFolder) -> None:
        """Make this server the one that may train and write the run. StoreError where another one may."""
        if (item := Item.at(self.root, run.path)) is None:
            return
        own = item.read_manifest().server in ("", self.place.server)
        try:
            with FileLock(self.root / LOCK):
                # The lease first: what follows reads what its last owner left.
                if (lease := self.place.take(item.id)) is not None:
                    raise InUse(
                        f"{lease.server} trains this run. Continue it once {lease.server} has ended it, or "
                        f"{max(0.0, lease.until - time.time()):.0f} s after it was last heard of; or fork it now."
                    )
                self._renewed[item.id] = time.time()
                self.read_rows()
                own = self._owns(item, self.newest())
                if self.newer(item):
                    self.fetch(item.id)
                if not own:
                    item.write_manifest(
                        replace(item.read_manifest(), server=self.place.server, owned=time.time())
                    )
        except InUse:
            raise
        except StoreError as error:
            if not own:
                raise StoreError(
                    f"{error} So it is not known whether another server trains this run; fork it to train "
                    "it here."
                ) from error


class InUse(StoreError):
    """Another server trains the run."""


def _changed_here(item: Item, manifest: Manifest) -> bool:
    """Whether a sweep or a report was changed on this machine since it was copied or fetched."""
    if not item.single or not item.exists():
        return False
    (name,) = item.names()
    return manifest.files.get(name) != version(item.folder / name)


PASS_SECONDS = 3.0
FRESH_SECONDS = 1.0  # for which what the store lacked is not looked for again
_copiers: dict[tuple[Store, Path], Copier] = {}


def copier() -> Copier | None:
    """This process's copier of the runs folder; None without a store. StoreError for an address that cannot be used."""
    place = store()
    return (
        None
        if place is None
        else _copiers.setdefault((place, server_folder()), Copier(place, server_folder()))
    )


def copy_now() -> str:
    """Copy what has changed; returns why that was not possible."""
    try:
        now = copier()
    except StoreError as error:
        return str(error)
    if now is None:
        return ""
    now.step()
    return now.trouble


def watch() -> None:
    """Copy from now on, for a thread of its own."""
    while True:
        started = time.monotonic()
        copy_now()
        time.sleep(max(PASS_SECONDS, 5 * (time.monotonic() - started)))


@cache
def begin_copying() -> None:
    """Begin to copy in a thread, where there is a store."""
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
    if now.read_at > 0 and (
        not now.newer(item)
        if here
        # as of the last pass: no page waits for the store
        else now.row(name) is None and time.monotonic() - now.read_at < FRESH_SECONDS
    ):
        return
    try:
        now.root.mkdir(parents=True, exist_ok=True)
        with FileLock(now.root / LOCK):
            now.read_rows()
            row = now.row(name)
            if (
                row is not None
                and row.home == home
                and (not here or (now.newer(item) and _at_rest(item)))
            ):
                now.fetch(name)
    except StoreError:
        if not here:
            raise


def bring_all(names: Iterable[object], home: str = "") -> None:
    """`bring` for each id among the names; where the store cannot be reached, nothing."""
    with suppress(OSError):  # the page Runs says what is wrong with the store
        for name in names:
            bring(str(name), home)


def _at_rest(item: Item) -> bool:
    """Whether no worker of this machine writes it."""
    return item.single or (item.run.status().ended and not item.run.alive())


def may_leave(folder: Path) -> bool:
    """Whether a run can leave the local disk: without a store, or once all of it is there."""
    item = Item.at(server_folder(), folder) if _in_use() else None
    return item is None or item.read_manifest().stamp == item.stamp()


def forget(home: Path, name: str) -> None:
    """Note that what was deleted from a folder cannot be restored any more, so that it leaves the store, too."""
    if _in_use() and home.is_relative_to(server_folder()):
        with open(server_folder() / FORGET, "a", encoding="ascii") as file:
            file.write(f"{name}\n")


def _in_use() -> bool:
    """Whether there is a store."""
    return bool(settings().store) and not hosted()
