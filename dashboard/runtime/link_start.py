"""The values that a link leaves out: those with which its page opens today, or those with which it opened before.

A page whose opening has changed counts its links from a *start*, which they name. A link that names values of the page
but no start was made before, and leaves out what the page opened with then.
"""

from __future__ import annotations

import streamlit as st

from dashboard.runtime.link_values import forget_earlier_texts, write_link
from dashboard.runtime.page_reset import CURRENT
from dashboard.server.streamlit_internals import script_run

ARRIVED = "link_start:arrived"  # whether this run came from another page


def note_arrival(page: str) -> None:
    """Note which page is drawn, and whether the reader came from another one; app.py calls it first in each run.

    Streamlit leaves an entry without parameters in the browser's history when a page is left, and sets the page's
    widgets to their defaults when Back leads there. Such a run counts as a press in the sidebar: the session's values
    hold, and are written into the link.
    """
    st.session_state[ARRIVED] = st.session_state.get(CURRENT) != page
    st.session_state[CURRENT] = page
    if not st.session_state[ARRIVED]:
        return
    context = script_run()
    if context is not None and context.is_history_navigation and not st.query_params:
        context.is_history_navigation = False
    forget_earlier_texts()


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
