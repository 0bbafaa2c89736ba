"""Which runs are compared: those that the link names, or the two that come with the lab."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from dashboard.runtime.example_runs import EXAMPLE_RUNS
from dashboard.runtime.run_summary import RunSummary, rival

LINK, LAST = "runs", "compare_runs:last"
MOST = 4


def linked_ids() -> list[str]:
    """The names in the link; without any, those that this session compared last."""
    given = st.query_params.get(LINK) or st.session_state.get(LAST) or ""
    return list(dict.fromkeys(name for name in given.split(",") if name))


def choose(names: Sequence[str]) -> None:
    """Put the compared runs into the link."""
    st.query_params[LINK] = st.session_state[LAST] = ",".join(names)


def runs_to_compare(every: Sequence[RunSummary]) -> tuple[list[RunSummary], str]:
    """Two to four runs to compare, and words about what the link names and cannot have."""
    there = {item.run.id: item for item in every}
    ids = linked_ids()
    chosen = [there[name] for name in ids if name in there and there[name].config is not None]
    messages = []
    if missing := len(ids) - len(chosen):
        messages.append(f"{missing} of the runs in the link {'is' if missing == 1 else 'are'} not on this machine, or "
                    "cannot be read.")
    if len(chosen) > MOST:
        messages.append(f"At most {MOST} runs stand side by side; these are the first {MOST}.")
    examples = [there[run.id] for run in EXAMPLE_RUNS]
    while len(chosen) < 2:
        other = rival(chosen[0], every) if ids and chosen else None
        chosen.append(other or next(item for item in examples if item not in chosen))
    return chosen[:MOST], " ".join(messages)
