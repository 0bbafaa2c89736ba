"""Measures of a reading and its question: contributions, scores of tokens, rollout and flow."""

from __future__ import annotations

import numpy as np

from core.flow import flow, flows, graph, rollout
from core.pretrained import ModelInputs
from core.pretrained.evidence import Contributions, Question, measure_contributions, token_scores
from dashboard.runtime.cache import shared
from dashboard.views.evidence.controls import Controls
from dashboard.widgets.model_picker import ModelRef, reading_of
from dashboard.widgets.model_picker.baseline import baseline_of

WHOLE_FLOW = 48  # tokens up to which the flow to every row is drawn; beyond, to the picked row alone
MOST_FLOW = 160
SHORT = 128  # tokens up to which a second thread costs a forward pass more than it saves

def contributions_of(controls: Controls) -> Contributions:
    """Norms and slopes of the question; shared by all sessions."""
    if controls.baseline is None:
        return Contributions({}, {}, False)
    return shared(_contributions, controls.ref, controls.question)


def _contributions(ref: ModelRef, question: Question) -> Contributions:
    return measure_contributions(baseline_of(ref, question))


def scores(controls: Controls) -> dict[str, np.ndarray]:
    """The score of each token of the source by each measure."""
    return shared(_scores, controls.ref, controls.question)


def _scores(ref: ModelRef, question: Question) -> dict[str, np.ndarray]:
    trace = reading_of(ref, question.inputs).trace
    return token_scores(baseline_of(ref, question), trace, _contributions(ref, question))


def rollout_map(controls: Controls, row: int) -> np.ndarray:
    """Rollout up to and with a layer, (T, S)."""
    item = controls.maps[row]
    return rollout(graph(controls.reading.trace, item.kind, item.layer))


def flow_map(controls: Controls, row: int, query: int) -> tuple[np.ndarray, np.ndarray | None] | None:
    """Flow up to and with a layer (T, S), and which cells were computed (None: all); None when the text is too long."""
    item = controls.maps[row]
    longest = max(len(item.queries), len(item.keys))
    if longest > MOST_FLOW:
        return None
    if longest <= WHOLE_FLOW:
        return shared(_flows, controls.ref, controls.question.inputs, row), None
    flow_values = np.zeros((len(item.queries), len(item.keys)))
    known = np.zeros(flow_values.shape, bool)
    flow_values[query], known[query] = shared(_flow, controls.ref, controls.question.inputs, row, query), True
    return flow_values, known


def _flows(ref: ModelRef, inputs: ModelInputs, row: int) -> np.ndarray:
    trace = reading_of(ref, inputs).trace
    return flows(graph(trace, trace.maps[row].kind, trace.maps[row].layer))


def _flow(ref: ModelRef, inputs: ModelInputs, row: int, query: int) -> np.ndarray:
    trace = reading_of(ref, inputs).trace
    return flow(graph(trace, trace.maps[row].kind, trace.maps[row].layer), query)
