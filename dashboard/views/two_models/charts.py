"""Layers × heads by how far each head is apart, as a Vega-Lite figure; makes no st call."""

from __future__ import annotations

from collections.abc import Sequence

from core.difference import HeadChange
from dashboard.charts.numbers import cell, number
from dashboard.charts.palette import PAGE, Ink, Theme, colour_scale
from dashboard.charts.vega import Spec, axis_style, layer, picking_grid

TALL = 24  # pixels of a row
MOST_NUMBERS = 16  # heads in a layer, beyond which cells hold no numbers


def apart(heads: Sequence[HeadChange], picked: HeadChange, in_place: bool, theme: Theme) -> Spec:
    """A cell a head of the first reading, in blue ink from 0 (the same) to 1 (nothing shared); a click picks one."""
    ink = Ink.of(theme)
    numbers = sorted({item.number for item in heads})
    across = max(item.head for item in heads) + 1
    rows = [{"layer": item.number, "head": item.head, "moved": item.moved, "name": item.name,
             "to": item.name if in_place else item.other, "text": number(item.moved),
             "short": cell(number(item.moved))} for item in heads]
    at = {"x": _band("head", list(range(across)), ink, "top"), "y": _band("layer", numbers, ink, "left")}
    colour = {"field": "moved", "type": "quantitative",
              "scale": {"range": colour_scale(theme), "domain": [0, 1]},
              "legend": {"title": "share of the weight on other tokens", "orient": "bottom", "direction": "horizontal",
                         "gradientLength": 160, "gradientThickness": 8, "tickCount": 2, "labelColor": ink.quiet,
                         "titleColor": ink.quiet, "titleFontWeight": "normal", "titleLimit": 300}}
    tips = [{"field": name, "title": title} for name, title in
            (("name", "head"), ("to", "compared with"), ("text", "difference"))]
    layers = [layer("rect", rows, {**at, "color": colour, "tooltip": tips}, cursor="pointer", stroke=None)]
    if across <= MOST_NUMBERS:
        text = {"condition": {"test": "datum.moved > 0.45", "value": PAGE[theme]},
                "value": ink.text}
        layers.append(layer("text", rows, {**at, "text": {"field": "short"}, "color": text}, fontSize=11,
                             tooltip=False))
    return picking_grid(layers, {"layer": picked.number, "head": picked.head}, at, ink, TALL, ["name"])


def _band(name: str, values: Sequence[int], ink: Ink, orient: str) -> Spec:
    return {"field": name, "type": "ordinal", "title": name if orient == "top" else None,
            "scale": {"domain": list(values), "paddingInner": 0.06},
            "axis": {**axis_style(ink), "orient": orient, "labelAngle": 0, "titleAnchor": "start", "titlePadding": 2}}
