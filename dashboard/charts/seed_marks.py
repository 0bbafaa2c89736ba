"""Rows of marks: every seed of a value or condition, over the interval of their mean."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from core.training.seed_stats import SeedStats
from dashboard.charts.numbers import number
from dashboard.charts.palette import Ink
from dashboard.charts.vega import Spec, layer, right_margin, titled_figure


@dataclass(frozen=True)
class SeedRow:
    """One row: its name, the numbers of its seeds, and how they are drawn."""

    name: str
    stats: SeedStats
    colour: str
    shape: str = "circle"


def seed_marks(
    title: str,
    rows: Sequence[SeedRow],
    x: Spec,
    ink: Ink,
    *,
    ends: tuple[float, float] = (-math.inf, math.inf),
    height: int = 30,
    labels: int = 220,
    write: Callable[[float], str] = number,
) -> Spec:
    """Every seed a mark over the 95 % interval of the mean, cut at the `ends` of the axis.

    `x` encodes the field x; `height` and `labels` are the pixels of a row and of the names before the rows.
    """
    names = [row.name for row in rows]
    y = {
        "field": "name",
        "type": "nominal",
        "title": None,
        "sort": names,
        "scale": {"domain": names},
        "axis": {
            "labelLimit": labels,
            "domain": False,
            "grid": False,
            "labelFontSize": 13,
            "labelColor": ink.text,
            "labelFlush": False,
        },
    }
    layers = []
    for row in rows:
        mean = row.stats.mean
        low, high = row.stats.interval or (mean, mean)
        interval = [
            {"x": mean, "low": max(ends[0], low), "high": min(ends[1], high), "name": row.name}
        ]
        points = [
            {"x": value, "name": row.name, "text": write(value)} for value in row.stats.values
        ]
        layers += [
            layer(
                "rule",
                interval,
                {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y},
                strokeWidth=6,
                opacity=0.25,
                color=row.colour,
            ),
            layer(
                "tick",
                interval,
                {"x": x, "y": y},
                thickness=3,
                size=20,
                opacity=1,
                color=row.colour,
            ),
            layer(
                "point",
                points,
                {"x": x, "y": y, "tooltip": [{"field": "text", "title": "this seed"}]},
                filled=True,
                size=60,
                opacity=0.75,
                shape=row.shape,
                color=row.colour,
            ),
        ]
    return titled_figure(title, layers, height * max(1, len(rows)), ink, **right_margin(12))
