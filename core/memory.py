"""How much memory there is, and what work may take of it: `admitted` is the one door of all that could take much.

What there is: the computer's, its container's, or what a setting allows the server, whichever is least. `server_mb` of
ATTENTION_LAB_LIMITS is what the server and its workers may hold together. On a small machine whatever only saves time is
left out: a warm spare worker, pages that are prepared before they open, memory that is kept for the next call.
"""

import ctypes
import gc
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from math import inf
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakSet, WeakValueDictionary

import psutil

from core.entries import ConfigError, Cost
from core.settings import limits

T = TypeVar("T")
SMALL = 2_000_000_000  # bytes in all, below which nothing is held that only saves time
MALLOC = {"M_TRIM_THRESHOLD": -1, "M_MMAP_THRESHOLD": -3, "M_ARENA_MAX": -8}  # of glibc's malloc.h
CGROUPS = Path("/sys/fs/cgroup")
V2 = ("memory.max", "memory.current", "inactive_file", "memory.events")
V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "memory.oom_control")

UNASKED = 10_000_000  # bytes of work that is always done: to see what is free takes 0.3 ms
RESERVE = 50_000_000  # bytes that stay free for the pages that are open
MAX_SECONDS = 2.0  # of work that nothing can end
FLOPS = 2e10  # a second, of one slow core
_promised: list[float] = []  # bytes of work that is under way
_lock = threading.RLock()
_caches = WeakSet["ByteLRUCache"]()


class TooMuch(ConfigError):
    """Work that would take more memory or time than there is; the message says what would fit."""


@contextmanager
def admitted(cost: Cost, what: str, remedy: str) -> Iterator[None]:
    """Do the work of the block where `cost`, by the sizes that the work will use, fits beside all that is under way.

    TooMuch as `why_too_much` says.
    """
    with _lock:
        if why := why_too_much(cost, what, remedy):
            raise TooMuch(why)
        _promised.append(cost.bytes)
    try:
        yield
    finally:
        with _lock:
            _promised.remove(cost.bytes)


def why_too_much(cost: Cost, what: str, remedy: str) -> str:
    """Why work is not begun, or "": its bytes are more than is free, or its FLOPs take more than MAX_SECONDS.

    `what` begins the sentence ("This layer"), `remedy` ends it ("Take fewer heads.").
    """
    if cost.flops > FLOPS * MAX_SECONDS:
        return (
            f"{what} would take about {cost.flops / FLOPS:,.0f} s on one core; at most "
            f"{MAX_SECONDS:.0f} s are taken here. {remedy}"
        )
    if cost.bytes <= UNASKED or cost.bytes <= (room := room_bytes()):
        return ""
    caches = list(_caches)
    held = sum(cache.bytes(*(cache.limits.keys() - {"models"})) for cache in caches)
    if cost.bytes <= room + held:
        for cache in caches:
            cache.shrink(cost.bytes - room_bytes())
        gc.collect()  # parts of a result may refer to each other
        give_back()
        if cost.bytes <= (room := room_bytes()):
            return ""
    free = format_bytes(room) if room else "nothing"
    return f"{what} needs about {format_bytes(cost.bytes)} of memory, and {free} is free. {remedy}"


def format_bytes(count: float) -> str:
    """A size as text in kB, MB or GB (powers of ten, as disks count)."""
    for unit, name in ((1_000_000_000, "GB"), (1_000_000, "MB")):
        if count >= unit:
            return f"{count / unit:,.{int(count < 10 * unit)}f} {name}"
    return f"{count / 1000:,.0f} kB"


def room_bytes() -> float:
    """Bytes that more work may take: what is free beside what is promised and RESERVE."""
    return max(0.0, free_bytes() - sum(_promised) - RESERVE)


# What a server does now and then in long work: a page that was left ends there
pauses: list[Callable[[], object]] = []


