"""The list of all pages in the sidebar.

Streamlit's own is drawn again by React with every batch of elements that arrives: for 34 pages that takes longer than
the elements. This one is a single element, which nothing but another page changes.
"""

from __future__ import annotations

import streamlit as st

from dashboard.draw.components import draw, ship_code
from dashboard.navigation import GROUPS, STEPS, Step, step_of

KEY = "page_list"
REQUEST = "page_list:request"  # the key of the page that was pressed


def page_list(current: Step) -> None:
    """Draw the groups of pages in the sidebar, `current` marked; opens the page that was pressed first.

    The code of all components comes with it.
    """
    if page := st.session_state.pop(REQUEST, None):
        st.switch_page(step_of(page).path, query_params={})
    groups = [
        {
            "name": group,
            "pages": [
                {
                    "key": step.key,
                    "path": "" if step.default else step.key,
                    "title": step.title,
                    "icon": step.icon.split("/")[-1].strip(":"),
                }
                for step in steps
            ],
        }
        for group, steps in GROUPS.items()
    ]
    with st.sidebar:
        ship_code()
        draw(
            "page_list",
            "pl",
            {"groups": groups, "current": current.key},
            key=KEY,
            on_page_change=_open,
        )


def _open() -> None:
    page = st.session_state[KEY].get("page")
    if page in [step.key for step in STEPS]:
        st.session_state[REQUEST] = page
