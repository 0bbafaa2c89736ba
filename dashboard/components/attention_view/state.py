"""The picks of a view: the page's until a person picks, then the person's."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import streamlit as st

Pair: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class ViewState:
    """The picked head, the newest pin (query, key), the frame's step (None: the last), and all pins, oldest first."""

    layer: int
    head: int
    pin: Pair | None = None
    frame: int | None = None
    pins: tuple[Pair, ...] = ()


def settle(store: MutableMapping[str, Any], name: str, field: str, page_value: Any) -> Any:
    """The value of one field: the page's when it is new, else what was last picked.

    A value that the page only returns (through its URL, say) is not new. ``store`` may be shared by several views, told
    apart by ``name``.
    """
    previous, returned = store.setdefault("previous", {}), store.setdefault("returned", {})
    if (name, field) not in previous:
        store.setdefault(field, page_value)
        # A second view joining a shared store must not undo a pick made in the first.
    elif page_value not in (previous[name, field], returned[name, field]):
        store[field] = page_value
    previous[name, field] = page_value
    returned[name, field] = store[field]
    return store[field]


def settle_pin(
    store: MutableMapping[str, Any], name: str, pin: Pair | None, shape: tuple[int, int]
) -> Pair | None:
    """The settled pin, removed where a map of that shape has no such cell."""
    pinned = settle(store, name, "pin", None if pin is None else (int(pin[0]), int(pin[1])))
    if pinned is not None and not inside([pinned], shape):
        pinned = store["pin"] = None
    return pinned


def stores(key: str, link: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """A view's own state in the session, and the state that views of the same link share (its own without one)."""
    own = st.session_state.setdefault(f"{key}:view", {})
    return own, st.session_state.setdefault(f"{link}:link", {}) if link else own


def take(key: str, link: str | None, field: str) -> None:
    """A callback: store what the browser sent, for all views of the link if there is one."""
    message = st.session_state[key].get(field)
    own, shared = stores(key, link)
    shared[field] = parse_message(field, message)
    own["turn"] = int(dict(message or {}).get("turn", 0))


def inside(pins: Iterable[Pair], shape: tuple[int, int]) -> tuple[Pair, ...]:
    """The pins within a map of that shape: one from a longer sentence is in no cell of a shorter one."""
    return tuple((i, j) for i, j in pins if 0 <= i < shape[0] and 0 <= j < shape[1])


def parse_message(field: str, message: Any) -> Any:
    """A message from the browser as this field's value, or None for nothing; raises ValueError on anything else."""
    value = dict(message or {}).get("value")
    if field == "pins":
        return tuple(_pair(pair) for pair in value or ())
    if value is None:
        return None
    if field == "frame":
        return int(value)
    if field == "window":
        top, bottom, left, right = (int(edge) for edge in value)
        return top, bottom, left, right
    return _pair(value)


def _pair(value: Any) -> Pair:
    first, second = value
    return int(first), int(second)
