"""Quality against the source's length and against training time, as Vega-Lite whose rows alone change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from core.training.seed_stats import SeedStats
from dashboard.charts.palette import CATEGORIES, Ink, Theme
from dashboard.charts.vega import Spec, filtered_layer, right_margin, separate, series_encoding, titled_figure

if TYPE_CHECKING:
    import pyarrow as pa

HEIGHT, TOP = 200, 104.0  # pixels of the plot, and the top of its axis in percent
SHAPES = ("circle", "square", "triangle-up", "diamond")


@dataclass(frozen=True)
class Line:
    """One model: its name, its index in the series, and its (x, percent) points."""

    name: str
    index: int
    points: Sequence[tuple[Any, SeedStats]]


def by_length(title: str, unit: str, lengths: Sequence[str], theme: Theme) -> Spec:
    """Percent against ranges of the source's length in words."""
    x = {"field": "name", "type": "nominal", "title": "words in the source", "scale": {"domain": list(lengths)},
         "axis": {"grid": False, "labelAngle": 0, "labelPadding": 8}}
    return _figure(title, x, {"field": "name", "title": "words"}, unit, theme)


def over_time(title: str, unit: str, clock: str, last: float, theme: Theme) -> Spec:
    """Percent against training: `clock` is "seconds" or "step"."""
    x = {"field": "x", "type": "quantitative", "title": "seconds of training" if clock == "seconds" else "step",
         "scale": {"domain": [0, max(1.0, last)], "nice": False},
         "axis": {"grid": False, "tickCount": 5, "labelPadding": 8}}
    return _figure(title, x, {"field": "x", "title": clock, "format": ",.0f"}, unit, theme)


def _figure(title: str, x: Spec, x_tip: Spec, unit: str, theme: Theme) -> Spec:
    indices = [str(index) for index in range(len(SHAPES))]
    y = {"field": "y", "type": "quantitative", "title": None, "scale": {"domain": [0, TOP], "nice": False},
         "axis": {"values": [0, 25, 50, 75, 100]}}
    shape = series_encoding("place", indices, SHAPES)
    both = {"x": x, "y": y, "color": series_encoding("place", indices, CATEGORIES[theme][: len(SHAPES)])}
    tips = [{"field": "model", "title": " "}, x_tip, {"field": "y", "title": unit, "format": ".0f"},
            {"field": "spread", "title": "± std between seeds", "format": ".0f"}]
    label = {"align": "left", "dx": 10, "fontSize": 12, "fontWeight": 600, "baseline": "middle"}
    layers = [
        filtered_layer("point", "errorband", {**both, "y": {**y, "field": "low"}, "y2": {"field": "high"}},
                       opacity=0.16, interpolate="linear"),
        filtered_layer("point", "line", both, strokeWidth=2),
        filtered_layer("point", "point", {**both, "shape": shape}, filled=True, size=34, opacity=1),
        filtered_layer("point", "point", {**both, "tooltip": tips}, opacity=0, size=200),
        filtered_layer("label", "text", {**both, "x": {"value": "width"}, "text": {"field": "model"}}, **label)]
    return titled_figure(title, layers, HEIGHT, Ink.of(theme), **right_margin(4))


def rows(lines: Sequence[Line]) -> pa.Table:
    """The data of either figure: kind, model, index, x or the name of a range, mean, low, high and std."""
    import pyarrow as pa

    lines = [line for line in lines if line.points]
    cells = [("point", line.name, str(line.index), *_x_cells(x), stats.mean, max(0.0, stats.mean - std),
              min(100.0, stats.mean + std), std)
             for line in lines for x, stats in line.points for std in [stats.std or 0.0]]
    heights = separate([line.points[-1][1].mean / TOP for line in lines])
    cells += [("label", line.name, str(line.index), *_x_cells(line.points[-1][0]), height * TOP, 0.0, 0.0, 0.0)
              for line, height in zip(lines, heights, strict=True)]
    names = ("kind", "model", "place", "x", "name", "y", "low", "high", "spread")
    columns = [list(column) for column in zip(*cells, strict=True)] or [[] for _ in names]
    return pa.table(dict(zip(names, columns, strict=True)))


def _x_cells(x: Any) -> tuple[float, str]:
    return (0.0, x) if isinstance(x, str) else (float(x), "")
