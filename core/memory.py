"""How much memory there is: the computer's, its container's, or what a setting allows the server, whichever is least.

`server_mb` of ATTENTION_LAB_LIMITS is what the server and its workers may hold together. On a small machine whatever only
saves time is left out: a warm spare worker, pages that are prepared before they open, memory that is kept for the next call.
"""

import ctypes
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from core.settings import limits

SMALL = 2_000_000_000  # bytes in all, below which nothing is held that only saves time
MALLOC = {"M_TRIM_THRESHOLD": -1, "M_MMAP_THRESHOLD": -3, "M_ARENA_MAX": -8}  # of glibc's malloc.h
CGROUPS = Path("/sys/fs/cgroup")
V2 = ("memory.max", "memory.current", "inactive_file", "memory.events")
V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "memory.oom_control")


def total_bytes() -> float:
    """Bytes of memory that the server may hold; infinite where unknown."""
    return min(
        _count("/proc/meminfo", line="MemTotal:", unit=1024),
        _allowed(),
        *[_count(group / most) for group, most, *_ in _groups()],
    )


def free_bytes() -> float:
    """Bytes of memory that are free; infinite where unknown."""
    groups = [
        _count(group / most)
        - _count(group / used, 0.0)
        + _count(group / "memory.stat", 0.0, f"{cache} ")
        for group, most, used, cache, _ in _groups()
    ]  # the system drops what it caches of files
    free = min(_count("/proc/meminfo", line="MemAvailable:", unit=1024), *groups)
    if limits().server_mb:
        free = min(free, _allowed() - sum(process_bytes()))
    return max(0.0, free)


def process_bytes() -> list[int]:
    """The proportional set size of this process and of each that it started; what is resident where it is not told."""
    own, sizes = psutil.Process(), []
    for process in (own, *own.children(recursive=True)):
        with suppress(psutil.Error):  # it ended meanwhile
            memory = process.memory_full_info()
            sizes.append(getattr(memory, "pss", memory.rss))
    return sizes


def is_small() -> bool:
    """Whether what only saves time is left out."""
    return total_bytes() < SMALL


def out_of_memory_kills() -> float:
    """How many processes the system has ended since memory ran out: in this control group, or on this machine."""
    groups = [_count(group / events, 0.0, "oom_kill ") for group, *_, events in _groups()]
    return max(groups) or _count("/proc/vmstat", 0.0, "oom_kill ")


def give_way() -> None:
    """Let other processes run first; on Linux, too, end before them where memory runs out."""
    if hasattr(os, "nice"):  # not on Windows
        os.nice(10)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500", encoding="utf-8")


def give_back() -> None:
    """Return freed memory to the system, which glibc keeps for later; does nothing on other systems."""
    _glibc("malloc_trim")(0)


def set_malloc(**options: int) -> None:
    """Set how glibc allocates from now on, by the names of mallopt(3); does nothing on other systems."""
    for name, value in options.items():
        _glibc("mallopt")(MALLOC[name], value)


def _glibc(name: str) -> Callable[..., object]:
    # does nothing where glibc has none
    return getattr(ctypes.CDLL(None) if sys.platform == "linux" else None, name, lambda *_: None)


def _allowed() -> float:
    return (limits().server_mb or float("inf")) * 1e6


def _groups() -> list[tuple[Path, str, str, str, str]]:
    """The control groups of this process, of both versions, with their files: the limit, what is used, the line of what
    is cached in memory.stat, and what counts the ends for want of memory."""
    places: dict[Path, tuple[str, str, str, str]] = {CGROUPS: V2, CGROUPS / "memory": V1}
    with suppress(OSError):
        for row in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, kinds, path = row.split(":", 2)
            if not kinds or "memory" in kinds.split(","):
                root, files = (CGROUPS / "memory", V1) if kinds else (CGROUPS, V2)
                group = root / path.strip("/")
                places |= {
                    one: files for one in (group, *group.parents) if one.is_relative_to(root)
                }
    return [(group, *files) for group, files in places.items()]


def _count(path: str | Path, unknown: float = float("inf"), line: str = "", unit: int = 1) -> float:
    try:
        row = next(
            one
            for one in Path(path).read_text(encoding="utf-8").splitlines()
            if one.startswith(line)
        )
    except (OSError, StopIteration):
        return unknown
    count = row.removeprefix(line).split()[0]
    return float(count) * unit if count.isdigit() else unknown
