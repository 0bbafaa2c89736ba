"""The page Side by side, as one fragment: title, controls, maps, difference, fact, table of costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from html import escape

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.pretrained import PretrainedError
from dashboard.charts.numbers import number
from dashboard.charts.palette import SIGNED
from dashboard.components.multiples import MINUS, Tile, difference_map, difference_span, multiples
from dashboard.runtime.cache import cached
from dashboard.runtime.link_values import fragment, read_linked, write_linked
from dashboard.runtime.page_pictures import add_script
from dashboard.runtime.threads import one_thread
from dashboard.views.compare import control_row, text
from dashboard.views.compare.compute import MapResult, Tokens, compute_map, default_cell, shared_weights, tokens_of
from dashboard.views.compare.controls import Controls, Pair, load_controls, read_widgets, save_controls, use_seeded
from dashboard.views.compare.cost_table import cost_table
from dashboard.views.compare.script import script
from dashboard.views.compare.sources import sources
from dashboard.widgets.export import begin_before_title
from dashboard.widgets.panels import caption, details, fact, next_page, plain, theme, title

LOADED, DRAWN = "compare:loaded", "compare:map_tiles"
SHORT = 64  # tokens, up to which one thread is enough
MAPS_HEIGHT = 380  # px of the placeholder while the model is loaded
COUNTS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}


@fragment
def page() -> None:
    """Draw the page; its maps come before the controls above them, from session_state, except on the first run."""
    top, body = st.container(), st.container()
    control_row.apply_edit()
    controls, errors = load_controls()
    controls = read_widgets(controls)
    save_controls(controls)
    names = text.names_of(controls.mechanisms)
    errors += filter(None, [st.session_state.pop("compare:refused", None)])
    early = DRAWN in st.session_state
    measure = None
    if not early:
        _head(top, controls, names, errors)
    else:
        begin_before_title()
    with body:
        tokens = _read_tokens(controls)
        with one_thread(tokens is None or len(tokens.names) <= SHORT):
            results = [compute_map(controls, config) for config in controls.mechanisms] if tokens else []
        tiles = {index: _tile(controls, names, index, each) for index, each in enumerate(results) if not each.error}
        cell = _draw_maps(list(tiles.values()), tokens) if tokens and tiles else None
        if early:
            _head(top, controls, names, errors, first=False)
        if tokens and cell is not None:
            add_script(partial(script, controls, results, names, tokens))
            measure = _difference_and_table(controls, results, names, tokens, cell, tiles)
            details("Equations with their numbers, papers and the code that just ran",
                    partial(sources, controls, names, results, tokens, cell), "compare:sources")
        _errors(controls, names, results)
    next_page("compare")
    control_row.edit_dialog(controls)
    if measure is not None:
        measure()  # a second or two, for which nothing else has to wait


def _head(container: DeltaGenerator, controls: Controls, names: Sequence[str], errors: Sequence[str], *,
          first: bool = True) -> None:
    """Draw title, errors of the link, and the row of controls."""
    count = COUNTS[len(controls.mechanisms)]
    lead = (f"Compare the attention maps of {count} mechanisms on the same tokens. Shared parameters are equal."
            if controls.seeded else
            f"Compare the attention maps of {count} mechanisms on the same queries and keys.")
    with container:
        title("Side by side", lead, partial(control_row.tokens_popover, controls), first=first)
        for sentence in errors:
            st.warning(sentence)
        control_row.controls_row(controls, names)


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


def _tile(controls: Controls, names: Sequence[str], index: int, result: MapResult) -> Tile:
    """A mechanism's map under its name and rule, with its index as marker."""
    note = "implied · " * result.implied + text.heading_note(controls.mechanisms[index])
    return Tile(names[index], note, result.weights, result.mask, index)


def _draw_maps(tiles: Sequence[Tile], tokens: Tokens) -> Pair:
    """Draw the maps under one crosshair; returns the pinned cell, else the default one."""
    size = len(tokens.names)
    linked = read_linked("compare", "pin", (size, size))
    st.session_state[DRAWN] = True
    row, column = default_cell(tiles[0].weights, tokens.special)
    sentence = f"{len(tiles)} maps of {size} tokens; the picked query is {tokens.names[row]}"
    pin = multiples(tiles, tokens.names, key="compare:maps", query=row, column=column, pin=linked, link="compare",
                    fact=sentence)
    return write_linked("compare", "pin", pin) or (row, column)


def _difference_and_table(
    controls: Controls, results: Sequence[MapResult], names: Sequence[str], tokens: Tokens, cell: Pair,
    tiles: dict[int, Tile],
) -> Callable[[], None] | None:
    """Draw the difference on the left; its scale, the fact and the table on the right.

    Returns what measures the costs, None where nothing is left to measure.
    """
    a, b = controls.minus
    both = a != b and a in tiles and b in tiles
    left, right = st.columns([0.34, 0.66], gap="medium")
    with left:
        if both:
            difference = number(float(results[a].weights[cell] - results[b].weights[cell]))
            difference_map(tiles[a], tiles[b], tokens.names, key="compare:apart", query=cell[0], column=cell[1],
                           pin=None, link="compare", legend=False,
                           fact=f"{names[a]} minus {names[b]}: {difference} there")
        else:
            st.caption("Choose two different mechanisms above to see the difference of their maps.")
    with right:
        if both:
            _legend(difference_span(tiles[a], tiles[b]), names[a], names[b])
            fact(text.fact(controls, names, results, tokens, cell))
        measure = cost_table(controls, names, results)
        shared, own = cached(shared_weights, controls, tuple(controls.mechanisms[index] for index in tiles))
        labels = [names[index] for index in tiles]
        caption(f"{text.caption(controls, tokens, [results[index] for index in tiles], labels)} "
                f"{text.shared_weights_text(shared, own, labels, controls.seeded)}")
    return measure


def _errors(controls: Controls, names: Sequence[str], results: Sequence[MapResult]) -> None:
    """Draw why a mechanism has no map, and the way out where MiniLM's queries and keys are the reason."""
    for name, each in zip(names, results, strict=False):
        if each.error:
            st.error(f"**{plain(name)}** cannot be drawn here. {plain(each.error)}")
    if any(each.error for each in results) and not controls.seeded:
        st.button("Use the seeded layer", key="compare:seeded", on_click=use_seeded,
                  help="A layer with random parameters, which every mechanism can change.")


def _legend(end: float, first: str, second: str) -> None:
    """The scale of the difference: purple is less, green is more."""
    stops = ", ".join(SIGNED[theme()])
    st.html(f'<div style="display:flex;flex-wrap:wrap;gap:0 16px;font-size:12px;line-height:18px">'
            f'<div style="width:226px;max-width:100%"><div style="height:8px;margin-top:5px;'
            f'background:linear-gradient(to right,{stops})"></div>'
            f'<div style="display:flex;justify-content:space-between;opacity:.62"><span>{MINUS}{end:g}</span>'
            f"<span>0</span><span>+{end:g}</span></div></div>"
            f'<span style="opacity:.62">weight of {escape(first)} minus weight of {escape(second)}</span></div>')
