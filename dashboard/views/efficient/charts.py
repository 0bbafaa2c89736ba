"""Time and memory against length, both axes logarithmic, as Vega-Lite: measured lines, dotted closed forms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dashboard.charts.palette import CATEGORIES, Ink, Theme
from dashboard.charts.vega import config, filtered_layer, separate

if TYPE_CHECKING:
    import pyarrow as pa

HEIGHT = 300  # pixels of the plot
SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")
THOUSANDS = "datum.value < 1024 ? datum.label : datum.value / 1024 + 'k'"
AIR = 1.25  # factor of free space above and below, at least
STEPS = 2  # to a power of ten, in which an axis ends


@dataclass(frozen=True)
class Line:
    """One kernel: its name, what was measured, and the closed form at the same lengths."""

    name: str
    index: int  # in the series: its colour and shape
    points: Sequence[tuple[int, float]]
    closed: Sequence[tuple[int, float]]


def log_log(title: str, unit: str, lines: Sequence[Line], theme: Theme) -> dict:
    """One figure of the rows below; a line ends in a dot and carries its name there.

    The axis ends in steps, so that another kernel changes the rows alone, and no figure is built anew.
    """
    ink, lengths = Ink.of(theme), sorted({x for line in lines for x, _ in line.points})
    low, high = ends(lines)
    x = {"field": "x", "type": "quantitative", "title": "tokens T",
         "scale": {"type": "log", "base": 2, "domain": [lengths[0], lengths[-1]], "nice": False},
         "axis": {"grid": False, "values": lengths, "labelExpr": THOUSANDS}}
    powers = [10.0 ** power for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]
    y = {"field": "y", "type": "quantitative", "title": None, "axis": {"values": powers, "format": ",~g"},
         "scale": {"type": "log", "domain": [low, high], "nice": False}}
    heading = {"text": f"{title}, {unit}", "anchor": "start", "fontSize": 14, "fontWeight": 600, "color": ink.text}
    return {"title": heading, "height": HEIGHT, "layer": layers(x, y, theme), "config": config(ink),
            "padding": {"left": 4, "right": 4, "top": 4, "bottom": 4},
            "autosize": {"type": "fit-x", "contains": "padding"}}


def ends(lines: Sequence[Line]) -> tuple[float, float]:
    """Where the axis of all measured and all calculated numbers begins and ends, in steps of half a power of ten."""
    values = [y for line in lines for _, y in (*line.points, *line.closed) if y > 0]
    low, high = math.log10(min(values) / AIR), math.log10(max(values) * AIR)
    return 10.0 ** (math.floor(low * STEPS) / STEPS), 10.0 ** (math.ceil(high * STEPS) / STEPS)


def layers(x: dict, y: dict, theme: Theme) -> list[dict]:
    places = [str(place) for place in range(len(SHAPES))]
    colours = [CATEGORIES[theme][place % len(CATEGORIES[theme])] for place in range(len(SHAPES))]

    def series(values: Sequence[str]) -> dict:
        return {"field": "place", "type": "nominal", "legend": None, "scale": {"domain": places, "range": list(values)}}

    both = {"x": x, "y": y, "color": series(colours)}
    tips = [{"field": "name", "title": " "}, {"field": "x", "title": "tokens", "format": ",d"},
            {"field": "told", "title": " "}]
    label = {"align": "left", "dx": 8, "fontSize": 12, "fontWeight": 600, "baseline": "middle"}
    return [
        filtered_layer("closed", "line", both, strokeWidth=1.25, strokeDash=[2, 3]),
        filtered_layer("measured", "line", both, strokeWidth=2),
        filtered_layer("measured", "point", {**both, "shape": series(SHAPES)}, filled=True, size=30, opacity=1),
        filtered_layer("measured", "point", {**both, "tooltip": tips}, opacity=0, size=160),
        filtered_layer("label", "text", {**both, "x": {"value": "width"}, "text": {"field": "name"}}, **label),
    ]


def rows(lines: Sequence[Line], format_y: Callable[[float], str]) -> pa.Table:
    """What the figure draws: kind, name, place in the series, x, y, and y as `format_y` writes it."""
    import pyarrow as pa

    cells = [(kind, line.name, str(line.index % len(SHAPES)), float(x), float(y))
             for line in lines for kind, points in (("measured", line.points), ("closed", line.closed))
             for x, y in points if y > 0]
    # Each kernel's name stands right of the plot, at the height of its end, moved apart where ends meet.
    low, high = (math.log(end) for end in ends(lines))
    places = separate([(math.log(line.points[-1][1]) - low) / (high - low) for line in lines])
    cells += [("label", line.name, str(line.index % len(SHAPES)), 1.0, math.exp(low + share * (high - low)))
              for line, share in zip(lines, places, strict=True)]
    columns = [list(column) for column in zip(*cells, strict=True)]
    table = pa.table(dict(zip(("kind", "name", "place", "x", "y"), columns, strict=True)))
    return table.append_column("told", [[format_y(y) for y in columns[-1]]])
