"""Attention to the source: pictures with their patches tinted, a series with dots for the weights on its past."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from html import escape

import numpy as np
from PIL import Image

from dashboard.charts.numbers import number
from dashboard.charts.palette import Ink, Theme, colour_scale, colours_at, rgb_of
from dashboard.charts.vega import Spec, axis_style, field, figure, layer, text_tip, whole_tip

TILE, ONE_TILE = 72, 144  # pixels of a picture on the page, of several and of the only one
PLAIN, OVER = (
    0.85,
    0.45,
)  # how strongly a picture is drawn by itself, and over the colours of weights
MOST_TILES = 14


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
    """An <img> of those bytes, each pixel a square."""
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
    for name, row in list(zip(outputs, weights, strict=False))[:MOST_TILES]:
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
    if weights is not None:
        layers.append(_weight_dots(past, weights.mean(0), at, theme))
    return figure(layers, height=200)


def _weight_dots(past: Sequence[float], weights: np.ndarray, at: Spec, theme: Theme) -> Spec:
    """A dot on each place of the past, larger and fuller with its weight."""
    most = float(weights.max()) or 1.0
    rows = [
        {"x": i, "y": value, "w": float(w), "told": number(w)}
        for i, (value, w) in enumerate(zip(past, weights, strict=False))
    ]
    shared = {"field": "w", "type": "quantitative", "legend": None}
    return layer(
        "circle",
        rows,
        {
            **at,
            "size": {**shared, "scale": {"domain": [0, most], "range": [0, 120]}},
            "color": {
                **shared,
                "scale": {"domain": [0, most], "range": colour_scale(theme), "interpolate": "rgb"},
            },
            "tooltip": [whole_tip("x", "place"), text_tip("told", "weight")],
        },
        opacity=1,
    )
