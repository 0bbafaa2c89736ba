"""The two figures of what √D does."""

from __future__ import annotations

import math

from dashboard.charts.numbers import number
from dashboard.charts.palette import Ink
from dashboard.charts.vega import Spec, config, layer, series_encoding, titled_figure
from dashboard.views.one_query.compute import DIMS, KEYS, Scaling

SHOWN = (4, 64, 512)  # sizes of the bars
NAMES = ["without √D", "divided by √D"]
X: Spec = {
    "field": "D", "type": "quantitative", "scale": {"type": "log", "base": 2, "domain": [1, 512]},
    "axis": {"values": list(DIMS), "grid": False, "title": "head size D"},
}


def figures(points: tuple[Scaling, ...], ink: Ink) -> tuple[Spec, Spec]:
    """Variance (both axes logarithmic) and entropy over D."""
    variance = [(p.dims, p.variance, p.scaled_variance) for p in points]
    entropy = [(p.dims, p.entropy, p.scaled_entropy) for p in points]
    even = math.log(KEYS)
    y = {"field": "value", "type": "quantitative"}
    label = {"value": even, "D": DIMS[-1], "text": f"uniform weights, ln {KEYS} = {number(even)}"}
    bound = [layer("rule", [{"value": even}], {"y": y}, strokeDash=[2, 3], color=ink.quiet),
             layer("text", [label], {"y": y, "x": {"field": "D", "type": "quantitative"}, "text": {"field": "text"}},
                   align="right", dx=-6, dy=-8, fontSize=12, color=ink.quiet)]
    return (_figure("Variance of the scores", variance, ink, {"type": "log"}, []),
            _figure("Entropy of the weights, nats", entropy, ink, {"domain": [0, 5]}, bound))


def largest(points: tuple[Scaling, ...], ink: Ink) -> Spec:
    """Two bars at each of three sizes: the largest weight of a query without √D and divided by it."""
    rows = [{"D": f"D = {p.dims}", "value": value, "text": number(value), "series": name}
            for p in points if p.dims in SHOWN
            for name, value in zip(NAMES, (p.largest, p.scaled_largest), strict=True)]
    y = {"field": "value", "type": "quantitative", "scale": {"domain": [0, 1]}, "axis": {"title": None, "tickCount": 3}}
    x = {"field": "D", "type": "nominal", "sort": None, "axis": {"title": None, "labelAngle": 0}}
    encoding = {"x": x, "y": y, "xOffset": {"field": "series", "sort": NAMES},
                "color": series_encoding("series", NAMES, [ink.series[1], ink.series[0]])}
    text = {"text": {"field": "text"}}
    colour = {"color": encoding["color"]}
    names = [layer("text", rows[at:at + 1], {"text": {"field": "series"}, "x": {"value": 4},
                                             "y": {"value": 8 + 18 * at}, **colour}, align="left", fontSize=13)
             for at in range(len(NAMES))]  # over the small bars, where no bar is under them
    layers = [layer("bar", rows, encoding),
              layer("text", rows, {**encoding, **text}, dy=-7, fontSize=13),
              *names]
    return titled_figure("Largest weight of a query, mean", layers, 190, ink) | {"config": config(ink)}


def _figure(title: str, rows: list[tuple], ink: Ink, scale: Spec, bound: list[Spec]) -> Spec:
    """Two curves with names at their ends, and the bound over them; rows are (D, without √D, divided by √D)."""
    values = [{"D": dims, "value": value, "text": number(value), "series": name}
              for dims, *both in rows for name, value in zip(NAMES, both, strict=True)]
    below = 14 if bound else -10  # the name goes under its line where the bound is over it
    ends = [value for value in values if value["D"] == DIMS[-1]]
    y = {"field": "value", "type": "quantitative", "scale": scale, "axis": {"title": None, "tickCount": 4}}
    encoding = {"x": X, "y": y, "color": series_encoding("series", NAMES, [ink.series[1], ink.series[0]])}
    dash = series_encoding("series", NAMES, [[5, 3], [1, 0]])
    tooltip = [{"field": "series"}, {"field": "D"}, {"field": "text", "title": "value"}]
    layers = [
        layer("line", values, {**encoding, "strokeDash": dash}, strokeWidth=2),
        layer("point", values, {**encoding, "tooltip": tooltip}, opacity=0, size=200),
        layer("point", ends, encoding, filled=True, size=45, opacity=1),
        layer("text", ends, {**encoding, "text": {"field": "series"}}, align="right", dx=-6, fontSize=12,
              dy={"expr": f"datum.series == '{NAMES[1]}' ? {below} : -10"}),
    ]
    return titled_figure(title, layers + bound, 190, ink) | {"config": config(ink, titleAnchor="middle")}
