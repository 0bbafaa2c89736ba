"""The page's parts: the same scores as bars through each normalizer, one equation, the table, and what a score buys."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import streamlit as st

from core.attention import AXES, Choice, Entry, Param, entry
from core.entries import Value
from dashboard.charts.lines import Curve, curve_table, fixed_chart
from dashboard.charts.palette import Ink
from dashboard.runtime.cache import cached
from dashboard.runtime.rendering import render_before_widgets
from dashboard.views.normalizers import charts, compute, controls, text
from dashboard.views.normalizers.compute import Weighed
from dashboard.views.normalizers.controls import Scores, ScoresError, key
from dashboard.widgets.panels import entries_panel, fact, next_page, plain, source_panel, theme, title
from dashboard.widgets.params import BOUND, param_widget, params_in_session, params_of
from dashboard.widgets.table import table

TEMPERATURE = "temperature"


def page() -> None:
    """Draw the page from top to bottom."""
    opening()
    explore()
    sources()
    next_page("normalizers")


@dataclass(frozen=True)
class Asked:
    """What the controls say: the row of scores and its keys' names, and each normalizer with its parameters."""

    scores: Scores
    names: tuple[str, ...]
    own: bool
    spread: float
    temperature: float
    choices: tuple[Choice, ...]
    picked: int = 0


def opening() -> None:
    """Title, and the normalizers' own parameters: outside the fragment, so that a slider does not send them again."""
    st.html(charts.STYLE)
    with st.container(horizontal=True, vertical_alignment="bottom", horizontal_alignment="distribute"):
        with st.container(width=700):
            title("Normalizers", "The same scores become weights by each rule. See who gets nothing, and what goes to "
                                 "no key.")
        with st.popover("Parameters", icon=":material/tune:", help="What some normalizers have of their own"):
            for item in AXES["normalizer"]:
                elsewhere = (TEMPERATURE, *(name for owner, name in controls.SHOWN if owner == item.key))
                if any(param.key not in elsewhere for param in item.params):
                    st.markdown(f"**{item.name}**")
                params_of(item, key=key("params"), shown_elsewhere=elsewhere)


def draw_controls() -> Asked | None:
    """Scores, their spread, the temperature and the key; None, with the reason said, when scores cannot be read."""
    grid = st.grid(6, min_column_width=120)
    with grid.cell(column_span=2):
        st.text_input("Scores of one query", controls.write(compute.example()[2]), key=key("scores"), **BOUND,
                      help=f"Numbers with commas between them; {controls.MASKED} for a masked key.")
    with grid:
        st.select_slider("Spread ×", controls.SPREADS, 1.0, key=key("spread"), **BOUND,
                         help="Every score is multiplied by this first.")
        st.select_slider("Temperature τ", controls.TEMPERATURES, 1.0, key=key("temperature"), **BOUND)
        for where, start in controls.SHOWN.items():
            item, param = parameter(*where)
            param_widget(replace(param, default=start, name=f"{item.name} b"), key=key(item.key))
    try:
        asked = read()
    except ScoresError as error:
        st.error(plain(str(error)))
        return None
    return replace(asked, picked=pick_key(asked))


def settings() -> Asked | None:
    """What the controls say, from the session; None when scores cannot be read."""
    try:
        return read()
    except ScoresError:
        return None


def read() -> Asked:
    """The same; ScoresError when scores cannot be read."""
    tokens, _, usual = compute.example()
    scores = controls.parse(controls.get("scores", controls.write(usual)) or "")
    names = tokens if len(scores) == len(tokens) else tuple(f"key {at}" for at in range(len(scores)))
    temperature, name = controls.get("temperature", 1.0), controls.get("key")
    choices = tuple(chosen(item, temperature) for item in AXES["normalizer"])
    picked = names.index(name) if name in names else usual_key(scores)
    return Asked(scores, names, scores != usual, controls.get("spread", 1.0), temperature, choices, picked)


def parameter(axis_key: str, name: str) -> tuple[Entry, Param]:
    item = entry("normalizer", axis_key)
    return item, next(param for param in item.params if param.key == name)


def chosen(item: Entry, temperature: float) -> Choice:
    """The entry with its own widgets' values, and those that stand in the row: the temperature, where it takes one."""
    row: dict[str, Value] = {name: controls.get(owner, start) for (owner, name), start in controls.SHOWN.items()
                             if owner == item.key}
    if any(param.key == TEMPERATURE for param in item.params):
        row[TEMPERATURE] = temperature
    return Choice.of(item.key, **(params_in_session(item, key=key("params")) | row))


