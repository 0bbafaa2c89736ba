"""Which class or token of an answer is followed, and as what: its probability, its logit, or a difference of two."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from core.pretrained import PretrainedError
from core.pretrained.answers import top_candidates
from core.pretrained.evidence import Baseline, Quantity, Question, output_id, output_name
from dashboard.widgets.model_picker import ModelRef
from dashboard.widgets.model_picker.baseline import baseline_of
from dashboard.widgets.panels import plain
from dashboard.widgets.params import BOUND

LIKELIEST = "the likeliest"
OFFERED = 10
QUANTITIES: dict[str, Quantity | None] = {
    "automatic": None, "probability": "probability", "logit": "logit", "logit difference": "difference"}


def output_of(ref: ModelRef, question: Question) -> Question:
    """Draw the fields of the output and its quantity; the question with both."""
    baseline = baseline_of(ref, question)
    noun = "Class" if baseline.answer.kind == "class" else "Token"
    output = _field(ref, baseline, f"{noun} that is followed", "output", baseline.id)
    if output is not None and output != baseline.id:
        baseline = baseline_of(ref, replace(question, output=output))
    name = st.selectbox("Followed as", list(QUANTITIES), key="evidence:quantity", width=170, **BOUND, help=(
        "A probability hardly moves near 0 and 1; a logit, the number before the softmax, does. The difference of two "
        "logits leaves out what moves all of them. Automatic: the probability, or the logit where the likeliest has "
        "more than 0.95."))
    quantity = QUANTITIES[str(name)]
    contrast = None
    if quantity == "difference":
        contrast = _field(ref, baseline, "Minus the logit of", "contrast", baseline.id)
    return replace(question, output=output, quantity=quantity, contrast=contrast)


def _field(ref: ModelRef, baseline: Baseline, label: str, part: str, followed: int | None) -> int | None:
    """A field in which the likeliest are offered and any other may be typed; None for the likeliest.

    What cannot be followed is told under the field, and the likeliest is followed instead.
    """
    offered = [one.id for one in top_candidates(baseline.pretrained, baseline.answer, OFFERED)]
    if part == "contrast":
        offered = [one for one in offered if one != followed]
    names = {output_name(baseline.pretrained, baseline.answer, one): one for one in offered}
    kind = "class" if baseline.answer.kind == "class" else "token of the vocabulary"
    with st.container(width=240):
        typed = st.selectbox(label, [LIKELIEST, *names], key=f"evidence:{part}:{ref.name}", accept_new_options=True,
                             **BOUND, help=f"The likeliest are offered; any other {kind} can be typed.")
        try:
            return None if typed in (LIKELIEST, None) else _meant(baseline, str(typed), names, part, followed)
        except PretrainedError as error:
            st.markdown(f":small[:red[{plain(str(error))}] Until then, {_instead(baseline, part)}.]")
            return None


def _meant(baseline: Baseline, typed: str, names: dict[str, int], part: str, followed: int | None) -> int:
    output_id_ = names.get(typed)
    output_id_ = output_id(baseline.pretrained, baseline.answer, typed) if output_id_ is None else output_id_
    if part == "contrast" and output_id_ == followed:
        raise PretrainedError(f"“{typed[:40]}” is followed already, and its difference from itself is always 0.")
    return output_id_


def _instead(baseline: Baseline, part: str) -> str:
    if part == "contrast":
        return "the likeliest other one is taken"
    return f"the likeliest, {plain(baseline.word or '')}, is followed"
