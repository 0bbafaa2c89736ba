"""The page Two models, two texts: every head by how far it is apart, one head in both, and their difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import streamlit as st

from core.interpret import map_transform as difference
from core.interpret.map_transform import HeadChange
from core.pretrained import ModelInputs
from dashboard.draw.attention_view import READS
from dashboard.draw.formats import cell, number
from dashboard.draw.multiples import Frames, Tile, difference_map, fits, multiples
from dashboard.draw.palette import PAGE, Ink, Theme, colour_scale
from dashboard.draw.vega import PICKED, Spec, axis_style, layer, picking_grid
from dashboard.runtime.link_values import Pair, read_linked, write_linked
from dashboard.runtime.page_pictures import add_script
from dashboard.ui.presentation import draw_chart
from dashboard.ui.progress import fragment_unless_measuring
from dashboard.views.two_models import compute, patching, text
from dashboard.views.two_models.compute import Comparison
from dashboard.views.two_models.controls import (
    GRID,
    HEAD,
    current_head,
    draw_controls,
    draw_head,
    draw_kind,
    draw_nearest,
    pick_pressed_head,
)
from dashboard.views.two_models.script import script
from dashboard.widgets.model_picker import ModelChoice, ModelRef, choose_model, input_errors
from dashboard.widgets.panels import details, fact, next_page, plain, source_panel, theme, title

TALL = 24  # pixels of a row
MOST_NUMBERS = 16  # heads in a layer, beyond which cells hold no numbers

LINK = "two_models:pin"
HIGH = 380
ABSENT = "absent"


def page() -> None:
    """Draw the page from top to bottom."""
    title(
        "Two models, two texts",
        "Compare attention head by head: change a word, take another model, or the same model untrained.",
    )
    choice = choose_model("two_models", needs=("model",))
    if choice is not None:
        fragment_unless_measuring(partial(_view, choice))
    details("How heads are compared: definitions and source", _definitions, "two_models:how")
    next_page("two_models")


def _view(choice: ModelChoice) -> None:
    """Draw the controls and all that they change."""
    with input_errors():
        _comparison(choice)


def _comparison(choice: ModelChoice) -> None:
    controls = draw_controls(choice)
    sides = compute.read_sides(choice, controls.second)
    if sides[1].reading.cut and sides[1].reading.cut != choice.reading.cut:
        st.warning(plain(sides[1].reading.cut), icon=":material/content_cut:")
    with st.container(
        horizontal=True, gap="medium", vertical_alignment="center", key="two_models:align"
    ):
        pair, merged = compute.align_sides(sides, draw_kind(compute.kinds(*sides)))
        in_place = pair.same_shape and not (controls.mode == "models" and draw_nearest(sides[1]))
    comparison = Comparison(sides, pair, merged, in_place)
    head = current_head(comparison.heads, choice.ref, controls.mode, pair.first.map(0).kind)
    add_script(partial(script, choice, controls, comparison, head))
    of = choice.ref, choice.inputs, controls, pair.first.map(0).kind
    pin = read_linked("two_models", "pin", (len(pair.queries), len(pair.keys)), of)
    _grid_and_figures(comparison, head, choice.ref)
    _maps(comparison, head, pin)
    left, right = st.columns([0.42, 0.58], gap="medium")
    with left:
        write_linked("two_models", "pin", _difference(comparison, head, pin))
    with right:
        fact(text.fact(comparison, head))
        st.caption(text.conditions(comparison, controls.mode))
    if (
        isinstance(controls.second, ModelInputs)
        and choice.pretrained is not None
        and choice.pretrained.reads_text
    ):
        patching.section(choice, replace(choice.inputs, text=controls.second.text))


def _grid_and_figures(comparison: Comparison, head: HeadChange, ref: ModelRef) -> None:
    heads, kind = comparison.heads, comparison.pair.first.map(0).kind
    left, right = st.columns([0.64, 0.36], gap="medium", vertical_alignment="top")
    with left:
        draw_head(heads, head, ref, kind)
        draw_chart(
            st,
            apart(heads, head, comparison.in_place, theme()),
            key=GRID,
            selection_mode=[PICKED],
            on_select=lambda: pick_pressed_head(heads, ref, kind),
            alt=f"The difference of each of {len(heads)} heads; the largest is that of {heads[0].name}",
        )
    with right:
        for name, value, meaning in text.figures(heads):
            st.metric(name, value, help=meaning)


def _tiles(comparison: Comparison, head: HeadChange) -> list[Tile]:
    tiles = []
    indices, names = ((head.layer, head.head), head.to), (head.name, head.other)
    for which, side in enumerate(comparison.sides):
        weights, allowed = comparison.pair.on_grid(which, *indices[which])
        name = f"{side.name}, {names[which]}"
        tiles.append(Tile(name, side.note, weights, None if allowed.all() else allowed, which))
    return tiles


def _maps(comparison: Comparison, head: HeadChange, pin: Pair | None) -> None:
    pair, sides, heads = comparison.pair, comparison.sides, comparison.heads
    kind = pair.first.map(0).kind
    row, column = text.most_different_cell(pair, head) or (None, None)
    tiles, frames = _tiles(comparison, head), None
    if fits(len(heads), tiles):
        frames = Frames(
            HEAD,
            heads.index(head),
            [_tiles(comparison, each) for each in heads],
            [each.name for each in heads],
        )
    multiples(
        tiles,
        pair.queries,
        pair.keys,
        key=f"two_models:maps:{kind}",
        link=LINK,
        pin=pin,
        frames=frames,
        query=row,
        column=column,
        reads=READS[kind],
        height=HIGH,
        absent=ABSENT,
        fact=f"Head {head.name} of {sides[0].name} and {head.other} of {sides[1].name}",
    )


def _difference(comparison: Comparison, head: HeadChange, pin: Pair | None) -> Pair | None:
    """Draw the second map minus the first, where both have a token; returns the pinned cell."""
    pair = comparison.pair
    first, second = _tiles(comparison, head)
    both = (pair.on_grid(0, head.layer, head.head)[1]) & (pair.on_grid(1, *head.to)[1])
    mask = None if both.all() else both
    row, column = text.most_different_cell(pair, head) or (None, None)
    return difference_map(
        Tile(second.name, "", second.weights, mask),
        Tile(first.name, "", first.weights, mask),
        pair.queries,
        pair.keys,
        key=f"two_models:apart:{pair.first.map(0).kind}",
        link=LINK,
        height=HIGH,
        query=row,
        column=column,
        pin=pin,
        reads=READS[pair.first.map(0).kind],
        absent=ABSENT,
        fact=f"{second.name} minus {first.name}",
    )


def _definitions() -> None:
    st.markdown(
        "Tokens are aligned by the longest sequences that both texts share (Ratcliff and Obershelp, 1988). The "
        "difference of two heads is the total variation between their rows, averaged:"
    )
    st.latex(
        r"\mathrm{difference}(A, B) = \frac{1}{T}\sum_{i=1}^{T}\Big(1 - \sum_{j} \min(a_{ij}, b_{ij})\Big)"
    )
    st.markdown(
        "A head that changed need not matter for the answer: the page Evidence switches heads off to test it. "
        "On the changes by fine-tuning see [Kovaleva 2019](https://arxiv.org/abs/1908.08593); on the "
        "difference between trained and random queries and keys [Trockman "
        "2023](https://arxiv.org/abs/2305.09828)."
    )
    source_panel(difference.align)
    source_panel(difference.weight_moved)


# Layers × heads by how far each head is apart, as a Vega-Lite figure; makes no st call.


def apart(heads: Sequence[HeadChange], picked: HeadChange, in_place: bool, theme: Theme) -> Spec:
    """A cell a head of the first reading, in blue ink from 0 (the same) to 1 (nothing shared); a click picks one."""
    ink = Ink.of(theme)
    numbers = sorted({item.number for item in heads})
    across = max(item.head for item in heads) + 1
    rows = [
        {
            "layer": item.number,
            "head": item.head,
            "moved": item.moved,
            "name": item.name,
            "to": item.name if in_place else item.other,
            "text": number(item.moved),
            "short": cell(number(item.moved)),
        }
        for item in heads
    ]
    at = {
        "x": _band("head", list(range(across)), ink, "top"),
        "y": _band("layer", numbers, ink, "left"),
    }
    colour = {
        "field": "moved",
        "type": "quantitative",
        "scale": {"range": colour_scale(theme), "domain": [0, 1]},
        "legend": {
            "title": "share of the weight on other tokens",
            "orient": "bottom",
            "direction": "horizontal",
            "gradientLength": 160,
            "gradientThickness": 8,
            "tickCount": 2,
            "labelColor": ink.quiet,
            "titleColor": ink.quiet,
            "titleFontWeight": "normal",
            "titleLimit": 300,
        },
    }
    tips = [
        {"field": name, "title": title}
        for name, title in (("name", "head"), ("to", "compared with"), ("text", "difference"))
    ]
    layers = [
        layer("rect", rows, {**at, "color": colour, "tooltip": tips}, cursor="pointer", stroke=None)
    ]
    if across <= MOST_NUMBERS:
        text = {
            "condition": {"test": "datum.moved > 0.45", "value": PAGE[theme]},
            "value": ink.text,
        }
        layers.append(
            layer(
                "text",
                rows,
                {**at, "text": {"field": "short"}, "color": text},
                fontSize=11,
                tooltip=False,
            )
        )
    return picking_grid(
        layers, {"layer": picked.number, "head": picked.head}, at, ink, TALL, ["name"]
    )


def _band(name: str, values: Sequence[int], ink: Ink, orient: str) -> Spec:
    return {
        "field": name,
        "type": "ordinal",
        "title": name if orient == "top" else None,
        "scale": {"domain": list(values), "paddingInner": 0.06},
        "axis": {
            **axis_style(ink),
            "orient": orient,
            "labelAngle": 0,
            "titleAnchor": "start",
            "titlePadding": 2,
        },
    }
