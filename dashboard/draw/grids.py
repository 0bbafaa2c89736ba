"""Figures of cells and bars: effects by layer and place, tokens by probability, which source a model reads."""

import base64
import io
import math
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
from PIL import Image
from torch import Tensor

from dashboard.draw.formats import cell, distinct, number, signed
from dashboard.draw.palette import PAGE, Ink, Theme, colour_scale, colours_at, rgb_of
from dashboard.draw.vega import (
    Spec,
    axis_style,
    field,
    figure,
    layer,
    names_axis,
    picking_grid,
    text_tip,
    whole_tip,
)

# Layers × parts of a model, each cell a signed effect on the answer, as a Vega-Lite figure.


WIDE, TALL = 30, 24  # pixels of a cell: its least width that shows a number, and its height
SIGN = 6  # pixels that a character of a number takes
MAX_NUMBERS = 17  # columns, beyond which cells hold no numbers
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
    largest: float = 0.0,
) -> Spec:
    """A cell for each row of data, which holds layer, head (its column), change and the tooltip's texts.

    The scale ends at `largest`, else at the largest change; columns that are no numbers (whole layers) do not count.
    Without signs it begins at 0. A click picks layer and head; `picked` is outlined.
    """
    ink = Ink.of(theme)
    largest = (
        largest
        or max(
            (abs(row["change"]) for row in rows if row["head"].isdecimal() or across != "head"),
            default=0.0,
        )
        or 1e-9
    )
    at = {
        "x": _band("head", across, columns, ink, "top"),
        "y": _band("layer", None, layers, ink, "left"),
    }
    middle = (
        {"domain": [-largest, largest], "domainMid": 0} if has_sign else {"domain": [0, largest]}
    )
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
            "titleLimit": 300,
        },
    }
    texts = [
        short(row["change"], largest) if has_sign else cell(number(row["change"])) for row in rows
    ]
    wide = max([WIDE, *(SIGN * len(text) for text in texts)])
    rows = [row | {"short": text} for row, text in zip(rows, texts, strict=True)]
    tooltip = [{"field": name, "title": words} for name, words in tips]
    parts = [
        layer(
            "rect", rows, {**at, "color": colour, "tooltip": tooltip}, cursor="pointer", stroke=None
        )
    ]
    if len(columns) <= MAX_NUMBERS:
        light = {"test": f"abs(datum.change) > {0.55 * largest}", "value": PAGE[theme]}
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


def short(change: float, largest: float) -> str:
    """A change in a cell; nothing where it is small compared with the largest."""
    return "" if abs(change) < 0.08 * largest else cell(signed(change))


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


# The most probable next tokens as bars, of one distribution or of several.


MAX_BARS = 8
TOOLTIP = [{"field": name, "type": "nominal"} for name in ("token", "of", "text")]


def likeliest(probabilities: Tensor, token: int, max_bars: int = MAX_BARS) -> list[int]:
    """The most probable tokens; `token` replaces the last of them where it is not among them."""
    top = probabilities.topk(min(max_bars, len(probabilities))).indices.tolist()
    return top if token in top else [*top[:-1], token]


def bar_figure(
    rows: Sequence[Spec],
    name: str,
    names: Sequence[str],
    value: str,
    ink: Ink,
    *,
    domain: Sequence[float],
    height: int | Spec,
    colour: Spec,
    tips: Sequence[Spec],
    mark: Spec | None = None,
    offset: Spec | None = None,
    dx: int = 4,
    limit: int = 130,
    **more: Spec,
) -> Spec:
    """A horizontal bar, or another `mark`, for each row of data, by the fields `name` and `value`.

    Behind it, at the row's `end`, stands its `text`.
    """
    scale = {"domain": list(domain), "zero": False}
    x = {"field": value, "type": "quantitative", "title": None, "axis": None, "scale": scale}
    at = {
        "y": names_axis(name, names, limit, ink, grid=False, labelOverlap=False),
        "x": x,
    } | ({"yOffset": offset} if offset else {})
    look = mark or {"type": "bar", "cornerRadius": 2}
    data = {"values": list(rows)}
    return figure(
        [
            {
                "data": data,
                "mark": look,
                "encoding": {**at, "color": colour, "tooltip": tips, **more},
            },
            layer(
                "text",
                rows,
                {**at, "x": {**x, "field": "end"}, "text": {"field": "text", "type": "nominal"}},
                align="left",
                dx=dx,
                fontSize=12,
                color=ink.quiet,
            ),
        ],
        height,
    )


def bars(
    distributions: dict[str, Tensor],
    names: Sequence[str] | Mapping[int, str],
    token: int,
    ink: Ink,
    max_bars: int = MAX_BARS,
    limit: int = 120,
) -> Spec:
    """A bar a token for each distribution, the picked token in the accent; names have at most `limit` px."""
    top, several = (
        likeliest(next(iter(distributions.values())), token, max_bars),
        len(distributions) > 1,
    )
    labels = distinct([names[i] for i in top])
    rows = [
        {
            "token": label,
            "p": float(p[i]),
            "of": of,
            "picked": i == token,
            "text": number(float(p[i])),
            "end": float(p[i]),
        }
        for of, p in distributions.items()
        for i, label in zip(top, labels, strict=True)
    ]
    faint = {"test": "datum.of == 'model'", "value": 0.45 if several else 1.0}
    return bar_figure(
        rows,
        "token",
        labels,
        "p",
        ink,
        domain=[0, 1.18],
        limit=limit,
        height=len(top) * (38 if several else 26),
        colour={
            "condition": {"test": "datum.picked", "value": ink.pick},
            "value": ink.series[0],
        },
        tips=TOOLTIP,
        offset={"field": "of", "type": "nominal", "sort": list(distributions)} if several else None,
        opacity={"condition": faint, "value": 1.0},
    )


