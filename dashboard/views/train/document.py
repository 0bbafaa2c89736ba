"""A classified document with the weights of its sentences and of their words, beside what decides its class."""

from __future__ import annotations

import numpy as np
import streamlit as st

from core.models import ModelConfig
from core.tasks import Task
from core.training.source_maps import source_weights
from dashboard.charts.document import DocumentWeights, lines
from dashboard.charts.palette import Ink
from dashboard.runtime import attention_frames
from dashboard.runtime.run_data import RunData
from dashboard.views.train import text
from dashboard.views.train.attention import Moment
from dashboard.widgets.panels import caption, chart_title, theme


def document_figure(data: RunData, moment: Moment, ink: Ink) -> None:
    """Draw the document of the picked example; nothing for a task without sentences, or before the first maps."""
    task, config = data.task(), data.config
    if config is None or moment.head is None or not task.shape.sentence_end:
        return
    example = attention_frames.watched_examples(config.task, config.watch)[moment.head.example]
    tokens, _ = task.display_tokens(example)
    weights = _weights(data, config.model, moment, tokens)
    if weights is None:
        return
    deciding = task.deciding(example)
    chart_title(f"Document at step {moment.step:,}")
    st.html(lines(weights, None if deciding is None else deciding[0], theme(), ink))
    caption(text.document(weights, deciding, _classes(data, task, moment)))


def _weights(data: RunData, model: ModelConfig, moment: Moment, tokens: tuple[str, ...]) -> DocumentWeights | None:
    """Both levels of a hierarchical model; of a Transformer the row of its class, summed over each sentence."""
    head = moment.head
    assert head is not None
    if model.kind == "hierarchical":
        frame = data.run.frame(moment.step)
        words, sentences = (frame.get(f"{head.example}:{kind}") for kind in ("words", "sentences"))
        if words is None or sentences is None:
            return None
        return DocumentWeights(tokens, words[0, 0].sum(0), sentences[0, 0, 0])
    if moment.weights is None:
        return None
    rows, _ = attention_frames.tokens(data, head.example, head.kind)
    named = source_weights(model, head.kind, moment.weights, rows, len(tokens))
    return None if named is None else DocumentWeights.of_words(tokens, np.asarray(named[1][0], dtype=np.float32))


def _classes(data: RunData, task: Task, moment: Moment) -> tuple[str, str] | None:
    """The class of the document and the predicted one, at the last record with a prediction."""
    decoded = data.decoded_at(moment.step)
    if decoded is None or moment.head is None or moment.head.example >= len(decoded.examples):
        return None
    prediction = decoded.examples[moment.head.example]
    return " ".join(map(str, prediction.target)), " ".join(prediction.predicted)
