"""The controls of Runs: the search, and the selected runs, which are in the link."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from dashboard.runtime.link_values import between, link_value
from dashboard.widgets.params import BOUND

SELECTED = "run"  # the query parameter; several ids are separated by commas
MOST_SELECTED = 20
PAGE = "runs:page"


def draw_search() -> str:
    return (
        st.text_input(
            "Search",
            key="runs:search",
            live=True,
            icon=":material/search:",
            max_chars=200,
            placeholder="name, task, model or state",
            label_visibility="collapsed",
            **BOUND,
            help="Words in the name, task, model, optimizer or state of a run.",
        )
        or ""
    )


def linked_ids() -> tuple[str, ...]:
    """The ids in the link."""
    ids = [run_id for run_id in (st.query_params.get(SELECTED) or "").split(",") if run_id]
    return tuple(ids[:MOST_SELECTED])


def draw_pages(count: int) -> int:
    """The page of the list, from 1; a control where there are several."""
    if count < 2:
        return 1
    link_value(PAGE, 1, between(1, count))
    st.session_state[PAGE] = min(st.session_state.get(PAGE, 1), count)
    return st.pagination(count, key=PAGE, persist_state="session")


def select(ids: Sequence[str]) -> None:
    """Put the selected runs into the link."""
    if ids:
        st.query_params[SELECTED] = ",".join(ids[:MOST_SELECTED])
    else:
        st.query_params.pop(SELECTED, None)
