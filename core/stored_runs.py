"""This machine and the store ($ATTENTION_LAB_STORE): what the rest of the lab asks of it.

Without a store each function does nothing.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

from filelock import FileLock

from core.files import hosted, server_folder
from core.run_folder import RunFolder
from core.store import VARIABLE, Store, StoreError, store
from core.store_copy import FORGET, LOCK, Copier
from core.store_items import Item, is_id

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
    if os.environ.get(VARIABLE):
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
    return bool(os.environ.get(VARIABLE)) and not hosted()
