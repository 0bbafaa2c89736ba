"""Import libraries before a page needs them: those of the first page before the server answers, others once it is idle.

PyTorch in a thread of its own would hold up the first page, whose files come from the same process.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache

from core.memory import is_small

AT_START = (
    "torch",
    "core.attention",
    "pandas",
)  # 1.7 s of processor time; Start here needs them, pandas in Streamlit
AFTER_A_VISIT = ("transformers.models.bert.modeling_bert",)  # three; what loading any model needs
IDLE, SECOND = 0.2, 1.0  # at most so many seconds of processor time in one second


def at_start() -> None:
    """Import what the first page needs."""
    for name in AT_START:
        importlib.import_module(name)


@cache
def after_a_visit() -> threading.Thread:
    """Begin to import the rest, once, in the first second in which this server has little to do."""
    thread = threading.Thread(
        target=_import_when_idle, args=(AFTER_A_VISIT,), daemon=True, name="warm_up"
    )
    thread.start()
    return thread


def when_idle(work: Callable[[], object]) -> None:
    """Begin to do some work once the rest is imported and this server has little to do.

    Not before a visit, and not where memory is short.
    """
    if after_a_visit.cache_info().currsize and not is_small():
        threading.Thread(target=_do_when_idle, args=(work,), daemon=True, name="when_idle").start()


def _do_when_idle(work: Callable[[], object]) -> None:
    after_a_visit().join()
    wait_until_idle()
    with suppress(Exception):  # whatever fails here fails again where it can be told
        work()


def _import_when_idle(names: Sequence[str]) -> None:
    for name in names if not is_small() else ():
        wait_until_idle()
        importlib.import_module(name)


def wait_until_idle(seconds: float = SECOND) -> None:
    """Wait for a stretch of so many seconds of which this process used at most the share IDLE."""
    busy = True
    while busy:
        before = time.process_time()
        time.sleep(seconds)
        busy = time.process_time() - before > IDLE * seconds
