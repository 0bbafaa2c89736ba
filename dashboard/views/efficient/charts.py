"""Time and memory against length, both axes logarithmic, as Vega-Lite: measured lines, dotted closed forms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dashboard.charts.palette import CATEGORIES, Ink, Theme
from dashboard.charts.vega import Spec, filtered_layer, right_margin, separate, series_encoding, titled_figure

if TYPE_CHECKING:
    import pyarrow as pa

HEIGHT = 300  # pixels of the plot
SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")
THOUSANDS = "datum.value < 1024 ? datum.label : datum.value / 1024 + 'k'"
AIR = 1.25  # factor of free space above and below, at least
STEPS = 2  # to a power of ten, in which an axis ends


@dataclass(frozen=True)
class Line:
    """One kernel: its name, its measurements, and the closed form at the same lengths."""

    name: str
    index: int  # in the series: its colour and shape
    points: Sequence[tuple[int, float]]
    closed: Sequence[tuple[int, float]]


def log_log(title: str, unit: str, lines: Sequence[Line], theme: Theme) -> Spec:
    """One figure of the rows below, each line with its name at its end.

    The axis ends in steps, so that another kernel changes the rows alone, and no figure is built anew.
    """
    lengths = sorted({x for line in lines for x, _ in line.points})
    low, high = _ends(lines)
    x = {"field": "x", "type": "quantitative", "title": "tokens T",
         "scale": {"type": "log", "base": 2, "domain": [lengths[0], lengths[-1]], "nice": False},
         "axis": {"grid": False, "values": lengths, "labelExpr": THOUSANDS}}
    powers = [10.0 ** power for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]
    y = {"field": "y", "type": "quantitative", "title": None,
         "axis": {"values": powers, "format": ",~g", "labelPadding": 8},
         "scale": {"type": "log", "domain": [low, high], "nice": False}}
    return titled_figure(f"{title}, {unit}", _layers(x, y, theme), HEIGHT, Ink.of(theme), **right_margin(4))


def _ends(lines: Sequence[Line]) -> tuple[float, float]:
    """The ends of the axis of all measured and calculated numbers, in steps of half a power of ten."""
    values = [y for line in lines for _, y in (*line.points, *line.closed) if y > 0]
    low, high = math.log10(min(values) / AIR), math.log10(max(values) * AIR)
    return 10.0 ** (math.floor(low * STEPS) / STEPS), 10.0 ** (math.ceil(high * STEPS) / STEPS)


def _layers(x: Spec, y: Spec, theme: Theme) -> list[Spec]:
    indices = [str(index) for index in range(len(SHAPES))]
    colours = [CATEGORIES[theme][index % len(CATEGORIES[theme])] for index in range(len(SHAPES))]
    shape = series_encoding("place", indices, SHAPES)
    both = {"x": x, "y": y, "color": series_encoding("place", indices, colours)}
    tips = [{"field": "name", "title": " "}, {"field": "x", "title": "tokens", "format": ",d"},
            {"field": "told", "title": " "}]
    name = {**both, "text": {"field": "name"}}
    look = {"fontSize": 12, "fontWeight": 600}
    return [
        filtered_layer("closed", "line", both, strokeWidth=1.25, strokeDash=[2, 3]),
        filtered_layer("measured", "line", both, strokeWidth=2),
        filtered_layer("measured", "point", {**both, "shape": shape}, filled=True, size=30, opacity=1),
        filtered_layer("measured", "point", {**both, "tooltip": tips}, opacity=0, size=160),
        filtered_layer("label", "text", name, **look, align="left", dx=8, baseline="middle"),
        filtered_layer("early", "text", name, **look, align="right", dx=4, dy=-7, baseline="bottom"),
    ]


def rows(lines: Sequence[Line], format_y: Callable[[float], str]) -> pa.Table:
    """The data of the figure: kind, name, index in the series, x, y, and y as `format_y` writes it."""
    import pyarrow as pa

    cells = [(kind, line.name, str(line.index % len(SHAPES)), float(x), float(y))
             for line in lines for kind, points in (("measured", line.points), ("closed", line.closed))
             for x, y in points if y > 0]
    last = max(x for line in lines for x, _ in line.points)
    # A line that ends early does so by its cost: it is the steepest, and nothing is drawn above its end.
    cells += [("label" if line.points[-1][0] == last else "early", line.name, str(line.index % len(SHAPES)),
               float(line.points[-1][0]), y) for line, y in zip(lines, _label_heights(lines), strict=True)]
    columns = [list(column) for column in zip(*cells, strict=True)]
    table = pa.table(dict(zip(("kind", "name", "place", "x", "y"), columns, strict=True)))
    return table.append_column("told", [[format_y(y) for y in columns[-1]]])


def _label_heights(lines: Sequence[Line]) -> list[float]:
    """The y of each line's name: that of its last point, moved apart where lines end at the same length."""
    low, high = (math.log(end) for end in _ends(lines))
    result = [0.0] * len(lines)
    for length in {line.points[-1][0] for line in lines}:
        together = [at for at, line in enumerate(lines) if line.points[-1][0] == length]
        heights = separate([(math.log(lines[at].points[-1][1]) - low) / (high - low) for at in together])
        for at, height in zip(together, heights, strict=True):
            result[at] = math.exp(low + height * (high - low))
    return result
