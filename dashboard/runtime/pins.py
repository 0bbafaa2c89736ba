"""A pinned cell of a picture in the link and the session."""

from __future__ import annotations

import streamlit as st

from dashboard.runtime.query_params import Pair, read_pair, write_pair


def linked_pin(name: str, shape: Pair) -> Pair | None:
    """The cell that the link pins, else the session's; None where a map of that shape has no such cell."""
    if name in st.query_params:
        return read_pair(name, shape)[0]
    pin: Pair | None = st.session_state.get(f"{name}:pinned")
    return pin if pin is not None and pin[0] < shape[0] and pin[1] < shape[1] else None


def link_pin(name: str, pin: Pair | None) -> Pair | None:
    """Write the cell that a picture has pinned to the link and the session; returns it."""
    st.session_state[f"{name}:pinned"] = pin
    write_pair(name, pin)
    return pin
