"""The page Use a model: its task, its answer, the head that the answer depends on most, and other tasks' models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import streamlit as st
import torch

from core.interpret.evidence import Question, ablate_heads
from core.pretrained import Pretrained, PretrainedError
from core.pretrained.answers import (
    MODEL_TASKS,
    Candidate,
    ModelTask,
    answer_of,
    most_similar,
    task_of,
    top_candidates,
)
from core.pretrained.generate import decode_text
from dashboard.draw import palette
from dashboard.draw.attention_view import Patches, attention_view
from dashboard.draw.formats import byte_size, distinct, number
from dashboard.draw.palette import SIGNED, Ink, Theme
from dashboard.draw.vega import Spec, axis_style, figure, layer, split_data
from dashboard.navigation import step_of
from dashboard.runtime.link_values import fragment, read_linked, write_linked
from dashboard.runtime.page_pictures import add_script, begin_fragment
from dashboard.ui.presentation import draw_chart
from dashboard.views.use_model import compute, text
from dashboard.views.use_model.compute import Answer, Head
from dashboard.views.use_model.controls import draw_controls, draw_measure
from dashboard.views.use_model.script import answer_script, embed_script
from dashboard.views.use_model.text import short
from dashboard.widgets.model_picker import ModelChoice, choose_model, input_errors, read_inputs
from dashboard.widgets.model_picker.allowed import is_allowed
from dashboard.widgets.model_picker.resolve import select_model
from dashboard.widgets.panels import (
    caption,
    details,
    fact,
    next_page,
    plain,
    source_panel,
    theme,
    title,
)

LONGEST, TIP = 24, 120  # signs of a sentence at the matrix, and under the pointer

PAGE = "use_model"
GENERATE = step_of("generate")
BEFORE = 6  # words of the text that are repeated before its continuation


def page() -> None:
    """Draw the page from top to bottom."""
    title(
        "Use a model",
        "Let a model do the task it was trained for, and see the head that its answer depends on "
        "most.",
    )
    _view()
    next_page(PAGE)


@fragment
def _view() -> None:
    begin_fragment()
    choice = choose_model(PAGE, needs=("model",), at_once=False)
    if choice is not None and choice.pretrained is not None:
        pretrained, own = choice.pretrained, None
        with input_errors():
            job = task_of(pretrained)
            st.markdown(text.own_job(job, pretrained.name))
            SECTIONS[job.key](choice, pretrained)
            own = job
        details("Other tasks and source", lambda: _others(own, pretrained.name), "use_model:others")


def embed(choice: ModelChoice, pretrained: Pretrained) -> None:
    """Draw the similarity of all pairs, and the head on which the similarity of one pair depends most."""
    left, right = st.columns([1.15, 1], gap="large")
    with left:
        chart = st.container()
        compared = draw_controls("embed", choice, pretrained).compared
    if len(compared) < 2:
        raise PretrainedError(
            "There is nothing to compare with: write one more sentence, in a new line."
        )
    names = tuple(name for name, _ in compared)
    table = compute.similarity_matrix(choice.ref, tuple(inputs for _, inputs in compared))
    pair = most_similar(torch.from_numpy(table), 0)
    question = Question(choice.inputs, against="" if choice.inputs.picture else names[pair[1]])
    with chart:
        st.markdown("**Similarity of each pair** (cosine)")
        spec = similarity_chart(table, names, pair, theme())
        draw_chart(
            st,
            spec,
            drawn=split_data(spec),
            width="stretch",
            alt="Similarity of each pair of sentences",
        )
    with right:
        read_inputs(choice)
        answer, head = head_map(choice, question, "this similarity")
        add_script(partial(embed_script, choice, compared, table, answer, head))
    fact(text.pair_fact(table, names, pair, answer, head))
    st.latex(
        rf"\cos(\mathbf a, \mathbf b) = \frac{{\mathbf a \cdot \mathbf b}}{{\lVert \mathbf a \rVert \, "
        rf"\lVert \mathbf b \rVert}} = {number(float(table[pair]))}"
    )
    caption(text.conditions(answer, head))


def fill(choice: ModelChoice, pretrained: Pretrained) -> None:
    """Draw the likeliest words for a mask."""
    read_inputs(choice)
    inputs = draw_controls("fill", choice, pretrained).inputs
    question, mask = Question(inputs), plain(pretrained.tokenizer.mask_token)
    best = compute.answer_question(choice.ref, question).baseline.word or ""
    _answer(choice, question, pretrained, plain(inputs.text).replace(mask, f"**{plain(best)}**", 1))


def probabilities(choice: ModelChoice, pretrained: Pretrained) -> None:
    """Draw the likeliest classes of a text or a picture, or the likeliest next tokens."""
    read_inputs(choice)
    more = ""
    if pretrained.head == "next":
        before = " ".join(choice.inputs.text.split()[-BEFORE:])
        more = (
            f"… {plain(before)} **{plain(compute.continuation_text(choice.ref, choice.inputs))}** …"
        )
    _answer(choice, Question(choice.inputs), pretrained, more)


def _answer(choice: ModelChoice, question: Question, pretrained: Pretrained, more: str) -> None:
    """Draw the likeliest answers with `more` text below, the head's map, and the fact about both."""
    answer = compute.answer_question(choice.ref, question)
    predictions = top_candidates(pretrained, answer.baseline.answer, 8)
    left, right = st.columns([0.8, 1.2], gap="large")
    with left:
        draw_chart(
            st, bars(predictions, Ink.of(theme())), width="stretch", alt="The likeliest answers"
        )
        if more:
            st.markdown(more)
        if pretrained.head == "next":
            st.page_link(GENERATE.path, label="Generate: continue this text", icon=GENERATE.icon)
    with right:
        _, head = head_map(choice, question, f"“{plain(predictions[0].word)}”")
        add_script(partial(answer_script, choice, answer, predictions, head))
    fact(text.answer_fact(answer, predictions, head))
    caption(text.conditions(answer, head))


