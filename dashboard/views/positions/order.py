"""The same words in another order, and some positions later: what becomes of weights, scores and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from html import escape
from typing import Any

import numpy as np
import streamlit as st

from core.attention import AttentionConfig
from dashboard.draw.formats import latex, number
from dashboard.draw.multiples import Tile, difference_map, multiples
from dashboard.runtime.link_values import read_linked, write_linked
from dashboard.server.cache import cached
from dashboard.views.positions import compute
from dashboard.views.positions.charts import Equation
from dashboard.views.positions.controls import ENTRIES, Controls, key
from dashboard.widgets.panels import details, fact, plain

SHUFFLE_HEIGHT, SHIFT_HEIGHT = 240, 230  # pixels of a map
FIRST_NUMBERS = (
    12  # of each vector, in the picture of a sum: more cells leave no room for the words
)
NONE = ENTRIES["none"].name
WORD = "display:inline-block;padding:2px 8px 2px 0;text-align:center"
ROUNDING = 1e-5  # of weights and scores in fp32
SAME_OUTPUT, SAME_SCORE = (
    1e-4,
    1e-3,
)  # below it two outputs (a share of the length) or scores are the same


def shuffle(controls: Controls, config: AttentionConfig) -> Equation:
    """Draw what shuffling changes in each word's output, what an added encoding adds, and one head's weights."""
    names = controls.tokens
    effect = cached(compute.shuffle_effect, config, names, controls.seed, controls.order)
    row = int(effect.change.argmax())
    st.html(sentence_rows(names, effect, controls.item.name))
    fact(sentence(names, row, effect))
    if controls.item.enters == "x":
        added_vectors(controls, config)
        if key("cell") in st.query_params:
            st.session_state.setdefault(key("weights"), True)
        details("The weights in both orders", partial(weights, names, effect, row), key("weights"))
    else:
        weights(names, effect, row)
    same = "=" if effect.change[row] < SAME_OUTPUT else r"\neq"
    return (
        rf"\text{{outputs of the shuffled words}} {same} \text{{shuffled outputs}}",
        rf"\text{{largest difference}} = {latex(effect.largest)}",
    )


def added_vectors(controls: Controls, config: AttentionConfig) -> None:
    """Draw the vector of each word, the vector of its position, and their sum."""
    words, places = (
        vectors[:, :FIRST_NUMBERS]
        for vectors in cached(compute.added_vectors, config, controls.tokens, controls.seed)
    )
    shown = words.shape[1]
    multiples(
        [
            Tile("Word vectors", f"the first {shown} of {config.d_model} numbers", words),
            Tile(
                "+ position vectors",
                f"the largest is {number(float(np.abs(places).max()))}",
                places,
            ),
            Tile("= what attention reads", "word and position in one", words + places),
        ],
        controls.tokens,
        [str(m) for m in range(shown)],
        key=key("sum"),
        signed=True,
        noun="number",
        reads="word (row) · dimension (column)",
        height=SHUFFLE_HEIGHT,
        link=key("added"),
    )


def weights(names: Sequence[str], effect: compute.ShuffleEffect, row: int) -> None:
    """Draw one head's weights in order, shuffled with rows and columns restored, and their difference."""
    maps_with_difference(
        "maps",
        Tile("In order", _short(names), effect.ordered[0]),
        Tile(
            "Sorted back",
            "from " + _short([names[index] for index in effect.order]),
            effect.restored[0],
        ),
        names,
        fact=f"Largest change {number(effect.largest)}",
        query=row,
        height=SHUFFLE_HEIGHT,
        link=key("shuffled"),
    )


def _short(words: Sequence[str]) -> str:
    text = " ".join(words)
    return text if len(text) <= 34 else text[:33] + "…"


def sentence(names: tuple[str, ...], row: int, effect: compute.ShuffleEffect) -> str:
    change = float(effect.change[row])
    if len(names) < 2:
        return "A single word has no order: type a second one."
    without = (
        "Without positions, shuffling changes no output: the largest difference is "
        f"{number(effect.baseline)}, which is rounding."
    )
    if change < SAME_OUTPUT:
        return without
    return (
        f"{without} With positions, the output of :primary[{plain(names[row])}] changes by **{number(change)}** of "
        "its length."
    )


