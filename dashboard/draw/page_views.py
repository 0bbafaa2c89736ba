"""Components of one page or two: a board of a mask, dials, a sketched line, a translator, a tree of candidates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from core.tokens import token_text
from dashboard.draw.attention_view import READS
from dashboard.draw.components import draw
from dashboard.draw.drawings import HEAD, dials_svg
from dashboard.draw.maps import PictureMap
from dashboard.draw.page_pictures import add
from dashboard.draw.palette import Ink, Theme
from dashboard.draw.pictures import DrawnPicture, MapsPicture

if TYPE_CHECKING:
    from core.attention.properties import Pair

# A board of cells of a mask, switched on and off by pointer or keys.


def mask_board(
    allowed: np.ndarray,
    tokens: Sequence[str],
    *,
    key: str,
    on_draw: Callable[[], None],
    query: int | None = None,
    title: str = "",
    note: str = "",
    fact: str = "",
) -> None:
    """Draw the cells `allowed` (T, T), True = may attend, T at most 64, which a person may switch on and off.

    `query` is the row in the accent while nothing is under the pointer; `fact` is what a screen reader hears first.
    """
    import torch

    from core.attention.masks.layouts import Drawing

    text = Drawing.of(torch.from_numpy(np.ascontiguousarray(allowed))).text()
    names = [token_text(str(token)) for token in tokens]
    data = {
        "cells": text,
        "names": names,
        "query": query,
        "title": title,
        "note": note,
        "fact": fact,
        "turn": st.session_state.get(f"{key}:turn", 0),
    }

    def picture() -> MapsPicture:
        """The board as a map of 1, may attend, and 0."""
        rows, name, cells = tuple(names), title or "Mask", allowed.astype(float)
        drawn = PictureMap(name, cells, rows, rows, note, allowed, noun="may attend")
        return MapsPicture(name, (drawn,), query, READS["self"])

    def take() -> None:
        cells = dict(st.session_state[key].get("cells") or {})
        st.session_state[f"{key}:turn"] = int(cells.get("turn", 0))
        on_draw()

    add(key, picture)
    draw("mask_board", "mb", data, key=key, on_cells_change=take)


def drawing_text(key: str) -> str:
    """The board's drawing as validated text; ConfigError when the browser sent anything else."""
    from core.attention.masks.layouts import parse_drawing

    return parse_drawing(str(dict(st.session_state[key].get("cells") or {}).get("text", ""))).text()


# Rotations as dials: one for each pair of dimensions and position.


MAX_PAIRS = 8


def dials(
    pairs: Sequence[Pair],
    positions: int,
    ink: Ink,
    *,
    key: str,
    label: str,
    before: Sequence[Pair] = (),
) -> None:
    """Draw a row a pair, a column a position, hands rotating counter-clockwise, those of `before` faintly."""
    faint = {(pair.first, pair.second): pair.angle for pair in before}
    rows = [
        {
            "name": f"{pair.first}, {pair.second}",
            "angle": pair.angle,
            "circle": wavelength_text(pair.wavelength),
            "before": faint.get((pair.first, pair.second)),
        }
        for pair in pairs
    ]
    data = {
        "rows": rows,
        "positions": positions,
        "label": label,
        "hand": ink.series[0],
        "pick": ink.pick,
    }
    head = ("dimensions", "angle of a position", "wavelength")
    add(
        key,
        lambda: DrawnPicture(
            label,
            head,
            tuple(
                (row["name"], pair.angle, pair.wavelength)
                for row, pair in zip(rows, pairs, strict=True)
            ),
            dials_svg(rows, positions),
        ),
    )
    draw("position_dials", "dials", data, key=key)


def sample_pairs(pairs: Sequence[Pair], most: int = MAX_PAIRS) -> list[Pair]:
    """At most so many pairs, from the fastest to the slowest at even steps."""
    ranked = sorted(pairs, key=lambda pair: -abs(pair.angle))
    if len(ranked) <= most:
        return ranked
    return [ranked[round(at * (len(ranked) - 1) / (most - 1))] for at in range(most)]


def wavelength_text(wavelength: float) -> str:
    """A number of positions: one decimal below 100, thousands separated."""
    if math.isinf(wavelength):
        return "∞"
    return f"{wavelength:.1f}" if wavelength < 100 else f"{wavelength:,.0f}"


# A line that the reader draws before the measured one is shown.


NONE = "none"  # what is sent where nothing was drawn


def sketch(
    xs: Sequence[float],
    low: float,
    high: float,
    *,
    key: str,
    x_title: str,
    take: Callable[[list[float] | None], None],
    log_x: bool = False,
    log_y: bool = False,
    share: bool = False,
) -> None:
    """Draw empty axes over `xs`, from `low` to `high`; Show me calls `take` with a y for each x, or with None.

    A logarithmic axis needs numbers above 0; a `share` of 1 is written as a percentage.
    """

    def sent() -> None:
        guess = st.session_state[key]["guess"]
        if guess is not None:
            take(None if guess == NONE else [float(y) for y in guess])

    data = {
        "xs": [int(x) if float(x).is_integer() else float(x) for x in xs],
        "y": {"low": float(low), "high": float(high), "log": log_y},
        "logX": log_x,
        "share": share,
        "xTitle": x_title,
    }
    draw("sketch_view", "sketch", data, key=key, on_guess_change=sent)


# Two moving pictures of a translator: through one vector, and with attention back to every input word.


def translation_view(
    source: Sequence[str],
    target: Sequence[str],
    weights: Sequence[Sequence[float]],
    *,
    key: str,
    picked: int,
    on_pick: Callable[[int], None],
) -> None:
    """Draw both; `weights` (T, S) are the arrows of the right one, `picked` is the output word whose arrows are shown.

    `on_pick` is called with the index of an output word when a click or a key has picked it.
    """
    data = {
        "source": list(source),
        "target": list(target),
        "weights": [list(row) for row in weights],
        "picked": picked,
    }

    def picture() -> MapsPicture:
        """The arrows as a map, the picked output word outlined."""
        values, (rows, columns) = np.array(weights, np.float32), (tuple(target), tuple(source))
        drawn = PictureMap("Attention", values, rows, columns, noun="weight")
        about = {"text": " ".join(source)}
        title = "Attention of the translator"
        return MapsPicture(title, (drawn,), picked, READS["cross"], about=about)

    def take() -> None:
        word = st.session_state[key].get("word")
        if isinstance(word, int | float) and 0 <= word < len(target):
            on_pick(int(word))

    add(key, picture)
    draw("translation_view", "tv", data, key=key, on_word_change=take)


def tree_view(
    picture: Callable[[Theme], str],
    rows: Callable[[], Sequence[tuple[Any, ...]]],
    fact: str,
    *,
    theme: Theme,
    follow: bool,
    key: str,
    on_pick: Callable[[], None],
) -> None:
    """Draw an SVG whose groups have data-place, data-step and data-rank; `st.session_state[key].pick` is what was
    pressed, `fact` what a screen reader hears first; with `follow` the picked group is scrolled to. `rows` gives
    the candidates by search_tree.HEAD."""
    add(key, lambda: DrawnPicture("Tree of candidates", HEAD, tuple(rows()), picture("light")))
    draw(
        "tree_view",
        "tv",
        {"svg": picture(theme), "fact": fact, "follow": follow},
        key=key,
        on_pick_change=on_pick,
    )
