"""The page Runs: a search, the list of runs, and the selected run with its curves and actions."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from core.files import hosted
from core.runs.archive import unpack
from core.runs.store import StoredRun, StoreError
from core.runs.store_sync import bring, copier
from dashboard.draw.curves import Curve, legend, loss_curves, points, step_chart
from dashboard.draw.formats import byte_size, duration, number, percent
from dashboard.draw.palette import CATEGORIES, Ink
from dashboard.draw.vega import split_data
from dashboard.runtime.jobs import cluster_state
from dashboard.runtime.page_pictures import add_script
from dashboard.runtime.polling import SLOW_POLL_INTERVAL, poll
from dashboard.runtime.run_data import RunSummary, damage_of, records_of
from dashboard.server.limits import delete_mine
from dashboard.server.visitors import has_cookie
from dashboard.ui.presentation import draw_chart
from dashboard.ui.progress import flash_errors
from dashboard.views.runs import actions, text
from dashboard.views.runs.compute import Board, load_board
from dashboard.views.runs.controls import draw_pages, draw_search, linked_ids, select
from dashboard.views.runs.script import script
from dashboard.views.runs.text import forgetting
from dashboard.widgets.panels import (
    chart_title,
    details,
    fact,
    next_page,
    paragraph,
    plain,
    source_panel,
    theme,
    title,
)

MOST = 200  # runs to choose from

ROW, HEAD, MOST_ROWS = 35, 38, 8  # pixels, pixels, rows
FORMATS = {"exact": percent, "loss": number, "trained": duration, "size": byte_size}


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
    poll(
        lambda: first.pop() if first else load(),
        partial(_board, query),
        first[0].live,
        "runs:board",
        interval=SLOW_POLL_INTERVAL,
    )
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
        # The first selected run, and the actions on all selected runs
        selected = board.selected
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
            fact(text.fact(selected, board.others))
        else:
            st.caption("This run has no measurements yet.")
    else:
        st.info(
            f"No run matches “{plain(query)}” in its name, task, model or state.",
            icon=":material/search_off:",
        )
    st.caption(
        " ".join(filter(None, (text.unread(board.unread), text.room(board.own, board.bytes))))
    )
    if (cluster := cluster_state()) is not None:
        st.caption(text.cluster(cluster))


def _curves(item: RunSummary) -> None:
    add_script(partial(script, item.run))
    records, ink = records_of(item.run), Ink.of(theme())
    last = max(records[-1].step, item.planned_steps if item.live else 0)
    left, right = st.columns(2, gap="medium")
    losses = loss_curves(records)
    chart_title("Loss", left, legend(losses, ink))
    draw_chart(
        left,
        *split_data(step_chart(losses, ink=ink, last_x=last, height=170)),
        key="runs:loss",
        alt=f"Validation and training loss of {item.name} over {last:,} steps",
    )
    shares = [
        Curve(label, points(records, name, 100))
        for label, name in (
            ("sequence accuracy", "exact"),
            ("token accuracy", "letters"),
            ("error", "error"),
        )
    ]
    chart_title(
        "Validation accuracy"
        if item.last is None or item.last.error is None
        else "Validation error, relative to repeating the last season",
        right,
        legend(shares, ink),
    )
    spec = step_chart(
        shares,
        ink=ink,
        last_x=last,
        high=None if shares[2].defined_points() else 100,
        percent=True,
        height=170,
    )
    draw_chart(
        right,
        *split_data(spec),
        key="runs:right",
        alt=f"Validation result of {item.name} over {last:,} steps",
    )


# What a public copy stores of a person, for how long, and the button that deletes it at once.


def draw_delete_mine() -> None:
    """Draw the rule by which things are forgotten, and the button."""
    paragraph(forgetting(has_cookie()))
    with st.popover(
        "Delete everything of mine",
        icon=":material/delete_forever:",
        key="runs:everything",
        help="Your runs, sweeps, measurements, reports and data on this server.",
    ):
        st.markdown(
            "Delete all your runs, sweeps, measurements, reports and data? This cannot be undone."
        )
        st.button(
            "Delete everything",
            key="runs:everything:go",
            on_click=_delete,
            help="What trains for you ends at once.",
        )


def _delete() -> None:
    delete_mine()
    select([])


# The list of runs: a row each, with a small curve of its validation loss; a click selects a row.


def run_list(items: Sequence[RunSummary], selected: Sequence[RunSummary], total: int) -> None:
    """Draw a page of the list of `total` runs; the selected rows go into the link."""
    ids = [item.run.id for item in items]
    # Another widget for every list: it selects row numbers, which mean other runs in another list.
    key = f"runs:list:{zlib.crc32(','.join(ids).encode()):x}"

    def write_link() -> None:
        select([ids[row] for row in st.session_state[key].selection.rows if row < len(ids)])

    st.dataframe(
        _frame(items).style.format(FORMATS, na_rep="–"),
        key=key,
        on_select=write_link,
        selection_mode="multi-row",
        hide_index=True,
        placeholder="",
        selection_default={
            "selection": {"rows": [row for row, item in enumerate(items) if item in selected]}
        },
        height=HEAD + ROW * min(len(items), MOST_ROWS),
        row_height=ROW,
        column_config=_columns(),
        alt=f"{total:,} runs, the newest first; the first here is {items[0].name}: {text.result(items[0])}",
    )


def _frame(items: Sequence[RunSummary]) -> pd.DataFrame:
    """A row a run, as the list shows it."""
    return pd.DataFrame(
        {
            "name": [item.name for item in items],
            "exact": [None if item.last is None else item.last.exact for item in items],
            "loss": [item.loss for item in items],
            "curve": [list(item.curve) for item in items],
            "steps": [item.steps for item in items],
            "trained": [item.trained for item in items],
            "state": [text.state(item) for item in items],
            "created": [
                datetime.fromtimestamp(item.created, UTC) if item.created else None
                for item in items
            ],
            "size": [item.bytes for item in items],
        }
    )


def _columns() -> dict[str, Any]:
    column = st.column_config
    return {
        "name": column.TextColumn("run", pinned=True),  # as wide as the longest
        "exact": column.NumberColumn(
            "accuracy", width=66, help="The share of held-out outputs without an error"
        ),
        "loss": column.NumberColumn("loss", width=56, help="Validation loss in nats per token"),
        "curve": column.LineChartColumn(
            "loss curve",
            width=76,
            y_min=0,
            color=CATEGORIES[theme()][0],
            help="Validation loss over training",
        ),
        "steps": column.NumberColumn("steps", format="localized", width=54),
        "trained": column.NumberColumn(
            "training", width=66, help="Training time without evaluation"
        ),
        "state": column.TextColumn("state", width=92),
        "created": column.DatetimeColumn("created", format="distance", width=96),
        "size": column.NumberColumn("size", width=60),
    }


# The store of runs, where there is one: what was copied there, and the runs of other servers, to be fetched.


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
    with st.popover(
        "Open from the store",
        icon=":material/cloud_download:",
        key="runs:stored",
        on_change="rerun",
        help="Runs that other servers have copied to the store, or that have left this disk.",
    ) as popover:
        if not popover.open:
            return
        name = st.selectbox(
            "Run in the store",
            list(rows),
            key="runs:stored:run",
            format_func=lambda name: text.stored(rows[name]),
            help="The newest come first.",
        )
        st.button(
            "Fetch",
            icon=":material/download:",
            key="runs:stored:go",
            on_click=_bring,
            args=(name,),
            help="Copy the run to this machine and select it.",
        )


def _bring(name: str) -> None:
    if flash_errors("runs", "", lambda: bring(name), OSError):
        select([name])
