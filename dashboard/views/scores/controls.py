"""The page's controls: the sentence, the size of a head, the queries' length, and what the cells show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import streamlit as st

from core.attention import AXES, Choice
from core.tokens import SENTENCE, labels, tokenize
from dashboard.widgets.params import BOUND, params_in_session

SEED = 126
MAX_TOKENS = 64
SIZES = [2, 4, 8, 16, 32, 64, 128]
SIZE = 16
STRETCHES = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0]
SHOWS = {"weights": "Weights", "scores": "Scores", "own": "Own scales"}
BASELINE = "scaled_dot"


@dataclass(frozen=True)
class Controls:
    """The values of the controls; without tokens there is nothing to draw."""

    tokens: tuple[str, ...]
    dims: int
    stretch: float
    show: str
    choices: tuple[Choice, ...]
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return labels(self.tokens)


key = "scores:{}".format  # a widget's key, which is also its name in the link


def get(name: str, default: Any = None) -> Any:
    return st.session_state.get(key(name), default)


def draw_controls() -> Controls:
    """Draw the row of controls and read it."""
    grid = st.grid(6, min_column_width=120)
    with grid.cell(column_span=2):
        st.text_input(
            "Sentence", SENTENCE, key=key("tokens"), help="Each word becomes one token.", **BOUND
        )
    with grid:
        st.select_slider(
            "Head size D",
            SIZES,
            SIZE,
            key=key("dims"),
            **BOUND,
            help="How many numbers a query and a key have",
        )
        st.select_slider(
            "Query length ×",
            STRETCHES,
            1.0,
            key=key("stretch"),
            **BOUND,
            help="Each query is multiplied by this number before it is scored.",
        )
        st.selectbox(
            "Cells show",
            list(SHOWS),
            format_func=SHOWS.__getitem__,
            key=key("show"),
            **BOUND,
            help="Weights after the softmax, or scores before it: all maps on one scale, or each on its own",
        )
    return read_controls()


def read_controls() -> Controls:
    """Read the controls from the session, which also works before they are drawn."""
    cut = tokenize(get("tokens", SENTENCE) or "")
    notes = cut.notes
    if len(cut.tokens) > MAX_TOKENS:
        notes += (f"The text has {len(cut.tokens)} tokens; the first {MAX_TOKENS} are used.",)
    choices = tuple(
        Choice.of(item.key, **params_in_session(item, key=key("params"))) for item in AXES["score"]
    )
    return Controls(
        cut.tokens[:MAX_TOKENS],
        get("dims", SIZE),
        get("stretch", 1.0),
        get("show") or "weights",
        choices,
        notes,
    )
