"""The two figures of the √D section as Vega-Lite: written out, so that a rerun need not build a chart object."""

from __future__ import annotations

import math

from dashboard.charts.numbers import number
from dashboard.charts.palette import Ink
from dashboard.views.one_query.scaling import DIMS, KEYS, Point

NAMES = ["without √D", "divided by √D"]
X = {
    "field": "D", "type": "quantitative", "scale": {"type": "log", "base": 2, "domain": [1, 512]},
    "axis": {"values": list(DIMS), "grid": False, "title": "head size D"},
}


def figures(points: tuple[Point, ...], ink: Ink) -> tuple[dict, dict]:
    """Variance (both axes logarithmic) and entropy over D."""
    variance = [(p.dims, p.variance, p.scaled_variance) for p in points]
    spread = [(p.dims, p.entropy, p.scaled_entropy) for p in points]
    even = math.log(KEYS)
    bound = [rule_across(even, ink), text_at(even, f"even, ln {KEYS} = {number(even)}", ink)]
    return (figure("Variance of the scores", variance, ink, {"type": "log"}, []),
            figure("Entropy of the weights, nats", spread, ink, {"domain": [0, 5]}, bound))


def figure(title: str, rows: list[tuple], ink: Ink, scale: dict, bound: list[dict]) -> dict:
    """Two curves, each with its end labelled, and whatever bounds them."""
    values = [{"D": row[0], "value": row[at + 1], "told": number(row[at + 1]), "series": NAMES[at]}
              for row in rows for at in (0, 1)]
    below = 14 if bound else -10  # a label goes under its line where the bound stands over it
    ends = [value for value in values if value["D"] == DIMS[-1]]
    y = {"field": "value", "type": "quantitative", "scale": scale, "axis": {"title": None, "tickCount": 4}}
    both = {"x": X, "y": y, "color": by_series([ink.series[1], ink.series[0]])}
    label = {"type": "text", "align": "right", "dx": -6, "fontSize": 12,
             "dy": {"expr": f"datum.series == '{NAMES[1]}' ? {below} : -10"}}
    tooltip = [{"field": "series"}, {"field": "D"}, {"field": "told", "title": "value"}]
    layers = [
        layer(values, {"type": "line", "strokeWidth": 2}, {**both, "strokeDash": by_series([[5, 3], [1, 0]])}),
        layer(values, {"type": "point", "opacity": 0, "size": 200}, {**both, "tooltip": tooltip}),
        layer(ends, {"type": "point", "filled": True, "size": 45, "opacity": 1}, both),
        layer(ends, label, {**both, "text": {"field": "series"}}),
    ]
    heading = {"text": title, "anchor": "start", "fontSize": 14, "fontWeight": 600, "color": ink.text}
    return {"title": heading, "height": 190, "layer": layers + bound, "config": style(ink)}


def layer(values: list[dict], mark: dict, encoding: dict) -> dict:
    return {"data": {"values": values}, "mark": mark, "encoding": encoding}


def by_series(values: list) -> dict:
    return {"field": "series", "type": "nominal", "legend": None, "scale": {"domain": NAMES, "range": values}}


def rule_across(value: float, ink: Ink) -> dict:
    y = {"field": "value", "type": "quantitative"}
    return layer([{"value": value}], {"type": "rule", "strokeDash": [2, 3], "color": ink.quiet}, {"y": y})


def text_at(value: float, text: str, ink: Ink) -> dict:
    mark = {"type": "text", "align": "right", "dx": -6, "dy": -8, "fontSize": 12, "color": ink.quiet}
    encoding = {"y": {"field": "value", "type": "quantitative"}, "x": {"field": "D", "type": "quantitative"},
                "text": {"field": "text"}}
    return layer([{"value": value, "D": DIMS[-1], "text": text}], mark, encoding)


def style(ink: Ink) -> dict:
    axis = {"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal", "labelColor": ink.quiet,
            "titleColor": ink.quiet, "gridColor": ink.hairline, "domainColor": ink.hairline, "ticks": False}
    return {"font": '"Source Sans", sans-serif', "axis": axis, "view": {"stroke": None}}
