"""Quality against the source's length and against training time, as Vega-Lite whose rows alone change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dashboard.charts.palette import CATEGORIES, Ink, Theme
from dashboard.charts.vega import config, filtered_layer, separate
from dashboard.views.why.trained_models import SeedStats

if TYPE_CHECKING:
    import pyarrow as pa

HEIGHT, TOP = 200, 104.0  # pixels of the plot, and the top of its axis in percent
SHAPES = ("circle", "square", "triangle-up", "diamond")


@dataclass(frozen=True)
class Line:
    """One model: its name, its place in the series, and its (x, percent) points."""

    name: str
    place: int
    points: Sequence[tuple[Any, SeedStats]]


def by_length(title: str, unit: str, lengths: Sequence[str], theme: Theme) -> dict:
    """Percent against ranges of the source's length in words."""
    x = {"field": "name", "type": "nominal", "title": "words in the source", "scale": {"domain": list(lengths)},
         "axis": {"grid": False, "labelAngle": 0, "labelPadding": 8}}
    return _figure(title, x, {"field": "name", "title": "words"}, unit, theme)


def over_time(title: str, unit: str, clock: str, last: float, theme: Theme) -> dict:
    """Percent against training: `clock` is "seconds" or "step"."""
    x = {"field": "x", "type": "quantitative", "title": "seconds of training" if clock == "seconds" else "step",
         "scale": {"domain": [0, max(1.0, last)], "nice": False},
         "axis": {"grid": False, "tickCount": 5, "labelPadding": 8}}
    return _figure(title, x, {"field": "x", "title": clock, "format": ",.0f"}, unit, theme)


def _figure(title: str, x: dict, at: dict, unit: str, theme: Theme) -> dict:
    ink = Ink.of(theme)
    heading = {"text": title, "anchor": "start", "fontSize": 14, "fontWeight": 600, "color": ink.text}
    return {"title": heading, "height": HEIGHT, "layer": _layers(x, at, unit, theme), "config": config(ink),
            "padding": {"left": 4, "right": 4, "top": 4, "bottom": 4},
            "autosize": {"type": "fit-x", "contains": "padding"}}


def _layers(x: dict, at: dict, unit: str, theme: Theme) -> list[dict]:
    places = [str(place) for place in range(len(SHAPES))]

    def series(values: Sequence[str]) -> dict:
        return {"field": "place", "type": "nominal", "legend": None, "scale": {"domain": places, "range": list(values)}}

    y = {"field": "y", "type": "quantitative", "title": None, "scale": {"domain": [0, TOP], "nice": False},
         "axis": {"values": [0, 25, 50, 75, 100]}}
    both = {"x": x, "y": y, "color": series(CATEGORIES[theme][: len(SHAPES)])}
    tips = [{"field": "model", "title": " "}, at, {"field": "y", "title": unit, "format": ".0f"},
            {"field": "spread", "title": "± between seeds", "format": ".0f"}]
    label = {"align": "left", "dx": 10, "fontSize": 12, "fontWeight": 600, "baseline": "middle"}
    return [
        filtered_layer("point", "errorband", {**both, "y": {**y, "field": "low"}, "y2": {"field": "high"}},
                       opacity=0.16, interpolate="linear"),
        filtered_layer("point", "line", both, strokeWidth=2),
        filtered_layer("point", "point", {**both, "shape": series(SHAPES)}, filled=True, size=34, opacity=1),
        filtered_layer("point", "point", {**both, "tooltip": tips}, opacity=0, size=200),
        filtered_layer("label", "text", {**both, "x": {"value": "width"}, "text": {"field": "model"}}, **label),
    ]


def rows(lines: Sequence[Line]) -> pa.Table:
    """What either figure draws: kind, model, place, x or the name of a range, mean, low, high and spread."""
    import pyarrow as pa

    lines = [line for line in lines if line.points]
    table_rows = [("point", line.name, str(line.place), *_at(x), spread.mean, max(0.0, spread.mean - spread.spread),
              min(100.0, spread.mean + spread.spread), spread.spread)
             for line in lines for x, spread in line.points]
    places = separate([line.points[-1][1].mean / TOP for line in lines])
    table_rows += [("label", line.name, str(line.place), *_at(line.points[-1][0]), share * TOP, 0.0, 0.0, 0.0)
              for line, share in zip(lines, places, strict=True)]
    names = ("kind", "model", "place", "x", "name", "y", "low", "high", "spread")
    columns = [list(column) for column in zip(*table_rows, strict=True)] or [[] for _ in names]
    return pa.table(dict(zip(names, columns, strict=True)))


def _at(x: Any) -> tuple[float, str]:
    return (0.0, x) if isinstance(x, str) else (float(x), "")
