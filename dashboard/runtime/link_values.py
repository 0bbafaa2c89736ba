"""Values of the session that the link holds even while no widget draws them: of closed popovers and of components.

A bound widget (``params.BOUND``) leaves the link when its popover closes. These values stay: call ``link_value`` on
every run, before the widget is drawn or the session is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import streamlit as st

from core.entries import Param

WRITTEN = "link:written"  # what this session has put into the link, by name
Reader = Callable[[str], Any]


def link_value(key: str, default: Any, read: Reader, write: Callable[[Any], str] | None = None, *,
               name: str | None = None, always: bool = False) -> None:
    """Take the session's value of a key from the link, or write it there unless it is the default.

    A text that this session has not written wins over the session's value; one that `read` refuses (ValueError) is
    removed. `name` is the link's, the key by default; `always` writes the default too.
    """
    take_link(key, read, name=name)
    value = st.session_state.get(key, default)
    write_link(name or key, None if value == default and not always else (write or as_text)(value))


def take_link(key: str, read: Reader, *, name: str | None = None) -> None:
    """Put a text of the link that this session has not written into the session."""
    if is_new(name or key):
        with suppress(ValueError):  # a ConfigError is one
            st.session_state[key] = read(st.query_params[name or key])


def is_new(name: str) -> bool:
    """Whether the link has a value of this name that this session has not written."""
    text = st.query_params.get(name)
    return text is not None and text != st.session_state.get(WRITTEN, {}).get(name)


def write_link(name: str, text: str | None) -> None:
    """Write a text into the link, or remove it with None, where that changes it."""
    written = st.session_state.setdefault(WRITTEN, {})
    if text is None:
        written.pop(name, None)
        if name in st.query_params:
            del st.query_params[name]
        return
    written[name] = text
    if st.query_params.get(name) != text:
        st.query_params[name] = text


def link_param(param: Param, key: str) -> None:
    """The same for the value of a parameter, within its bounds."""
    link_value(key, param.default, lambda text: param.check(read_as(param.default)(text), param.name))


def as_text(value: Any) -> str:
    """A value in a link: true, 3, 0.001, a text, or 1.0 for the pair (1, 0)."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ".".join(map(str, value))
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def read_as(default: Any) -> Reader:
    """The reader of a text as a value of the default's type."""
    return one_of([True, False]) if isinstance(default, bool) else type(default)


def one_of(options: Iterable[Any]) -> Reader:
    """The reader of the text of one of the options; ValueError for another one."""
    texts = {as_text(option): option for option in options}

    def read(text: str) -> Any:
        if text not in texts:
            raise ValueError(f"{text[:40]!r} is not on offer")
        return texts[text]

    return read


def between(low: float, high: float, number: type[int] | type[float] = int) -> Reader:
    """The reader of a number within bounds; ValueError outside of them."""
    def read(text: str) -> Any:
        value = number(text)
        if not low <= value <= high:
            raise ValueError(f"{value} is not between {low} and {high}")
        return value

    return read