def translate(choice: ModelChoice, pretrained: Pretrained) -> None:
    """Draw the translation, and the head of cross-attention on which the picked word depends most."""
    read_inputs(choice)
    produced = choice.reading.produced
    assert produced is not None
    position = draw_controls("translate", choice, pretrained).position
    assert position is not None
    question = Question(choice.inputs, position=position)
    answer = compute.answer_question(choice.ref, question)
    left, right = st.columns([1.2, 0.8], gap="large")
    with right:
        predictions = top_candidates(pretrained, answer.baseline.answer, 8)
        draw_chart(
            st, bars(predictions, Ink.of(theme())), width="stretch", alt="The likeliest next tokens"
        )
        st.page_link(GENERATE.path, label="Generate: see it step by step", icon=GENERATE.icon)
    with left:
        _, head = head_map(choice, question, f"“{plain(produced.tokens[position])}”")
        add_script(partial(answer_script, choice, answer, predictions, head))
    fact(text.translation_fact(answer, decode_text(pretrained, produced.ids), head))
    caption(text.conditions(answer, head))


SECTIONS: dict[str, Callable[[ModelChoice, Pretrained], None]] = {
    "embed": embed,
    "fill": fill,
    "classify": probabilities,
    "next": probabilities,
    "translate": translate,
    "picture": probabilities,
}


def head_map(choice: ModelChoice, question: Question, noun: str) -> tuple[Answer, Head]:
    """Draw the map of the head on which the answer depends most, over a picture's patches; a user may pick another."""
    answer = compute.answer_question(choice.ref, question)
    known = _effects(choice, question, answer)
    patches, first = (
        Patches.of(choice.inputs.picture, answer.baseline.source),
        compute.default_head(answer, known),
    )
    st.markdown(
        f"**Head {first.name}**, "
        + (f"on which {noun} depends most" if first.effect else "with the largest weight")
    )
    maps, usual, of = answer.trace.maps, (first.index, first.head), (choice.ref, question)
    linked = read_linked(PAGE, "head", (len(maps), max(len(item.weights) for item in maps)), of)
    layer, head = linked if linked and linked[1] < len(maps[linked[0]].weights) else usual
    pin = read_linked(PAGE, "pin", maps[layer].weights.shape[1:], of)  # type: ignore[arg-type]
    view = attention_view(
        answer.trace,
        key="use_model:head",
        layer=layer,
        head=head,
        pin=pin,
        query=first.row,
        patches=patches,
        show="matrix" if patches is None else "both",
        height=420 if patches is None else 260,
        fact=f"Head {first.name}: its row of {answer.trace.maps[first.index].queries[first.row]} is picked",
    )
    write_linked(
        PAGE, "head", None if (view.layer, view.head) == usual else (view.layer, view.head)
    )
    write_linked(PAGE, "pin", view.pin)
    return answer, compute.head_at(answer, known, view.layer, view.head)


def _effects(choice: ModelChoice, question: Question, answer: Answer) -> compute.Effects | None:
    """The answer without each head; None while that waits for a press, or where heads cannot be switched off."""
    if not answer.baseline.pretrained.recordable or not draw_measure(choice.ref, answer):
        return None
    with st.spinner(f"Switching off each of {answer.heads} heads"):
        return compute.effects(choice.ref, question)


def _others(own: ModelTask | None, name: str) -> None:
    if own is not None:
        st.markdown(text.other_jobs(own, name))
    for job in MODEL_TASKS:
        if own is None or job.name != own.name:
            _other(job)
    source_panel(answer_of)
    source_panel(ablate_heads)


