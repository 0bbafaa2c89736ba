"""A cache that all sessions share, bounded in bytes.

Not cachetools.LRUCache: it refuses a value larger than the whole cache, has one bound, and creates values twice.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")


class ByteLRUCache:
    """Values by key, each created once however many sessions need it at the same time.

    Beyond `most_bytes` or `most` entries the least recently used are evicted; the newest stays whatever its size.
    """

    def __init__(self, most_bytes: int, most: int) -> None:
        self.most_bytes, self.most = most_bytes, most
        self._lock = threading.RLock()
        self._entries: OrderedDict[Any, tuple[Any, int]] = OrderedDict()
        self._making: WeakValueDictionary[Any, threading.Lock] = WeakValueDictionary()  # while a thread uses one

    def get(self, key: Any, make: Callable[[], T]) -> T:
        """The value of this key, created if it is missing; errors of `make` are not stored."""
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            with self._lock:
                if key in self._entries:
                    self._entries.move_to_end(key)
                    entry: T = self._entries[key][0]
                    return entry
            value = make()
            with self._lock:
                self._entries[key] = value, size_bytes(value)
                while len(self._entries) > 1 and (len(self._entries) > self.most or self.bytes > self.most_bytes):
                    self._entries.popitem(last=False)
        return value

    @property
    def bytes(self) -> int:
        with self._lock:
            return sum(weight for _, weight in self._entries.values())

    def __contains__(self, key: object) -> bool:
        return key in self._entries


def size_bytes(value: Any) -> int:
    """The bytes of all arrays, tensors and text in a value and its parts."""
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    if hasattr(value, "parameters") and hasattr(value, "buffers"):
        return sum(int(one.nbytes) for both in (value.parameters(), value.buffers()) for one in both)
    if isinstance(value, str | bytes):
        return len(value)
    if is_dataclass(value) and not isinstance(value, type):
        return sum(size_bytes(getattr(value, part.name)) for part in fields(value))
    if isinstance(value, Mapping):
        return sum(size_bytes(part) for part in value.values())
    return sum(size_bytes(part) for part in value) if isinstance(value, tuple | list | set | frozenset) else 0


def at_most(count: int, share: float) -> int:
    """So many bytes, and at most that share of the memory of this machine or its container."""
    return int(min(count, share * _machine()))


def free_bytes() -> float:
    """Bytes of memory that are free in the computer or its container, whichever is less; infinite where unknown."""
    group = _count("/sys/fs/cgroup/memory.max") - _count("/sys/fs/cgroup/memory.current", 0.0)
    return min(_count("/proc/meminfo", line="MemAvailable:"), group)


def _machine() -> float:
    """Bytes of memory of the computer or its container, whichever is less; infinite where unknown."""
    return min(_count("/proc/meminfo", line="MemTotal:"), _count("/sys/fs/cgroup/memory.max"))


def _count(path: str, unknown: float = float("inf"), line: str = "") -> float:
    """The bytes in a file, or in its line of that name, which counts in KiB; `unknown` where there are none."""
    try:
        row = next(one for one in Path(path).read_text().splitlines() if one.startswith(line))
    except (OSError, StopIteration):
        return unknown
    count = row.removeprefix(line).split()[0]
    return float(count) * (1024 if line else 1) if count.isdigit() else unknown
