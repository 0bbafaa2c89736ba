"""Curves of any measure over any axis: named at their ends, with bands and a rule."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dashboard.charts import vega
from dashboard.charts.numbers import number, percent
from dashboard.charts.palette import Ink
from dashboard.charts.vega import PERCENTAGES, Spec, filtered_layer, layer, right_margin, separate

if TYPE_CHECKING:
    import pyarrow as pa

HEIGHT = 240  # pixels
FLOOR = 1e-9  # the smallest value that a logarithmic axis shows
MOST_TICKS = 12
TOP = 1.04  # of the axis of `fixed_chart`
NAME_STYLE: Spec = {
    "align": "left",
    "dx": 8,
    "fontSize": 12,
    "fontWeight": 600,
    "baseline": "middle",
}
_RAISED = {
    power: f"10{str(power).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"
    for power in range(-9, 4)
}
POWERS = f"{json.dumps({str(p): name for p, name in _RAISED.items()})}[toString(round(log(datum.value) / LN10))]"


@dataclass(frozen=True)
class Curve:
    """A named series of (x, y), with a band around it where low and high are given.

    Without a colour and a dash (an index of vega.DASHES) of its own, it takes those of its place among the series.
    """

    name: str
    points: Sequence[tuple[float, float]]
    band: Sequence[tuple[float, float]] = ()
    colour: str = ""
    dash: int | None = None


def line_chart(
    title: str,
    x_title: str,
    curves: Sequence[Curve],
    ink: Ink,
    *,
    log: bool = False,
    log_x: bool = False,
    rule: float | None = None,
    named: bool = True,
    measured: bool = False,
    share: bool = False,
) -> Spec:
    """Curves that end in a dot and, if `named`, their names; `rule` is a line in the accent, `log_x` needs x above 0.

    `measured` puts a tick at each x of the curves, if these are few; a `share` of 1 is written as a percentage.
    """
    values = [y for curve in curves for _, y in curve.points] + [
        y for c in curves for pair in c.band for y in pair
    ]
    low, high = bounds(values, log)
    first, last = (end(x for curve in curves for x, _ in curve.points) for end in (min, max))
    xs = sorted({x for curve in curves for x, _ in curve.points})
    x = {
        "field": "x",
        "type": "quantitative",
        "title": x_title,
        "scale": {"domain": [first, last], "nice": False, **({"type": "log"} if log_x else {})},
        "axis": {"grid": False, **_ticks(xs, log_x or measured and len(xs) <= MOST_TICKS)},
    }
    y = {
        "field": "y",
        "type": "quantitative",
        "title": None,
        "axis": {
            "tickCount": 4,
            **({"labelExpr": POWERS} if log else {"labelExpr": PERCENTAGES} if share else {}),
        },
        "scale": {"domain": [low, high], "nice": False, **({"type": "log"} if log else {})},
    }
    layers = []
    for at, curve in enumerate(curves):
        layers += _curve_layers(curve, x, y, *style(curve, at, ink), percent if share else number)
    layers += _name_layers(curves, (low, high), log, ink) if named else []
    if rule is not None:
        layers.append(layer("rule", [{"x": rule}], {"x": x}, color=ink.pick, strokeWidth=1.5))
    beside = (
        {}
        if named
        else vega.names([(curve.name, *style(curve, at, ink)) for at, curve in enumerate(curves)])
    )
    return (
        vega.titled_figure(title, layers, HEIGHT, ink) | right_margin(4 if named else 12) | beside
    )


def _ticks(xs: Sequence[float], each: bool) -> Spec:
    """Ticks at `each` x, else at some numbers, whole ones where all x are."""
    if each:
        return {"values": list(xs), "format": ",~g"}
    whole = {"tickMinStep": 1, "format": "d"} if all(x == int(x) for x in xs) else {}
    return {"tickCount": MOST_TICKS, **whole}


def style(curve: Curve, at: int, ink: Ink) -> tuple[str, list[int]]:
    """The colour and the dash of a curve, the at-th of its figure."""
    dash = at // len(ink.series) % len(vega.DASHES) if curve.dash is None else curve.dash
    return curve.colour or ink.series[at % len(ink.series)], vega.DASHES[dash]


def bounds(values: Sequence[float], log: bool) -> tuple[float, float]:
    """The ends of an axis around all values, with a little air; a logarithmic one ends at whole powers of ten."""
    if log:
        logs = [math.log10(max(value, FLOOR)) for value in values]
        return 10.0 ** math.floor(min(logs)), 10.0 ** math.ceil(max(logs) + 0.05)
    low, high = min(values), max(values)
    air = 0.06 * (high - low) or 0.5
    return low - air, high + air


def _curve_layers(
    curve: Curve, x: Spec, y: Spec, colour: str, dash: list[int], write: Callable[[float], str]
) -> list[Spec]:
    """The band, the line, the dot at its end, and invisible points with tooltips."""
    floor = FLOOR if y["scale"].get("type") == "log" else -math.inf
    rows = [
        {"x": a, "y": max(b, floor), "name": curve.name, "text": write(b)} for a, b in curve.points
    ]
    tips = [
        {"field": "name", "title": " "},
        {"field": "x", "title": x["title"]},
        {"field": "text", "title": "value"},
    ]
    both, layers = {"x": x, "y": y}, []
    if curve.band:
        band = [
            {"x": a, "y": low, "high": high}
            for (a, _), (low, high) in zip(curve.points, curve.band, strict=True)
        ]
        layers.append(
            layer("area", band, {**both, "y2": {"field": "high"}}, color=colour, opacity=0.18)
        )
    return layers + [
        layer("line", rows, both, color=colour, strokeWidth=2, strokeDash=dash),
        layer("point", rows[-1:], both, filled=True, size=36, opacity=1, color=colour),
        layer("point", rows, {**both, "tooltip": tips}, opacity=0, size=160),
    ]


def _name_layers(
    curves: Sequence[Curve], ends: tuple[float, float], log: bool, ink: Ink
) -> list[Spec]:
    """Each curve's name right of its end, moved apart where ends meet."""
    low, high = (math.log(end) if log else end for end in ends)
    last = [curve.points[-1][1] for curve in curves]
    shares = [
        ((math.log(max(value, FLOOR)) if log else value) - low) / (high - low) for value in last
    ]
    return [
        layer(
            "text",
            [{}],
            {},
            **NAME_STYLE,
            text=curve.name,
            color=style(curve, at, ink)[0],
            x="width",
            y={"expr": f"height * {round(1 - share, 4)}"},
        )
        for at, (curve, share) in enumerate(zip(curves, separate(shares), strict=True))
    ]


