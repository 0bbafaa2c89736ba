"""The maps of each idea, under one crosshair and with one pin, which is also in the link."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.draw.formats import MINUS, number
from dashboard.draw.multiples import MARKS, Tile, multiples
from dashboard.runtime.link_values import read_linked, write_linked
from dashboard.views.heads import text
from dashboard.views.heads.compute import CacheSize, Split, TwoMaps
from dashboard.views.heads.controls import Controls, key
from dashboard.views.heads.text import Cell

SMALL, LARGE = 260, 360  # pixels of a map: of one of many heads, and of three maps in a row
ONE = len(MARKS) - 1  # the marker of a map that is no single head of many
NO_MARK = -1
# On a phone the map that the sentence names comes first, before the map of one head.
PHONE_STYLE = """<style>@media (max-width: 640px) {
.st-key-heads-split > * > [data-testid=stHorizontalBlock] > :first-child { order: 1 }
}</style>"""
PIN, LINK = key("pin"), key("maps")  # the pinned cell's name in the link, and what all maps share


def draw(tiles: Sequence[Tile], controls: Controls, name: str, **options: Any) -> Cell | None:
    """Draw maps; returns the pinned cell."""
    bounds = len(controls.tokens), len(controls.tokens)
    pin = read_linked("heads", PIN, bounds, controls.tokens)
    return write_linked(
        "heads",
        PIN,
        multiples(tiles, controls.tokens, key=key(name), link=LINK, pin=pin, **options),
    )


def draw_split(controls: Controls, one: Split, many: Split) -> tuple[Cell, DeltaGenerator]:
    """Draw one head and several; returns the pinned cell, or else the one with the largest weight, and its place."""
    cell = largest_word_cell((one if controls.layer is None else many).weights, controls.tokens)
    options: dict[str, Any] = {"query": cell[0], "column": cell[1], "height": SMALL}
    single = Tile("One head", "", one.weights[0], marker=ONE)
    if controls.heads == 1:
        return draw([single], controls, "one", **options) or cell, st.container()
    marked = many.heads <= len(MARKS)  # with more heads there is no mark for each
    tiles = [
        Tile(f"Head {head}", "", weights, marker=head if marked else NO_MARK)
        for head, weights in enumerate(many.weights)
    ]
    options["fact"] = (
        f"{controls.heads} heads of {controls.head_dim} numbers, "
        f"compared with one head of {controls.d_model}"
    )
    with st.container(key=key("split")):
        st.html(PHONE_STYLE)
        left, right = st.columns([1, 3], gap="small")
    with left:
        draw([single], controls, "one", reads="query → key", legend=False, **options)
    with right:
        strongest = int(many.weights[:, cell[0], cell[1]].argmax())  # which the sentence names
        return draw(tiles, controls, "many", first=strongest, **options) or cell, left


def largest_word_cell(weights: np.ndarray, tokens: Sequence[str]) -> Cell:
    """The largest weight of any head, (H, T, T), between two different words."""
    words = np.array(
        [any(sign.isalnum() for sign in token) and not token.startswith("[") for token in tokens]
    )
    pairs = words[:, None] & words & ~np.eye(len(words), dtype=bool)
    most = weights.max(0)
    row, column = divmod(
        int((np.where(pairs, most, -1.0) if pairs.any() else most).argmax()), len(tokens)
    )
    return row, column


def draw_shared(controls: Controls, caches: Sequence[CacheSize]) -> None:
    """Draw one head with each way to store keys and values."""
    real = controls.layer is not None
    tiles = [
        Tile(text.projection_name(each), text.cache_note(each, real), each.weights[controls.head])
        for each in caches
    ]
    weights = caches[0].weights[controls.head]
    if real:
        query, column = largest_word_cell(weights[None], controls.tokens)
    else:
        query, column = int(weights.max(-1).argmax()), None  # the query with the largest weight
    draw(
        tiles,
        controls,
        "shared",
        height=SMALL,
        query=query,
        column=column,
        fact=f"Head {controls.head} of {controls.heads} with four ways to store keys and values",
    )


def draw_two_maps(controls: Controls, maps: TwoMaps) -> Cell:
    """Draw both maps of a head and their difference; returns the pinned cell, or else the largest."""
    words = controls.layer is not None  # [CLS] and [SEP] have most weight in MiniLM
    row, column = (
        largest_word_cell(maps.difference[None], controls.tokens)
        if words
        else divmod(int(maps.difference.argmax()), maps.difference.shape[1])
    )
    tiles = [
        Tile("A₁", "map of the first query and key", maps.first),
        Tile("λA₂", f"λ = {number(maps.weight)} times the second map", maps.weight * maps.second),
        Tile(f"A₁ {MINUS} λA₂", "the weights of the values", maps.difference),
    ]
    pin = draw(
        tiles,
        controls,
        "subtract",
        first=len(tiles) - 1,
        height=LARGE,
        query=row,
        column=column,
        fact=f"Head {controls.head} of {controls.heads}: two maps and their difference",
    )
    return pin or (row, column)
