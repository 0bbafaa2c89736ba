"""Caches that all sessions share, bounded in bytes and in entries.

The key is the function's full name and the repr of its arguments: Streamlit would hash a dataclass by its values alone,
so that equal fields of two classes collide. Not cachetools.LRUCache: it refuses a value larger than the whole cache, has
one bound, and creates values twice.
"""

from __future__ import annotations

import pickle
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
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


MODEL_BYTES, MODEL_PART = 1_600_000_000, 1 / 3
SHARED_BYTES, SHARED_PART = (
    600_000_000,
    1 / 8,
)  # with uploads half of a small machine, which needs the rest to run
MOST = 512  # results of each kind; a walk through all pages makes 36 shared ones and 113 that are copied

LIBRARIES = 600_000_000  # bytes of a server without results and models, and of a worker
CACHE_BYTES, CACHE_PART, LEAST = (
    2_600_000_000,
    1 / 2,
    100_000_000,
)  # of all caches: half of what libraries leave


@cache
def budget() -> Budget:
    """What results, models and uploads share."""
    return Budget(min(CACHE_BYTES, max(LEAST, CACHE_PART * (total_bytes() - LIBRARIES))))


def cached(function: Callable[..., T], *args: Hashable) -> T:
    """function(*args), cached for every session; the result is copied."""
    key = _name(function), repr(args)
    value: T = pickle.loads(_copied().get(key, lambda: pickle.dumps(function(*args))))
    return value


def shared(function: Callable[..., T], *args: Hashable) -> T:
    """function(*args), cached and shared; never change it. At most 600 MB, an eighth of memory, and 512 are kept."""
    return _results().get((_name(function), repr(args)), lambda: function(*args))


def measurements(name: str, *args: Hashable) -> dict[Any, Any]:
    """A dict of small values that all sessions fill and read, empty at first: what one measured, all others have."""
    values: dict[Any, Any] = _results().get((name, repr(args)), dict)
    return values


def remembered(function: Callable[..., T], *args: Hashable) -> bool:
    """Whether `shared` has this result already."""
    return (_name(function), repr(args)) in _results()


def sizes() -> dict[str, int]:
    """The bytes of what all sessions share: results and models."""
    return {"results": _results().bytes + _copied().bytes, "models": _models().bytes}


def model(function: Callable[..., T], *args: Hashable) -> T:
    """A loaded model, shared; never change it. At most 1.6 GB, a third of memory, and 8 are kept."""
    return _models().get((_name(function), repr(args)), lambda: function(*args))


def has_model(function: Callable[..., Any], *args: Hashable) -> bool:
    """Whether `model` has this one already."""
    return (_name(function), repr(args)) in _models()


def _name(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


@cache
def _results() -> ByteLRUCache:
    return ByteLRUCache(at_most(SHARED_BYTES, SHARED_PART), MOST, budget())


@cache
def _copied() -> ByteLRUCache:
    return ByteLRUCache(at_most(SHARED_BYTES, SHARED_PART), MOST, budget())


@cache
def _models() -> ByteLRUCache:
    return ByteLRUCache(at_most(MODEL_BYTES, MODEL_PART), 8, budget())
