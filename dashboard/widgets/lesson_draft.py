"""The draft of a lesson and the page that it is about: the controls of that page, and the way back to the draft."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from dashboard.navigation import step_of

CONTROLS = "lesson:controls"  # the session's key: by page, the label of each control that it drew last, by key
DRAFT = "lesson:draft"  # the session's key of the page that the draft is about
PART, MAKE = "lessons:part", "Make a lesson"  # the draft's place in the link of Lessons


def note_controls(page: str, labels: Mapping[str, str]) -> None:
    """Note the controls of the page that a lesson may hide."""
    own = {
        key: label
        for key, label in labels.items()
        if not key.startswith(("lesson:", "tour:")) and not key.endswith(":predict")
    }
    st.session_state.setdefault(CONTROLS, {})[page] = own


def controls_of(page: str) -> dict[str, str] | None:
    """The label of each control of a page, by key; two with the same label also say their key. None: not opened yet."""
    labels: dict[str, str] | None = st.session_state.get(CONTROLS, {}).get(page)
    if labels is None:
        return None
    known = list(labels.values())
    return {
        key: label if known.count(label) == 1 else f"{label} ({key})"
        for key, label in labels.items()
    }


def note_draft(page: str) -> None:
    """Note which page the draft is about; an empty text for none."""
    st.session_state[DRAFT] = page


def draft_bar(page: str) -> None:
    """On the page of the draft: a line that leads back to it."""
    with st.container():  # also when it is empty, so that nothing below moves to another place
        if st.session_state.get(DRAFT) != page:
            return
        with st.container(
            horizontal=True,
            vertical_alignment="center",
            border=True,
            gap="small",
            key="lesson:drafted",
        ):
            st.markdown(
                ":small[**Your draft of a lesson** is about this page. Its list of controls to hide is filled "
                "now.]",
                width="stretch",
            )
            st.page_link(
                step_of("lessons").path,
                label="Back to the draft",
                icon=":material/edit:",
                query_params={PART: MAKE},
            )
            st.button(
                "Close",
                key="lesson:draft:close",
                type="tertiary",
                on_click=note_draft,
                args=("",),
                help="The draft stays under Lessons → Make a lesson.",
            )
