"""Each job as its page section: what the model answers on the left, the head that this hangs on at the right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import streamlit as st
import torch

from core.pretrained import ModelInputs, Pretrained, PretrainedError, Reading
from core.pretrained.answers import mask_word, maskable_words, top_candidates
from core.pretrained.evidence import Question
from core.pretrained.generate import SearchSettings, decode_text, generate
from core.pretrained.model_tasks import most_similar
from dashboard.charts.numbers import number
from dashboard.charts.palette import Ink
from dashboard.charts.tokens import distinct
from dashboard.components.attention_view import Patches, attention_view
from dashboard.navigation import STEPS
from dashboard.runtime.cache import cached
from dashboard.views.use_model import charts, text
from dashboard.views.use_model.compute import (
    AT_ONCE,
    Answer,
    Effects,
    Head,
    answer,
    default_head,
    effects,
    head_at,
    sentences,
    similarity_matrix,
)
from dashboard.widgets.model_picker import ModelChoice, ModelRef, examples, load_model
from dashboard.widgets.panels import fact, plain, theme
from dashboard.widgets.params import BOUND

MORE = "\n".join(("The dog was too exhausted to walk over the road.", "Because it was raining, she took an umbrella.",
                  "He forgot his umbrella and got wet.", "The bank raised its interest rates again.",
                  "Money costs more to borrow this year."))
MORE_SIGNS = 6_000
GENERATE = next(step for step in STEPS if step.key == "generate")
LONG_WORD = 4
MOST_BUTTONS = 40
WORD = "use_model:word"
BEFORE = 6  # words of the text that are told again before what comes next


def embed(chosen: ModelChoice, pretrained: Pretrained) -> None:
    """How alike texts or pictures are, and the head on which the likeness of one pair hangs."""
    left, right = st.columns([1.15, 1], gap="large")
    with left:
        place = st.container()
        names, every = _compared(chosen, pretrained)
    if len(every) < 2:
        raise PretrainedError("There is nothing to compare with: write one more sentence, on a line of its own.")
    table = similarity_matrix(chosen.ref, every)
    pair = most_similar(torch.from_numpy(table), 0)
    question = Question(chosen.inputs, against="" if chosen.inputs.picture else names[pair[1]])
    with place:
        st.markdown("**How alike each two are** (cosine)")
        st.vega_lite_chart(charts.similarity_chart(table, names, pair, theme()), width="stretch")
    with right:
        answer_, head = look(chosen, question, "this likeness")
    fact(text.pair_fact(table, names, pair, answer_, head))
    st.latex(rf"\cos(\mathbf a, \mathbf b) = \frac{{\mathbf a \cdot \mathbf b}}{{\lVert \mathbf a \rVert \, "
             rf"\lVert \mathbf b \rVert}} = {number(float(table[pair]))}")
    st.caption(text.conditions(answer_, head))


def _compared(chosen: ModelChoice, pretrained: Pretrained) -> tuple[tuple[str, ...], tuple[ModelInputs, ...]]:
    if pretrained.reads == "picture":
        names = examples.pictures(int(getattr(pretrained.model.config, "num_channels", 3)))[:8]
        others = {name: ModelInputs(picture=examples.picture(name)) for name in names}
        named = {"This picture": chosen.inputs} | {n: given for n, given in others.items() if given != chosen.inputs}
        return tuple(named), tuple(named.values())
    more = st.text_area("Other sentences, one a line", MORE, key="use_model:more", max_chars=MORE_SIGNS, height=150,
                        **BOUND) or ""
    names = sentences(chosen.inputs.text, more)
    return names, (chosen.inputs, *map(ModelInputs, names[1:]))


def fill(chosen: ModelChoice, pretrained: Pretrained) -> None:
    """The likeliest words for a mask, which stands where the reader puts it, or in place of a word."""
    given = masked(chosen, pretrained)
    question, mask = Question(given), plain(pretrained.tokenizer.mask_token)
    best = answer(chosen.ref, question).baseline.word or ""
    _answer(chosen, question, pretrained, plain(given.text).replace(mask, f"**{plain(best)}**", 1))


def masked(chosen: ModelChoice, pretrained: Pretrained) -> ModelInputs:
    """What was given if it holds a mask, else with a mask for the word that is picked."""
    line = chosen.reading.source
    if pretrained.tokenizer.mask_token_id in line.ids:
        return chosen.inputs
    answer_ = maskable_words(line)
    numbers, spoken = list(answer_), list(answer_.values())
    usual = next((i for i in reversed(range(len(numbers))) if spoken[i].isalpha() and len(spoken[i]) >= LONG_WORD), 0)
    picked = _pick("Masked word", spoken, usual, f"use_model:masked:{chosen.inputs.text[:80]}")
    return replace(chosen.inputs, text=mask_word(pretrained, chosen.inputs.text, numbers[picked]))


def _pick(label: str, tokens: Sequence[str], usual: int, key: str) -> int:
    """The place of the token that is picked; the link names it, for the text that it was made with."""
    names = [plain(name) for name in distinct(tokens)]
    places, named = range(len(names)), names.__getitem__
    if st.session_state.setdefault(WORD, key) != key:
        st.session_state[WORD] = key
        st.query_params.pop(WORD, None)
    linked = st.query_params.get(WORD, "")
    first = int(linked) if linked in map(str, places) else usual
    if len(names) > MOST_BUTTONS:
        place = st.selectbox(label, places, first, format_func=named, key=f"{key}:list")
    else:
        place = st.segmented_control(label, places, default=first, format_func=named, key=key, required=True)
    picked = first if place is None else int(place)
    if picked != usual or linked:
        st.query_params[WORD] = str(picked)
    return picked


def probabilities(chosen: ModelChoice, pretrained: Pretrained) -> None:
    """The likeliest classes of a text or a picture, or the likeliest next tokens."""
    more = ""
    if pretrained.head == "next":
        before = " ".join(chosen.inputs.text.split()[-BEFORE:])
        more = f"… {plain(before)} **{plain(cached(goes_on, chosen.ref, chosen.inputs))}** …"
    _answer(chosen, Question(chosen.inputs), pretrained, more)


def goes_on(ref: ModelRef, given: ModelInputs) -> str:
    """What the model says next by itself, always the likeliest token."""
    pretrained = load_model(ref)
    return decode_text(pretrained, generate(pretrained, given, SearchSettings(longest=12)).hypotheses[0].tokens)


def _answer(chosen: ModelChoice, question: Question, pretrained: Pretrained, more: str) -> None:
    """The likeliest answers with what else there is to say of them, the head's look, and the sentence about both."""
    answer_ = answer(chosen.ref, question)
    predictions = top_candidates(pretrained, answer_.baseline.answer, 8)
    left, right = st.columns([0.8, 1.2], gap="large")
    with left:
        st.vega_lite_chart(charts.bars(predictions, Ink.of(theme())), width="stretch")
        if more:
            st.markdown(more)
        if pretrained.head == "next":
            st.page_link(GENERATE.path, label="Say how it goes on", icon=GENERATE.icon)
    with right:
        _, head = look(chosen, question, f"“{plain(predictions[0].word)}”")
    fact(text.answer_fact(answer_, predictions, head))
    st.caption(text.conditions(answer_, head))


