"""What the server does while nobody waits for it: load ahead what a page will need, and return the memory of what is done.

PyTorch in a thread of its own would hold up the first page, whose files come from the same process: it is imported before.
Python frees the parts of a session that refer to each other in a full collection alone, which a server of many lasting
objects seldom makes. glibc holds freed memory for the next call.
"""

import gc
import importlib
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache

from streamlit import runtime

from core.memory import give_back, is_small, set_malloc

# 1.7 s of processor time; Start here needs them, pandas in Streamlit
AT_START = ("torch", "core.attention", "pandas")
IDLE = 0.2  # at most so many seconds of processor time in one second

_threads: list[threading.Thread] = []


def after_a_visit(step: Callable[[], object]) -> None:
    """Take this step in a thread, once in the life of a server, as soon as the server has little to do.

    Not where memory is short.
    """

    def take() -> None:
        wait_until_idle()
        with suppress(Exception):  # whatever fails here fails again where it can be told
            if not is_small():
                step()

    if not _threads:
        _threads.append(threading.Thread(target=take, daemon=True, name="warm_up"))
        _threads[0].start()


def wait_until_idle() -> None:
    """Wait for a second of which this process used at most the share IDLE."""
    busy = True
    while busy:
        before = time.process_time()
        time.sleep(1.0)
        busy = time.process_time() - before > IDLE


@cache
def begin() -> None:
    """Import what the first page needs, and return memory from then on, in a thread of its own.

    What these libraries hold is left out of full collections, of which each would spend 0.1 s on it.
    """
    # Threads spread over eight arenas for each core, and what is free in one is of no use to a thread of another.
    set_malloc(M_ARENA_MAX=2)
    for name in AT_START:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    threading.Thread(target=_watch, daemon=True, name="idle_memory").start()


def _watch() -> None:
    last = time.process_time()
    while True:
        time.sleep(15.0)
        if runtime.exists():  # else a page ran in a test
            wait_until_idle()
            if time.process_time() - last > IDLE:
                gc.collect()
                give_back()
                last = time.process_time()
