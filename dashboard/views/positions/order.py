"""Order: the same words shuffled, and what each takes out of it."""

from __future__ import annotations

import streamlit as st

from core.attention import AttentionConfig
from dashboard.charts.numbers import latex, number
from dashboard.components.multiples import Tile, difference_map, multiples
from dashboard.runtime.cache import cached
from dashboard.views.positions import compute
from dashboard.views.positions.controls import Chosen, key
from dashboard.views.positions.text import Equation, without_rounding
from dashboard.widgets.panels import fact, plain

MAP = 240  # pixels
ROUNDING = 1e-4  # of an output's length; below it two outputs are the same


def shuffle(asked: Chosen, config: AttentionConfig) -> Equation:
    """One head's weights in order, and shuffled with rows and columns put back, and their difference."""
    names = asked.tokens
    found = cached(compute.shuffled, config, names, asked.seed, asked.order)
    row = int(found.change.argmax())
    mixed = [names[at] for at in found.order]
    same = "=" if found.change[row] < ROUNDING else r"\neq"
    tiles = [Tile("In order", short(names), found.ordered[0]),
             Tile("Shuffled, then put back", short(mixed), without_rounding(found.put_back[0], found.ordered[0]))]
    shown = {"query": row, "height": MAP, "link": key("shuffled")}
    left, right = st.columns([5, 2], gap="small")
    with left:
        multiples(tiles, names, key=key("maps"), fact=f"Largest change {number(found.largest)}", **shown)
    with right:
        difference_map(tiles[1], tiles[0], names, key=key("difference"), **shown)
    fact(sentence(names, row, found))
    return (rf"o(\pi x) {same} \pi\,o(x)", rf"\max\,|o(\pi x) - \pi\,o(x)| = {latex(found.largest)}")


def short(words) -> str:
    text = " ".join(words)
    return text if len(text) <= 34 else text[:33] + "…"


def sentence(names: tuple[str, ...], row: int, found: compute.Shuffled) -> str:
    change = float(found.change[row])
    if len(names) < 2:
        return "One word has no order: type another."
    if change < ROUNDING:
        return (f"Shuffled, every word takes out what it took in order: no number of any output changes by more than "
                f"**{number(found.largest)}**, which is rounding.")
    return (f"Shuffled, :primary[{plain(names[row])}] takes out something else: its output changes by "
            f"**{number(change)}** of its length. Without positions no number of any output changes by more than "
            f"{number(found.without)}.")
