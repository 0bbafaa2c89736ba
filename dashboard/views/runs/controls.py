"""Which runs there are, which of them a search leaves, and which are picked: that is in the link."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from core.training.runs import list_runs
from dashboard.runtime.example_runs import KEPT
from dashboard.runtime.run_summary import Summary, summary
from dashboard.views.runs.text import matches

PICKED = "run"  # the link's word; several are divided by commas
MOST_PICKED = 20


def every_run() -> list[Summary]:
    """The newest first, and those that come with the lab last."""
    return [summary(run) for run in (*reversed(list_runs()), *KEPT)]


def searched(items: Sequence[Summary], asked: str) -> list[Summary]:
    return [item for item in items if matches(item, asked)]


def asked_for() -> list[str]:
    """The names that the link picks."""
    return [name for name in (st.query_params.get(PICKED) or "").split(",") if name][:MOST_PICKED]


def picked(items: Sequence[Summary]) -> list[Summary]:
    """The picked runs in the order of the list; without any, the first that has measured something."""
    names = asked_for()
    first = next((item for item in items if item.curve), items[0])
    return [item for item in items if item.run.id in names] or [first]


def pick(names: Sequence[str]) -> None:
    """Put the picked runs into the link."""
    if names:
        st.query_params[PICKED] = ",".join(names[:MOST_PICKED])
    else:
        st.query_params.pop(PICKED, None)


def trouble(items: Sequence[Summary]) -> str:
    """Words for a link that names runs which are not here."""
    here = {item.run.id for item in items}
    missing = [name for name in asked_for() if name not in here]
    if not missing:
        return ""
    which = "A run" if len(missing) == 1 else f"{len(missing)} runs"
    return f"{which} in the link {'is' if len(missing) == 1 else 'are'} not on this machine, or deleted."
