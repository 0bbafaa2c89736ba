"""The controls: the position that answers, the masked word, and which output is followed, as what quantity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import streamlit as st

from core.pretrained import Line, ModelInputs, Pretrained, PretrainedError, Reading
from core.pretrained.answers import mask_word, maskable_words, top_candidates
from core.pretrained.evidence import Baseline, Quantity, Question, output_id, output_name
from core.pretrained.maps import with_sink
from core.trace import AttentionMap, Kind
from dashboard.runtime.link_values import link_value, one_of, write_link
from dashboard.widgets.model_picker import ModelChoice, ModelRef, reading_of
from dashboard.widgets.model_picker.models import baseline_of
from dashboard.widgets.panels import plain
from dashboard.widgets.params import BOUND
from dashboard.widgets.presentation import room

LINE, AT = "evidence:line", "at"
AGAINST = "The exhausted creature stayed on its side of the road."
KINDS: dict[str, str] = {"self": "encoder", "causal": "decoder", "cross": "cross"}
LIKELIEST = "the most likely"
OFFERED = 10
QUANTITIES: dict[str, Quantity | None] = {
    "automatic": None, "probability": "probability", "logit": "logit", "logit difference": "difference"}

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
        return ((row, head) for row, item in enumerate(self.maps) for head in range(len(item.weights)))

    def row_of(self, kind: str, layer: int) -> int:
        """The index of a layer among the trace's maps."""
        return next(row for row, item in enumerate(self.maps) if (item.kind, item.layer) == (kind, layer))

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
        against = st.text_input("Compared with the embedding of", AGAINST, key="evidence:against", **BOUND, help=(
            "The page measures the cosine of both embeddings. Left empty, it measures the cosine with the text's own "
            "embedding, which is 1 until a head or a token is removed.")) if model.reads == "text" else ""
        question = Question(choice.inputs, against=(against or "").strip())
    else:
        with st.container(horizontal=True, vertical_alignment="top", key="evidence:question"):
            question = _output_fields(choice.ref, _question(model, choice))
    reading = choice.reading if question.inputs == choice.inputs else reading_of(choice.ref, question.inputs)
    return Controls(choice.ref, reading, question, baseline_of(choice.ref, question))


def _question(model: Pretrained, choice: ModelChoice) -> Question:
    """The question by the model's head: a class, a masked word, or the next token at a position."""
    if model.head == "masked":
        return Question(_masked(model, choice))
    return Question(choice.inputs) if model.head == "classify" else Question(choice.inputs, _position(choice))


def _masked(model: Pretrained, choice: ModelChoice) -> ModelInputs:
    """The inputs with the chosen word masked, if they hold no mask of their own."""
    line = choice.reading.source
    if getattr(model.tokenizer, "mask_token_id", None) in line.ids:
        return choice.inputs
    words = maskable_words(line)
    numbers, key = list(words), f"evidence:word:{hash(line.ids)}"
    default = max(words, key=lambda word: (len(words[word]), word))
    _link_number(key, numbers, default)
    word = st.selectbox("Masked word", numbers, key=key, format_func=words.__getitem__, width=room(240),
                        help="The page measures the model's prediction for this word.")
    return replace(choice.inputs, text=mask_word(model, choice.inputs.text, word))


def _position(choice: ModelChoice) -> int:
    reading = choice.reading
    line = reading.target or reading.source
    labels = [f"{position} · after {token}" for position, token in enumerate(line.tokens)]
    # A target's first and last positions are its easiest ones; one past the middle has context on both sides.
    default = len(labels) - 1 if reading.target is None else round(0.55 * (len(labels) - 1))
    key = f"evidence:place:{hash(line.ids)}"
    _link_number(key, range(len(labels)), default)
    return st.selectbox("Answer at position", range(len(labels)), width=room(240), key=key,
                        format_func=labels.__getitem__,
                        help="The page measures the prediction of the token after this one.")


def _link_number(key: str, numbers: Sequence[int], default: int) -> None:
    """Link the field of a number, which belongs to one text."""
    if st.session_state.setdefault(LINE, key) != key:
        st.session_state[LINE] = key
        write_link(AT, None)
    st.session_state.setdefault(key, default)
    link_value(key, default, one_of(numbers), name=AT)


def _output_fields(ref: ModelRef, question: Question) -> Question:
    """Draw the fields of the output and its quantity; returns the question with both."""
    baseline = baseline_of(ref, question)
    noun = "Class" if baseline.answer.kind == "class" else "Token"
    output = _output_field(ref, baseline, f"{noun} to measure", "output", baseline.id)
    if output is not None and output != baseline.id:
        baseline = baseline_of(ref, replace(question, output=output))
    name = st.selectbox("Measured as", list(QUANTITIES), key="evidence:quantity", width=room(170), **BOUND, help=(
        "A probability changes little near 0 and 1; a logit, the number before the softmax, still changes. The "
        "difference of two logits leaves out what changes all of them. Automatic: the probability, or the logit where "
        "the most likely has more than 0.95."))
    quantity = QUANTITIES[str(name)]
    contrast = None
    if quantity == "difference":
        contrast = _output_field(ref, baseline, "Minus the logit of", "contrast", baseline.id)
    return replace(question, output=output, quantity=quantity, contrast=contrast)


def _output_field(ref: ModelRef, baseline: Baseline, label: str, part: str, followed: int | None) -> int | None:
    """The field of an output; None for the likeliest, and after an error, which is written below it."""
    options = [one.id for one in top_candidates(baseline.pretrained, baseline.answer, OFFERED)]
    if part == "contrast":
        options = [one for one in options if one != followed]
    names = {output_name(baseline.pretrained, baseline.answer, one): one for one in options}
    kind = "class" if baseline.answer.kind == "class" else "token of the vocabulary"
    with st.container(width=room(240)):
        typed = st.selectbox(label, [LIKELIEST, *names], key=f"evidence:{part}:{ref.name}", accept_new_options=True,
                             **BOUND, help=f"The list holds the most likely; you can type any other {kind}.")
        try:
            return None if typed in (LIKELIEST, None) else _parse_output(baseline, str(typed), names, part, followed)
        except PretrainedError as error:
            st.markdown(f":small[:red[{plain(str(error))}] Until then, {_fallback_text(baseline, part)}.]")
            return None


def _parse_output(baseline: Baseline, typed: str, names: dict[str, int], part: str, followed: int | None) -> int:
    output = names.get(typed)
    output = output_id(baseline.pretrained, baseline.answer, typed) if output is None else output
    if part == "contrast" and output == followed:
        raise PretrainedError(f"“{typed[:40]}” is measured already, and its difference from itself is always 0.")
    return output


def _fallback_text(baseline: Baseline, part: str) -> str:
    if part == "contrast":
        return "the most likely other one is used"
    return f"the most likely, {plain(baseline.word or '')}, is measured"
