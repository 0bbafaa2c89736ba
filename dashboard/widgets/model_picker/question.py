"""The fields of a question to a model: the masked word, the position that answers, and the output that is followed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import streamlit as st

from core.interpret.evidence import Baseline, Question
from core.pretrained import ModelInputs, PretrainedError, Reading
from core.pretrained.answers import (
    mask_word,
    maskable_words,
    output_id,
    output_name,
    top_candidates,
)
from dashboard.draw.formats import plain
from dashboard.server.cache import shared
from dashboard.ui.links import BOUND, link_value, one_of, write_link
from dashboard.ui.presentation import room
from dashboard.widgets.model_picker.choose import ModelChoice
from dashboard.widgets.model_picker.models import ModelRef, baseline_of, load_model

AT = "at"  # the name in links
LIKELIEST, NOTHING = "the most likely", "nothing"
OFFERED = 10
OutputPart = Literal["output", "contrast"]


def masked_inputs(page: str, choice: ModelChoice, name: str = AT) -> ModelInputs:
    """The inputs with a word that the reader picks masked, if they hold no mask; `name` is the field's in links."""
    line = choice.reading.source
    if (
        choice.pretrained is None
        or getattr(choice.pretrained.tokenizer, "mask_token_id", None) in line.ids
    ):
        return choice.inputs
    words = maskable_words(line)
    numbers, key = list(words), f"{page}:word:{hash(line.ids)}"
    default = max(words, key=lambda word: (len(words[word]), word))
    _link_number(page, key, numbers, default, name)
    word = st.selectbox(
        "Masked word",
        numbers,
        key=key,
        format_func=words.__getitem__,
        width=room(240),
        help="The page measures the model's prediction for this word.",
    )
    return replace(choice.inputs, text=mask_word(choice.pretrained, choice.inputs.text, word))


def position_key(page: str, reading: Reading) -> str:
    """The widget's key of `position_field`, which belongs to one text."""
    return f"{page}:place:{hash((reading.target or reading.source).ids)}"


def position_field(page: str, reading: Reading, masked: int | None = None) -> int:
    """The position whose next token is measured; of a model that fills masks, whose own token: by default `masked`."""
    line = reading.target or reading.source
    after = "after " if masked is None else ""
    labels = [f"{position} · {after}{token}" for position, token in enumerate(line.tokens)]
    # A target's first and last positions are its easiest ones; one past the middle has context on both sides.
    last = len(labels) - 1 if reading.target is None else round(0.55 * (len(labels) - 1))
    key, default = position_key(page, reading), last if masked is None else masked
    _link_number(page, key, range(len(labels)), default)
    return st.selectbox(
        "Answer at position",
        range(len(labels)),
        width=room(240),
        key=key,
        format_func=labels.__getitem__,
        help=f"The page measures the prediction of the token {after or 'at '}this one.",
    )


def _link_number(page: str, key: str, numbers: Sequence[int], default: int, name: str = AT) -> None:
    """Link the field of a number, which belongs to one text."""
    if st.session_state.setdefault(f"{page}:{name}:line", key) != key:
        st.session_state[f"{page}:{name}:line"] = key
        write_link(name, None)
    st.session_state.setdefault(key, default)
    link_value(key, default, one_of(numbers), name=name)


def output_field(
    page: str,
    ref: ModelRef,
    baseline: Baseline,
    label: str,
    part: OutputPart = "output",
    first: str = LIKELIEST,
) -> int | None:
    """The field of an output; None for `first`, and after an error, which is written below it."""
    names = output_names(ref, baseline.question)
    if part == "contrast":
        names = {name: one for name, one in names.items() if one != baseline.id}
    kind = "class" if baseline.answer.kind == "class" else "token of the vocabulary"
    with st.container(width=room(240)):
        typed = st.selectbox(
            label,
            [first, *names],
            key=f"{page}:{part}:{ref.name}",
            accept_new_options=True,
            **BOUND,
            help=f"The list holds the most likely; you can type any other {kind}.",
        )
        try:
            return (
                None if typed in (first, None) else _parse_output(baseline, str(typed), names, part)
            )
        except PretrainedError as error:
            st.markdown(
                f":small[:red[{plain(str(error))}] Until then, {_fallback_text(baseline, part, first)}.]"
            )
            return None


def output_names(
    ref: ModelRef, question: Question, outputs: tuple[int, ...] | None = None
) -> dict[str, int]:
    """Tokens or classes by their names; the most likely answers to the question unless others are given."""
    return shared(_output_names, ref, question, outputs)


def _output_names(
    ref: ModelRef, question: Question, outputs: tuple[int, ...] | None
) -> dict[str, int]:
    pretrained, answer = load_model(ref), baseline_of(ref, question).answer
    ids = (
        [one.id for one in top_candidates(pretrained, answer, OFFERED)]
        if outputs is None
        else outputs
    )
    return {output_name(pretrained, answer, one): one for one in ids}


def _parse_output(baseline: Baseline, typed: str, names: dict[str, int], part: OutputPart) -> int:
    output = names.get(typed)
    output = output_id(baseline.pretrained, baseline.answer, typed) if output is None else output
    if part == "contrast" and output == baseline.id:
        raise PretrainedError(
            f"“{typed[:40]}” is measured already, and its difference from itself is always 0."
        )
    return output


def _fallback_text(baseline: Baseline, part: OutputPart, first: str) -> str:
    if part == "contrast":
        return (
            "the most likely other one is used" if first == LIKELIEST else "nothing is subtracted"
        )
    return f"the most likely, {plain(baseline.word or '')}, is measured"
