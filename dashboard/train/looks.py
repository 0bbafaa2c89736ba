"""What each output looked at in its source: pictures with their patches tinted, a series with its past weighed."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from html import escape

import altair as alt
import numpy as np
from PIL import Image

from core.models import ModelConfig
from dashboard.attention_view.palette import Ink, Theme, colour_scale

TILE = 72  # pixels of a picture on the page
MOST_TILES = 14


def looked(
    config: ModelConfig, kind: str, weights: np.ndarray, rows: Sequence[str], length: int,
) -> tuple[tuple[str, ...], np.ndarray] | None:
    """What each output put on each of the `length` places of its source: names of the outputs, and (T, S).

    None where a map is of something else: a decoder's own words, or an encoder that only prepares.
    """
    if kind == "cross":
        return tuple(rows), weights
    if config.kind == "classifier":
        return ("class",), weights[:1, 1:] if config.pool == "first" else weights.mean(0, keepdims=True)
    if len(rows) > length and (config.kind == "forecaster" or kind == "causal") and weights.shape[1] > length:
        return tuple(rows[length:]), weights[length:, :length]
    return None


def picture(source: Sequence[Sequence[float]], grid: tuple[int, int]) -> np.ndarray:
    """Square patches, row by row, as one picture (height, width) from 0 to 1."""
    values = np.asarray(source, dtype=np.float32)
    side = math.isqrt(values.shape[1])
    whole = values.reshape(*grid, side, side).transpose(0, 2, 1, 3).reshape(grid[0] * side, grid[1] * side)
    low, high = float(whole.min()), float(whole.max())
    return (whole - low) / ((high - low) or 1.0)


def tinted(whole: np.ndarray, grid: tuple[int, int], weights: np.ndarray | None, theme: Theme, ink: str) -> np.ndarray:
    """The picture in the page's ink over patches in the colour of their weight, (height, width, 3) bytes."""
    stops = np.array([[int(stop[i : i + 2], 16) for i in (1, 3, 5)] for stop in colour_scale(theme)], dtype=np.float32)
    shares = np.zeros(grid) if weights is None else np.asarray(weights, dtype=np.float32).reshape(grid)
    ground = np.clip(shares, 0, 1) * (len(stops) - 1)
    below = np.minimum(ground.astype(int), len(stops) - 2)
    colour = stops[below] + (ground - below)[..., None] * (stops[below + 1] - stops[below])  # (rows, columns, 3)
    sides = whole.shape[0] // grid[0], whole.shape[1] // grid[1]
    full = colour.repeat(sides[0], 0).repeat(sides[1], 1)
    drawn = np.array([int(ink[i : i + 2], 16) for i in (1, 3, 5)], dtype=np.float32)
    return (full + 0.85 * whole[..., None] * (drawn - full)).astype(np.uint8)


def image(pixels: np.ndarray, alt_text: str, height: int = TILE) -> str:
    """An <img> of those bytes, each pixel a square."""
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "png")
    data = base64.b64encode(out.getvalue()).decode()
    width = round(height * pixels.shape[1] / pixels.shape[0])
    return (f'<img alt="{escape(alt_text)}" src="data:image/png;base64,{data}" width="{width}" height="{height}" '
            'style="image-rendering:pixelated;border-radius:2px;display:block">')


def tiles(
    source: Sequence[Sequence[float]], grid: tuple[int, int], outputs: Sequence[str], weights: np.ndarray,
    theme: Theme, ink: Ink,
) -> str:
    """A picture for each output, its patches tinted by the weight they got, the largest of all as full ink: HTML."""
    whole, most = picture(source, grid), float(weights.max()) or 1.0
    parts = []
    for name, row in list(zip(outputs, weights, strict=False))[:MOST_TILES]:
        drawn = image(tinted(whole, grid, row / most, theme, ink.text), f"what {name} looked at")
        parts.append(f'<figure style="margin:0">{drawn}<figcaption style="font-size:13px;text-align:center">'
                     f"{escape(name)}</figcaption></figure>")
    return f'<div style="display:flex;flex-wrap:wrap;gap:8px">{"".join(parts)}</div>'


def forecast_chart(
    past: Sequence[float], wanted: Sequence[float], told: Sequence[float], naive: Sequence[float],
    weights: np.ndarray | None, ink: Ink, theme: Theme,
) -> alt.LayerChart:
    """The past, what came, what the model said and the last season again; dots on the past are the mean weight."""
    now = len(past) - 1

    def line(name: str, values: Sequence[float], start: int, colour: str, dash: list[int]) -> list[alt.Chart]:
        rows = [{"x": start + i, "y": y, "name": name} for i, y in enumerate(values)]
        tips = [alt.Tooltip("x:Q", title="place"), alt.Tooltip("y:Q", title=name, format=".3~f")]
        drawn = alt.Chart(alt.Data(values=rows)).mark_line(color=colour, strokeWidth=2, strokeDash=dash)
        return [drawn.encode(x, y, tooltip=tips)]

    axis = dict(labelColor=ink.quiet, labelFontSize=12, domain=False, ticks=False, titleColor=ink.quiet,
                titleFontSize=12, titleFontWeight="normal", titleAnchor="end")
    x = alt.X("x:Q", title="place", scale=alt.Scale(domain=[0, now + len(wanted)], nice=False),
              axis=alt.Axis(grid=False, tickMinStep=1, **axis))
    y = alt.Y("y:Q", title=None, scale=alt.Scale(zero=False),
              axis=alt.Axis(grid=True, gridColor=ink.hairline, tickCount=4, **axis))
    last = [past[-1]]
    layers = [*line("past", past, 0, ink.quiet, [1, 0]), *line("the last season again", last + list(naive), now,
                                                                ink.series[1], [2, 2]),
              *line("what came", last + list(wanted), now, ink.text, [1, 0]),
              *line("the model", last + list(told), now, ink.series[0], [1, 0])]
    if weights is not None:
        mean = weights.mean(0)[: len(past)]
        rows = [{"x": i, "y": value, "w": float(w)} for i, (value, w) in enumerate(zip(past, mean, strict=False))]
        colours = alt.Color("w:Q", scale=alt.Scale(range=colour_scale(theme), domain=[0, float(mean.max()) or 1.0]),
                            legend=None)
        size = alt.Size("w:Q", scale=alt.Scale(domain=[0, float(mean.max()) or 1.0], range=[0, 120]), legend=None)
        tips = [alt.Tooltip("x:Q", title="place"), alt.Tooltip("w:Q", title="weight", format=".3f")]
        layers.append(alt.Chart(alt.Data(values=rows)).mark_circle(opacity=1).encode(x, y, size=size, color=colours,
                                                                                    tooltip=tips))
    return alt.layer(*layers).properties(height=200, width="container").configure_view(stroke=None)
