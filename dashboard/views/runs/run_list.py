"""The list of runs: a row each, with a small curve of its validation loss; a click selects a row."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import streamlit as st

from dashboard.charts.numbers import byte_size, duration, number, percent
from dashboard.charts.palette import CATEGORIES
from dashboard.runtime.run_summary import RunSummary
from dashboard.views.runs import text
from dashboard.views.runs.controls import select
from dashboard.widgets.panels import theme

ROW, HEAD, MOST_ROWS = 35, 38, 8  # pixels, pixels, rows
FORMATS = {"exact": percent, "loss": number, "trained": duration, "size": byte_size}


def run_list(items: Sequence[RunSummary], selected: Sequence[RunSummary], total: int) -> None:
    """Draw a page of the list of `total` runs; the selected rows go into the link."""
    ids = [item.run.id for item in items]
    # Another widget for every list: it selects row numbers, which mean other runs in another list.
    key = f"runs:list:{zlib.crc32(','.join(ids).encode()):x}"

    def write_link() -> None:
        select([ids[row] for row in st.session_state[key].selection.rows if row < len(ids)])

    st.dataframe(
        _frame(items).style.format(FORMATS, na_rep="–"), key=key, on_select=write_link, selection_mode="multi-row",
        hide_index=True, placeholder="",
        selection_default={"selection": {"rows": [row for row, item in enumerate(items) if item in selected]}},
        height=HEAD + ROW * min(len(items), MOST_ROWS), row_height=ROW, column_config=_columns(),
        alt=f"{total:,} runs, the newest first; the first here is {items[0].name}: {text.result(items[0])}")


def _frame(items: Sequence[RunSummary]) -> pd.DataFrame:
    """A row a run, as the list shows it."""
    return pd.DataFrame({
        "name": [item.name for item in items],
        "exact": [None if item.last is None else item.last.exact for item in items],
        "loss": [item.loss for item in items],
        "curve": [list(item.curve) for item in items],
        "steps": [item.steps for item in items],
        "trained": [item.trained for item in items],
        "state": [text.state(item) for item in items],
        "created": [datetime.fromtimestamp(item.created, UTC) if item.created else None for item in items],
        "size": [item.bytes for item in items],
    })


def _columns() -> dict[str, Any]:
    column = st.column_config
    return {
        "name": column.TextColumn("run", pinned=True),  # as wide as the longest
        "exact": column.NumberColumn("accuracy", width=66, help="The share of held-out outputs without an error"),
        "loss": column.NumberColumn("loss", width=56, help="Validation loss in nats per token"),
        "curve": column.LineChartColumn("loss curve", width=76, y_min=0, color=CATEGORIES[theme()][0],
                                        help="Validation loss over training"),
        "steps": column.NumberColumn("steps", format="localized", width=54),
        "trained": column.NumberColumn("training", width=66, help="Training time without evaluation"),
        "state": column.TextColumn("state", width=92),
        "created": column.DatetimeColumn("created", format="distance", width=96),
        "size": column.NumberColumn("size", width=60),
    }
