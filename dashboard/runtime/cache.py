"""The only st.cache_* calls, all bounded.

Streamlit hashes a dataclass by its values alone, so equal fields of two classes would collide; the key here is the
function's full name and the repr of its arguments.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Hashable
from functools import cache
from typing import Any, TypeVar

import streamlit as st

from core.memory import total_bytes
from dashboard.runtime.byte_lru_cache import Budget, ByteLRUCache, at_most

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

T = TypeVar("T")


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


def forget_results() -> None:
    """Empty the caches of this server, but for its models."""
    _copied().clear()
    _results().clear()


def _name(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


@st.cache_resource(max_entries=1, show_spinner=False)
def _results() -> ByteLRUCache:
    return ByteLRUCache(at_most(SHARED_BYTES, SHARED_PART), MOST, budget())


@st.cache_resource(max_entries=1, show_spinner=False)
def _copied() -> ByteLRUCache:
    return ByteLRUCache(at_most(SHARED_BYTES, SHARED_PART), MOST, budget())


@st.cache_resource(max_entries=1, show_spinner=False)
def _models() -> ByteLRUCache:
    return ByteLRUCache(at_most(MODEL_BYTES, MODEL_PART), 8, budget())