def sentence_rows(names: Sequence[str], effect: compute.ShuffleEffect, encoding: str) -> str:
    """The words in order and shuffled, each with the change of its output without positions and with them: HTML."""

    def row(label: str, order: Sequence[int], change: np.ndarray | None) -> str:
        words = []
        for index in order:
            below = (
                ""
                if change is None
                else "same"
                if change[index] < SAME_OUTPUT
                else number(float(change[index]))
            )
            small = (
                "" if change is None else f'<small style="display:block;opacity:.7">{below}</small>'
            )
            words.append(
                f'<span role="listitem" style="{WORD}">{escape(names[index])}{small}</span>'
            )
        return (
            f'<div style="margin-bottom:10px"><div style="font-size:14px;font-weight:600">{escape(label)}</div>'
            f"<div role='list' aria-label='{escape(label)}'>{''.join(words)}</div></div>"
        )

    rows = [
        row("In order", range(len(names)), None),
        row(
            "Shuffled, without positions: change of each word’s output",
            effect.order,
            effect.baseline_change,
        ),
    ]
    if encoding != NONE:
        rows.append(
            row(
                f"Shuffled, with {encoding}: change of each word’s output, as a share of its vector’s length",
                effect.order,
                effect.change,
            )
        )
    return "".join(rows)


def shift(controls: Controls, config: AttentionConfig) -> Equation:
    """Draw the scores of the same words at the start and some positions later."""
    effect = cached(compute.shift_effect, config, controls.tokens, controls.seed, controls.shift)
    same = "=" if effect.largest < SAME_SCORE else r"\neq"
    maps_with_difference(
        "moved",
        Tile("At the start", "scores of head 0", effect.first[0]),
        Tile(f"{controls.shift} positions later", "after other words", effect.later[0]),
        controls.tokens,
        signed=True,
        noun="score",
        height=SHIFT_HEIGHT,
        link=key("shifted"),
        query=len(controls.tokens) - 1,
    )
    low, high = (number(float(end)) for end in (effect.first[0].min(), effect.first[0].max()))
    verdict = "have the same scores" if effect.largest < SAME_SCORE else "have other scores"
    fact(
        f"{controls.shift} positions later the same words {verdict}: the largest change in any head "
        f"is **{number(effect.largest)}**. The scores drawn, those of head 0, lie between {low} and {high}. With "
        f"sinusoids added to the input the largest change is {number(effect.sinusoidal)}."
    )
    return (
        rf"s_{{i+k,\,j+k}} {same} s_{{ij}}",
        rf"\max\,|s_{{i+{controls.shift},\,j+{controls.shift}}} - s_{{ij}}| = "
        rf"{latex(effect.largest)}",
    )


def maps_with_difference(
    name: str,
    before: Tile,
    after: Tile,
    tokens: Sequence[str],
    signed: bool = False,
    fact: str = "",
    **options: Any,
) -> None:
    """Two maps, and the second minus the first; `after` equals `before` wherever they differ by rounding alone."""
    after = replace(after, weights=without_rounding(after.weights, before.weights))
    pin = read_linked("positions", key("cell"), (len(tokens), len(tokens)), name)
    left, right = st.columns([3, 1], gap="small")
    with left:
        drawn = multiples(
            [before, after], tokens, key=key(name), signed=signed, fact=fact, pin=pin, **options
        )
    with right:
        if np.array_equal(after.weights, before.weights):
            st.caption("Both maps are the same up to rounding.")
        else:
            drawn = difference_map(after, before, tokens, key=key("difference"), pin=pin, **options)
    write_linked("positions", key("cell"), drawn)


def without_rounding(changed: np.ndarray, before: np.ndarray) -> np.ndarray:
    """The changed map, equal to the one before wherever they differ by rounding alone, which no picture should show."""
    return np.where(np.abs(changed - before) < ROUNDING, before, changed)
