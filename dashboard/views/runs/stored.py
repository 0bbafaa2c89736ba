"""The store of runs, where there is one: what was copied there, and the runs of other servers, to be fetched."""

from __future__ import annotations

import streamlit as st

from core.store import StoredRun, StoreError
from core.stored_runs import bring, copier
from dashboard.views.runs import text
from dashboard.views.runs.controls import select
from dashboard.widgets.flash import flash_errors
from dashboard.widgets.panels import plain

MOST = 200  # runs to choose from


def draw_store() -> None:
    """Draw the state of the store, and what opens a run that is only there."""
    try:
        if (now := copier()) is None:
            return
        rows = now.elsewhere()
    except StoreError as error:
        st.caption(plain(text.store("", 0, 0, str(error))))
        return
    st.caption(plain(text.store(now.place.label, now.waiting, len(rows), now.trouble)))
    if rows:
        _fetch({row.id: row for row in rows[:MOST]})


def _fetch(rows: dict[str, StoredRun]) -> None:
    with st.popover("Open from the store", icon=":material/cloud_download:", key="runs:stored", on_change="rerun",
                    help="Runs that other servers have copied to the store, or that have left this disk.") as popover:
        if not popover.open:
            return
        name = st.selectbox("Run in the store", list(rows), key="runs:stored:run",
                            format_func=lambda name: text.stored(rows[name]), help="The newest come first.")
        st.button("Fetch", icon=":material/download:", key="runs:stored:go", on_click=_bring, args=(name,),
                  help="Copy the run to this machine and select it.")


def _bring(name: str) -> None:
    if flash_errors("runs", "", lambda: bring(name), OSError):
        select([name])
