"""The page's parts: maps of every score on the same q and k, one score's equation, and the table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import streamlit as st
import torch

from core.attention import AXES, Choice, entry
from dashboard.charts.palette import Ink
from dashboard.components.multiples import Tile, multiples
from dashboard.components.multiples.payload import MOST_TILES
from dashboard.runtime.cache import cached
from dashboard.runtime.rendering import render_before_widgets
from dashboard.runtime.tokens import labels, tokenize
from dashboard.views.scores import measure, state, words
from dashboard.views.scores.measure import Met
from dashboard.views.scores.state import key
from dashboard.widgets.panels import entries_panel, fact, source_panel, theme, title
from dashboard.widgets.params import BOUND, params_in_session, params_of
from dashboard.widgets.table import table

MAP = 260  # px, the tallest a map may be


@dataclass(frozen=True)
class Asked:
    """What the controls say; without tokens there is nothing to draw."""

    tokens: tuple[str, ...]
    dims: int
    stretch: float
    show: str
    choices: tuple[Choice, ...]
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return labels(self.tokens)


def opening() -> None:
    """Title, and the scores' own parameters: outside the fragment, so that a slider does not send them again."""
    with st.container(horizontal=True, vertical_alignment="bottom", horizontal_alignment="distribute"):
        with st.container(width=700):
            title("Scores", "The same queries meet the same keys. Only the rule by which they meet changes.")
        with st.popover("Parameters", icon=":material/tune:", help="What some scores have of their own"):
            for item in AXES["score"]:
                if item.params:
                    st.markdown(f"**{item.name}**")
                params_of(item, key=key("params"))


def controls() -> Asked:
    """The sentence, the size of a head, how long the queries are, and what the cells show."""
    grid = st.grid(6, min_column_width=120)
    with grid.cell(column_span=2):
        st.text_input("Tokens", state.SENTENCE, key=key("tokens"), **BOUND)
    with grid:
        st.select_slider("Head size D", state.SIZES, state.SIZE, key=key("dims"), **BOUND)
        st.select_slider("Query length ×", state.STRETCHES, 1.0, key=key("stretch"), **BOUND,
                         help="Every query is made this many times as long before it meets a key.")
        st.selectbox("Cells show", list(state.SHOWS), format_func=state.SHOWS.get, key=key("show"), **BOUND,
                     help="Weights after the softmax, or scores before it: on one scale, or each on its own.")
    return settings()


def settings() -> Asked:
    """What the controls say, from the session."""
    cut = tokenize(state.get("tokens", state.SENTENCE) or "")
    notes = cut.notes
    if len(cut.tokens) > state.MOST_TOKENS:
        notes += (f"The text has {len(cut.tokens)} tokens; the first {state.MOST_TOKENS} are used.",)
    choices = tuple(Choice.of(item.key, **params_in_session(item, key=key("params"))) for item in AXES["score"])
    return Asked(cut.tokens[:state.MOST_TOKENS], state.get("dims", state.SIZE), state.get("stretch", 1.0),
                 state.get("show") or "weights", choices, notes)


@st.fragment
def explore() -> None:
    """All that the controls change, which they redraw alone."""
    asked, drawn = render_before_widgets(key("ready"), settings, controls, show)
    st.session_state[key("asked")] = asked
    if drawn is not None:
        equation(*drawn, asked)


def show(asked: Asked) -> tuple[list[Met], tuple[int, int]] | None:
    """The picture, the sentence and the conditions; returns the numbers and the cell that is picked."""
    if not asked.tokens:
        st.warning("There is no token here. Type a word, or a sentence: each word becomes one token.")
        return None
    met = [cached(measure.meet, choice, asked.tokens, asked.dims, state.SEED, asked.stretch)
           for choice in asked.choices]
    row = telling_row(met)
    picked = picture(met, asked, row)
    fact(words.fact(met, asked.names, picked[0], asked.stretch))
    st.caption(words.conditions(met, asked.dims, asked.tokens, asked.notes))
    return met, picked


def telling_row(met: list[Met]) -> int:
    """The query on which the scores differ most."""
    weights = np.stack([each.weights for each in met])
    return int(np.ptp(weights, axis=0).sum(1).argmax())


def picture(met: list[Met], asked: Asked, row: int) -> tuple[int, int]:
    """A map a score under one crosshair; the cell that is pinned, or else the row's favourite key."""
    column, pin = words.favourite(met, row), None
    largest = max(float(np.abs(each.scores).max()) for each in met)
    for first in range(0, len(met), MOST_TILES):
        tiles = [tile(each, first + at, asked.show, largest) for at, each in enumerate(met[first:first + MOST_TILES])]
        pin = multiples(tiles, asked.names, key=key(f"maps{first}"), query=row, column=column, height=MAP,
                        signed=asked.show != "weights", noun="weight" if asked.show == "weights" else "score",
                        link=key("maps"), fact=words.fact(met, asked.names, row, asked.stretch).replace("*", ""))
    return pin or (row, column)


def tile(met: Met, place: int, show: str, largest: float) -> Tile:
    if show == "weights":
        return Tile(entry("score", met.key).name, words.note(met, show), met.weights, marker=place)
    own = float(np.abs(met.scores).max()) if show == "own" else largest
    return Tile(entry("score", met.key).name, words.note(met, show), met.scores, marker=place,
                span=(-(own or 1.0), own or 1.0))


def equation(met: list[Met], picked: tuple[int, int], asked: Asked) -> None:
    """One score's rule, and its number at the picked query and key."""
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        chosen = st.selectbox("Equation of", list(state.NAMES), list(state.NAMES).index(state.USUAL), width=200,
                              format_func=state.NAMES.get, key=key("equation"), label_visibility="collapsed",
                              **BOUND) or state.USUAL
        each = next(each for each in met if each.key == chosen)
        parts = words.equation(each, asked.names, *picked, Ink.of(theme()).pick)
        st.markdown(r"$\quad$ ".join(rf"$\displaystyle {part}$ " for part in parts), width="content")


@st.fragment
def costs() -> None:
    """What each learns, takes and can express; measured when the page is first seen, and again on request."""
    st.markdown("## What each costs and what it can say")
    again = st.session_state.get(key("again"), 0)
    choices = tuple(Choice(item.key) for item in AXES["score"])
    dims = st.session_state.get(key("dims"), state.SIZE)
    with st.spinner("Measuring each score, about a second", show_time=False):
        met = [cached(measure.meet, choice, ("a",), dims, state.SEED, 1.0) for choice in choices]
        found = [cached(measure.character, choice, state.SEED) for choice in choices]
        timed = cached(measure.times, choices, again)
    table(words.HEAD, words.rows(met, found, timed), caption="Cost and character of each score", left=2)
    fact(words.table_fact(met, found, timed))
    st.caption(words.table_note(torch.get_num_threads()))
    st.button("Measure again", key=key("measure"), icon=":material/timer:", on_click=measure_again)


def measure_again() -> None:
    st.session_state[key("again")] = st.session_state.get(key("again"), 0) + 1


def sources() -> None:
    """Where each score is from, and the class that just ran."""
    panel = st.expander("Equations, papers and the code that just ran", on_change="rerun", key=key("sources"))
    if not panel.open:
        return
    asked: Asked = st.session_state[key("asked")]
    name = st.session_state.get(key("equation")) or state.USUAL
    chosen = next(choice for choice in asked.choices if choice.key == name)
    with panel:
        source_panel(type(measure.tried(chosen, state.SEED)))
        st.markdown("The same layer in a notebook:")
        st.code(words.snippet(chosen, asked.dims), language="python")
        entries_panel(AXES["score"])
