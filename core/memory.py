"""How much memory there is: the computer's, its container's, or what a setting allows the server, whichever is least.

`ATTENTION_LAB_SERVER_MB` is what the server and its workers may hold together. On a small machine whatever only saves
time is left out: a warm spare worker, pages that are prepared before they open, memory that is kept for the next call.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

from core.processes import descendants, pss_bytes

VARIABLE = "ATTENTION_LAB_SERVER_MB"
SMALL = 2_000_000_000  # bytes in all, below which nothing is held that only saves time
ARENAS = 2


def total_bytes() -> float:
    """Bytes of memory that the server may hold; infinite where unknown."""
    return min(_count("/proc/meminfo", line="MemTotal:"), _count("/sys/fs/cgroup/memory.max"), _allowed())


def free_bytes() -> float:
    """Bytes of memory that are free; infinite where unknown."""
    group = _count("/sys/fs/cgroup/memory.max") - _count("/sys/fs/cgroup/memory.current", 0.0)
    free = min(_count("/proc/meminfo", line="MemAvailable:"), group)
    if (allowed := _allowed()) < float("inf"):
        free = min(free, allowed - sum(map(pss_bytes, (os.getpid(), *descendants(os.getpid())))))
    return max(0.0, free)


def is_small() -> bool:
    """Whether what only saves time is left out."""
    return total_bytes() < SMALL


def give_back() -> None:
    """Return freed memory to the system, which glibc keeps for later; does nothing on other systems."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def share_arenas() -> None:
    """Let all threads allocate from ARENAS arenas of glibc from now on; does nothing on other systems.

    By default threads spread over eight for each core, and what is free in one is of no use to a thread of another.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(-8, ARENAS)  # M_ARENA_MAX in glibc's malloc.h


def _allowed() -> float:
    """The setting in bytes; infinite without one. ValueError where it is no number."""
    text = os.environ.get(VARIABLE, "").strip()
    try:
        return float(text) * 1e6 if text else float("inf")
    except ValueError:
        raise ValueError(f"{VARIABLE} is a number of megabytes, but is {text!r}.") from None


def _count(path: str, unknown: float = float("inf"), line: str = "") -> float:
    """The bytes in a file, or in its line of that name, which counts in KiB; `unknown` where there are none."""
    try:
        row = next(one for one in Path(path).read_text(encoding="utf-8").splitlines() if one.startswith(line))
    except (OSError, StopIteration):
        return unknown
    count = row.removeprefix(line).split()[0]
    return float(count) * (1024 if line else 1) if count.isdigit() else unknown