def with_pauses(rows: Iterable[T]) -> Iterator[T]:
    """The rows; at each so-manieth, work that nobody waits for any more can be ended."""
    for index, row in enumerate(rows):
        if index % 2_048 == 0:
            for pause in pauses:
                pause()
        yield row


# What is kept for the next call, bounded in bytes.


class ByteLRUCache:
    """Values by kind and key, each created once however many sessions need it at the same time.

    `limits` are the bytes and entries of each kind. Beyond these, or `max_bytes` of all together, the least recently
    used are evicted; the newest stays whatever its size. Not cachetools.LRUCache: it refuses a value larger than the whole
    cache, has one bound, and creates values twice.
    """

    def __init__(self, limits: Mapping[str, tuple[float, int]], max_bytes: float = inf) -> None:
        self.limits, self.max_bytes = limits, max_bytes
        self._lock = threading.RLock()
        # Of each kind and key the value and its bytes, the latest used last.
        self.entries: OrderedDict[tuple[str, Any], tuple[Any, int]] = OrderedDict()
        # while a thread uses one
        self._making: WeakValueDictionary[Any, threading.Lock] = WeakValueDictionary()
        _caches.add(self)

    def get(self, kind: str, key: Any, make: Callable[[], T]) -> T:
        """The value of this key, created if it is missing; errors of `make` are not stored."""
        entries, (max_bytes, max_entries) = self.entries, self.limits[kind]
        with self._lock:
            making = self._making.setdefault((kind, key), threading.Lock())
        with making:
            with self._lock:
                if (kind, key) in entries:
                    entries.move_to_end((kind, key))
                    return entries[kind, key][0]
            value = make()
            with self._lock:
                entries[kind, key] = value, size_bytes(value)
                while len(own := self.sizes(kind)) > 1 and (
                    len(own) > max_entries or self.bytes(kind) > max_bytes
                ):
                    del entries[kind, next(iter(own))]
                while len(entries) > 1 and self.bytes(*self.limits) > self.max_bytes:
                    entries.popitem(last=False)
        return value

    def shrink(self, count: float) -> None:
        """Evict the least recently used values until `count` bytes are given up, or none is left.

        Models stay: pages would load them again and again.
        """
        with self._lock:
            for kind, key in [*self.entries]:
                if count > 0 and kind != "models":
                    count -= self.entries.pop((kind, key))[1]

    def sizes(self, kind: str) -> dict[Any, int]:
        with self._lock:
            return {key: size for (of, key), (_, size) in self.entries.items() if of == kind}

    def bytes(self, *kinds: str) -> int:
        return sum(sum(self.sizes(kind).values()) for kind in kinds)


def size_bytes(value: Any) -> int:
    """The bytes of all arrays, tensors and text in a value and its parts."""
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    if isinstance(value, str | bytes):
        return len(value)
    parts: Iterable[Any] = ()
    if hasattr(value, "parameters") and hasattr(value, "buffers"):
        parts = (*value.parameters(), *value.buffers())
    elif is_dataclass(value) and not isinstance(value, type):
        parts = (getattr(value, part.name) for part in fields(value))
    elif isinstance(value, Mapping):
        parts = value.values()
    elif isinstance(value, tuple | list | set | frozenset):
        parts = value
    return sum(map(size_bytes, parts))


# How much memory there is, how much is held, and what is given back.


def total_bytes() -> float:
    """Bytes of memory that the server may hold; infinite where unknown."""
    return min(
        _count("/proc/meminfo", line="MemTotal:", unit=1024),
        _allowed(),
        *[_count(group / most) for group, most, *_ in _groups()],
    )


def free_bytes() -> float:
    """Bytes of memory that are free; infinite where unknown."""
    # the system drops what it caches of files
    groups = [
        _count(group / most)
        - _count(group / used, 0.0)
        + _count(group / "memory.stat", 0.0, f"{cache} ")
        for group, most, used, cache, _ in _groups()
    ]
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
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="utf-8")


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
