"""The memory of processes, from Linux's /proc."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import psutil


def descendants(pid: int) -> list[int]:
    """The processes that this one started, and those that they started."""
    return [process.pid for process in psutil.Process(pid).children(recursive=True)]


def held_bytes(pids: Iterable[int]) -> int:
    """Bytes that these processes would hold if no other ran; 0 where they cannot be read.

    It is the sum of their proportional set sizes, but a page that another program shares counts in full, not in part.
    """
    files: dict[str, int] = {}
    own = 0
    for pid in pids:
        for path, (resident, private) in _mapped(pid).items():
            own += private
            files[path] = max(files.get(path, 0), resident - private)
    return own + sum(files.values())


def _mapped(pid: int) -> dict[str, tuple[int, int]]:
    """The resident bytes of each mapped file of a process ("" for its own memory), and those that it changed."""
    sizes: dict[str, tuple[int, int]] = {}
    path = ""
    try:
        rows = Path(f"/proc/{pid}/smaps").read_text(encoding="utf-8").splitlines()
    except OSError:
        return sizes
    for row in rows:
        first, *rest = row.split(None, 5)
        if "-" in first:
            path = rest[4] if len(rest) > 4 and rest[4].startswith("/") else ""
        elif first in ("Rss:", "Private_Dirty:"):
            at, count = first == "Private_Dirty:", int(rest[0]) * 1024
            resident, private = sizes.get(path, (0, 0))
            sizes[path] = (resident, private + count) if at else (resident + count, private)
    return sizes
