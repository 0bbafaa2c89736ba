"""The values that a link leaves out: those with which its page opens today, or those with which it opened before.

A page whose opening has changed counts its links from a *start*, which they name. A link that names values of the page
but no start was made before, and leaves out what the page opened with then.
"""

from __future__ import annotations

import streamlit as st

from dashboard.runtime.link_values import write_link

ARRIVED = "link_start:arrived"  # whether this run came from another page; app.py sets it


def read_start(page: str, today: str, before: str) -> str:
    """The start from which the link of a page counts; call it before the page's first widget."""
    session, name = st.session_state, f"{page}:start"
    known, linked = session.get(name), st.query_params.get(name)
    has_values = any(param.startswith(f"{page}:") for param in st.query_params)
    if linked in (today, before):
        start = linked
    elif has_values and (known is None or session.get(ARRIVED)):
        start = before
    else:
        start = known or today
    session[name], session[f"{page}:has_link"] = start, known is not None or has_values
    return start


def write_start(page: str) -> None:
    """Name the start in the link, but not on the first run of a page that was opened without a value."""
    session, name = st.session_state, f"{page}:start"
    if session[f"{page}:has_link"]:
        write_link(name, session[name])
    session[f"{page}:has_link"] = True
