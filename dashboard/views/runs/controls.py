"""The controls of Runs: the search, and the selected runs, which are in the link."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from dashboard.runtime.run_summary import RunSummary
from dashboard.widgets.params import BOUND

SELECTED = "run"  # the query parameter; several ids are separated by commas
MOST_SELECTED = 20


@dataclass(frozen=True)
class Controls:
    """The search, and the ids of the selected runs."""

    query: str
    selected: tuple[str, ...]

    def selection(self, items: Sequence[RunSummary]) -> list[RunSummary]:
        """The selected runs in the order of the list; without any, the first that has measured something."""
        first = next((item for item in items if item.curve), items[0])
        return [item for item in items if item.run.id in self.selected] or [first]

    def missing_text(self, items: Sequence[RunSummary]) -> str:
        """A warning about selected runs that are not here."""
        missing = len([run_id for run_id in self.selected if run_id not in {item.run.id for item in items}])
        if not missing:
            return ""
        runs = "A run in the link is" if missing == 1 else f"{missing} runs in the link are"
        return f"{runs} not on this machine, or {'was' if missing == 1 else 'were'} deleted."


def draw_search() -> str:
    return st.text_input("Search", key="runs:search", live=True, icon=":material/search:", max_chars=200,
                         placeholder="name, task, model or state", label_visibility="collapsed", **BOUND,
                         help="Words in the name, task, model, optimizer or state of a run.") or ""


def controls(query: str) -> Controls:
    """The controls with the selection of the link."""
    ids = [run_id for run_id in (st.query_params.get(SELECTED) or "").split(",") if run_id]
    return Controls(query, tuple(ids[:MOST_SELECTED]))


def select(ids: Sequence[str]) -> None:
    """Put the selected runs into the link."""
    if ids:
        st.query_params[SELECTED] = ",".join(ids[:MOST_SELECTED])
    else:
        st.query_params.pop(SELECTED, None)
