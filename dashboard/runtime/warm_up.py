"""Import libraries before a page needs them: PyTorch while the first browser loads, transformers once there is time."""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Sequence
from functools import cache

AT_START = ("torch", "core.attention", "pandas")  # one to two seconds of processor time
AFTER_A_VISIT = ("transformers.models.bert.modeling_bert",)  # three; what loading any model needs, and the lab's own
IDLE, SECOND = 0.2, 1.0  # at most so many seconds of processor time in one second


def at_start() -> threading.Thread:
    """Begin to import what the first page needs."""
    return _begin(AT_START, wait=False)


@cache
def after_a_visit() -> threading.Thread:
    """Begin to import the rest, once, in the first second in which this server has little to do."""
    return _begin(AFTER_A_VISIT, wait=True)


def _begin(names: Sequence[str], wait: bool) -> threading.Thread:
    thread = threading.Thread(target=_import, args=(names, wait), daemon=True, name="warm_up")
    thread.start()
    return thread


def _import(names: Sequence[str], wait: bool) -> None:
    while wait:
        before = time.process_time()
        time.sleep(SECOND)
        wait = time.process_time() - before > IDLE
    for name in names:
        importlib.import_module(name)
