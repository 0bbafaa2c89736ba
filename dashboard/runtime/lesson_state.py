"""What a lesson round the page leaves out of it: the link to the next page, and the page's own questions and moves."""

from __future__ import annotations

import streamlit as st

LEFT_OUT = "lesson:left_out"  # the session's key: a lesson runs, and whether it hides the page's questions and moves


def note_lesson(hide_guide: bool | None) -> None:
    """Note what the lesson of the page that is drawn hides; None without a lesson."""
    st.session_state[LEFT_OUT] = hide_guide


def lesson_runs() -> bool:
    """Whether the page that is drawn has a lesson round it."""
    return st.session_state.get(LEFT_OUT) is not None


def guide_is_hidden() -> bool:
    """Whether its lesson hides the page's own questions and moves."""
    return bool(st.session_state.get(LEFT_OUT))
