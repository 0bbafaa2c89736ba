"""Order: the same words shuffled, and the change of each word's output."""

from __future__ import annotations

import streamlit as st

from core.attention import AttentionConfig
from dashboard.charts.numbers import latex, number
from dashboard.components.multiples import Tile, difference_map, multiples
from dashboard.runtime.cache import cached
from dashboard.views.positions import compute
from dashboard.views.positions.controls import Controls, key
from dashboard.views.positions.text import Equation, without_rounding
from dashboard.widgets.panels import fact, plain

MAP = 240  # pixels
ROUNDING = 1e-4  # of an output's length; below it two outputs are the same


def shuffle(controls: Controls, config: AttentionConfig) -> Equation:
    """Draw one head's weights in order, shuffled with rows and columns restored, and their difference."""
    names = controls.tokens
    effect = cached(compute.shuffle_effect, config, names, controls.seed, controls.order)
    row = int(effect.change.argmax())
    mixed = [names[at] for at in effect.order]
    same = "=" if effect.change[row] < ROUNDING else r"\neq"
    tiles = [Tile("In order", short(names), effect.ordered[0]),
             Tile("Shuffled, then put back", short(mixed), without_rounding(effect.restored[0], effect.ordered[0]))]
    options = {"query": row, "height": MAP, "link": key("shuffled")}
    left, right = st.columns([5, 2], gap="small")
    with left:
        multiples(tiles, names, key=key("maps"), fact=f"Largest change {number(effect.largest)}", **options)
    with right:
        difference_map(tiles[1], tiles[0], names, key=key("difference"), **options)
    fact(sentence(names, row, effect))
    return (rf"o(\pi x) {same} \pi\,o(x)", rf"\max\,|o(\pi x) - \pi\,o(x)| = {latex(effect.largest)}")


def short(words) -> str:
    text = " ".join(words)
    return text if len(text) <= 34 else text[:33] + "…"


def sentence(names: tuple[str, ...], row: int, effect: compute.ShuffleEffect) -> str:
    change = float(effect.change[row])
    if len(names) < 2:
        return "One word has no order: type another."
    if change < ROUNDING:
        return (f"Shuffled, every word takes out what it took in order: no number of any output changes by more than "
                f"**{number(effect.largest)}**, which is rounding.")
    return (f"Shuffled, :primary[{plain(names[row])}] takes out something else: its output changes by "
            f"**{number(change)}** of its length. Without positions no number of any output changes by more than "
            f"{number(effect.baseline)}.")
