"""The page Runs: a search, the list of runs, and the selected run with its curves and actions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import streamlit as st

from core.files import hosted
from core.training.archive import unpack
from dashboard.charts.curves import Curve, legend, step_chart
from dashboard.charts.palette import Ink
from dashboard.charts.training_curves import loss_curves, points
from dashboard.charts.vega import split_data
from dashboard.runtime.cluster import cluster_state
from dashboard.runtime.page_pictures import add_script
from dashboard.runtime.polling import SLOW_POLL_INTERVAL, poll
from dashboard.runtime.run_data import damage_of, records_of
from dashboard.runtime.run_summary import RunSummary
from dashboard.views.runs import actions, text
from dashboard.views.runs.compute import Board, load_board
from dashboard.views.runs.controls import draw_pages, draw_search, linked_ids
from dashboard.views.runs.delete_mine import draw_delete_mine
from dashboard.views.runs.run_list import run_list
from dashboard.views.runs.script import script
from dashboard.views.runs.stored import draw_store
from dashboard.widgets.panels import chart_title, details, fact, next_page, plain, source_panel, theme, title
from dashboard.widgets.presentation import draw_chart


def page() -> None:
    """The search, and below it the list and the selected run, polled while a run is live."""
    title("Runs", text.lead())
    search_cell, upload_cell = st.columns([0.78, 0.22], gap="small", vertical_alignment="bottom")
    with search_cell:
        query = draw_search()
    with upload_cell:
        actions.upload()
    def load() -> Board:
        return load_board(query, linked_ids())

    first = [load()]  # which the first drawing takes
    poll(lambda: first.pop() if first else load(), partial(_board, query), first[0].live, "runs:board",
         interval=SLOW_POLL_INTERVAL)
    draw_store()
    if hosted():
        draw_delete_mine()
    details("How an upload is checked", partial(source_panel, unpack), "runs:source")
    next_page("runs")


def _board(query: str, board: Board) -> None:
    """The list of the runs that match the search, and the selected run."""
    actions.undo()
    if message := text.missing(board.missing):
        st.warning(plain(message))
    if board.ids:
        run_list(board.rows(draw_pages(board.pages)), board.selected, len(board.ids))
        _details(board.selected, board.others)
    else:
        st.info(f"No run matches “{plain(query)}” in its name, task, model or state.", icon=":material/search_off:")
    st.caption(" ".join(filter(None, (text.unread(board.unread), text.room(board.own, board.bytes)))))
    if (cluster := cluster_state()) is not None:
        st.caption(text.cluster(cluster))


def _details(selected: Sequence[RunSummary], every: Sequence[RunSummary]) -> None:
    """The first selected run, and the actions on all selected runs."""
    first = selected[0]
    with st.container(gap="small"):
        name, about = st.columns([0.42, 0.58], gap="medium", vertical_alignment="bottom")
        with name:
            actions.name(first)
        about.caption(plain(text.about(first)))
        actions.actions(selected)
    if damage := damage_of(first.run):
        st.warning(damage)
    if first.trouble:
        st.error(plain(first.trouble))
    elif records_of(first.run):
        _curves(first)
        fact(text.fact(selected, every))
    else:
        st.caption("This run has no measurements yet.")


def _curves(item: RunSummary) -> None:
    add_script(partial(script, item.run))
    records, ink = records_of(item.run), Ink.of(theme())
    last = max(records[-1].step, item.planned_steps if item.live else 0)
    left, right = st.columns(2, gap="medium")
    losses = loss_curves(records)
    chart_title("Loss", left, legend(losses, ink))
    draw_chart(left, *split_data(step_chart(losses, ink=ink, last_x=last, height=170)), key="runs:loss",
               alt=f"Validation and training loss of {item.name} over {last:,} steps")
    shares = [Curve(label, points(records, name, 100)) for label, name in
              (("sequence accuracy", "exact"), ("token accuracy", "letters"), ("error", "error"))]
    chart_title("Validation accuracy" if item.last is None or item.last.error is None
                else "Validation error, relative to repeating the last season", right, legend(shares, ink))
    spec = step_chart(shares, ink=ink, last_x=last, high=None if shares[2].defined_points() else 100, percent=True,
                      height=170)
    draw_chart(right, *split_data(spec), key="runs:right", alt=f"Validation result of {item.name} over {last:,} steps")
