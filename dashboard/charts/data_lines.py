"""The curves of the page as Vega-Lite: one fixed figure whose data alone change, so that a control redraws no chart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dashboard.charts.lines import Curve, apart, style
from dashboard.charts.palette import Ink

if TYPE_CHECKING:
    import pyarrow as pa

HEIGHT, LABELS, TOP = 240, 110, 1.04  # pixels, pixels for the names at the ends, and the top of the axis


def spec(names: Sequence[str], x_title: str, first: float, last: float, ink: Ink) -> dict:
    """Lines from 0 to 1, each with a dot and its name at its end, and a rule at what was picked."""
    x = {"field": "x", "type": "quantitative", "title": x_title, "scale": {"domain": [first, last], "nice": False},
         "axis": {"grid": False, "format": "d"}}
    y = {"field": "y", "type": "quantitative", "title": None, "scale": {"domain": [0, TOP], "nice": False},
         "axis": {"tickCount": 5}}
    colours = [ink.series[at % len(ink.series)] for at in range(len(names))]
    both = {"x": x, "y": y, "color": {"field": "name", "type": "nominal", "legend": None,
                                      "scale": {"domain": list(names), "range": colours}}}
    tips = [{"field": "name", "title": " "}, {"field": "x", "title": "score", "format": ".2f"},
            {"field": "y", "title": "weight", "format": ".3f"}]
    label = {"type": "text", "align": "left", "dx": 8, "fontSize": 12, "fontWeight": 600, "baseline": "middle"}
    layers = [
        layer("curve", {"type": "line", "strokeWidth": 2}, both),
        layer("curve", {"type": "point", "opacity": 0, "size": 160}, {**both, "tooltip": tips}),
        layer("end", {"type": "point", "filled": True, "size": 36, "opacity": 1}, both),
        layer("label", label, {**both, "x": {"value": "width"}, "text": {"field": "name"}}),
        layer("rule", {"type": "rule", "color": ink.pick, "strokeWidth": 1.5}, {"x": x}),
    ]
    return {"height": HEIGHT, "layer": layers, "config": style(ink),
            "padding": {"left": 4, "right": LABELS, "top": 4, "bottom": 4},
            "autosize": {"type": "fit-x", "contains": "padding"}}


def layer(kind: str, mark: dict, encoding: dict) -> dict:
    return {"transform": [{"filter": f"datum.kind === '{kind}'"}], "mark": mark, "encoding": encoding}


def rows(series: Sequence[Curve], rule: float | None) -> pa.Table:
    """What the figure draws, as a table of kind, name, x and y."""
    import pyarrow as pa

    found = [("curve", curve.name, x, y) for curve in series for x, y in curve.points]
    found += [("end", curve.name, *curve.points[-1]) for curve in series]
    places = apart([curve.points[-1][1] / TOP for curve in series])
    found += [("label", curve.name, 0.0, place * TOP) for curve, place in zip(series, places, strict=True)]
    found += [] if rule is None else [("rule", "", rule, 0.0)]
    kinds, names, xs, ys = (list(column) for column in zip(*found, strict=True))
    return pa.table({"kind": kinds, "name": names, "x": xs, "y": ys})
