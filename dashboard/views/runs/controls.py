"""Which runs there are, which of them a search leaves, and which are picked: that is in the link."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from dashboard.runtime.run_summary import RunSummary

PICKED = "run"  # the link's word; several are divided by commas
MOST_PICKED = 20


def linked_ids() -> list[str]:
    """The names that the link picks."""
    return [name for name in (st.query_params.get(PICKED) or "").split(",") if name][:MOST_PICKED]


def selection(items: Sequence[RunSummary]) -> list[RunSummary]:
    """The picked runs in the order of the list; without any, the first that has measured something."""
    names = linked_ids()
    first = next((item for item in items if item.curve), items[0])
    return [item for item in items if item.run.id in names] or [first]


def select(names: Sequence[str]) -> None:
    """Put the picked runs into the link."""
    if names:
        st.query_params[PICKED] = ",".join(names[:MOST_PICKED])
    else:
        st.query_params.pop(PICKED, None)


def missing_text(items: Sequence[RunSummary]) -> str:
    """Words for a link that names runs which are not here."""
    here = {item.run.id for item in items}
    missing = [name for name in linked_ids() if name not in here]
    if not missing:
        return ""
    which = "A run" if len(missing) == 1 else f"{len(missing)} runs"
    return f"{which} in the link {'is' if len(missing) == 1 else 'are'} not on this machine, or deleted."
