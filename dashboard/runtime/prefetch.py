"""Compute what the next page shows first, while nobody waits for anything, so that it opens at once.

A view's `compute.py` may have `first_sight()`, a generator: each step fills a cache with one more piece. Between two
pieces the thread waits until the server has nothing else to do. A view without one has its modules imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import threading
import time
from collections.abc import Iterable
from functools import cache
from queue import SimpleQueue

from core.memory import free_bytes
from dashboard.runtime.warm_up import after_a_visit, wait_until_idle

FREE = 1_500_000_000  # bytes that must be free
MOST = 10.0  # seconds of processor time for a page
PAUSE = 0.25  # seconds in which the server must be idle, after a piece
FIRST_PAUSE = 1.0  # seconds, before the first piece: a reader's page and its figures come first


@cache
def prefetch(page: str) -> None:
    """Ask for the first sight of a page, by its key; once in the life of a server, and not where none was visited."""
    if after_a_visit.cache_info().currsize:
        _pages().put(page)


@cache
def _pages() -> SimpleQueue[str]:
    pages: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_serve, args=(pages,), daemon=True, name="prefetch").start()
    return pages


def _serve(pages: SimpleQueue[str]) -> None:
    after_a_visit().join()  # libraries that any page may need come first
    while True:
        page = pages.get()
        wait_until_idle(FIRST_PAUSE)
        if free_bytes() >= FREE:
            run(_pieces(page))


def _pieces(page: str) -> Iterable[None]:
    """The import of a page, then its `first_sight` where it has one."""
    importlib.import_module(f"dashboard.views.{page}.page")
    yield
    name = f"dashboard.views.{page}.compute"
    if importlib.util.find_spec(name) is not None:
        yield from getattr(importlib.import_module(name), "first_sight", tuple)()


def run(pieces: Iterable[None]) -> bool:
    """Run the pieces one by one while the server is idle and memory is free, at most for MOST; whether all ran.

    An error ends them: the page, when it is opened, says it to the reader.
    """
    start = time.thread_time()
    try:
        for _ in pieces:
            if time.thread_time() - start > MOST or free_bytes() < FREE:
                return False
            wait_until_idle(PAUSE)
    except Exception:  # whatever a model or a file does here, it does again where it can be told
        return False
    return True