def _other(job: ModelTask) -> None:
    description, buttons = st.columns([1.2, 1], vertical_alignment="center")
    description.markdown(f"**{job.name}**: {job.does}. It needs {job.needs}.")
    with buttons.container(horizontal=True):
        if job.lab_model:
            st.button(
                job.lab_model,
                key=f"use_model:use:{job.key}",
                on_click=select_model,
                args=(job.lab_model,),
                help="One of the lab's own models; no download.",
            )
        if not is_allowed(job.hub):
            return
        label = f"{job.hub.partition('/')[2]}, {byte_size(1e6 * job.megabytes)}"
        st.button(
            label,
            key=f"use_model:hub:{job.key}",
            on_click=select_model,
            args=(job.hub,),
            help=f"{job.hub} of the Hugging Face hub. Its size is shown before anything is "
            "downloaded.",
        )


# Figures of the page Use a model: the similarity of all pairs of inputs, and the likeliest answers as bars.


def similarity_chart(
    table: np.ndarray, names: Sequence[str], picked: tuple[int, int], theme: Theme
) -> Spec:
    """Cosines of all pairs, with their numbers; purple below 0, green above, the picked pair outlined.

    The names are marks, so that another sentence changes the rows alone, and no figure is built anew.
    """
    ink = Ink.of(theme)
    labels = [f"{i}" for i in range(len(names))]
    tipped = [short(name, TIP) for name in names]
    rows = [
        {
            "row": labels[i],
            "column": labels[j],
            "value": float(table[i, j]),
            "text": number(float(table[i, j])),
            "one": tipped[i],
            "other": tipped[j],
            "dark": bool(abs(table[i, j]) > 0.55),
        }
        for i in range(len(names))
        for j in range(len(names))
    ]
    across = {
        **axis_style(ink),
        "orient": "top",
        "labelAngle": 0,
        "labelFontSize": 13,
        "labelColor": ink.text,
    }
    at: dict[str, Any] = {
        "y": {"field": "row", "type": "ordinal", "sort": labels, "title": None, "axis": None},
        "x": {"field": "column", "type": "ordinal", "sort": labels, "title": None, "axis": across},
    }
    words = [
        {"row": label, "name": f"{label}  {short(name, LONGEST)}"}
        for label, name in zip(labels, names, strict=True)
    ]
    tips = [
        {"field": name, "type": "nominal", "title": title}
        for name, title in (("one", "row"), ("text", "cosine"), ("other", "column"))
    ]
    colour = {
        "field": "value",
        "type": "quantitative",
        "legend": None,
        "scale": {"domain": [-1, 1], "range": list(SIGNED[theme]), "interpolate": "rgb"},
    }
    pair = [
        row
        for row in rows
        if {row["row"], row["column"]} == {labels[picked[0]], labels[picked[1]]}
        and row["row"] != row["column"]
    ]
    numbers = {
        **at,
        "text": {"field": "text", "type": "nominal"},
        "color": {
            "condition": {"test": "datum.dark", "value": palette.PAGE[theme]},
            "value": ink.text,
        },
    }
    return figure(
        [
            layer("rect", rows, {**at, "color": colour, "tooltip": tips}),
            layer("rect", pair, at, filled=False, stroke=ink.pick, strokeWidth=2.25),
            layer("text", rows, numbers, fontSize=11),
            layer(
                "text",
                words,
                {"y": at["y"], "text": {"field": "name", "type": "nominal"}},
                x=0,
                dx=-6,
                align="right",
                fontSize=13,
                color=ink.text,
                tooltip=False,
            ),
        ],
        height=max(150, 40 * len(names)),
    )


def bars(predictions: Sequence[Candidate], ink: Ink) -> Spec:
    """The likeliest answers, the first one in the accent."""
    names = distinct([one.word for one in predictions])
    rows = [
        {"word": name, "p": one.probability, "text": number(one.probability), "first": rank == 0}
        for rank, (name, one) in enumerate(zip(names, predictions, strict=True))
    ]
    axis = {
        **axis_style(ink),
        "labelColor": ink.text,
        "labelFontSize": 13,
        "labelLimit": 220,
        "labelFlush": False,
    }
    at: dict[str, Any] = {
        "y": {"field": "word", "type": "ordinal", "sort": names, "title": None, "axis": axis},
        "x": {
            "field": "p",
            "type": "quantitative",
            "title": None,
            "axis": None,
            "scale": {"domain": [0, 1.15]},
        },
    }
    colour = {"condition": {"test": "datum.first", "value": ink.pick}, "value": ink.series[0]}
    return figure(
        [
            layer("bar", rows, {**at, "color": colour}, cornerRadius=2),
            layer(
                "text",
                rows,
                {**at, "text": {"field": "text", "type": "nominal"}},
                align="left",
                dx=4,
                fontSize=12,
                color=ink.quiet,
            ),
        ],
        height=27 * len(rows),
    )
