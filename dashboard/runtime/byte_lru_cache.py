"""A cache that all sessions share, bounded in bytes.

Not cachetools.LRUCache: it refuses a value larger than the whole cache, has one bound, and creates values twice.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from core.memory import total_bytes

T = TypeVar("T")


class Budget:
    """Bytes that several caches share: beyond them, the least recently used entry of all is evicted."""

    def __init__(self, most_bytes: float) -> None:
        self.most_bytes = most_bytes
        self.lock = threading.RLock()
        self._order: OrderedDict[tuple[ByteLRUCache, Any], int] = OrderedDict()

    @property
    def bytes(self) -> int:
        with self.lock:
            return sum(self._order.values())

    def use(self, cache: ByteLRUCache, key: Any, size: int) -> None:
        """Note that an entry was used now; evict others until all fit."""
        self._order[cache, key] = size
        self._order.move_to_end((cache, key))
        while len(self._order) > 1 and sum(self._order.values()) > self.most_bytes:
            oldest, evicted = next(iter(self._order))
            oldest.evict(evicted)

    def forget(self, cache: ByteLRUCache, key: Any) -> None:
        self._order.pop((cache, key), None)


class ByteLRUCache:
    """Values by key, each created once however many sessions need it at the same time.

    Beyond `most_bytes` or `most` entries, or the budget that it shares with others, the least recently used are
    evicted; the newest stays whatever its size.
    """

    def __init__(self, most_bytes: int, most: int, budget: Budget | None = None) -> None:
        self.most_bytes, self.most = most_bytes, most
        self._budget = budget or Budget(float("inf"))
        self._lock = self._budget.lock
        self._entries: OrderedDict[Any, tuple[Any, int]] = OrderedDict()
        self._making: WeakValueDictionary[Any, threading.Lock] = (
            WeakValueDictionary()
        )  # while a thread uses one

    def get(self, key: Any, make: Callable[[], T]) -> T:
        """The value of this key, created if it is missing; errors of `make` are not stored."""
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            with self._lock:
                if key in self._entries:
                    self._entries.move_to_end(key)
                    entry: T = self._entries[key][0]
                    self._budget.use(self, key, self._entries[key][1])
                    return entry
            value = make()
            with self._lock:
                self._entries[key] = value, size_bytes(value)
                while len(self._entries) > 1 and (
                    len(self._entries) > self.most or self.bytes > self.most_bytes
                ):
                    self.evict(next(iter(self._entries)))
                self._budget.use(self, key, self._entries[key][1])
        return value

    def evict(self, key: Any) -> None:
        """Forget an entry."""
        with self._lock:
            self._entries.pop(key, None)
            self._budget.forget(self, key)

    def clear(self) -> None:
        """Forget all entries."""
        for key in list(self._entries):
            self.evict(key)

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
        return sum(
            int(one.nbytes) for both in (value.parameters(), value.buffers()) for one in both
        )
    if isinstance(value, str | bytes):
        return len(value)
    if is_dataclass(value) and not isinstance(value, type):
        return sum(size_bytes(getattr(value, part.name)) for part in fields(value))
    if isinstance(value, Mapping):
        return sum(size_bytes(part) for part in value.values())
    return (
        sum(size_bytes(part) for part in value)
        if isinstance(value, tuple | list | set | frozenset)
        else 0
    )


def at_most(count: int, share: float) -> int:
    """So many bytes, and at most that share of the memory of this machine or its container."""
    return int(min(count, share * total_bytes()))
