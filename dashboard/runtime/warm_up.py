"""Do ahead what a page would wait for: import the first page's libraries, and load the rest once the server is idle.

PyTorch in a thread of its own would hold up the first page, whose files come from the same process.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from core.memory import is_small

# 1.7 s of processor time; Start here needs them, pandas in Streamlit
AT_START = ("torch", "core.attention", "pandas")
IDLE, SECOND = 0.2, 1.0  # at most so many seconds of processor time in one second

_threads: list[threading.Thread] = []


def at_start() -> None:
    """Import what the first page needs."""
    for name in AT_START:
        importlib.import_module(name)


def after_a_visit(*steps: Callable[[], object]) -> None:
    """Take these steps in a thread, once in the life of a server, each as soon as the server has little to do.

    Not where memory is short.
    """
    if not _threads:
        _threads.append(threading.Thread(target=_take, args=(steps,), daemon=True, name="warm_up"))
        _threads[0].start()


def _take(steps: Sequence[Callable[[], object]]) -> None:
    for step in steps:
        wait_until_idle()
        if is_small():
            return
        with suppress(Exception):  # whatever fails here fails again where it can be told
            step()


def wait_until_idle(seconds: float = SECOND) -> None:
    """Wait for a stretch of so many seconds of which this process used at most the share IDLE."""
    busy = True
    while busy:
        before = time.process_time()
        time.sleep(seconds)
        busy = time.process_time() - before > IDLE * seconds
