"""What a page of the path offers a learner: a question to answer first, and moves that set the controls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.draw.glossary import terms_help
from dashboard.runtime.lesson_state import guide_is_hidden
from dashboard.runtime.link_values import BOUND
from dashboard.widgets.panels import paragraph

Given = TypeVar("Given")
Drawn = TypeVar("Drawn")
SHOW = "Show me"  # the last option of every question: the answer without a prediction
TRIED = ":tried"  # how the session key of a page's last move ends
# What to notice stays at the bottom of the window while the reader looks at the picture further up; in a small window,
# where it would cover the picture, it stays below the buttons.
NOTICE_STYLE = """<style>
[class*="-notice"] { flex-wrap: nowrap; padding: 8px 8px 8px 16px; > :first-child { flex: 1; min-width: 0 } }
@media (min-width: 641px) and (min-height: 600px) {
[data-testid=stLayoutWrapper]:has(> [class*="-notice"]) { position: sticky; bottom: 0; z-index: 10;
  background: light-dark(#fff, #12151b); border-radius: 6px }}</style>"""


@dataclass(frozen=True)
class Question:
    """A prediction to make before the answer is shown; `answer` is the index of the right option, computed."""

    text: str
    options: tuple[str, ...]
    answer: int
    reasons: tuple[str, ...]  # one for each option: why it is right, or why it is wrong

    def __post_init__(self) -> None:
        if len(self.reasons) != len(self.options) or not 0 <= self.answer < len(self.options):
            raise ValueError(
                f"{len(self.options)} options need as many reasons and an answer among them"
            )


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
        option = st.pills(
            "Your prediction",
            (*question.options, SHOW),
            key=f"{page}:predict",
            label_visibility="collapsed",
            **BOUND,
        )
        if option is None:
            return False
        index = question.answer if option == SHOW else question.options.index(option)
        verdict = (
            f"The answer: **{question.options[index]}**."
            if option == SHOW
            else ":green[Right.]"
            if index == question.answer
            else ":orange[Not quite.]"
        )
        paragraph(f"{verdict} {question.reasons[index]}")
        return True


def answered(page: str) -> bool:
    """Whether the answer of a page's question may be seen, also before the question is drawn."""
    key = f"{page}:predict"
    picked = st.session_state[key] if key in st.session_state else st.query_params.get(key)
    return guide_is_hidden() or picked is not None


def picture(page: str) -> DeltaGenerator:
    """A container for the picture that the moves of a page change; "To the picture" leads to it."""
    with st.container(gap=None):
        st.html(f'<div id="{_picture_id(page)}" style="scroll-margin-top: 60px"></div>')
        return st.container()


def in_picture(page: str, show: Callable[[Given], Drawn]) -> Callable[[Given], Drawn]:
    """What `show` draws, in the page's picture."""

    def draw(given: Given) -> Drawn:
        with picture(page):
            return show(given)

    return draw


def try_this(page: str, moves: Sequence[Move]) -> None:
    """Draw a button for each move; below, what to notice after the last one, while the controls are as it set them.

    The notice leads to the page's `picture`.
    """
    if guide_is_hidden():
        return
    st.markdown("**Try this**")
    with st.container(horizontal=True, gap="small"):
        for index, move in enumerate(moves):
            st.button(
                move.label,
                key=f"{page}:try:{index}",
                on_click=_set_controls,
                args=(page, move),
                help=terms_help(move.label),
            )
    tried: Move | None = st.session_state.get(page + TRIED)
    if tried is not None and all(
        st.session_state.get(name, value) == value for name, value in tried.values.items()
    ):
        drawn = {move.label: move for move in moves}.get(
            tried.label, tried
        )  # with the numbers of now
        with st.container(
            border=True,
            horizontal=True,
            vertical_alignment="top",
            gap="small",
            key=f"{page}:notice",
        ):
            paragraph(
                f"**Notice:** {drawn.notice} [To the picture](#{_picture_id(page)})",
                width="stretch",
            )
            st.button(
                "",
                icon=":material/close:",
                type="tertiary",
                key=f"{page}:close",
                help="Close this notice",
                on_click=close_notices,
            )
        st.html(NOTICE_STYLE)


def close_notices() -> None:
    """Forget what was tried last, on every page."""
    for name in [name for name in map(str, st.session_state) if name.endswith(TRIED)]:
        del st.session_state[name]


def _picture_id(page: str) -> str:
    return f"{page}-picture"


def _set_controls(page: str, move: Move) -> None:
    st.session_state.update(move.values)
    st.session_state[page + TRIED] = move
