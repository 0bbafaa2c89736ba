"""The page's Vega-Lite figures: the likeliest token after each layer, curves along the layers, and parts of a logit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dashboard.draw import vega
from dashboard.draw.formats import distinct, number, signed
from dashboard.draw.palette import CATEGORIES, PAGE, SIGNED, Ink, Theme, colour_scale
from dashboard.draw.vega import Spec, axis_style, figure, layer, picking_grid, series_encoding

TALL, WIDE = 26, 46  # pixels of a cell of the grid
NAMES = 72  # pixels of the names of the states
SIGNS = 8  # of a token in a cell
HIGH = 190
DARK_CELL = 0.45  # a probability from which a cell's text is light


@dataclass(frozen=True)
class Curve:
    """A value after each layer, in order; `texts` are the values as written."""

    name: str
    values: Sequence[float]


def token_grid(
    rows: Sequence[Spec],
    states: Sequence[str],
    tokens: Sequence[str],
    picked: tuple[str, int],
    theme: Theme,
    late: bool = False,
) -> Spec:
    """States × positions: the likeliest token in each cell, in ink by its probability; a click picks a cell.

    Each row holds state, column, index (its position in the text), token, p, text and top, which the tooltip shows.
    With `late` the names of the states stand at the end, which is in sight first where the figure scrolls.
    """
    ink, columns = Ink.of(theme), distinct(tokens)
    across = {
        "field": "column",
        "type": "ordinal",
        "sort": columns,
        "title": None,
        "scale": {"domain": columns, "paddingInner": 0.04},
        "axis": {
            **axis_style(ink),
            "orient": "top",
            "labelAngle": 0,
            "labelLimit": WIDE,
            "labelFlush": False,
            "labelOverlap": False,
        },
    }
    at = {
        "x": across,
        "y": {
            "field": "state",
            "type": "ordinal",
            "sort": list(states),
            "title": None,
            "scale": {"domain": list(states), "paddingInner": 0.06},
            "axis": {**axis_style(ink), "orient": "right" if late else "left", "minExtent": NAMES},
        },
    }
    colour = {
        "field": "p",
        "type": "quantitative",
        "scale": {"range": colour_scale(theme), "domain": [0, 1]},
        "legend": None,
    }  # which would scroll with the cells
    tips = [
        {"field": name, "title": title}
        for name, title in (
            ("state", "after"),
            ("token", "position"),
            ("text", "likeliest"),
            ("top", "others"),
        )
    ]
    cells = [
        row | {"column": columns[row["column"]], "short": shorten(row["word"])} for row in rows
    ]
    written = {
        "condition": {"test": f"datum.p > {DARK_CELL}", "value": PAGE[theme]},
        "value": ink.text,
    }
    layers = [
        layer(
            "rect", cells, {**at, "color": colour, "tooltip": tips}, cursor="pointer", stroke=None
        ),
        layer(
            "text",
            cells,
            {**at, "text": {"field": "short"}, "color": written},
            fontSize=11,
            tooltip=False,
        ),
    ]
    return picking_grid(
        layers,
        {"state": picked[0], "column": columns[picked[1]]},
        at,
        ink,
        TALL,
        ["state", "index"],
    )


def shorten(token: str) -> str:
    """The beginning of a token that is too long for a cell."""
    return token if len(token) <= SIGNS else f"{token[: SIGNS - 1]}…"


def scale_legend(theme: Theme) -> str:
    """The scale of the grid as HTML: 0, the colours, 1."""
    stops = ",".join(colour_scale(theme))
    return (
        f'0 <span style="display:inline-block;width:96px;height:8px;background:linear-gradient(90deg,{stops})">'
        "</span> 1"
    )


def colours(curves: int, theme: Theme) -> list[str]:
    """The accent for the answer, then the categories."""
    return [Ink.of(theme).pick, *CATEGORIES[theme][: max(0, curves - 1)]]


def along_layers(
    curves: Sequence[Curve],
    states: Sequence[str],
    theme: Theme,
    *,
    rank: bool = False,
    high: float | None = None,
    picked: str | None = None,
) -> Spec:
    """A curve a token over the states; ranks on a log scale with 1 on top, else from 0 to `high`."""
    ink, names = Ink.of(theme), [curve.name for curve in curves]
    rows = [
        {
            "state": state,
            "y": value,
            "name": curve.name,
            "text": f"{value:,.0f}" if rank else number(value),
        }
        for curve in curves
        for state, value in zip(states, curve.values, strict=True)
    ]
    top = max(max(curve.values) for curve in curves) if high is None else high
    scale = (
        {"type": "log", "domain": [1, max(10, 10 ** math.ceil(math.log10(top)))], "reverse": True}
        if rank
        else {"domain": [0, (top or 1) * 1.04]}
    )
    axis = {**axis_style(ink), "grid": True, "gridColor": ink.hairline, "tickCount": 4}
    at = {
        "x": {
            "field": "state",
            "type": "ordinal",
            "sort": list(states),
            "title": None,
            "scale": {"padding": 0.3},
            "axis": {**axis_style(ink), "labelAngle": 0, "labelOverlap": True},
        },
        "y": {
            "field": "y",
            "type": "quantitative",
            "title": None,
            "scale": scale,
            "axis": axis
            | ({"format": ",d", "values": [10**power for power in range(8)]} if rank else {}),
        },
        "color": series_encoding("name", names, colours(len(curves), theme)),
    }
    tips = [
        {"field": "state", "title": "after"},
        {"field": "name", "title": "token"},
        {"field": "text", "title": "rank" if rank else "value"},
    ]
    layers = (
        [layer("rule", [{"state": picked}], {"x": at["x"]}, color=ink.hairline, strokeWidth=2)]
        if picked
        else []
    )
    drawn = figure(
        [
            *layers,
            layer("line", rows, at, strokeWidth=2),
            layer("point", rows, {**at, "tooltip": tips}, filled=True, size=50, opacity=1),
        ],
        HIGH,
    )
    beside = [
        (name, colour, [1, 0])
        for name, colour in zip(names, colours(len(names), theme), strict=True)
    ]
    return drawn | vega.names(beside if len(names) > 1 else [])


def legend(names: Sequence[str], theme: Theme) -> str:
    """The names of curves as HTML, each after a piece of its line."""
    return " ".join(
        f'<span style="font-weight:600;white-space:nowrap"><span style="display:inline-block;width:14px;'
        f'height:3px;margin-right:4px;vertical-align:middle;background:{colour}"></span>{name}</span>'
        for name, colour in zip(names, colours(len(names), theme), strict=True)
    )


def part_bars(parts: dict[str, float], theme: Theme) -> Spec:
    """A signed bar a part, in the order of the model, with its number."""
    ink, stops = Ink.of(theme), SIGNED[theme]
    low, high = min(0.0, *parts.values()), max(0.0, *parts.values())
    room = 0.16 * (high - low or 1.0)
    rows = [
        {"part": part, "y": value, "text": signed(value), "end": max(value, 0.0)}
        for part, value in parts.items()
    ]
    y = {
        "field": "part",
        "type": "nominal",
        "sort": list(parts),
        "title": None,
        "axis": {
            **axis_style(ink),
            "labelColor": ink.text,
            "labelFontSize": 13,
            "labelLimit": 190,
            "grid": False,
        },
    }
    x = {
        "field": "y",
        "type": "quantitative",
        "title": None,
        "axis": None,
        "scale": {"domain": [low - 0.05 * room, high + room]},
    }
    colour = {"condition": {"test": "datum.y < 0", "value": stops[1]}, "value": stops[-3]}
    tips = [{"field": "part"}, {"field": "text", "title": "adds"}]
    return figure(
        [
            layer("bar", rows, {"y": y, "x": x, "color": colour, "tooltip": tips}, cornerRadius=2),
            layer(
                "text",
                rows,
                {"y": y, "x": {**x, "field": "end"}, "text": {"field": "text"}},
                align="left",
                dx=4,
                fontSize=12,
                color=ink.quiet,
            ),
        ],
        {"step": 26},
    )
