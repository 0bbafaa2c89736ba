"""What of the answer is followed: the place that answers, the word that is masked, the sentence held against."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from core.pretrained import ModelInputs, Pretrained
from core.pretrained.answers import mask_word, maskable_words
from core.pretrained.evidence import Question
from dashboard.views.evidence.compute import Controls
from dashboard.views.evidence.output import output_of
from dashboard.widgets.model_picker import ModelChoice, reading_of
from dashboard.widgets.model_picker.baseline import baseline_of
from dashboard.widgets.params import BOUND

LINE, AT = "evidence:line", "at"
AGAINST = "The exhausted creature stayed on its side of the road."


def draw_controls(chosen: ModelChoice) -> Controls:
    """Draw what the question leaves open, and ask it; PretrainedError when it cannot be asked."""
    model = chosen.pretrained
    if model is None:
        return Controls(chosen.ref, chosen.reading, Question(chosen.inputs), None)
    if model.head == "none":
        against = st.text_input("Held against the embedding of", AGAINST, key="evidence:against", **BOUND, help=(
            "The page follows the cosine between both embeddings. Left empty, it follows the cosine with the text's "
            "own embedding as it was, which is 1 until something is taken away.")) if model.reads == "text" else ""
        question = Question(chosen.inputs, against=(against or "").strip())
    else:
        with st.container(horizontal=True, vertical_alignment="top"):
            question = output_of(chosen.ref, _placed(model, chosen))
    reading = chosen.reading if question.inputs == chosen.inputs else reading_of(chosen.ref, question.inputs)
    return Controls(chosen.ref, reading, question, baseline_of(chosen.ref, question))


def _placed(model: Pretrained, chosen: ModelChoice) -> Question:
    """The question of what answers: a class, a masked word, or the next token at a place."""
    if model.head == "masked":
        return Question(_masked(model, chosen))
    return Question(chosen.inputs) if model.head == "classify" else Question(chosen.inputs, _place(chosen))


def _masked(model: Pretrained, chosen: ModelChoice) -> ModelInputs:
    """The text with a word masked, where it holds no mask of its own."""
    line = chosen.reading.source
    if getattr(model.tokenizer, "mask_token_id", None) in line.ids:
        return chosen.inputs
    words = maskable_words(line)
    numbers, key = list(words), f"evidence:word:{hash(line.ids)}"
    usual = max(words, key=lambda word: (len(words[word]), word))
    linked = _linked(key, max(words) + 1, usual)
    word = st.selectbox("Word to guess", numbers, numbers.index(linked if linked in words else usual), key=key,
                        format_func=words.__getitem__, on_change=_link, args=(key,), width=240,
                        help="It is masked; the page follows what the model puts in its place.")
    return replace(chosen.inputs, text=mask_word(model, chosen.inputs.text, word))


def _place(chosen: ModelChoice) -> int:
    """The place that answers with the next token."""
    reading = chosen.reading
    line = reading.target or reading.source
    heard = [f"{place} · after {token}" for place, token in enumerate(line.tokens)]
    # A target's first and last places are its easiest ones; one past the middle has both sides to look at.
    usual = len(heard) - 1 if reading.target is None else round(0.55 * (len(heard) - 1))
    key = f"evidence:place:{hash(line.ids)}"
    return st.selectbox("Answer at place", range(len(heard)), _linked(key, len(heard), usual), width=240, key=key,
                        format_func=heard.__getitem__, on_change=_link, args=(key,),
                        help="The place whose next token is followed.")


def _linked(key: str, count: int, usual: int) -> int:
    """The place that the link names, for the text that it was made with."""
    if st.session_state.setdefault(LINE, key) != key:
        st.session_state[LINE] = key
        st.query_params.pop(AT, None)
    linked = st.query_params.get(AT, "")
    valid = linked.isascii() and linked.isdigit() and len(linked) < 6 and int(linked) < count
    return int(linked) if valid else usual


def _link(key: str) -> None:
    st.query_params[AT] = str(st.session_state[key])
