"""The only st.cache_* calls, all bounded.

Streamlit hashes a dataclass by its values alone, so two classes with equal fields would meet in one entry; the key here
is the function's full name and the repr of its arguments, in which every dataclass says its class.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import streamlit as st

from dashboard.runtime.byte_lru_cache import ByteLRUCache, at_most

MODEL_BYTES, MODEL_PART = 1_600_000_000, 1 / 3
SHARED_BYTES, SHARED_PART = 600_000_000, 1 / 8  # with uploads half of a small machine, which needs the rest to run

T = TypeVar("T")


def cached(function: Callable[..., T], *args: Hashable) -> T:
    """function(*args), remembered for every session; the result is copied, so it may be changed."""
    return _data(_name(function), repr(args), function, args)


def shared(function: Callable[..., T], *args: Hashable) -> T:
    """function(*args), remembered and shared as it is: for large results that nobody changes (traces).

    At most 600 MB of them, an eighth of the machine's memory, and 32, are kept.
    """
    return _results().get((_name(function), repr(args)), lambda: function(*args))


def remembered(function: Callable[..., T], *args: Hashable) -> bool:
    """Whether `shared` has function(*args) at hand, so that asking for it takes no time."""
    return (_name(function), repr(args)) in _results()


def model(function: Callable[..., T], *args: Hashable) -> T:
    """A loaded model; 1.6 GB of them, a third of the machine's memory, and 8, are kept at most. Never mutate it."""
    return _models().get((_name(function), repr(args)), lambda: function(*args))


def _name(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


@st.cache_data(max_entries=64, show_spinner=False)
def _data(name: str, key: str, _function: Callable[..., Any], _args: tuple[Any, ...]) -> Any:
    return _function(*_args)


@st.cache_resource(max_entries=1, show_spinner=False)
def _results() -> ByteLRUCache:
    return ByteLRUCache(at_most(SHARED_BYTES, SHARED_PART), 32)


@st.cache_resource(max_entries=1, show_spinner=False)
def _models() -> ByteLRUCache:
    return ByteLRUCache(at_most(MODEL_BYTES, MODEL_PART), 8)