TILE, ONE_TILE = 72, 144  # pixels of a picture on the page, of several and of the only one
PLAIN, OVER = (
    0.85,
    0.45,
)  # how strongly a picture is drawn by itself, and over the colours of weights
MAX_TILES = 14


def picture(source: Sequence[Sequence[float]], grid: tuple[int, int]) -> np.ndarray:
    """Square patches, row by row, as one picture (height, width) from 0 to 1."""
    values = np.asarray(source, dtype=np.float32)
    side = math.isqrt(values.shape[1])
    whole = (
        values.reshape(*grid, side, side)
        .transpose(0, 2, 1, 3)
        .reshape(grid[0] * side, grid[1] * side)
    )
    low, high = float(whole.min()), float(whole.max())
    return (whole - low) / ((high - low) or 1.0)


def tinted(
    whole: np.ndarray, grid: tuple[int, int], weights: np.ndarray | None, theme: Theme, ink: str
) -> np.ndarray:
    """The picture in the page's ink over patches in the colour of their weight, (height, width, 3) bytes."""
    shares = (
        np.zeros(grid) if weights is None else np.asarray(weights, dtype=np.float32).reshape(grid)
    )
    sides = whole.shape[0] // grid[0], whole.shape[1] // grid[1]
    full = colours_at(colour_scale(theme), shares).repeat(sides[0], 0).repeat(sides[1], 1)
    ink_rgb = np.array(rgb_of(ink), dtype=np.float32)
    return (
        full + (PLAIN if weights is None else OVER) * whole[..., None] * (ink_rgb - full)
    ).astype(np.uint8)


def image(pixels: np.ndarray, alt_text: str, height: int = TILE) -> str:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "png")
    data = base64.b64encode(out.getvalue()).decode()
    width = round(height * pixels.shape[1] / pixels.shape[0])
    return (
        f'<img alt="{escape(alt_text)}" src="data:image/png;base64,{data}" width="{width}" height="{height}" '
        'style="image-rendering:pixelated;border-radius:2px;display:block">'
    )


def tiles(
    source: Sequence[Sequence[float]],
    grid: tuple[int, int],
    outputs: Sequence[str],
    weights: np.ndarray,
    theme: Theme,
    ink: Ink,
) -> str:
    """HTML: a picture for each output, its patches tinted by their weight, the largest of all in the full colour."""
    whole, most = picture(source, grid), float(weights.max()) or 1.0
    height = ONE_TILE if len(weights) == 1 else TILE
    parts = []
    for name, row in list(zip(outputs, weights, strict=False))[:MAX_TILES]:
        html = image(
            tinted(whole, grid, row / most, theme, ink.text), f"what {name} attends to", height
        )
        parts.append(
            f'<figure style="margin:0">{html}<figcaption style="font-size:13px;text-align:center">'
            f"{escape(name)}</figcaption></figure>"
        )
    return f'<div style="display:flex;flex-wrap:wrap;gap:8px">{"".join(parts)}</div>'


def forecast_chart(
    past: Sequence[float],
    target: Sequence[float],
    forecast: Sequence[float],
    naive: Sequence[float],
    weights: np.ndarray | None,
    ink: Ink,
    theme: Theme,
) -> Spec:
    """The past, the target, the forecast and the last season repeated; dots on the past are the mean weight."""
    now, style = len(past) - 1, axis_style(ink)
    at = {
        "x": field(
            "x",
            "place",
            domain=[0, now + len(target)],
            axis={**style, "grid": False, "titleAnchor": "end"},
        ),
        "y": field(
            "y", None, axis={**style, "grid": True, "gridColor": ink.hairline, "tickCount": 4}
        ),
    }

    def line(
        name: str, values: Sequence[float], colour: str, dash: list[int], start: int = now
    ) -> Spec:
        joined = values if start == 0 else [past[-1], *values]
        rows = [
            {"x": start + i, "y": value, "told": number(value)} for i, value in enumerate(joined)
        ]
        tips = [whole_tip("x", "place"), text_tip("told", name)]
        return layer(
            "line", rows, {**at, "tooltip": tips}, color=colour, strokeWidth=2, strokeDash=dash
        )

    layers = [
        line("past", past, ink.quiet, [1, 0], 0),
        line("the last season again", naive, ink.series[1], [2, 2]),
        line("what came", target, ink.text, [1, 0]),
        line("the model", forecast, ink.series[0], [1, 0]),
    ]
    if weights is not None:  # a dot on each place of the past, larger and fuller with its weight
        mean = weights.mean(0)
        domain = [0, float(mean.max()) or 1.0]
        shared = {"field": "w", "type": "quantitative", "legend": None}
        full = {"domain": domain, "range": colour_scale(theme), "interpolate": "rgb"}
        channels = {
            "size": {**shared, "scale": {"domain": domain, "range": [0, 120]}},
            "color": {**shared, "scale": full},
            "tooltip": [whole_tip("x", "place"), text_tip("told", "weight")],
        }
        rows = [
            {"x": i, "y": value, "w": float(w), "told": number(w)}
            for i, (value, w) in enumerate(zip(past, mean, strict=False))
        ]
        layers.append(layer("circle", rows, at | channels, opacity=1))
    return figure(layers, height=200)
