"""Held-out examples at a step: text with errors marked, pictures, rows of a table, or a series."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from core.tasks import Task
from core.training.record import Prediction, Record
from dashboard.charts import prediction_tables, source_attention
from dashboard.charts.palette import Ink
from dashboard.runtime.attention_frames import watched_examples
from dashboard.runtime.run_data import RunData
from dashboard.views.train import text
from dashboard.widgets.panels import chart_title, theme

LONG = 24  # tokens
LONG_TABLE = 300  # pixels
PICTURE = 48


def examples(data: RunData, record: Record, ink: Ink) -> None:
    """Draw the watched examples with the model's answers in a record."""
    task, predictions = data.task(), record.examples
    chart_title(f"Examples at step {record.step:,}")
    if task.form == "series":
        st.html(prediction_tables.forecasts([text.forecast_errors(task, each) for each in predictions], ink.hairline))
        return
    long = max(len(e.source) + len(e.predicted) for e in predictions) > 2 * LONG and task.input == "tokens"
    # Long sentences scroll, so that the fact below them stays in sight.
    with st.container(height=LONG_TABLE if long else "content", border=False):
        st.html(_table(data, task, predictions, ink))


def _table(data: RunData, task: Task, predictions: Sequence[Prediction], ink: Ink) -> str:
    look = task.separator, ink.pick, ink.hairline
    if task.input == "patches":
        return prediction_tables.answers(_pictures(data, task, len(predictions), ink), predictions, *look)
    if task.form == "label":
        sources = [prediction_tables.escaped(text.separator(task).join(each.source)) for each in predictions]
        return prediction_tables.answers(sources, predictions, *look)
    return (prediction_tables.continued if task.form == "text" else prediction_tables.outputs)(predictions, *look)


def _pictures(data: RunData, task: Task, count: int, ink: Ink) -> list[str]:
    """The first `count` watched pictures as HTML."""
    assert data.config is not None
    grid, images = task.shape.grid, []
    for example in watched_examples(data.config.task, data.config.watch)[:count]:
        pixels = source_attention.tinted(source_attention.picture(example.source, grid), grid, None, theme(), ink.text)
        images.append(source_attention.image(pixels, "the picture", PICTURE))
    return images
