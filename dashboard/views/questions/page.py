"""The page: a list of questions, and the answer to one of them with its numbers and the pages that show it."""

from __future__ import annotations

from functools import partial

import streamlit as st

from dashboard.navigation import step_of
from dashboard.runtime.link_values import fragment
from dashboard.runtime.page_pictures import add_script
from dashboard.runtime.rendering import render_before_widgets
from dashboard.server.cache import cached
from dashboard.ui.tables import table
from dashboard.views.questions import numbers
from dashboard.views.questions.script import script
from dashboard.views.questions.text import ANSWERS, Answer
from dashboard.widgets.panels import details, fact, next_page, paragraph, source_panel, title
from dashboard.widgets.params import BOUND

QUESTION = "questions:question"


def page() -> None:
    """Draw the questions and the selected answer side by side."""
    title(
        "Questions",
        "What learners ask about attention. Most answers have numbers that this page computes.",
    )
    explore()
    next_page("questions")


@fragment
def explore() -> None:
    """Draw the questions and the answer, which rerun alone; the answer comes first."""
    render_before_widgets(
        "questions:ready", read_question, draw_questions, show, st.columns([2, 3], gap="large")
    )


def read_question() -> str | None:
    """The key of the selected question, before the list is drawn again."""
    return st.session_state.get(QUESTION)


def draw_questions() -> str | None:
    """Draw the list of questions; returns the key of the selected one."""
    return st.radio(
        "Question",
        list(ANSWERS),
        key=QUESTION,
        label_visibility="collapsed",
        format_func=lambda key: ANSWERS[key].question,
        **BOUND,
    )


def show(key: str | None) -> None:
    """Draw the answer to a question."""
    answer(ANSWERS[key or "scaling"])


def answer(selected: Answer) -> None:
    """Draw the words, the table, what it shows, and the links."""
    paragraph(f"## {selected.question}\n\n{selected.text}")
    if selected.evidence is not None:
        evidence = cached(selected.evidence)
        table(evidence.head, evidence.rows, caption=selected.question, markers=False)
        fact(evidence.sentence)
        add_script(partial(script, selected))
    for page_key, label in selected.pages:
        step = step_of(page_key)
        st.page_link(step.path, label=f"{label}: {step.title}", icon=step.icon, query_params={})
    if selected.evidence is not None:
        details(
            "The function that computed this",
            partial(source_panel, getattr(numbers, selected.evidence.__name__)),
            "questions:source",
        )
