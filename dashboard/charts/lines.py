"""The page's curves as Vega-Lite, written out, so that a rerun need not build a chart object."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from dashboard.charts.curves import DASHES
from dashboard.charts.numbers import number
from dashboard.charts.palette import Ink

HEIGHT = 240  # pixels
SIGN, BESIDE = 6.6, 16  # pixels of one sign of a name at a curve's end, and around it
APART = 0.075  # of the height between two names
FLOOR = 1e-9  # what a logarithmic axis can still show
_RAISED = {power: f"10{str(power).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}" for power in range(-9, 4)}
POWERS = f"{json.dumps({str(p): name for p, name in _RAISED.items()})}[toString(round(log(datum.value) / LN10))]"


@dataclass(frozen=True)
class Curve:
    """A named series of (x, y), with a band around it where low and high are given."""

    name: str
    points: Sequence[tuple[float, float]]
    band: Sequence[tuple[float, float]] = ()


def curves(
    title: str, x_title: str, series: Sequence[Curve], ink: Ink, *, log: bool = False, rule: float | None = None,
    height: int = HEIGHT,
) -> dict:
    """Curves that end in a dot and carry their names there; `rule` stands in the accent at what was picked."""
    flat = [y for curve in series for _, y in curve.points] + [y for c in series for pair in c.band for y in pair]
    low, high = bounds(flat, log)
    last = max(x for curve in series for x, _ in curve.points)
    first = min(x for curve in series for x, _ in curve.points)
    x = {"field": "x", "type": "quantitative", "title": x_title, "scale": {"domain": [first, last], "nice": False},
         "axis": {"grid": False, "tickMinStep": 1, "format": "d"}}
    y = {"field": "y", "type": "quantitative", "title": None,
         "axis": {"tickCount": 4, **({"labelExpr": POWERS} if log else {})},
         "scale": {"domain": [low, high], "nice": False, **({"type": "log"} if log else {})}}
    layers = []
    for at, curve in enumerate(series):
        layers += drawn(curve, x, y, ink.series[at % len(ink.series)], DASHES[at // len(ink.series) % len(DASHES)])
    layers += names(series, (low, high), log, ink)
    if rule is not None:
        layers.append(layer([{"x": rule}], {"type": "rule", "color": ink.pick, "strokeWidth": 1.5}, {"x": x}))
    heading = {"text": title, "anchor": "start", "fontSize": 14, "fontWeight": 600, "color": ink.text}
    return {"title": heading, "height": height, "layer": layers, "config": style(ink),
            "padding": {"left": 4, "right": BESIDE + SIGN * max(len(c.name) for c in series), "top": 4, "bottom": 4},
            "autosize": {"type": "fit-x", "contains": "padding"}}


def bounds(values: Sequence[float], log: bool) -> tuple[float, float]:
    """The axis around all values, with a little air; a logarithmic one ends at whole powers of ten."""
    if log:
        shown = [max(value, FLOOR) for value in values]
        return 10.0 ** math.floor(math.log10(min(shown))), 10.0 ** math.ceil(math.log10(max(shown)) + 0.05)
    low, high = min(values), max(values)
    air = 0.06 * (high - low) or 0.5
    return low - air, high + air


def drawn(curve: Curve, x: dict, y: dict, colour: str, dash: list[int]) -> list[dict]:
    rows = [{"x": a, "y": max(b, FLOOR) if y["scale"].get("type") == "log" else b, "name": curve.name,
             "told": number(b)} for a, b in curve.points]
    tips = [{"field": "name", "title": " "}, {"field": "x", "title": x["title"]},
            {"field": "told", "title": "value"}]
    both = {"x": x, "y": y}
    layers = []
    if curve.band:
        spread = [{"x": a, "y": low, "high": high}
                  for (a, _), (low, high) in zip(curve.points, curve.band, strict=True)]
        mark = {"type": "area", "color": colour, "opacity": 0.18}
        layers.append(layer(spread, mark, {**both, "y2": {"field": "high"}}))
    return layers + [
        layer(rows, {"type": "line", "color": colour, "strokeWidth": 2, "strokeDash": dash}, both),
        layer(rows[-1:], {"type": "point", "filled": True, "size": 36, "opacity": 1, "color": colour}, both),
        layer(rows, {"type": "point", "opacity": 0, "size": 160}, {**both, "tooltip": tips})]


def names(series: Sequence[Curve], ends: tuple[float, float], log: bool, ink: Ink) -> list[dict]:
    """Each curve's name right of its end, moved apart where ends meet."""
    low, high = (math.log(end) if log else end for end in ends)
    last = [curve.points[-1][1] for curve in series]
    shares = [((math.log(max(value, FLOOR)) if log else value) - low) / (high - low) for value in last]
    layers = []
    for at, (curve, share) in enumerate(zip(series, apart(shares), strict=True)):
        mark = {"type": "text", "align": "left", "dx": 8, "fontSize": 12, "fontWeight": 600, "text": curve.name,
                "color": ink.series[at % len(ink.series)], "baseline": "middle",
                "x": "width", "y": {"expr": f"height * {round(1 - share, 4)}"}}
        layers.append(layer([{}], mark, {}))
    return layers


def apart(shares: Sequence[float]) -> list[float]:
    """Shares of the height that keep their order and stand at least APART from one another, within 0 and 1."""
    order = sorted(range(len(shares)), key=lambda at: shares[at])
    places = [0.0] * len(shares)
    before = -1.0
    for at in order:
        places[at] = before = max(shares[at], before + APART)
    above = 1.0 + APART
    for at in reversed(order):
        places[at] = above = min(places[at], above - APART)
    return places


def layer(values: list[dict], mark: dict, encoding: dict) -> dict:
    return {"data": {"values": values}, "mark": mark, "encoding": encoding}


def style(ink: Ink) -> dict:
    axis = {"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal", "labelColor": ink.quiet,
            "titleColor": ink.quiet, "gridColor": ink.hairline, "domainColor": ink.hairline, "ticks": False,
            "titleAnchor": "end"}
    return {"font": '"Source Sans", sans-serif', "axis": axis, "view": {"stroke": None}, "background": "transparent"}
