"""Held-out examples at a step, as what they are: words with errors marked, pictures, rows of a table, a series."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from core.tasks import Example, Task
from core.training.record import Prediction, Record
from dashboard.charts import prediction_tables, source_attention
from dashboard.charts.palette import Ink
from dashboard.charts.training_curves import title
from dashboard.runtime.attention_frames import watched_examples
from dashboard.runtime.run_data import RunData
from dashboard.widgets.panels import theme

LONG = 24  # tokens
LONG_TABLE = 300  # pixels
PICTURE = 48


def examples(data: RunData, record: Record, ink: Ink) -> None:
    """The watched examples as the model answered them in a record."""
    task, predictions = data.task(), record.examples
    title(f"Examples at step {record.step:,}")
    if task.form == "series":
        _series(task, predictions, ink)
        return
    long = max(len(e.source) + len(e.predicted) for e in predictions) > 2 * LONG and task.input == "tokens"
    # Long sentences scroll, so that the fact below them stays in sight.
    with st.container(height=LONG_TABLE if long else "content", border=False):
        st.html(_table(data, task, predictions, ink))


def _table(data: RunData, task: Task, predictions: Sequence[Prediction], ink: Ink) -> str:
    if task.input == "patches":
        assert data.config is not None
        samples = watched_examples(data.config.task, data.config.watch)
        sources = [_picture(task, example, ink) for example in samples[: len(predictions)]]
        return prediction_tables.answers(sources, predictions, task.separator, ink.pick, ink.hairline)
    if task.form == "label":
        joined = task.separator or ("" if task.input == "tokens" else " · ")
        sources = [prediction_tables.escaped(joined.join(each.source)) for each in predictions]
        return prediction_tables.answers(sources, predictions, task.separator, ink.pick, ink.hairline)
    if task.form == "text":
        return prediction_tables.continued(predictions, task.separator, ink.pick, ink.hairline)
    return prediction_tables.written(predictions, task.separator, ink.pick, ink.hairline)


def _picture(task: Task, example: Example, ink: Ink) -> str:
    grid = task.shape.grid
    whole = source_attention.picture(example.source, grid)
    return source_attention.image(source_attention.tinted(whole, grid, None, theme(), ink.text), "the picture", PICTURE)


def _series(task: Task, predictions: Sequence[Prediction], ink: Ink) -> None:
    """How far each forecast is off, beside the last season again."""
    rows = []
    for each in predictions:
        past, target, output = ([float(x) for x in words] for words in (each.source, each.target, each.predicted))
        rows.append((_off(output, target), _off(task.naive(past), target)))
    st.html(prediction_tables.forecasts(rows, ink.hairline))


def _off(output: Sequence[float], target: Sequence[float]) -> float:
    return sum(abs(a - b) for a, b in zip(output, target, strict=True)) / len(target)
