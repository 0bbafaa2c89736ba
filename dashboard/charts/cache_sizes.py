"""The size of caches by the length of the text, both axes logarithmic, each curve with its name at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dashboard.charts.numbers import byte_size
from dashboard.charts.palette import CATEGORIES, Ink, Theme
from dashboard.charts.vega import (
    DASHES,
    Spec,
    layer,
    right_margin,
    separate,
    series_encoding,
    text_tip,
    titled_figure,
)

BYTES = "replace(format(datum.value, '~s'), /([MGT])/, ' $1') + 'B'"  # of an axis: 10 MB
TOKENS = "datum.value < 1048576 ? datum.value / 1024 + 'k' : datum.value / 1048576 + 'M'"
LOW = 1e6  # bytes


def size_figure(
    curves: Mapping[str, Sequence[tuple[int, int]]],
    order: Sequence[str],
    lengths: Sequence[int],
    theme: Theme,
    powers: int = 7,
) -> Spec:
    """Points (tokens, bytes) of each name, over so many powers of ten from 1 MB.

    `order` lists all names that may occur, which decides their colours.
    """
    ink, high = Ink.of(theme), LOW * 10.0**powers
    x = {
        "field": "x",
        "type": "quantitative",
        "title": "tokens",
        "scale": {"type": "log", "base": 2, "domain": [lengths[0], lengths[-1]], "nice": False},
        "axis": {"grid": False, "values": list(lengths), "labelExpr": TOKENS},
    }
    y = {
        "field": "y",
        "type": "quantitative",
        "title": None,
        "scale": {"type": "log", "domain": [LOW, high], "nice": False, "clamp": True},
        "axis": {"values": [LOW * 10.0**power for power in range(powers + 1)], "labelExpr": BYTES},
    }
    places = [str(at) for at in range(len(order))]
    colour = series_encoding(
        "place", places, [CATEGORIES[theme][at % 8] for at in range(len(order))]
    )
    dash = series_encoding(
        "place", places, [DASHES[at // 4 % len(DASHES)] for at in range(len(order))]
    )
    drawn = {name: points for name, points in curves.items() if points}
    rows = [
        {
            "x": length,
            "y": size,
            "name": name,
            "place": str(order.index(name)),
            "told": byte_size(size),
        }
        for name, points in drawn.items()
        for length, size in points
    ]
    span = np.log(high / LOW)
    heights = separate(
        [float(np.log(max(LOW, points[-1][1]) / LOW) / span) for points in drawn.values()]
    )
    ends = [
        {
            "x": points[-1][0],
            "y": float(LOW * np.exp(span * height)),
            "name": name,
            "place": str(order.index(name)),
        }
        for (name, points), height in zip(drawn.items(), heights, strict=True)
    ]
    at = {"x": x, "y": y, "color": colour}
    tips = [
        text_tip("name", " "),
        {"field": "x", "title": "tokens", "format": ",d"},
        text_tip("told", " "),
    ]
    layers = [
        layer("line", rows, {**at, "strokeDash": dash}, strokeWidth=2),
        layer("point", rows, {**at, "tooltip": tips}, filled=True, size=40, opacity=1),
        layer(
            "text",
            ends,
            {**at, "text": {"field": "name"}},
            align="left",
            dx=8,
            fontSize=12,
            fontWeight=600,
        ),
    ]
    return titled_figure("Size of the cache of one sequence", layers, 320, ink, **right_margin(4))
