"""Layers × parts of a model, each cell a signed effect on the answer, as a Vega-Lite figure."""

from __future__ import annotations

from collections.abc import Sequence

from dashboard.charts.numbers import cell, number, signed
from dashboard.charts.palette import PAGE, Ink, Theme, colour_scale
from dashboard.charts.vega import Spec, axis_style, layer, picking_grid

WIDE, TALL = 30, 24  # pixels of a cell: its least width that shows a number, and its height
SIGN = 6  # pixels that a character of a number takes
MOST_NUMBERS = 17  # columns, beyond which cells hold no numbers
TIPS = (("name", "without"), ("now", "answer"), ("by", "change"), ("share", "rank"))


def effect_grid(
    rows: Sequence[Spec],
    layers: Sequence[str],
    columns: Sequence[str],
    picked: tuple[str, str],
    theme: Theme,
    *,
    title: str = "change of the answer",
    across: str = "head",
    tips: Sequence[tuple[str, str]] = TIPS,
    has_sign: bool = True,
) -> Spec:
    """A cell for each row of data, which holds layer, head (its column), change and the tooltip's texts.

    The scale ends at the largest change; columns that are no numbers (whole layers) do not count. Without signs it
    begins at 0. A click picks layer and head; `picked` is outlined.
    """
    ink = Ink.of(theme)
    most = (
        max(
            (abs(row["change"]) for row in rows if row["head"].isdecimal() or across != "head"),
            default=0.0,
        )
        or 1e-9
    )
    at = {
        "x": _band("head", across, columns, ink, "top"),
        "y": _band("layer", None, layers, ink, "left"),
    }
    middle = {"domain": [-most, most], "domainMid": 0} if has_sign else {"domain": [0, most]}
    colour = {
        "field": "change",
        "type": "quantitative",
        "scale": {
            "range": colour_scale(theme, signed=has_sign),
            **middle,
            "clamp": True,
            "interpolate": "rgb",
        },
        "legend": {
            "title": title,
            "orient": "bottom",
            "direction": "horizontal",
            "gradientLength": 160,
            "gradientThickness": 8,
            "tickCount": 2,
            "labelColor": ink.quiet,
            "titleColor": ink.quiet,
            "titleFontWeight": "normal",
        },
    }
    texts = [
        short(row["change"], most) if has_sign else cell(number(row["change"])) for row in rows
    ]
    wide = max([WIDE, *(SIGN * len(text) for text in texts)])
    rows = [row | {"short": text} for row, text in zip(rows, texts, strict=True)]
    tooltip = [{"field": name, "title": words} for name, words in tips]
    parts = [
        layer(
            "rect", rows, {**at, "color": colour, "tooltip": tooltip}, cursor="pointer", stroke=None
        )
    ]
    if len(columns) <= MOST_NUMBERS:
        light = {"test": f"abs(datum.change) > {0.55 * most}", "value": PAGE[theme]}
        parts.append(
            layer(
                "text",
                rows,
                {
                    **at,
                    "text": {"field": "short"},
                    "color": {"condition": light, "value": ink.text},
                },
                fontSize=10,
                tooltip=False,
                opacity={"expr": f"width < {wide * len(columns)} ? 0 : 1"},
            )
        )
    return picking_grid(
        parts, {"layer": picked[0], "head": picked[1]}, at, ink, TALL, ["layer", "head"]
    )


def short(change: float, most: float) -> str:
    """A change in a cell; nothing where it is small compared with the largest."""
    return "" if abs(change) < 0.08 * most else cell(signed(change))


def _band(name: str, title: str | None, sort: Sequence[str], ink: Ink, orient: str) -> Spec:
    return {
        "field": name,
        "type": "ordinal",
        "sort": list(sort),
        "title": title,
        "scale": {"domain": list(sort), "paddingInner": 0.06},
        "axis": {
            **axis_style(ink),
            "orient": orient,
            "labelAngle": 0,
            "labelOverlap": True,
            "labelFlush": False,
            "grid": False,
            "titlePadding": 2,
            "labelPadding": 4,
        },
    }
