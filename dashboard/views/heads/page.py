"""The page: controls, the maps of one idea (heads split, keys shared, maps subtracted), its table, and the sources."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from typing import Any

import numpy as np
import streamlit as st

from core.analysis import overlap
from core.attention import ConfigError, entry
from core.attention.projections import Differential, GroupedQuery, Latent, MultiHead
from dashboard.charts.numbers import number
from dashboard.components.multiples import MARKS, MINUS, Tile, multiples
from dashboard.runtime.cache import cached
from dashboard.runtime.rendering import render_before_widgets
from dashboard.views.heads import compute, text
from dashboard.views.heads.charts import cache_bars, overlap_square
from dashboard.views.heads.compute import Split
from dashboard.views.heads.controls import MAX_HEADS, Controls, draw_controls, key, link_errors, read_controls
from dashboard.views.heads.text import Cell
from dashboard.widgets.panels import details, entries_panel, fact, next_page, plain, source_panel, theme, title
from dashboard.widgets.table import table

SMALL, LARGE = 190, 250  # pixels of a map: of one head beside many, and of three maps in a row
ONE = len(MARKS) - 1  # the marker of a map that is no single head of many
ENTRIES = {"split": ("multi_head",), "shared": ("grouped_query", "multi_query", "latent"),
           "subtract": ("differential",)}
SOURCES = {"split": (MultiHead,), "shared": (GroupedQuery, Latent), "subtract": (Differential,)}
SPLIT_LATEX = r"A_h = \mathrm{softmax}\!\left(\frac{q_h k_h^\top}{\sqrt{D}}\right),\quad D = C / H"
SHARED_LATEX = r"2HD,\quad 2GD,\quad 2D,\quad R + R_\mathrm{rope}"
SUBTRACT_LATEX = r"w_{ij} = (A_1 - \lambda A_2)_{ij}"


def page() -> None:
    """Draw the page from top to bottom."""
    for sentence in link_errors():
        st.warning(sentence)
    explore()
    next_page("heads")


@st.fragment
def explore() -> None:
    """Draw title, controls, maps and sentence, which rerun alone."""
    controls, draw_rest = render_before_widgets(key("ready"), read_controls, header, show)
    if draw_rest is not None:
        draw_rest()
    if controls.tokens:
        details("Equation, paper and the code that just ran", partial(sources, controls), key("source"))


def header() -> Controls:
    """Draw the title with the controls below it and a popover beside it; returns the controls."""
    with st.container(horizontal=True, vertical_alignment="bottom", horizontal_alignment="distribute"):
        with st.container(width=700):
            title("Heads", "The same width as one head or many, with keys of their own, shared, or subtracted.")
        corner = st.container(width="content")
    return draw_controls(corner)


def show(controls: Controls) -> Callable[[], None] | None:
    """Draw the maps and the sentence; returns a function that draws the rest, after the controls."""
    if not controls.tokens:
        st.warning("There is no word here. Type a sentence: each word becomes one token.")
        return None
    try:
        return {"split": split, "shared": shared, "subtract": subtract}[controls.idea](controls)
    except ConfigError as error:
        st.error(plain(str(error)))
        return None


def split(controls: Controls) -> Callable[[], None]:
    """Draw one head and many side by side."""
    one, many = (cached(compute.split, controls.tokens, controls.d_model, heads, controls.seed)
                 for heads in (1, controls.heads))
    cell = split_maps(controls, one, many)
    fact(text.split_fact(controls, one, many, cell))
    return partial(below_split, controls, many)


def split_maps(controls: Controls, one: Split, many: Split) -> Cell:
    """Draw the maps under one crosshair; returns the pinned cell, or else one head's largest."""
    cell = largest_word_cell(one, controls.tokens)
    options: dict[str, Any] = {"query": cell[0], "column": cell[1], "link": key("maps"), "height": SMALL}
    single = Tile("One head", text.map_note(one, 0), one.weights[0], marker=ONE)
    if controls.heads == 1:
        return multiples([single], controls.tokens, key=key("one"), **options) or cell
    tiles = [Tile(f"Head {head}", text.map_note(many, head), weights) for head, weights in enumerate(many.weights)]
    options["fact"] = (f"{controls.heads} heads of {controls.head_dim} dimensions, "
                       f"beside one head of {controls.d_model}")
    left, right = st.columns([1, 3], gap="small")
    with left:
        multiples([single], controls.tokens, key=key("one"), reads="query → key", **options)
    with right:
        return multiples(tiles, controls.tokens, key=key("many"), **options) or cell


