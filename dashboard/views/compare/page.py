"""Everything on the page that follows a control, as one fragment: title, controls, maps, difference, fact, table."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape

import streamlit as st

from core.attention import AttentionConfig
from core.pretrained import PretrainedError
from dashboard.charts.numbers import number
from dashboard.charts.palette import SIGNED
from dashboard.components.multiples import MINUS, Tile, difference_map, difference_span, multiples
from dashboard.runtime.cache import cached
from dashboard.runtime.query_params import read_pair, write_pair
from dashboard.runtime.rendering import AHEAD
from dashboard.views.compare import controls, sources, text
from dashboard.views.compare.compute import Tokens, Weighed, shared_weights, telling_cell, tokens_of, weigh
from dashboard.views.compare.cost_table import table
from dashboard.views.compare.link import SEEDED, Pair, Setup
from dashboard.widgets.panels import fact, next_page, plain, theme, title

LOADED, DRAWN = "compare:loaded", "compare:drawn"
MAPS_HEIGHT = 380  # px that the maps take, and keep while the model is loaded
COUNTS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}


@dataclass(frozen=True)
class Drawn:
    """One mechanism that has a map: its place in the order, which is also its marker, and what was measured."""

    place: int
    config: AttentionConfig
    name: str
    weighed: Weighed

    @cached_property
    def tile(self) -> Tile:
        note = ("implied · " if self.weighed.implied else "") + text.note_of(self.config)
        return Tile(self.name, note, self.weighed.weights, self.weighed.mask, self.place)


@st.fragment
def board() -> None:
    """The whole page; a control reruns this alone.

    What is drawn follows from the session, so the maps go ahead of the controls over them, but for the first time.
    """
    top, view = st.container(), st.container()
    controls.take_edit()
    setup, refused = controls.load()
    setup = controls.current(setup)
    controls.keep(setup)
    names = text.names_of(setup.mechanisms)
    refused += filter(None, [st.session_state.pop("compare:refused", None)])

    def over() -> None:
        with top:
            head(setup, names, refused)

    early = DRAWN in st.session_state
    if not early:
        over()
    with view:
        tokens = read(setup)
        shown = look(setup, names, tokens) if tokens is not None else None
        if early:
            time.sleep(AHEAD)
            over()
        measure = picture(setup, names, tokens, shown) if tokens is not None and shown is not None else None
    next_page("compare")
    controls.editor(setup)
    if measure is not None:
        measure()  # a second or two, for which nothing else has to wait


def head(setup: Setup, names: Sequence[str], refused: Sequence[str]) -> None:
    """Title, what the link asked for and cannot have, and the row of controls."""
    with st.container(horizontal=True, vertical_alignment="bottom", horizontal_alignment="distribute"):
        with st.container(width=700):
            title("Side by side", lead(setup))
        controls.tokens(setup)
    for sentence in refused:
        st.warning(sentence)
    controls.row(setup, names)


def lead(setup: Setup) -> str:
    count = COUNTS[len(setup.mechanisms)]
    if setup.seeded:
        return f"Same tokens, {count} mechanisms: whatever weights they share have the same numbers."
    return f"Same queries and keys, {count} mechanisms: only the rule that turns scores into weights changes."


def read(setup: Setup) -> Tokens | None:
    """The tokens, loading the model where it is asked for; None, with what would help, when there are none."""
    try:
        if setup.seeded or st.session_state.get(LOADED, False):
            tokens = tokens_of(setup)
        else:
            with st.spinner("Loading the model, 91 MB, first time only"), st.skeleton(height=MAPS_HEIGHT):
                tokens = tokens_of(setup)
    except PretrainedError as error:
        st.info(str(error), icon=":material/edit:")
        return None
    if not setup.seeded:
        st.session_state[LOADED] = True
    if not tokens.names:
        st.info("There is no token here. Open Tokens and type a word, or a sentence.", icon=":material/edit:")
        return None
    return tokens


@dataclass(frozen=True)
class Shown:
    """What was measured of every mechanism, those of them that have a map, and the cell that is picked."""

    found: list[Weighed]
    drawn: list[Drawn]
    cell: Pair | None


def look(setup: Setup, names: Sequence[str], tokens: Tokens) -> Shown:
    """The maps themselves."""
    found = [weigh(setup, config) for config in setup.mechanisms]
    drawn = [Drawn(place, setup.mechanisms[place], names[place], each) for place, each in enumerate(found)
             if not each.said]
    return Shown(found, drawn, maps(drawn, tokens) if drawn else None)


def picture(setup: Setup, names: Sequence[str], tokens: Tokens, shown: Shown) -> Callable[[], None] | None:
    """All that stands below the maps; returns what is still to be measured, if anything."""
    measure, found, drawn, cell = None, shown.found, shown.drawn, shown.cell
    if cell is not None:
        measure = apart(setup, found, names, tokens, cell, drawn)
        sources.export(setup, names, found, tokens)
        sources.sources(setup, names, found, tokens, cell)
    for name, each in zip(names, found, strict=True):
        if each.said:
            st.error(f"**{plain(name)}** has no map here. {plain(each.said)}")
    if any(each.said for each in found) and not setup.seeded:
        st.button("Use the seeded layer", key="compare:seeded", on_click=_use_seeded)
    return measure


def _use_seeded() -> None:
    controls.put(replace(st.session_state[controls.SETUP], source=SEEDED))


def maps(drawn: Sequence[Drawn], tokens: Tokens) -> Pair:
    """The maps under one crosshair; the cell that is pinned, or else the one worth reading first."""
    size = len(tokens.names)
    asked, bad = read_pair("pin", (size, size))
    if bad and DRAWN not in st.session_state:
        st.warning(bad)  # a link's; a pin of the reader's own that a shorter sentence has lost needs no words
    st.session_state[DRAWN] = True
    row, column = telling_cell(drawn[0].weighed.weights, tokens.special)
    said = f"{len(drawn)} maps of {size} tokens; the picked query is {tokens.names[row]}"
    pin = multiples([each.tile for each in drawn], tokens.names, key="compare:maps", query=row, column=column,
                    pin=asked, link="compare", fact=said)
    write_pair("pin", pin)
    return pin or (row, column)


def apart(setup: Setup, found: Sequence[Weighed], names: Sequence[str], tokens: Tokens, cell: Pair,
          drawn: Sequence[Drawn]) -> Callable[[], None] | None:
    """Below: the difference on the left; its scale, the fact and the table on the right."""
    a, b = setup.minus
    both = a != b and not found[a].said and not found[b].said
    left, right = st.columns([0.34, 0.66], gap="medium")
    tiles = {each.place: each.tile for each in drawn}
    with left:
        if both:
            difference_map(tiles[a], tiles[b], tokens.names, key="compare:apart", query=cell[0], column=cell[1],
                           pin=None, link="compare", legend=False,
                           fact=f"{names[a]} minus {names[b]}: {number(value_of(found, a, b, cell))} there")
        else:
            st.caption("Choose two different mechanisms above to see one minus the other.")
    with right:
        if both:
            legend(difference_span(tiles[a], tiles[b]), names[a], names[b])
            fact(text.fact(setup, names, found, tokens, cell))
        measure = table(setup, names, found)
        alike, own, _ = cached(shared_weights, setup, [each.config for each in drawn])
        labels = [each.name for each in drawn]
        st.caption(f"{text.caption(setup, tokens, [each.weighed for each in drawn], labels)} "
                   f"{text.sharing(alike, own, labels, setup.seeded)}")
    return measure


def value_of(found: Sequence[Weighed], a: int, b: int, cell: Pair) -> float:
    return float(found[a].weights[cell] - found[b].weights[cell])


def legend(end: float, first: str, second: str) -> None:
    """The scale of the difference, as LOOK draws it: purple is less, green is more."""
    stops = ", ".join(SIGNED[theme()])
    st.html(f'<div style="display:flex;flex-wrap:wrap;gap:0 16px;font-size:12px;line-height:18px">'
            f'<div style="width:226px;max-width:100%"><div style="height:8px;margin-top:5px;'
            f'background:linear-gradient(to right,{stops})"></div>'
            f'<div style="display:flex;justify-content:space-between;opacity:.62"><span>{MINUS}{end:g} less</span>'
            f"<span>0</span><span>more {end:g}</span></div></div>"
            f'<span style="opacity:.62">of the weight, {escape(first)} against {escape(second)}</span></div>')
