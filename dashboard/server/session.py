"""One value of the session under one key, typed."""

from typing import Any, Generic, TypeVar

import streamlit as st

T = TypeVar("T")


class SessionValue(Generic[T]):
    """What this session remembers from run to run; `start` until it is set.

    In a class of controls its key is the page's name and its own.
    """

    def __init__(self, start: T, key: str = "") -> None:
        self.start, self._key = start, key

    def __set_name__(self, owner: Any, name: str) -> None:
        self.owner, self._key = owner, name

    @property
    def key(self) -> str:
        owner = getattr(self, "owner", None)
        return f"{owner.page_key}:{self._key}" if owner else self._key

    @property
    def value(self) -> T:
        return st.session_state.get(self.key, self.start)

    @value.setter
    def value(self, value: T) -> None:
        st.session_state[self.key] = value

    @property
    def is_set(self) -> bool:
        return self.key in st.session_state

    def pop(self) -> T:
        """The value, which is the start again after it."""
        return st.session_state.pop(self.key, self.start)

    def forget(self) -> None:
        st.session_state.pop(self.key, None)


CURRENT = SessionValue[str | None](None, "page_reset:current")  # the key of the page that is drawn
