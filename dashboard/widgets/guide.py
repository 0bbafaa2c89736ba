"""What a page of the path offers a learner: a question to answer first, and moves that set the controls."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from dashboard.charts.glossary import terms_help
from dashboard.navigation import step_of
from dashboard.runtime.lesson_state import guide_is_hidden
from dashboard.runtime.page_reset import CURRENT
from dashboard.widgets.panels import paragraph
from dashboard.widgets.params import BOUND

SHOW = "Show me"  # the last option of every question: the answer without a prediction
# What to notice stays at the bottom of the window while the reader looks at the picture further up.
NOTICE_STYLE = """<style>[data-testid=stLayoutWrapper]:has(> [class*="-notice"]) { position: sticky; bottom: 8px;
  z-index: 10; background: light-dark(#fff, #12151b); border-radius: 6px }</style>"""


@dataclass(frozen=True)
class Question:
    """A prediction to make before the answer is shown; `answer` is the index of the right option, computed."""

    text: str
    options: tuple[str, ...]
    answer: int
    reasons: tuple[str, ...]  # one for each option: why it is right, or why it is wrong

    def __post_init__(self) -> None:
        if len(self.reasons) != len(self.options) or not 0 <= self.answer < len(self.options):
            raise ValueError(f"{len(self.options)} options need as many reasons and an answer among them")


@dataclass(frozen=True)
class Move:
    """One thing to try: the session's values it sets, by widget key, and what to notice then."""

    label: str
    values: Mapping[str, Any]
    notice: str


def predict(page: str, question: Question) -> bool:
    """Draw a question; returns whether its answer may be seen. The verdict and its reason follow the pick."""
    if guide_is_hidden():
        return True
    with st.container(border=True, gap="small", key=f"{page}:question"):
        paragraph(f"**Predict first.** {question.text}")
        option = st.pills("Your prediction", (*question.options, SHOW), key=f"{page}:predict",
                          label_visibility="collapsed", **BOUND)
        if option is None:
            return False
        index = question.answer if option == SHOW else question.options.index(option)
        verdict = (f"The answer: **{question.options[index]}**." if option == SHOW else
                   ":green[Right.]" if index == question.answer else ":orange[Not quite.]")
        paragraph(f"{verdict} {question.reasons[index]}")
        return True


def answered(page: str) -> bool:
    """Whether the answer of a page's question may be seen, also before the question is drawn."""
    key = f"{page}:predict"
    picked = st.session_state[key] if key in st.session_state else st.query_params.get(key)
    return guide_is_hidden() or picked is not None


def try_this(page: str, moves: Sequence[Move]) -> None:
    """Draw a button for each move; below, what to notice after the last one, while the controls are as it set them."""
    if guide_is_hidden():
        return
    st.markdown("**Try this**")
    with st.container(horizontal=True, gap="small"):
        for index, move in enumerate(moves):
            st.button(move.label, key=f"{page}:try:{index}", on_click=_set_controls, args=(page, move),
                      help=terms_help(move.label))
    tried: Move | None = st.session_state.get(f"{page}:tried")
    if tried is not None and all(st.session_state.get(name, value) == value for name, value in tried.values.items()):
        drawn = {move.label: move for move in moves}.get(tried.label, tried)  # with the numbers of now
        with st.container(border=True, gap=None, key=f"{page}:notice"):
            paragraph(f"**Notice:** {drawn.notice} [To the picture](#{_anchor(page)})")
        st.html(NOTICE_STYLE)


def _anchor(page: str) -> str:
    """The name that Streamlit gives the heading of a page."""
    current = st.session_state.get(CURRENT)
    return "-".join(re.findall(r"\w+", step_of(current).title.lower())) if current else page


def _set_controls(page: str, move: Move) -> None:
    st.session_state.update(move.values)
    st.session_state[f"{page}:tried"] = move
