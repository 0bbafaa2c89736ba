"""What the page works on: a model's reading, the question whose answer is followed, and what was measured of both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from core.flow import flow, flows, graph, rollout
from core.pretrained import Line, ModelInputs, Reading
from core.pretrained.evidence import Baseline, Contributions, Question, measure_contributions, token_scores
from core.pretrained.maps import with_sink
from core.trace import AttentionMap, Kind
from dashboard.runtime.cache import shared
from dashboard.widgets.model_picker import ModelRef, reading_of
from dashboard.widgets.model_picker.baseline import baseline_of

KINDS: dict[str, str] = {"self": "encoder", "causal": "decoder", "cross": "cross"}
WHOLE_FLOW = 48  # tokens up to which the flow to every row is drawn; beyond, to the picked row alone
MOST_FLOW = 160
SHORT = 128  # tokens up to which a second thread costs a forward pass more than it saves

Head = tuple[int, int]  # (place of its layer among the trace's maps, head)


@dataclass(frozen=True, eq=False)
class Controls:
    """One visit: which model read what, and the question, which arrays without a model cannot be asked."""

    ref: ModelRef
    reading: Reading
    question: Question
    baseline: Baseline | None

    @cached_property
    def maps(self) -> tuple[AttentionMap, ...]:
        """The maps as they are drawn, with a column for a learned sink where there is one."""
        return (with_sink(self.reading.trace) if self.reading.sinks else self.reading.trace).maps

    @property
    def mixed(self) -> bool:
        """Whether there is more than one kind of attention, so that a layer's number alone does not name it."""
        return len(self.reading.trace.kinds) > 1

    def name(self, head: Head) -> str:
        return f"{self.layer_name(head[0])}·H{head[1]}"

    def layer_name(self, row: int) -> str:
        item = self.maps[row]
        return f"{KINDS[item.kind]} {item.layer_name}" if self.mixed else item.layer_name

    def place(self, head: Head) -> tuple[Kind, int, int]:
        item = self.maps[head[0]]
        return item.kind, item.layer, head[1]

    def heads(self) -> Iterator[Head]:
        return ((row, head) for row, item in enumerate(self.maps) for head in range(len(item.weights)))

    def row_of(self, kind: str, layer: int) -> int:
        """The place of a layer among the trace's maps."""
        return next(row for row, item in enumerate(self.maps) if (item.kind, item.layer) == (kind, layer))

    def lines(self, row: int) -> tuple[Line, Line]:
        return self.reading.lines(self.maps[row].kind)

    @property
    def key(self) -> tuple[ModelRef, Question]:
        return self.ref, self.question


def contributions_of(controls: Controls) -> Contributions:
    """Norms and slopes of the question, for every session."""
    if controls.baseline is None:
        return Contributions({}, {}, False)
    return shared(_contributions, controls.ref, controls.question)


def _contributions(ref: ModelRef, question: Question) -> Contributions:
    return measure_contributions(baseline_of(ref, question))


def scores(controls: Controls) -> dict[str, np.ndarray]:
    """What each measure says of each token of the source."""
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


def _flows(ref: ModelRef, given: ModelInputs, row: int) -> np.ndarray:
    trace = reading_of(ref, given).trace
    return flows(graph(trace, trace.maps[row].kind, trace.maps[row].layer))


def _flow(ref: ModelRef, given: ModelInputs, row: int, query: int) -> np.ndarray:
    trace = reading_of(ref, given).trace
    return flow(graph(trace, trace.maps[row].kind, trace.maps[row].layer), query)
