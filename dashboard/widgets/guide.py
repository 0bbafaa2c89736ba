"""What a page of the path offers a learner: a question to answer first, and moves that set the controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from dashboard.widgets.params import BOUND


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
    """Draw a question; returns whether it was answered rightly. The verdict and its reason follow the pick."""
    with st.container(border=True, gap="small"):
        st.markdown(f"**Predict first.** {question.text}")
        option = st.pills("Your prediction", question.options, key=f"{page}:predict", label_visibility="collapsed",
                          **BOUND)
        if option is None:
            return False
        index = question.options.index(option)
        right = index == question.answer
        st.markdown(f"{':green[Right.]' if right else ':orange[Not quite.]'} {question.reasons[index]}")
        return right


def try_this(page: str, moves: Sequence[Move]) -> None:
    """Draw a button for each move; the last one pressed says below what to notice."""
    st.markdown("**Try this**")
    with st.container(horizontal=True, gap="small"):
        for index, move in enumerate(moves):
            st.button(move.label, key=f"{page}:try:{index}", on_click=_set_controls, args=(page, index, move.values))
    last = st.session_state.get(f"{page}:tried")
    if last is not None and last < len(moves):
        st.markdown(f"**Notice:** {moves[last].notice}")


def _set_controls(page: str, index: int, values: Mapping[str, Any]) -> None:
    st.session_state.update(values)
    st.session_state[f"{page}:tried"] = index
