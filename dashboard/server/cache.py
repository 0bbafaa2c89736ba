"""Caches that all sessions share, bounded in bytes and in entries.

The key is the function's full name and the repr of its arguments: Streamlit would hash a dataclass by its values alone,
so that equal fields of two classes collide. Not cachetools.LRUCache: it refuses a value larger than the whole cache, has
one bound, and creates values twice.
"""

import pickle
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from core.memory import total_bytes

T = TypeVar("T")


class Budget:
    """Bytes that several caches share: beyond them, the least recently used entry of all is evicted."""

    def __init__(self, max_bytes: float) -> None:
        self.max_bytes = max_bytes
        self.lock = threading.RLock()
        # Of each cache and key the value and its bytes, the latest used last.
        self.entries: OrderedDict[tuple[ByteLRUCache, Any], tuple[Any, int]] = OrderedDict()

    @property
    def bytes(self) -> int:
        with self.lock:
            return sum(size for _, size in self.entries.values())


class ByteLRUCache:
    """Values by key, each created once however many sessions need it at the same time.

    Beyond `max_bytes` or `max_entries` entries, or the budget that it shares with others, the least recently used are
    evicted; the newest stays whatever its size.
    """

    def __init__(self, max_bytes: int, max_entries: int, budget: Budget | None = None) -> None:
        self.max_bytes, self.max_entries = max_bytes, max_entries
        self.budget = budget or Budget(float("inf"))
        self._making: WeakValueDictionary[Any, threading.Lock] = (
            WeakValueDictionary()
        )  # while a thread uses one

    def get(self, key: Any, make: Callable[[], T]) -> T:
        """The value of this key, created if it is missing; errors of `make` are not stored."""
        lock, entries = self.budget.lock, self.budget.entries
        with lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            with lock:
                if key in self:
                    entries.move_to_end((self, key))
                    return entries[self, key][0]
            value = make()
            with lock:
                entries[self, key] = value, size_bytes(value)
                while len(own := self.sizes()) > 1 and (
                    len(own) > self.max_entries or self.bytes > self.max_bytes
                ):
                    del entries[self, next(iter(own))]
                while len(entries) > 1 and self.budget.bytes > self.budget.max_bytes:
                    entries.popitem(last=False)
        return value

    def sizes(self) -> dict[Any, int]:
        with self.budget.lock:
            return {
                key: size
                for (cache, key), (_, size) in self.budget.entries.items()
                if cache is self
            }

    @property
    def bytes(self) -> int:
        return sum(self.sizes().values())

    def __contains__(self, key: object) -> bool:
        return (self, key) in self.budget.entries


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


def at_most(count: int, share: float) -> int:
    """So many bytes, and at most that share of the memory of this machine or its container."""
    return int(min(count, share * total_bytes()))


LIBRARIES = 600_000_000  # bytes of a server without results and models, and of a worker


@cache
def budget() -> Budget:
    """Of all caches: half of what libraries leave, from 100 MB to 2.6 GB."""
    return Budget(min(2.6e9, max(1e8, (total_bytes() - LIBRARIES) / 2)))


# Of results, of those that are copied, and of models: bytes, at most a share of memory, and entries. With uploads they
# take half of a small machine, which needs the rest to run. A walk through all pages makes 36 results and 113 copied.
LIMITS = {
    "results": (600_000_000, 1 / 8, 512),
    "copied": (600_000_000, 1 / 8, 512),
    "models": (1_600_000_000, 1 / 3, 8),
}


@cache
def cache_of(kind: str) -> ByteLRUCache:
    max_bytes, share, max_entries = LIMITS[kind]
    return ByteLRUCache(at_most(max_bytes, share), max_entries, budget())


def key_of(function: Callable[..., Any], args: tuple[Hashable, ...]) -> tuple[str, str]:
    return f"{function.__module__}.{function.__qualname__}", repr(args)


def cached(function: Callable[..., T], *args: Hashable) -> T:
    """function(*args), cached for every session; the result is copied."""
    key = key_of(function, args)
    return pickle.loads(cache_of("copied").get(key, lambda: pickle.dumps(function(*args))))


def shared(function: Callable[..., T], *args: Hashable) -> T:
    """function(*args), cached and shared; never change it. At most 600 MB, an eighth of memory, and 512 are kept."""
    return cache_of("results").get(key_of(function, args), lambda: function(*args))


def model(function: Callable[..., T], *args: Hashable) -> T:
    """A loaded model, shared; never change it. At most 1.6 GB, a third of memory, and 8 are kept."""
    return cache_of("models").get(key_of(function, args), lambda: function(*args))


def measurements(name: str, *args: Hashable) -> dict[Any, Any]:
    """A dict of small values that all sessions fill and read, empty at first: what one measured, all others have."""
    return cache_of("results").get((name, repr(args)), dict)


def remembered(function: Callable[..., Any], *args: Hashable) -> bool:
    """Whether `shared` or `model` has this result already."""
    key = key_of(function, args)
    return key in cache_of("results") or key in cache_of("models")


def sizes() -> dict[str, int]:
    each = {kind: cache_of(kind).bytes for kind in LIMITS}
    return {"results": each["results"] + each["copied"], "models": each["models"]}
