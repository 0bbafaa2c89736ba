"""Two maps, subtracted: differential attention as its first map, λ times its second, and the difference."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import streamlit as st

from dashboard.charts.numbers import number
from dashboard.components.multiples import MINUS, Tile, multiples
from dashboard.runtime.cache import cached
from dashboard.views.heads import compute
from dashboard.views.heads.compute import Subtracted
from dashboard.views.heads.controls import Asked, key
from dashboard.views.heads.text import equation
from dashboard.widgets.panels import fact, plain

TALLEST = 250


def picture(asked: Asked) -> Callable[[], None]:
    """The two maps and what is left of them; the sentence. Returns what draws the rest."""
    found = cached(compute.subtracted, asked.tokens, asked.d_model, asked.heads, asked.seed, asked.head, asked.depth)
    cell = telling(found)
    tiles = [Tile("A₁", "the head's first query and key", found.first),
             Tile("λA₂", f"λ = {number(found.weight)} times its second", found.weight * found.second),
             Tile(f"A₁ {MINUS} λA₂", "what meets the values", found.difference)]
    pinned = multiples(tiles, asked.tokens, key=key("subtract"), height=TALLEST, query=cell[0], column=cell[1],
                       link=key("maps"), fact=f"Head {asked.head} of {asked.heads}: two maps and their difference")
    cell = pinned or cell
    fact(sentence(asked, found, cell))
    return partial(below, asked, found, cell)


def below(asked: Asked, found: Subtracted, cell: tuple[int, int]) -> None:
    """The picked cell as an equation, and the conditions."""
    equation(r"w_{ij} = (A_1 - \lambda A_2)_{ij}", numbers(found, cell))
    st.caption(conditions(asked, found))


def telling(found: Subtracted) -> tuple[int, int]:
    """The cell with the largest weight that is left."""
    row, column = divmod(int(found.difference.argmax()), found.difference.shape[1])
    return row, column


def sentence(asked: Asked, found: Subtracted, cell: tuple[int, int]) -> str:
    row, column = cell
    first, second = found.first[row, column], found.weight * found.second[row, column]
    negative, cells = int((found.difference < 0).sum()), found.difference.size
    least = int(found.difference[row].argmin())
    taken = found.difference[row, least]
    other = (f"and takes **{number(-taken)}** away from {plain(asked.tokens[least])}" if taken < 0 else
             f"and {plain(asked.tokens[least])} least, {number(taken)}")
    result = number(first - second)
    query, token = plain(asked.tokens[row]), plain(asked.tokens[column])
    return (f":primary[{query}] gives {token} {number(first)} {MINUS} {number(second)} = **{result}** {other}. The "
            f"two maps have {number(found.common)} of their weight in common, and {negative} of {cells} weights fall "
            "below zero.")


def numbers(found: Subtracted, cell: tuple[int, int]) -> str:
    first, second = found.first[cell], found.second[cell]
    result = number(first - found.weight * second)
    return f"= {number(first)} {MINUS} {number(found.weight)} · {number(second)} = {result}"


def conditions(asked: Asked, found: Subtracted) -> str:
    half = asked.head_dim // 2
    start = f"0.8 {MINUS} 0.6·e^({MINUS}0.3·{asked.depth - 1}) = {number(found.start)}"
    return " ".join([
        f"Each head has two queries and two keys of {half} numbers instead of one of {asked.head_dim}, and one value. "
        f"In layer {asked.depth} λ starts near {start} and is learned from there; what is left of a row sums to "
        f"1 {MINUS} λ = {number(1 - found.weight)}, and a norm of each head makes up for it. Weights and words are "
        f"random (seed {asked.seed}), so the arithmetic is real and the preference means nothing yet.", *asked.notes])
