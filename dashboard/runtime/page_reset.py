"""Set a page back to its start: its widgets leave the browser for one run, then its values leave session and link.

A widget that stays in the browser would send its value again, so the page is not drawn between the two runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import streamlit as st

from dashboard.runtime.link_values import WRITTEN

CURRENT = "page_reset:current"  # the key of the page that is drawn
PENDING = "page_reset:pending"  # the key of the page to reset, the names in its link, and the values it gets
EMPTIED = "page_reset:emptied"  # whether its widgets have left the browser
INTERVAL = 0.1  # seconds until the browser, without the widgets, asks again
PREFIXES = {"one_query": ("one:", "one_query:")}  # of a page's keys, where they are not its name


def request_reset(values: Mapping[str, Any] | None = None) -> None:
    """Ask for the page that is drawn to be reset, to these values of the session or to its start; for a callback."""
    st.session_state[PENDING] = (
        st.session_state[CURRENT],
        list(st.query_params),
        dict(values or {}),
    )


def is_pending() -> bool:
    """Whether a page waits to be reset."""
    return PENDING in st.session_state


@st.fragment(run_every=INTERVAL)
def reset_page(target: st.Page, query: Mapping[str, Any]) -> None:
    """Draw nothing once; when the browser asks again, clear the page's values and open it with these parameters."""
    if not is_pending():
        return
    if not st.session_state.get(EMPTIED):
        st.session_state[EMPTIED] = True
        return
    page, link, values = st.session_state[PENDING]
    del st.session_state[PENDING], st.session_state[EMPTIED]
    forget_page(page, link)
    st.session_state.update(values)
    st.switch_page(target, query_params=query)


def forget_page(page: str, link: Iterable[str]) -> dict[str, Any]:
    """Clear the page's values, also those of these names in a link: the session's would win over a link's default.

    Returns what was cleared, by key.
    """
    state = st.session_state
    cleared = {
        name: state.pop(name) for name in keys_of(page, [str(name) for name in state], list(link))
    }
    state.pop(WRITTEN, None)
    return cleared


def keys_of(page: str, session: list[str], link: list[str]) -> list[str]:
    """The session's keys that belong to a page: those that begin with its name, and those in its link."""
    prefixes = PREFIXES.get(page, (f"{page}:",))
    return [name for name in session if name.startswith(prefixes) or name in link]