def fixed_chart(names: Sequence[str], x_title: str, first: float, last: float, ink: Ink) -> Spec:
    """Curves from 0 to 1 with the data of `curve_table` apart, so that a control redraws no chart."""
    x = {
        "field": "x",
        "type": "quantitative",
        "title": x_title,
        "scale": {"domain": [first, last], "nice": False},
        "axis": {"grid": False, "format": "d"},
    }
    y = {
        "field": "y",
        "type": "quantitative",
        "title": None,
        "scale": {"domain": [0, TOP], "nice": False},
        "axis": {"tickCount": 5},
    }
    colours = [ink.series[at % len(ink.series)] for at in range(len(names))]
    both = {"x": x, "y": y, "color": vega.series_encoding("name", names, colours)}
    tips = [
        {"field": "name", "title": " "},
        {"field": "x", "title": "score", "format": ".2f"},
        {"field": "y", "title": "weight", "format": ".3f"},
    ]
    layers = [
        filtered_layer("curve", "line", both, strokeWidth=2),
        filtered_layer("curve", "point", {**both, "tooltip": tips}, opacity=0, size=160),
        filtered_layer("end", "point", both, filled=True, size=36, opacity=1),
        filtered_layer(
            "label",
            "text",
            {**both, "x": {"value": "width"}, "text": {"field": "name"}},
            **NAME_STYLE,
        ),
        filtered_layer("rule", "rule", {"x": x}, color=ink.pick, strokeWidth=1.5),
    ]
    return {"height": HEIGHT, "layer": layers, "config": vega.config(ink), **right_margin(4)}


def curve_table(curves: Sequence[Curve], rule: float | None) -> pa.Table:
    """The data of `fixed_chart`, as a table of kind, name, x and y."""
    import pyarrow as pa

    rows = [("curve", curve.name, x, y) for curve in curves for x, y in curve.points]
    rows += [("end", curve.name, *curve.points[-1]) for curve in curves]
    heights = separate([curve.points[-1][1] / TOP for curve in curves])
    rows += [
        ("label", curve.name, 0.0, height * TOP)
        for curve, height in zip(curves, heights, strict=True)
    ]
    rows += [] if rule is None else [("rule", "", rule, 0.0)]
    kinds, names, xs, ys = (list(column) for column in zip(*rows, strict=True))
    return pa.table({"kind": kinds, "name": names, "x": xs, "y": ys})
