"""The controls: the view, the position that answers, the token that is followed, and what it is compared with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import streamlit as st

from core.interpret.evidence import Baseline, Question
from core.interpret.trace import Kind
from core.pretrained import Line, PretrainedError, Reading
from core.pretrained.answers import mask_position, output_id
from dashboard.ui.links import BOUND
from dashboard.ui.model_picker import (
    NOTHING,
    ModelChoice,
    masked_inputs,
    output_field,
    output_names,
    position_field,
    position_key,
)
from dashboard.ui.models import ModelRef, baseline_of
from dashboard.ui.panels import field_error
from dashboard.ui.presentation import room

VIEWS = {"when": "When it decides", "who": "Who wrote it"}
DECISIVE = "where it is decided"
MAX_TOKENS = 4  # that a reader adds


@dataclass(frozen=True, eq=False)
class Controls:
    """The model, its reading, and the question with its answer; `contrast` is a token whose logit is subtracted."""

    choice: ModelChoice
    view: str
    question: Question
    baseline: Baseline
    contrast: int | None

    @property
    def ref(self) -> ModelRef:
        return self.choice.ref

    @property
    def reading(self) -> Reading:
        return self.choice.reading

    @property
    def line(self) -> Line:
        """The tokens of the sequence that answers."""
        return self.reading.target or self.reading.source

    @property
    def position(self) -> int:
        return self.baseline.answer.position

    @property
    def position_key(self) -> str:
        return position_key("lens", self.reading)

    @cached_property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of attention of the layers that answer."""
        return tuple(
            kind
            for kind in self.reading.trace.kinds
            if kind != "self" or self.reading.target is None
        )


def draw_controls(choice: ModelChoice) -> Controls:
    """Draw the fields above both views; PretrainedError where this model cannot answer."""
    view = (
        st.segmented_control(
            "View",
            list(VIEWS),
            default="when",
            required=True,
            format_func=VIEWS.__getitem__,
            key="lens:view",
            label_visibility="collapsed",
            **BOUND,
            help="The answer layer by layer, or the parts that it is the sum of.",
        )
        or "when"
    )
    pretrained = choice.pretrained
    assert pretrained is not None
    with st.container(horizontal=True, vertical_alignment="top", key="lens:question"):
        masked = None
        if pretrained.head == "masked":
            inputs = masked_inputs("lens", choice, "word")
            choice = replace(choice, inputs=inputs)
            masked = mask_position(
                pretrained, baseline_of(choice.ref, Question(inputs)).batch["input_ids"]
            )
        question = Question(choice.inputs, position_field("lens", choice.reading, masked))
        baseline = baseline_of(choice.ref, question)
        output = output_field("lens", choice.ref, baseline, "Token to follow")
        if output is not None:
            question = replace(question, output=output)
            baseline = baseline_of(choice.ref, question)
        contrast = (
            None
            if view == "when"
            else output_field(
                "lens", choice.ref, baseline, "Minus the logit of", "contrast", NOTHING
            )
        )
    return Controls(choice, view, question, baseline, contrast)


def draw_tokens(controls: Controls, leaders: list[int]) -> list[int]:
    """Draw the field of further tokens, which offers those that lead in some layer; returns their ids."""
    baseline = controls.baseline
    names = output_names(controls.ref, baseline.question, tuple(leaders))
    typed = st.multiselect(
        "More tokens",
        list(names),
        key=f"lens:tokens:{controls.ref.name}",
        width=room(360),
        accept_new_options=True,
        max_selections=MAX_TOKENS,
        placeholder="pick or type",
        help="Each gets a curve of its own. Type any token of the vocabulary, or its number, "
        "such as #17.",
        **BOUND,
    )
    tokens = []
    for text in typed:
        try:
            tokens.append(
                names[text]
                if text in names
                else output_id(baseline.pretrained, baseline.answer, text)
            )
        except PretrainedError as error:
            field_error(error)
    return tokens


def layer_key(ref: ModelRef) -> str:
    return f"lens:layer:{ref.name}"


def draw_layer(controls: Controls, names: list[str]) -> str | None:
    """Draw the field of the layer whose attention is shown; None for the one that decides."""
    key = layer_key(controls.ref)
    if st.session_state.get(key) not in (None, DECISIVE, *names):
        del st.session_state[key]
    name = st.selectbox(
        "Layer",
        [DECISIVE, *names],
        key=key,
        width=room(240),
        **BOUND,
        help="The layer whose attention is shown. A click in the picture of the layers picks one, too.",
    )
    return None if name == DECISIVE else str(name)
