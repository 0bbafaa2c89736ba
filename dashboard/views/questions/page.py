"""The page: a list of questions, and the answer to one of them with its numbers and the pages that show it."""

from __future__ import annotations

from functools import partial

import streamlit as st

from dashboard.navigation import step_of
from dashboard.runtime.cache import cached
from dashboard.runtime.page_pictures import add_script
from dashboard.views.questions import numbers
from dashboard.views.questions.script import script
from dashboard.views.questions.text import ANSWERS, Answer
from dashboard.widgets.panels import details, fact, next_page, paragraph, source_panel, title
from dashboard.widgets.params import BOUND
from dashboard.widgets.table import table


def page() -> None:
    """Draw the questions and the selected answer side by side."""
    title("Questions", "What learners ask about attention. Most answers have numbers that this page computes.")
    left, right = st.columns([2, 3], gap="large")
    with left:
        key = st.radio("Question", list(ANSWERS), key="questions:question", label_visibility="collapsed",
                       format_func=lambda key: ANSWERS[key].question, **BOUND)
    with right:
        answer(ANSWERS[key or "scaling"])
    next_page("questions")


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
        details("The function that computed this",
                partial(source_panel, getattr(numbers, selected.evidence.__name__)), "questions:source")
