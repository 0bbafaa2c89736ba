"""A message that a callback leaves for the next run of its page."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from core.files import sentence_of


def flash(page: str, message: str) -> None:
    """Keep a message for the page's next run."""
    st.session_state[f"{page}:trouble"] = message


def pop_flash(page: str) -> str:
    """The message of the page, once; "" without one."""
    return str(st.session_state.pop(f"{page}:trouble", ""))


def flash_errors(
    page: str, prefix: str, action: Callable[[], object], *errors: type[Exception]
) -> bool:
    """Run an action; an error of these types becomes the page's message. Returns whether it succeeded."""
    try:
        action()
    except errors as error:
        flash(page, prefix + sentence_of(error))
        return False
    return True
