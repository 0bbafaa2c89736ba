"""The page's parts: board and maps, the equation of one query, the stack, the batch, and where it all is from."""

from __future__ import annotations

import numpy as np
import streamlit as st

from core.attention import Choice, ConfigError, entry
from core.masks import Rule, make_mask
from dashboard.charts.palette import Ink
from dashboard.components.mask_board import mask_board
from dashboard.components.multiples import Tile, multiples
from dashboard.runtime.cache import cached
from dashboard.runtime.rendering import render_before_widgets
from dashboard.views.masks import compute, session, text
from dashboard.views.masks.compute import Look
from dashboard.views.masks.controls import Asked, controls, settings
from dashboard.views.masks.session import key
from dashboard.widgets.panels import entries_panel, fact, next_page, plain, source_panel, theme, title
from dashboard.widgets.train_with import train_with

MAP = 300  # px, the tallest a map may be
MOST_BESIDE = 24  # tokens; with more, a board in a column has cells too small to press
SIDES = (1, 2.35)  # the board and the maps beside it, which keep their names from 600 px on


def page() -> None:
    """Draw the page from top to bottom."""
    title("Masks", "A mask says who may see whom. Pick one, join two, type a rule or draw the cells yourself.")
    for sentence in session.refusals():
        st.warning(sentence)
    explore()
    next_page("masks")


@st.fragment
def explore() -> None:
    """All that the controls change, which they redraw alone."""
    asked, drawn = render_before_widgets(key("ready"), settings, controls, show)
    if drawn is None:
        return
    look, picked = drawn
    equation(look, asked, picked)
    stack(look)
    batch(asked)
    train_with("mask", asked.mask, key=key("train"))
    sources(asked.mask)


def show(asked: Asked) -> tuple[Look, tuple[int, int]] | None:
    """The picture, the sentence and the conditions; returns the numbers and the cell that is picked."""
    if not asked.tokens:
        st.warning("There is no token here. Type a word, or a sentence: each word becomes one token.")
        return None
    if asked.stale:
        st.caption(f"Drawn is the last text that could be read: {plain(text.said(asked.mask))}.")
    try:
        look = cached(compute.look, asked.mask, asked.tokens, asked.real, asked.head)
    except ConfigError as error:
        st.error(plain(str(error)))
        return None
    session.shown(look.allowed)
    picked = picture(look, asked)
    fact(text.fact(look))
    st.caption(text.conditions(asked.head, asked.notes))
    return look, picked


def picture(look: Look, asked: Asked) -> tuple[int, int]:
    """The mask as a board that can be drawn on, and the weights without it and with it; returns the cell picked."""
    row = telling_row(look)
    name, note = text.title(asked.mask), text.said(asked.mask)
    beside = len(look.names) <= MOST_BESIDE
    left, right = st.columns(SIDES, gap="small") if beside else (st.container(), st.container())
    with left:
        mask_board(look.allowed, look.names, key=key("board"), on_draw=session.take_drawing, query=row, title=name,
                   note=note, fact=f"{name}: {int(look.allowed.sum())} of {look.allowed.size} cells may be seen.")
    column = int(look.after[row].argmax())
    tiles = [Tile("Without the mask", "every key", look.before), Tile("With it", note, look.after, look.allowed)]
    with right:
        pin = multiples(tiles, look.names, key=key("maps"), query=row, column=column, height=MAP,
                        fact=text.fact(look).replace("*", ""))
    return pin or (row, column)


def telling_row(look: Look) -> int:
    """The query whose weights the mask changes most, of those that see no fewer keys than most do."""
    seen, changed = look.allowed.sum(1), np.abs(look.after - look.before).sum(1)
    least = min(max(float(np.median(seen)), 2.0), seen.max())
    return int(np.where(seen >= least, changed, -1.0).argmax())


def equation(look: Look, asked: Asked, picked: tuple[int, int]) -> None:
    """Whom the picked query may see, and one of its weights with the numbers in it."""
    parts = text.equation(look, asked.mask, *picked, Ink.of(theme()).pick)
    st.markdown(" ".join(rf"$\displaystyle {part}$" for part in parts), text_alignment="center")


def stack(look: Look) -> None:
    """How many layers of this mask until every token has met every other."""
    st.markdown("## How far a stack sees")
    most = max(1, int(look.needed.max()))
    left, right = st.columns([1, 1.2], gap="medium")
    with left:
        multiples([Tile("Layers needed", "until the query has something of the key", look.needed, look.needed > 0,
                        span=(0.0, float(most)))], look.names, key=key("stack"), noun="layers", height=MAP,
                  fact=text.stack_fact(look.needed).replace("*", ""))
        st.caption("Each layer has this same mask, and the residual path lets a token keep what it has. "
                   "Hatched: never.")
    with right:
        st.html(text.pattern_table(cached(compute.patterns, len(look.names)), len(look.names)))
    fact(text.stack_fact(look.needed))


def batch(asked: Asked) -> None:
    """The same mask on three sentences of unequal length, with their padding masked."""
    st.markdown("## A batch of unequal sentences")
    sentences = cached(compute.batch, asked.mask, asked.head)
    tiles = [Tile(" ".join(item.names[:item.real]), f"{item.real} tokens, {len(item.names) - item.real} padding",
                  item.weights, item.allowed) for item in sentences]
    places = [str(place) for place in range(len(sentences[0].names))]
    multiples(tiles, places, key=key("batch"), height=MAP,
              reads="place of the query (row) attends to → place of the key (column)",
              fact=text.batch_fact(sentences).replace("*", ""))
    fact(text.batch_fact(sentences))


def sources(mask: Choice) -> None:
    """Where each mask is from, and the rule that just ran."""
    panel = st.expander("Equation, paper and the rule that just ran", on_change="rerun", key=key("sources"))
    if not panel.open:
        return
    config = compute.config_of(mask)
    with panel:
        for choice in config.mask.walk():
            item, piece = entry("mask", choice.key), make_mask(choice, config)
            entries_panel([item])
            source_panel(item.build if isinstance(piece, Rule) else type(piece))
        st.markdown("The same layer in a notebook:")
        st.code(text.snippet(mask), language="python")
