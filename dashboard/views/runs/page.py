"""The page Runs: a search, the list, and the selected run with its curves and actions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import streamlit as st

from core.training.archive import unpack
from core.training.run_storage import most_bytes
from dashboard.charts.curves import Curve, step_chart
from dashboard.charts.palette import Ink
from dashboard.charts.training_curves import loss_curves, points
from dashboard.runtime.polling import SLOW_POLL_INTERVAL, poll
from dashboard.runtime.run_data import records_of
from dashboard.runtime.run_summary import RunSummary, list_summaries
from dashboard.views.runs import actions, text
from dashboard.views.runs.compute import search
from dashboard.views.runs.controls import missing_text, selection
from dashboard.views.runs.run_list import listing
from dashboard.widgets.panels import fact, next_page, plain, source_panel, theme, title
from dashboard.widgets.params import BOUND


def page() -> None:
    """The search, and below it the list and the selected run, polled while a run is live."""
    title("Runs", "Everything that was trained here: find it, name it, go on with it, take it away.")
    controls = st.container()
    live = any(item.live for item in list_summaries())
    with controls:
        query = _controls()
    poll(list_summaries, partial(_board, query), live, "runs:board", interval=SLOW_POLL_INTERVAL,
         still_live=lambda every: any(item.live for item in every))
    panel = st.expander("What is checked of an upload", on_change="rerun", key="runs:source")
    if panel.open:
        with panel:
            source_panel(unpack)
    next_page("runs")


def _controls() -> str:
    row = st.columns([0.78, 0.22], gap="small", vertical_alignment="bottom")
    query = row[0].text_input("Search", key="runs:search", live=True, icon=":material/search:", max_chars=200,
                              placeholder="a name, a task, a model, a state", label_visibility="collapsed", **BOUND)
    with row[1]:
        actions.upload()
    return query or ""


def _board(query: str, every: Sequence[RunSummary]) -> None:
    """The list of the runs that the search leaves, and the selected run."""
    actions.undo()
    if message := missing_text(every):
        st.warning(plain(message))
    items = search(every, query)
    if items:
        listing(items)
        _chosen(selection(items), every)
    else:
        st.info(f"No run has “{plain(query)}” in its name, task, model or state.", icon=":material/search_off:")
    st.caption(text.room(every, most_bytes()))


def _chosen(chosen: Sequence[RunSummary], every: Sequence[RunSummary]) -> None:
    first = chosen[0]
    with st.container(gap="small"):
        head = st.columns([0.42, 0.58], gap="medium", vertical_alignment="bottom")
        with head[0]:
            actions.name(first)
        head[1].caption(plain(text.about(first)))
        actions.actions(chosen)
    if first.trouble:
        st.error(plain(first.trouble))
    elif records_of(first.run):
        _curves(first)
        fact(text.fact(chosen, every))
    else:
        st.caption("Nothing is measured yet.")


def _curves(item: RunSummary) -> None:
    records, ink = records_of(item.run), Ink.of(theme())
    last = max(records[-1].step, item.planned_steps if item.live else 0)
    left, right = st.columns(2, gap="medium")
    left.markdown(":small[**Loss**]")
    left.vega_lite_chart(spec=step_chart(loss_curves(records), ink=ink, last_x=last, height=170), key="runs:loss",
                         alt=f"Held-out and training loss of {item.name} over {last:,} steps")
    right.markdown(":small[**Right, held-out**]" if item.last is None or item.last.error is None
                   else ":small[**Error, as a share of repeating the last season**]")
    shares = [Curve(label, points(records, name, 100)) for label, name in
              (("whole outputs", "exact"), ("single tokens", "letters"), ("error", "error"))]
    spec = step_chart(shares, ink=ink, last_x=last, high=None if shares[2].defined_points() else 100, percent=True,
                      height=170)
    right.vega_lite_chart(spec=spec, key="runs:right", alt=f"{item.name}: {text.result(item)}")
