"""One head or many: the same numbers cut into heads, each with a map of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import streamlit as st

from core import analysis
from dashboard.charts.numbers import number
from dashboard.components.multiples import MARKS, Tile, multiples
from dashboard.runtime.cache import cached
from dashboard.views.heads import compute
from dashboard.views.heads.compute import Split
from dashboard.views.heads.controls import MOST_HEADS, Asked, key
from dashboard.views.heads.similarity import square
from dashboard.views.heads.text import equation
from dashboard.widgets.panels import fact, plain, theme
from dashboard.widgets.table import table

TALLEST = 190  # pixels of a map, so that one head and many stand side by side
ONE = len(MARKS) - 1  # the marker of a map that is no single head of many
SYMBOLS = r"A_h = \mathrm{softmax}\!\left(\frac{q_h k_h^\top}{\sqrt{D}}\right),\quad D = C / H"
NAMES = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight"}


def picture(asked: Asked) -> Callable[[], None]:
    """One head on the left, many on the right; the sentence. Returns what draws the rest."""
    one, many = (cached(compute.split, asked.tokens, asked.d_model, heads, asked.seed) for heads in (1, asked.heads))
    cell = maps(asked, one, many)
    fact(sentence(asked, one, many, cell))
    return partial(below, asked, many)


def below(asked: Asked, many: Split) -> None:
    """The equation, how alike the heads are, and every split as a row."""
    equation(SYMBOLS, numbers(asked))
    left, right = st.columns([0.34, 0.66], gap="medium")
    with left:
        st.html(square(many.overlap, theme()))
    with right:
        rows(asked)
        st.caption(conditions(asked))


def maps(asked: Asked, one: Split, many: Split) -> tuple[int, int]:
    """The maps under one crosshair; the cell that is pinned, or else the one that one head thinks most of."""
    cell = telling(one, asked.tokens)
    shown = {"query": cell[0], "column": cell[1], "link": key("maps"), "height": TALLEST}
    single = Tile("One head", note(one, 0), one.weights[0], marker=ONE)
    if asked.heads == 1:
        return multiples([single], asked.tokens, key=key("one"), **shown) or cell
    tiles = [Tile(f"Head {head}", note(many, head), weights) for head, weights in enumerate(many.weights)]
    shown["fact"] = f"{asked.heads} heads of {asked.head_dim} dimensions, beside one head of {asked.d_model}"
    left, right = st.columns([1, 3], gap="small")
    with left:
        multiples([single], asked.tokens, key=key("one"), reads="query → key", **shown)
    with right:
        return multiples(tiles, asked.tokens, key=key("many"), **shown) or cell


def note(found: Split, head: int) -> str:
    """What a head sees, in two numbers: how widely it looks, and how far."""
    weights = found.weights[head:head + 1]
    return f"{number(analysis.entropy(weights).mean())} nats · {number(analysis.mean_distance(weights)[0])} away"


def telling(one: Split, tokens: Sequence[str]) -> tuple[int, int]:
    """One head's largest weight between two different words; it stays the same however many heads there are."""
    words = np.array([any(sign.isalnum() for sign in token) for token in tokens])
    fits = words[:, None] & words & ~np.eye(len(words), dtype=bool)
    weights = np.where(fits, one.weights[0], -1.0) if fits.any() else one.weights[0]
    row, column = divmod(int(weights.argmax()), weights.shape[1])
    return row, column


def sentence(asked: Asked, one: Split, many: Split, cell: tuple[int, int]) -> str:
    row, column = cell
    words = f":primary[{plain(asked.tokens[row])}]", plain(asked.tokens[column])
    single = number(one.weights[0, row, column])
    if many.heads == 1:
        return f"One head has one map: {words[0]} gives {words[1]} **{single}**, whatever else it might look for."
    weights = many.weights[:, row, column]
    return (f"{words[0]} gives {words[1]} **{number(weights.max())}** in head {int(weights.argmax())} and "
            f"**{number(weights.min())}** in head {int(weights.argmin())}; one head gives it {single}. With the same "
            f"{many.parameters:,} numbers {NAMES[many.heads]} heads look in {NAMES[many.heads]} ways: two of "
            f"them share {number(many.alike)} of their weight.")


def numbers(asked: Asked) -> str:
    return f"= {asked.d_model} / {asked.heads} = {asked.head_dim}"


def rows(asked: Asked) -> None:
    """Each number of heads that divides d_model, with the same layer's numbers."""
    splits = [cached(compute.split, asked.tokens, asked.d_model, heads, asked.seed) for heads in listed(asked)]
    head = ["heads", "size of each", "parameters", "entropy", "distance", "in common"]
    body = [[str(each.heads), str(asked.d_model // each.heads), f"{each.parameters:,}", number(each.entropy),
             number(each.distance), "–" if each.alike is None else number(each.alike)] for each in splits]
    table(head, body, caption="The same layer as one head and as many", markers=False)


def listed(asked: Asked) -> Sequence[int]:
    """1, 2, 4, 8 where they divide, and what was chosen."""
    return sorted({heads for heads in (1, 2, 4, MOST_HEADS, asked.heads) if asked.d_model % heads == 0})


def conditions(asked: Asked) -> str:
    even = math.log(len(asked.tokens))
    return " ".join([
        "Every row of the table is one layer: the same four learned maps, only cut differently. Nats are a row's "
        f"entropy (even weight on {len(asked.tokens)} words would be {number(even)}); away is in words; in common is "
        f"the weight that two heads put on the same words. Weights and words are random (seed {asked.seed}), so the "
        "arithmetic is real and the preference means nothing yet.", *asked.notes])
