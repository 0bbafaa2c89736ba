"""The runs of this machine and the store ($ATTENTION_LAB_STORE): what the rest of the lab asks of it.

Without a store each function does nothing.
"""

from __future__ import annotations

import os
import threading
import time
from functools import cache
from pathlib import Path

from filelock import FileLock

from core.files import hosted, server_folder
from core.run_folder import RUN_ID, RunFolder
from core.run_index import stamp_of
from core.store import VARIABLE, Store, StoreError, store
from core.store_copy import FORGET, LOCK, Copier, read_manifest

PASS_SECONDS = 3.0
_copiers: dict[tuple[Store, Path], Copier] = {}


def copier() -> Copier | None:
    """This process's copier of the runs folder; None without a store. StoreError for an address that cannot be used."""
    place = store()
    return None if place is None else _copiers.setdefault((place, server_folder()), Copier(place, server_folder()))


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
    if os.environ.get(VARIABLE):
        threading.Thread(target=watch, daemon=True, name="store").start()


def take_over(run: RunFolder) -> None:
    """Make this server the one that may train a run of its folder. StoreError where another one may."""
    if (now := copier()) is not None and run.path.parent == now.root:
        now.take_over(run)


def bring(run_id: str) -> None:
    """Fetch a run of the store that is not here, or of which another server has a newer version; else nothing.

    StoreError where the store cannot be reached and the run is not here.
    """
    now = copier()
    if now is None or not RUN_ID.fullmatch(run_id):
        return
    run = RunFolder(now.root / run_id)
    here = run.exists()
    if here and now.read_at > 0 and not now.newer(run):  # as of the last pass: no page waits for the store
        return
    try:
        now.root.mkdir(parents=True, exist_ok=True)
        with FileLock(now.root / LOCK):
            now.read_rows()
            if not here or (now.newer(run) and run.status().ended and not run.alive()):
                now.fetch(run_id)
    except StoreError:
        if not here:
            raise


def may_leave(folder: Path) -> bool:
    """Whether a run can leave the local disk: without a store, or once all of it is there."""
    return not _in_use(folder.parent) or read_manifest(folder)["stamp"] == stamp_of(folder)


def forget(folder: Path) -> None:
    """Note that a deleted run cannot be restored any more, so that it leaves the store, too."""
    if _in_use(folder.parent.parent):
        with open(server_folder() / FORGET, "a", encoding="ascii") as file:
            file.write(f"{folder.name}\n")


def _in_use(folder: Path) -> bool:
    """Whether the runs of this folder are copied."""
    return bool(os.environ.get(VARIABLE)) and not hosted() and folder == server_folder()
