"""Caches that all sessions share, bounded in bytes and in entries.

The key is the function's full name and the repr of its arguments: Streamlit would hash a dataclass by its values alone,
so that equal fields of two classes collide.
"""

import pickle
import time
from collections.abc import Callable, Hashable
from functools import cache
from math import inf
from typing import Any, TypeVar

from core.memory import ByteLRUCache, total_bytes
from dashboard.server.calls import recorded

T = TypeVar("T")


def at_most(count: int, share: float) -> int:
    """So many bytes, and at most that share of the memory of this machine or its container."""
    return int(min(count, share * total_bytes()))


# Of results, of those that are copied, of models, and of uploads: bytes, at most a share of memory, and entries.
# Together they take half of a small machine, which needs the rest to run. A walk through all pages makes 36 results and
# 113 copied.
LIMITS = {
    "results": (600_000_000, 1 / 8, 512),
    "copied": (600_000_000, 1 / 8, 512),
    "models": (1_600_000_000, 1 / 3, 8),
    "uploads": (400_000_000, 1 / 12, 16),
}


@cache
def store() -> ByteLRUCache:
    """What all sessions share: at most half of what libraries and a worker leave of memory, from 100 MB to 2.6 GB."""
    return ByteLRUCache(
        {kind: (at_most(most, share), entries) for kind, (most, share, entries) in LIMITS.items()},
        min(2.6e9, max(1e8, (total_bytes() - 800e6) / 2)),
    )


def key_of(function: Callable[..., Any], args: tuple[Hashable, ...]) -> tuple[str, str]:
    return f"{function.__module__}.{function.__qualname__}", repr(args)


def cached(function: Callable[..., T], *args: Hashable) -> T:
    """function(*args), cached for every session and recorded; the result is copied."""
    stored = store().get("copied", key_of(function, args), lambda: pickle.dumps(function(*args)))
    return recorded(function, args, pickle.loads(stored))


def shared(function: Callable[..., T], *args: Hashable) -> T:
    """function(*args), cached, shared and recorded; never change it.

    At most 600 MB, an eighth of memory, and 512 are kept.
    """
    result = store().get("results", key_of(function, args), lambda: function(*args))
    return recorded(function, args, result)


def computed(function: Callable[..., T], *args: Any) -> T:
    """function(*args), recorded: for what takes no time, or has results as arguments, which are no keys of a cache."""
    return recorded(function, args, function(*args))


def model(function: Callable[..., T], *args: Hashable) -> T:
    """A loaded model, shared; never change it. At most 1.6 GB, a third of memory, and 8 are kept."""
    return store().get("models", key_of(function, args), lambda: function(*args))


_recent: dict[Any, tuple[float, Any]] = {}  # when each was computed, and its value


def recent(seconds: float, function: Callable[..., T], *args: Hashable) -> T:
    """function(*args) as it was at most so many seconds ago, for all sessions."""
    key = key_of(function, args)
    at, value = _recent.get(key, (-inf, None))
    if time.monotonic() - at > seconds:
        value = function(*args)
        _recent[key] = time.monotonic(), value
    return value  # type: ignore[return-value]


def measurements(name: str, *args: Hashable) -> dict[Any, Any]:
    """A dict of small values that all sessions fill and read, empty at first: what one measured, all others have."""
    return store().get("results", (name, repr(args)), dict)


def remembered(function: Callable[..., Any], *args: Hashable) -> bool:
    """Whether `shared` or `model` has this result already."""
    key = key_of(function, args)
    return ("results", key) in store().entries or ("models", key) in store().entries


def sizes() -> dict[str, int]:
    return {"results": store().bytes("results", "copied"), "models": store().bytes("models")}
