"""Buttons that copy a picture or its numbers to the clipboard; what is copied is made when a button is pressed."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping

import streamlit as st

from dashboard.components.lib import draw

TYPES = {"png": "image/png", "text": "text/plain"}


def copy_buttons(formats: Mapping[str, tuple[str, Callable[[], bytes]]], *, key: str) -> None:
    """Draw a button for each name: its type of TYPES, and what makes the bytes.

    A press asks Python, which answers in the next run; the browser waits for the answer with the clipboard open.
    """
    request = st.session_state.pop(f"{key}:request", None) or {}
    _, make = formats.get(request.get("name", ""), ("", None))
    answer = {"turn": request["turn"], "bytes": b64encode(make()).decode()} if make else None
    data = {
        "buttons": [{"name": label, "type": TYPES[kind]} for label, (kind, _) in formats.items()],
        "answer": answer,
    }
    draw("copy_buttons", "cb", data, key=key, exported=False, on_ask_change=lambda: _note(key))


def _note(key: str) -> None:
    """Note what a press asks for, until the run that follows."""
    st.session_state[f"{key}:request"] = dict(st.session_state[key].get("ask") or {})
