"""The controls: the position that answers, the masked word, and which output is followed, as what quantity."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import streamlit as st

from core.interpret.evidence import Baseline, Quantity, Question
from core.interpret.trace import AttentionMap, Kind
from core.pretrained import Line, Pretrained, Reading
from core.pretrained.maps import with_sink
from dashboard.ui.links import BOUND
from dashboard.ui.model_picker import ModelChoice, masked_inputs, output_field, position_field
from dashboard.ui.models import ModelRef, baseline_of, reading_of
from dashboard.ui.presentation import room

AGAINST = "The exhausted creature stayed on its side of the road."
KINDS: dict[str, str] = {"self": "encoder", "causal": "decoder", "cross": "cross"}
QUANTITIES: dict[str, Quantity | None] = {
    "automatic": None,
    "probability": "probability",
    "logit": "logit",
    "logit difference": "difference",
}

Head = tuple[int, int]  # (index of its layer among the trace's maps, head)


@dataclass(frozen=True, eq=False)
class Controls:
    """The model, its reading, the question, and the answer to it; None for arrays without a model."""

    ref: ModelRef
    reading: Reading
    question: Question
    baseline: Baseline | None

    @cached_property
    def maps(self) -> tuple[AttentionMap, ...]:
        """The maps, with a column for a learned sink."""
        return (with_sink(self.reading.trace) if self.reading.sinks else self.reading.trace).maps

    @property
    def mixed(self) -> bool:
        """Whether there is more than one kind of attention, so that a layer's number alone does not name it."""
        return len(self.reading.trace.kinds) > 1

    @property
    def recordable(self) -> bool:
        """Whether heads can be switched off."""
        return self.baseline is not None and self.baseline.pretrained.recordable

    def name(self, head: Head) -> str:
        return f"{self.layer_name(head[0])}·H{head[1]}"

    def layer_name(self, row: int) -> str:
        item = self.maps[row]
        return f"{KINDS[item.kind]} {item.layer_name}" if self.mixed else item.layer_name

    def head_id(self, head: Head) -> tuple[Kind, int, int]:
        item = self.maps[head[0]]
        return item.kind, item.layer, head[1]

    def heads(self) -> Iterator[Head]:
        return (
            (row, head) for row, item in enumerate(self.maps) for head in range(len(item.weights))
        )

    def row_of(self, kind: str, layer: int) -> int:
        """The index of a layer among the trace's maps."""
        return next(
            row for row, item in enumerate(self.maps) if (item.kind, item.layer) == (kind, layer)
        )

    def lines(self, row: int) -> tuple[Line, Line]:
        return self.reading.lines(self.maps[row].kind)

    @property
    def key(self) -> tuple[ModelRef, Question]:
        return self.ref, self.question


def draw_controls(choice: ModelChoice) -> Controls:
    """Draw the controls and answer the question; PretrainedError if this model cannot answer it."""
    model = choice.pretrained
    if model is None:
        return Controls(choice.ref, choice.reading, Question(choice.inputs), None)
    if model.head == "none":
        against = (
            st.text_input(
                "Compared with the embedding of",
                AGAINST,
                key="evidence:against",
                **BOUND,
                help=(
                    "The page measures the cosine of both embeddings. Left empty, it measures the cosine with the text's own "
                    "embedding, which is 1 until a head or a token is removed."
                ),
            )
            if model.reads == "text"
            else ""
        )
        question = Question(choice.inputs, against=(against or "").strip())
    else:
        with st.container(horizontal=True, vertical_alignment="top", key="evidence:question"):
            question = _output_fields(choice.ref, _question(model, choice))
    reading = (
        choice.reading
        if question.inputs == choice.inputs
        else reading_of(choice.ref, question.inputs)
    )
    return Controls(choice.ref, reading, question, baseline_of(choice.ref, question))


def _question(model: Pretrained, choice: ModelChoice) -> Question:
    """The question by the model's head: a class, a masked word, or the next token at a position."""
    if model.head == "masked":
        return Question(masked_inputs("evidence", choice))
    return (
        Question(choice.inputs)
        if model.head == "classify"
        else Question(choice.inputs, position_field("evidence", choice.reading))
    )


def _output_fields(ref: ModelRef, question: Question) -> Question:
    """Draw the fields of the output and its quantity; returns the question with both."""
    baseline = baseline_of(ref, question)
    noun = "Class" if baseline.answer.kind == "class" else "Token"
    output = output_field("evidence", ref, baseline, f"{noun} to measure")
    if output is not None and output != baseline.id:
        baseline = baseline_of(ref, replace(question, output=output))
    name = st.selectbox(
        "Measured as",
        list(QUANTITIES),
        key="evidence:quantity",
        width=room(170),
        **BOUND,
        help=(
            "A probability changes little near 0 and 1; a logit, the number before the softmax, still changes. The "
            "difference of two logits leaves out what changes all of them. Automatic: the probability, or the logit where "
            "the most likely has more than 0.95."
        ),
    )
    quantity = QUANTITIES[str(name)]
    contrast = None
    if quantity == "difference":
        contrast = output_field("evidence", ref, baseline, "Minus the logit of", "contrast")
    return replace(question, output=output, quantity=quantity, contrast=contrast)
