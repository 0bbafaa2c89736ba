"""The only st.cache_* calls, all bounded.

Streamlit hashes a dataclass by its values alone, so two classes with equal fields would meet in one entry; the key here
is the function's full name and the repr of its arguments, in which every dataclass says its class.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import streamlit as st

T = TypeVar("T")


def cached(function: Callable[..., T], *args: Hashable) -> T:
    """function(*args), remembered for every session; the result is copied, so it may be changed."""
    return _data(_name(function), repr(args), function, args)


def shared(function: Callable[..., T], *args: Hashable) -> T:
    """function(*args), remembered and shared as it is: for large results that nobody changes (traces)."""
    return _shared(_name(function), repr(args), function, args)


def model(function: Callable[..., T], *args: Hashable) -> T:
    """A loaded model, one of at most two that are kept; never mutate it."""
    return _model(_name(function), repr(args), function, args)


def _name(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


@st.cache_data(max_entries=64, show_spinner=False)
def _data(name: str, key: str, _function: Callable[..., Any], _args: tuple[Any, ...]) -> Any:
    return _function(*_args)


@st.cache_resource(max_entries=3, show_spinner=False)
def _shared(name: str, key: str, _function: Callable[..., Any], _args: tuple[Any, ...]) -> Any:
    return _function(*_args)


@st.cache_resource(max_entries=2, show_spinner=False)
def _model(name: str, key: str, _function: Callable[..., Any], _args: tuple[Any, ...]) -> Any:
    return _function(*_args)