def below_split(controls: Controls, many: Split) -> None:
    """Draw the equation, the overlap of heads, and every split as a row."""
    equation(SPLIT_LATEX, f"= {controls.d_model} / {controls.heads} = {controls.head_dim}")
    left, right = st.columns([0.34, 0.66], gap="medium")
    with left:
        st.html(overlap_square(overlap(many.weights), theme()))
    with right:
        counts = sorted({heads for heads in (1, 2, 4, MAX_HEADS, controls.heads) if controls.d_model % heads == 0})
        splits = [cached(compute.split, controls.tokens, controls.d_model, heads, controls.seed) for heads in counts]
        table(text.SPLIT_HEAD, text.split_rows(controls, splits), markers=False,
              caption="The same layer as one head and as many")
        st.caption(text.split_conditions(controls))


def largest_word_cell(one: Split, tokens: Sequence[str]) -> Cell:
    """One head's largest weight between two different words, which does not depend on the number of heads."""
    words = np.array([any(sign.isalnum() for sign in token) for token in tokens])
    pairs = words[:, None] & words & ~np.eye(len(words), dtype=bool)
    weights = np.where(pairs, one.weights[0], -1.0) if pairs.any() else one.weights[0]
    row, column = divmod(int(weights.argmax()), weights.shape[1])
    return row, column


def shared(controls: Controls) -> Callable[[], None]:
    """Draw the same head under four projections."""
    configs = compute.projections(controls.d_model, controls.heads, controls.kv_heads, controls.latent)
    caches = [cached(compute.cache_size, config, controls.tokens, controls.seed, controls.length) for config in configs]
    tiles = [Tile(text.projection_name(each), f"{each.numbers} numbers a token", each.weights[controls.head])
             for each in caches]
    query = int(caches[0].weights[controls.head].max(-1).argmax())  # the one with the largest weight
    multiples(tiles, controls.tokens, key=key("shared"), height=SMALL, query=query, link=key("maps"),
              fact=f"Head {controls.head} of {controls.heads} under four ways to hold keys and values")
    fact(text.shared_fact(controls, caches))
    return partial(below_shared, controls, caches)


def below_shared(controls: Controls, caches: Sequence[compute.CacheSize]) -> None:
    """Draw the equation, and the cache of each projection as bars and as a table."""
    equation(SHARED_LATEX, f"= {',   '.join(f'{each.numbers:,}' for each in caches)} numbers a token")
    left, right = st.columns([0.36, 0.64], gap="medium")
    left.html(cache_bars(controls.length, caches, theme()))
    with right:
        table(text.SHARED_HEAD, text.shared_rows(caches),
              caption="What is kept of a token under four ways to hold keys and values")
    st.caption(text.shared_conditions(controls, caches))


def subtract(controls: Controls) -> Callable[[], None]:
    """Draw a differential head's two maps and their difference."""
    maps = cached(compute.two_maps, controls.tokens, controls.d_model, controls.heads, controls.seed, controls.head,
                  controls.depth)
    row, column = divmod(int(maps.difference.argmax()), maps.difference.shape[1])
    tiles = [Tile("A₁", "the head's first query and key", maps.first),
             Tile("λA₂", f"λ = {number(maps.weight)} times its second", maps.weight * maps.second),
             Tile(f"A₁ {MINUS} λA₂", "what meets the values", maps.difference)]
    pin = multiples(tiles, controls.tokens, key=key("subtract"), height=LARGE, query=row, column=column,
                    link=key("maps"),
                    fact=f"Head {controls.head} of {controls.heads}: two maps and their difference")
    cell = pin or (row, column)
    fact(text.subtract_fact(controls, maps, cell))
    return partial(below_subtract, controls, maps, cell)


def below_subtract(controls: Controls, maps: compute.TwoMaps, cell: Cell) -> None:
    """Draw the picked cell as an equation, and the conditions."""
    first, second, result = (number(map_[cell]) for map_ in (maps.first, maps.second, maps.difference))
    equation(SUBTRACT_LATEX, f"= {first} {MINUS} {number(maps.weight)} · {second} = {result}")
    st.caption(text.subtract_conditions(controls, maps))


def equation(symbols: str, numbers: str) -> None:
    """Draw an equation in symbols, and its numbers as plain text: typesetting them takes a rerun too long."""
    with st.container(horizontal=True, horizontal_alignment="center", vertical_alignment="center", gap="xsmall"):
        st.markdown(rf"$\displaystyle {symbols}$", width="content")
        html = f'<span style="font:1.21em KaTeX_Main,serif;white-space:pre-wrap">{escape(numbers)}</span>'
        st.html(html, width="content")


def sources(controls: Controls) -> None:
    """Draw equation, meaning and paper, and the classes that just ran."""
    entries_panel(entry("projection", name) for name in ENTRIES[controls.idea])
    for built in SOURCES[controls.idea]:
        source_panel(built)