@st.fragment
def explore() -> None:
    """All that the controls change, which they redraw alone."""
    asked, found = render_before_widgets(key("ready"), settings, draw_controls, show)
    if asked is None:
        return
    st.session_state[key("asked")] = asked
    equation(asked, found, asked.picked)
    table(text.HEAD, text.rows(found), caption="What each normalizer's weights measure", markers=False)
    bought(asked, asked.picked)


def show(asked: Asked | None) -> list[Weighed]:
    """The bars, the sentence and the conditions; returns the numbers."""
    if asked is None:
        return []
    found = [cached(compute.weigh, choice, asked.scores, asked.spread) for choice in asked.choices]
    picture(asked, found, asked.picked)
    fact(text.fact(found, asked.scores))
    st.caption(text.conditions(asked.own, compute.example()[1], asked.spread, asked.temperature))
    return found


def usual_key(scores: Scores) -> int:
    """The largest score."""
    return max(range(len(scores)), key=lambda at: -math.inf if scores[at] is None else scores[at])


def pick_key(asked: Asked) -> int:
    """The key whose weight the equation and the curves follow; the largest score unless picked."""
    usual = usual_key(asked.scores)
    quiet = {"key": key("key"), "label_visibility": "collapsed", "format_func": plain, **BOUND}
    if len(asked.names) <= charts.MOST_NAMED:
        name = st.pills("Key", asked.names, default=asked.names[usual], required=True, **quiet)
    else:
        name = st.selectbox("Key", asked.names, usual, width=260, **quiet)
    return asked.names.index(name) if name in asked.names else usual


def picture(asked: Asked, found: list[Weighed], picked: int) -> None:
    """What goes in, then a figure a normalizer."""
    seen = [score is not None for score in asked.scores]
    spread = tuple(None if score is None else score * asked.spread for score in asked.scores)
    tiles = [charts.scores_tile("Scores", "what goes in", spread, asked.names, picked, theme())]
    tiles += [charts.weights_tile(entry("normalizer", each.key).name, entry("normalizer", each.key).short, each.weights,
                                seen, asked.names, picked, each.kept, text.foot(each)) for each in found]
    st.html(charts.figures(tiles, theme()))


def equation(asked: Asked, found: list[Weighed], picked: int) -> None:
    """One normalizer's rule, and the picked key's weight with its numbers."""
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        which = st.selectbox("Equation of", list(controls.NAMES), list(controls.NAMES).index(controls.USUAL), width=170,
                             format_func=controls.NAMES.get, key=key("equation"), label_visibility="collapsed",
                             **BOUND) or controls.USUAL
        each = next(each for each in found if each.key == which)
        parts = text.equation(each, asked.names, picked, Ink.of(theme()).pick)
        st.markdown(r"$\quad$ ".join(rf"$\displaystyle {part}$ " for part in parts), width="content")


def bought(asked: Asked, picked: int) -> None:
    """What raising one score buys, as curves of up to four normalizers."""
    st.markdown("## What a higher score buys")
    with st.popover("Curves", icon=":material/show_chart:"):
        names = st.multiselect(f"Up to {controls.MOST_CURVES} normalizers", list(controls.NAMES), list(controls.CURVES),
                               format_func=controls.NAMES.get, max_selections=controls.MOST_CURVES, key=key("curves"),
                               **BOUND)
    series = [Curve(entry("normalizer", choice.key).name,
                    cached(compute.sweep, choice, asked.scores, asked.spread, picked))
              for choice in asked.choices if choice.key in names]
    if not series:
        st.info("Pick a normalizer to see its curve.", icon=":material/show_chart:")
        return
    own = asked.scores[picked]
    rule = None if own is None or abs(own * asked.spread) > compute.SWEEP[-1] else own * asked.spread
    drawn = fixed_chart([curve.name for curve in series], "its score, while the others stay",
                        float(compute.SWEEP[0]), float(compute.SWEEP[-1]), Ink.of(theme()))
    st.markdown(f"**Weight of {plain(asked.names[picked])}**")
    st.vega_lite_chart(curve_table(series, rule), drawn, theme=None, key=key("chart"),
                       alt="The weight of one key as its score rises")


def sources() -> None:
    """Where each normalizer is from, and the class that just ran."""
    panel = st.expander("Equations, papers and the code that just ran", on_change="rerun", key=key("sources"))
    if not panel.open:
        return
    asked: Asked | None = st.session_state.get(key("asked"))
    if asked is None:
        return
    name = st.session_state.get(key("equation")) or controls.USUAL
    chosen = next(choice for choice in asked.choices if choice.key == name)
    row = tuple(None if score is None else score * asked.spread for score in asked.scores)
    with panel:
        source_panel(type(compute.normalizer_of(chosen)))
        st.markdown("The same in a notebook:")
        st.code(text.snippet(chosen, row), language="python")
        entries_panel(AXES["normalizer"])
