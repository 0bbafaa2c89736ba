"""The same words in another order, and some positions later: what becomes of weights, scores and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import streamlit as st

from core.attention import AttentionConfig
from dashboard.charts.numbers import latex, number
from dashboard.components.multiples import Tile, difference_map, multiples
from dashboard.runtime.cache import cached
from dashboard.views.positions import compute
from dashboard.views.positions.charts import Equation
from dashboard.views.positions.controls import Controls, key
from dashboard.widgets.panels import fact, plain

SHUFFLE_HEIGHT, SHIFT_HEIGHT = 240, 230  # pixels of a map
ROUNDING = 1e-5  # of weights and scores in fp32
SAME_OUTPUT, SAME_SCORE = 1e-4, 1e-3  # below it two outputs (a share of the length) or scores are the same


def shuffle(controls: Controls, config: AttentionConfig) -> Equation:
    """Draw one head's weights in order, shuffled with rows and columns restored, and their difference."""
    names = controls.tokens
    effect = cached(compute.shuffle_effect, config, names, controls.seed, controls.order)
    row = int(effect.change.argmax())
    same = "=" if effect.change[row] < SAME_OUTPUT else r"\neq"
    maps_with_difference(
        "maps", Tile("In order", _short(names), effect.ordered[0]),
        Tile("Shuffled, then put back", _short([names[index] for index in effect.order]), effect.restored[0]), names,
        fact=f"Largest change {number(effect.largest)}", query=row, height=SHUFFLE_HEIGHT, link=key("shuffled"))
    fact(sentence(names, row, effect))
    return (rf"o(\pi x) {same} \pi\,o(x)", rf"\max\,|o(\pi x) - \pi\,o(x)| = {latex(effect.largest)}")


def _short(words: Sequence[str]) -> str:
    text = " ".join(words)
    return text if len(text) <= 34 else text[:33] + "…"


def sentence(names: tuple[str, ...], row: int, effect: compute.ShuffleEffect) -> str:
    change = float(effect.change[row])
    if len(names) < 2:
        return "One word has no order: type another."
    if change < SAME_OUTPUT:
        return (f"Shuffled, every word takes out what it took in order: no number of any output changes by more than "
                f"**{number(effect.largest)}**, which is rounding.")
    return (f"Shuffled, :primary[{plain(names[row])}] takes out something else: its output changes by "
            f"**{number(change)}** of its length. Without positions no number of any output changes by more than "
            f"{number(effect.baseline)}.")


def shift(controls: Controls, config: AttentionConfig) -> Equation:
    """Draw the scores of the same words at the start and some positions later."""
    effect = cached(compute.shift_effect, config, controls.tokens, controls.seed, controls.shift)
    same = "=" if effect.largest < SAME_SCORE else r"\neq"
    maps_with_difference(
        "moved", Tile("At the start", "scores of head 0", effect.first[0]),
        Tile(f"{controls.shift} places later", "after other words", effect.later[0]), controls.tokens, signed=True,
        noun="score", height=SHIFT_HEIGHT, link=key("shifted"), query=len(controls.tokens) - 1)
    size = float(np.abs(effect.first).max())
    verdict = "score as before" if effect.largest < SAME_SCORE else "score otherwise"
    fact(f"{controls.shift} places later the same words {verdict}: no score changes by more than "
         f"**{number(effect.largest)}**, of scores up to {number(size)}. With sinusoids added to the input one changes "
         f"by {number(effect.sinusoidal)}.")
    return (rf"s_{{i+k,\,j+k}} {same} s_{{ij}}", rf"\max\,|s_{{i+{controls.shift},\,j+{controls.shift}}} - s_{{ij}}| = "
            rf"{latex(effect.largest)}")


def maps_with_difference(name: str, before: Tile, after: Tile, tokens: Sequence[str], signed: bool = False,
                         fact: str = "", **options: Any) -> None:
    """Two maps, and the second minus the first; `after` equals `before` wherever they differ by rounding alone."""
    after = replace(after, weights=without_rounding(after.weights, before.weights))
    left, right = st.columns([5, 2], gap="small")
    with left:
        multiples([before, after], tokens, key=key(name), signed=signed, fact=fact, **options)
    with right:
        difference_map(after, before, tokens, key=key("difference"), **options)


def without_rounding(changed: np.ndarray, before: np.ndarray) -> np.ndarray:
    """The changed map, equal to the one before wherever they differ by rounding alone, which no picture should show."""
    return np.where(np.abs(changed - before) < ROUNDING, before, changed)
