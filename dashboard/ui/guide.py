"""What guides a reader through a page: a question before its answer, moves to try, and the link to the next page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.draw.glossary import terms_help
from dashboard.fields.link import BOUND
from dashboard.navigation import following
from dashboard.server.session import SessionValue
from dashboard.ui.panels import paragraph

# Whether the lesson round the page hides its questions and moves, beside the link to the next page; None: no lesson.
LEFT_OUT = SessionValue[bool | None](None, "lesson:left_out")


def guide_is_hidden() -> bool:
    return bool(LEFT_OUT.value)


SHOW = "Show me"  # the last option of every question: the answer without a prediction
# What to notice stays at the bottom of the window while the reader looks at the picture further up; in a small window,
# where it would cover the picture, it stays below the buttons.
NOTICE_STYLE = """<style>
[class*="-notice"] { flex-wrap: nowrap; padding: 8px 8px 8px 16px; > :first-child { flex: 1; min-width: 0 } }</style>"""
STICKY_STYLE = """<style>
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
        assert len(self.reasons) == len(self.options) > self.answer >= 0


@dataclass(frozen=True)
class Move:
    """One thing to try: the session's values it sets, by widget key, and what to notice then.

    `shows` names the controls that it sets, where the page would else fold them away.
    """

    label: str
    values: Mapping[str, Any]
    notice: str
    shows: tuple[str, ...] = ()


TRIED = SessionValue[tuple[str, Move] | None](None, "tried")  # the page and its last move


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
    return guide_is_hidden() or SessionValue(st.query_params.get(key), key).value is not None


def picture(page: str) -> DeltaGenerator:
    """A container for the picture that the moves of a page change; "To the picture" leads to it."""
    with st.container(gap=None):
        st.html(f'<div id="{page}-picture" style="scroll-margin-top: 60px"></div>')
        return st.container()


def try_this(page: str, moves: Sequence[Move], beside: DeltaGenerator | None = None) -> None:
    """Draw a button for each move; below, what to notice after the last one, while the controls are as it set them.

    The notice leads to the page's `picture`; of a picture that it would cover it stands `beside` it, in that container.
    """
    if guide_is_hidden():
        return
    st.markdown("**Try this**")
    with st.container(horizontal=True, gap="small"):
        for index, move in enumerate(moves):
            st.button(
                move.label,
                key=f"{page}:try:{index}",
                on_click=_try,
                args=(page, move),
                help=terms_help(move.label),
            )
    last, tried = TRIED.value or ("", None)
    if (
        tried
        and last == page
        and all(st.session_state.get(name, value) == value for name, value in tried.values.items())
    ):
        now = {move.label: move.notice for move in moves}  # with the numbers of now
        with (beside or st).container(
            border=True,
            horizontal=True,
            vertical_alignment="top",
            gap="small",
            key=f"{page}:notice",
        ):
            paragraph(
                f"**Notice:** {now.get(tried.label, tried.notice)} [To the picture](#{page}-picture)",
                width="stretch",
            )
            st.button(
                "",
                icon=":material/close:",
                type="tertiary",
                key=f"{page}:close",
                help="Close this notice",
                on_click=TRIED.forget,
            )
        st.html(NOTICE_STYLE if beside else NOTICE_STYLE + STICKY_STYLE)


def _try(page: str, move: Move) -> None:
    st.session_state.update(move.values)
    TRIED.value = page, move
    st.rerun()  # the whole page: of a press in a fragment the controls outside would not hear


def next_page(key: str) -> None:
    if LEFT_OUT.value is None:
        step = following(key)
        st.page_link(step.page(), label=f"Next: {step.invite}", icon=":material/arrow_forward:")
