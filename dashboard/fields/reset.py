"""Set a page back to its start: its widgets leave the browser for one run, then its values leave session and link."""

from collections.abc import Iterable, Mapping
from typing import Any

import streamlit as st

from dashboard.fields.link import WRITTEN
from dashboard.server.session import CURRENT, SessionValue

PENDING = "page_reset:pending"  # the key of the page to reset, the names in its link, and the values it gets
EMPTIED = "page_reset:emptied"  # whether its widgets have left the browser
BUILT = "built"  # the page on which a mechanism was last built, and its choices by axis


def last_choices(page: str) -> SessionValue[Any]:
    """The choices that a page showed in the run before, which `watch_built` compares with those of now."""
    return SessionValue(None, f"{page}:before")


def request_reset(values: Mapping[str, Any] | None = None) -> None:
    """Ask for the page that is drawn to be reset, to these values of the session or to its start; for a callback."""
    st.session_state[PENDING] = (
        CURRENT.value,
        list(st.query_params),
        dict(values or {}),
    )


def is_pending() -> bool:
    return PENDING in st.session_state


@st.fragment(run_every=0.1)  # seconds until the browser, without the widgets, asks again
def reset_page(target: st.Page, query: Mapping[str, Any]) -> None:
    """Draw nothing once; when the browser asks again, clear the page's values and open it with these parameters."""
    if not is_pending():
        return
    if not st.session_state.get(EMPTIED):
        st.session_state[EMPTIED] = True
        return
    page, link, values = st.session_state[PENDING]
    del st.session_state[PENDING], st.session_state[EMPTIED]
    forget_page(page, link, predictions=not values)
    st.session_state.update(values)
    st.switch_page(target, query_params=query)


def forget_page(page: str, link: Iterable[str], predictions: bool = False) -> dict[str, Any]:
    """Clear the page's values, also those of these names in a link: the session's would win over a link's default; and
    what was built on any page.

    What the reader predicted stays, unless `predictions`. Returns what was cleared, by key.
    """
    state, prefixes, linked = (
        st.session_state,
        {"one_query": ("one:", "one_query:")}.get(page, (f"{page}:",)),
        [*link, BUILT, *(["inside:head"] if "head" in link else [])],  # which all pages share
    )
    state.pop(WRITTEN, None)
    return {
        name: state.pop(name)
        for name in list(map(str, state))
        if (name.startswith(prefixes) or name in linked)
        and (predictions or not name.endswith(":predict"))
    }
