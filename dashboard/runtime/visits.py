"""The pages that the reader has opened: in the session, and in the link of the start page."""

from __future__ import annotations

import streamlit as st

from dashboard.navigation import PATH

VISITED = "start:visited"  # its name in the session and in the link


def remember_visit(key: str) -> None:
    """Note that a page of the path was opened."""
    visited = st.session_state.get(VISITED, ())
    if key in PATH and key not in visited:
        st.session_state[VISITED] = (*visited, key)


def sync_visits() -> tuple[str, ...]:
    """Join the session's pages with those of the link, write them into the link, and return them in path order."""
    linked = st.query_params.get(VISITED, "").split(".")
    visited = tuple(
        key for key in PATH if key in linked or key in st.session_state.get(VISITED, ())
    )
    st.session_state[VISITED] = visited
    text = ".".join(visited)
    if text and st.query_params.get(VISITED) != text:
        st.query_params[VISITED] = text
    return visited