def translate(chosen: ModelChoice, pretrained: Pretrained) -> None:
    """What the model writes by itself, and for the word that is picked the head of cross-attention that it hangs on."""
    produced = chosen.reading.produced
    assert produced is not None
    spoken = [place for place, special in enumerate(produced.special) if not special] or [0]
    usual = crossing(chosen.reading, spoken)
    name = f"use_model:word:{chosen.inputs.text[:80]}:{chosen.inputs.target or ''}"
    place = spoken[_pick("Word that it says", [produced.tokens[i] for i in spoken], usual, name)]
    question = Question(chosen.inputs, position=place)
    answer_ = answer(chosen.ref, question)
    left, right = st.columns([1.2, 0.8], gap="large")
    with right:
        st.vega_lite_chart(charts.bars(top_candidates(pretrained, answer_.baseline.answer, 8), Ink.of(theme())),
                           width="stretch")
        st.page_link(GENERATE.path, label="Say how it writes", icon=GENERATE.icon)
    with left:
        _, head = look(chosen, question, f"“{plain(produced.tokens[place])}”")
    whole = decode_text(pretrained, produced.ids)
    fact(text.translation_fact(answer_, whole, head))
    st.caption(text.conditions(answer_, head))


def crossing(reading: Reading, spoken: list[int]) -> int:
    """Which of the said words is the first that looks further left than the one before it; else the first of all."""
    weights = reading.trace.of("cross").maps[-1].weights.mean(0)[spoken]
    targets = weights[:, : len(reading.source)].argmax(1)
    tokens = reading.produced.tokens if reading.produced else ()
    return next((i for i in range(1, len(spoken)) if targets[i] < targets[i - 1] and tokens[spoken[i]].isalpha()), 0)


def measure_effects(ref: ModelRef, question: Question, answer_: Answer) -> Effects | None:
    """What the answer is without each head: measured at once where that is little work, else when it is asked for."""
    requested = f"use_model:measured:{ref.written}"
    if not answer_.baseline.pretrained.recordable:
        return None
    if answer_.work > AT_ONCE and not st.session_state.get(requested):
        st.button(f"Switch off each of {answer_.heads} heads, about {answer_.seconds:.0f} s", key="use_model:measure",
                  icon=":material/play_arrow:", on_click=st.session_state.update, args=({requested: True},))
        return None
    with st.spinner(f"Switching off each of {answer_.heads} heads, about {max(1, round(answer_.seconds))} s"):
        return effects(ref, question)


def look(chosen: ModelChoice, question: Question, what: str) -> tuple[Answer, Head]:
    """The map of the head that the answer hangs on, or of the one that a person takes instead, which is returned.

    The answering row is in the accent; of a picture, it lies on the picture itself.
    """
    answer_ = answer(chosen.ref, question)
    known = measure_effects(chosen.ref, question, answer_)
    line, patches, first = answer_.baseline.source, None, default_head(answer_, known)
    if line.grid is not None and chosen.inputs.picture is not None:
        rows, columns = line.grid
        patches = Patches(chosen.inputs.picture.numpy(), rows, columns, len(line) - rows * columns)
    st.markdown(f"**Head {first.name}**, " + (f"on which {what} hangs most" if first.effect else "the sharpest look"))
    view = attention_view(
        answer_.trace, key="use_model:head", layer=first.place, head=first.head, query=first.row, patches=patches,
        show="matrix" if patches is None else "both", height=420 if patches is None else 260,
        fact=f"Head {first.name}: its row of {answer_.trace.maps[first.place].queries[first.row]} is picked")
    return answer_, head_at(answer_, known, view.layer, view.head)
