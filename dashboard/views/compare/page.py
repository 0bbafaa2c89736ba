"""The page Side by side, as one fragment: title, controls, maps, difference, fact, table of costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape

import streamlit as st

from core.attention import AttentionConfig
from core.pretrained import PretrainedError
from dashboard.charts.numbers import number
from dashboard.charts.palette import SIGNED
from dashboard.components.multiples import MINUS, Tile, difference_map, difference_span, multiples
from dashboard.runtime.cache import cached
from dashboard.runtime.query_params import read_pair, write_pair
from dashboard.runtime.rendering import AHEAD
from dashboard.views.compare import text
from dashboard.views.compare.compute import MapResult, Tokens, compute_map, default_cell, shared_weights, tokens_of
from dashboard.views.compare.controls import (
    CONTROLS,
    controls_row,
    edit_dialog,
    load_controls,
    read_widgets,
    save_controls,
    store_controls,
    take_edit,
    tokens_popover,
)
from dashboard.views.compare.cost_table import cost_table
from dashboard.views.compare.link import SEEDED, Controls, Pair
from dashboard.views.compare.sources import export, sources
from dashboard.widgets.panels import fact, next_page, plain, theme, title

LOADED, DRAWN = "compare:loaded", "compare:map_tiles"
MAPS_HEIGHT = 380  # px that the maps take, and keep while the model is loaded
COUNTS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}


@dataclass(frozen=True)
class MapTile:
    """One mechanism that has a map: its index, which is also its marker, and the map."""

    index: int
    config: AttentionConfig
    name: str
    result: MapResult

    @cached_property
    def tile(self) -> Tile:
        note = ("implied · " if self.result.implied else "") + text.heading_note(self.config)
        return Tile(self.name, note, self.result.weights, self.result.mask, self.index)


@st.fragment
def page() -> None:
    """Everything from top to bottom; a control reruns this fragment alone.

    Render the maps before the controls above them, from session_state, except on the first run.
    """
    top, body = st.container(), st.container()
    take_edit()
    controls, refused = load_controls()
    controls = read_widgets(controls)
    save_controls(controls)
    names = text.names_of(controls.mechanisms)
    refused += filter(None, [st.session_state.pop("compare:refused", None)])

    def draw_head() -> None:
        with top:
            _head(controls, names, refused)

    early = DRAWN in st.session_state
    if not early:
        draw_head()
    with body:
        tokens = _read_tokens(controls)
        maps = _compute_maps(controls, names, tokens) if tokens is not None else None
        if early:
            time.sleep(AHEAD)
            draw_head()
        measure = _below_maps(controls, names, tokens, maps) if tokens is not None and maps is not None else None
    next_page("compare")
    edit_dialog(controls)
    if measure is not None:
        measure()  # a second or two, for which nothing else has to wait


def _head(controls: Controls, names: Sequence[str], refused: Sequence[str]) -> None:
    """Title, warnings about the link, and the row of controls."""
    with st.container(horizontal=True, vertical_alignment="bottom", horizontal_alignment="distribute"):
        with st.container(width=700):
            title("Side by side", _subtitle(controls))
        tokens_popover(controls)
    for sentence in refused:
        st.warning(sentence)
    controls_row(controls, names)


def _subtitle(controls: Controls) -> str:
    count = COUNTS[len(controls.mechanisms)]
    if controls.seeded:
        return f"Same tokens, {count} mechanisms: whatever weights they share have the same numbers."
    return f"Same queries and keys, {count} mechanisms: only the rule that turns scores into weights changes."


def _read_tokens(controls: Controls) -> Tokens | None:
    """The tokens, with the model loaded where its queries are used; None and a hint where there are none."""
    try:
        if controls.seeded or st.session_state.get(LOADED, False):
            tokens = tokens_of(controls)
        else:
            with st.spinner("Loading the model, 91 MB, first time only"), st.skeleton(height=MAPS_HEIGHT):
                tokens = tokens_of(controls)
    except PretrainedError as error:
        st.info(str(error), icon=":material/edit:")
        return None
    if not controls.seeded:
        st.session_state[LOADED] = True
    if not tokens.names:
        st.info("There is no token here. Open Tokens and type a word, or a sentence.", icon=":material/edit:")
        return None
    return tokens


@dataclass(frozen=True)
class Maps:
    """The result of every mechanism, the tiles of those that have a map, and the picked cell."""

    results: list[MapResult]
    tiles: list[MapTile]
    cell: Pair | None


def _compute_maps(controls: Controls, names: Sequence[str], tokens: Tokens) -> Maps:
    """Compute and draw the maps."""
    results = [compute_map(controls, config) for config in controls.mechanisms]
    map_tiles = [MapTile(index, controls.mechanisms[index], names[index], each) for index, each in enumerate(results)
             if not each.error]
    return Maps(results, map_tiles, _draw_maps(map_tiles, tokens) if map_tiles else None)


def _below_maps(controls: Controls, names: Sequence[str], tokens: Tokens, maps: Maps) -> Callable[[], None] | None:
    """Draw everything below the maps; returns what measures the costs, None where nothing is left to measure."""
    measure, results, map_tiles, cell = None, maps.results, maps.tiles, maps.cell
    if cell is not None:
        measure = _difference_and_table(controls, results, names, tokens, cell, map_tiles)
        export(controls, names, results, tokens)
        sources(controls, names, results, tokens, cell)
    for name, each in zip(names, results, strict=True):
        if each.error:
            st.error(f"**{plain(name)}** has no map here. {plain(each.error)}")
    if any(each.error for each in results) and not controls.seeded:
        st.button("Use the seeded layer", key="compare:seeded", on_click=_use_seeded)
    return measure


def _use_seeded() -> None:
    store_controls(replace(st.session_state[CONTROLS], source=SEEDED))


def _draw_maps(map_tiles: Sequence[MapTile], tokens: Tokens) -> Pair:
    """Draw the maps under one crosshair; returns the pinned cell, else the default one."""
    size = len(tokens.names)
    linked, bad = read_pair("pin", (size, size))
    if bad and DRAWN not in st.session_state:
        st.warning(bad)  # a link's; a pin of the reader's own that a shorter sentence has lost needs no words
    st.session_state[DRAWN] = True
    row, column = default_cell(map_tiles[0].result.weights, tokens.special)
    sentence = f"{len(map_tiles)} maps of {size} tokens; the picked query is {tokens.names[row]}"
    pin = multiples([each.tile for each in map_tiles], tokens.names, key="compare:maps", query=row, column=column,
                    pin=linked, link="compare", fact=sentence)
    write_pair("pin", pin)
    return pin or (row, column)


def _difference_and_table(
    controls: Controls, results: Sequence[MapResult], names: Sequence[str], tokens: Tokens, cell: Pair,
    map_tiles: Sequence[MapTile],
) -> Callable[[], None] | None:
    """The difference on the left; its scale, the fact and the table on the right."""
    a, b = controls.minus
    both = a != b and not results[a].error and not results[b].error
    left, right = st.columns([0.34, 0.66], gap="medium")
    tiles = {each.index: each.tile for each in map_tiles}
    with left:
        if both:
            difference_map(tiles[a], tiles[b], tokens.names, key="compare:apart", query=cell[0], column=cell[1],
                           pin=None, link="compare", legend=False,
                           fact=f"{names[a]} minus {names[b]}: {number(_difference_at(results, a, b, cell))} there")
        else:
            st.caption("Choose two different mechanisms above to see one minus the other.")
    with right:
        if both:
            _legend(difference_span(tiles[a], tiles[b]), names[a], names[b])
            fact(text.fact(controls, names, results, tokens, cell))
        measure = cost_table(controls, names, results)
        shared, own, _ = cached(shared_weights, controls, [each.config for each in map_tiles])
        labels = [each.name for each in map_tiles]
        st.caption(f"{text.caption(controls, tokens, [each.result for each in map_tiles], labels)} "
                   f"{text.shared_weights_text(shared, own, labels, controls.seeded)}")
    return measure


def _difference_at(results: Sequence[MapResult], a: int, b: int, cell: Pair) -> float:
    return float(results[a].weights[cell] - results[b].weights[cell])


def _legend(end: float, first: str, second: str) -> None:
    """The scale of the difference: purple is less, green is more."""
    stops = ", ".join(SIGNED[theme()])
    st.html(f'<div style="display:flex;flex-wrap:wrap;gap:0 16px;font-size:12px;line-height:18px">'
            f'<div style="width:226px;max-width:100%"><div style="height:8px;margin-top:5px;'
            f'background:linear-gradient(to right,{stops})"></div>'
            f'<div style="display:flex;justify-content:space-between;opacity:.62"><span>{MINUS}{end:g} less</span>'
            f"<span>0</span><span>more {end:g}</span></div></div>"
            f'<span style="opacity:.62">of the weight, {escape(first)} against {escape(second)}</span></div>')
