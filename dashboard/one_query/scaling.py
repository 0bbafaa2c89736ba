"""What √D does: variance of the scores and entropy of the weights with and without it, measured as D grows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from core.attention import attend

DIMS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
QUERIES, KEYS = 64, 64
LIGHT = {"text": "#1B2330", "quiet": "#6F7681", "hair": "#E3E4E6", "with": "#576BA3", "without": "#97691A", "pick": "#B8430F"}
DARK = {"text": "#E6E8EB", "quiet": "#9A9EA5", "hair": "#2B2F37", "with": "#8CA4EC", "without": "#E6AF4D", "pick": "#FF9A66"}


@dataclass(frozen=True)
class Point:
    """One size: variance of the scores and mean entropy of the rows (nats), dot product alone and divided by √D."""

    dims: int
    variance: float
    scaled_variance: float
    entropy: float
    scaled_entropy: float


def measure(seed: int) -> tuple[Point, ...]:
    """64 standard normal queries against 64 such keys at each D from 1 to 512."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(point(dims, generator) for dims in DIMS)


def point(dims: int, generator: torch.Generator) -> Point:
    q, k = (torch.randn(1, 1, rows, dims, generator=generator) for rows in (QUERIES, KEYS))
    alone, scaled = attend(q, k, k, scale=1.0), attend(q, k, k)
    return Point(dims, float(alone.scores.var()), float(scaled.scores.var()), entropy(alone.weights), entropy(scaled.weights))


def entropy(weights: torch.Tensor) -> float:
    """Mean over rows of −Σ w ln w, in nats; a weight of 0 adds nothing."""
    return float(torch.special.entr(weights).sum(-1).mean())


def sentence(points: tuple[Point, ...]) -> str:
    """The measured sentence, at the largest D."""
    last = points[-1]
    even = math.log(KEYS)
    return (f"At D = {last.dims} the dot products vary by {last.variance:.0f} and the weights keep "
            f"{last.entropy / even:.2f} of the entropy of even attention; divided by √{last.dims} they vary by "
            f"{last.scaled_variance:.2f} and keep {last.scaled_entropy / even:.2f}.")


def figures(points: tuple[Point, ...], head_dim: int, dark: bool) -> tuple[dict, dict]:
    """Two Vega-Lite figures: variance (both axes logarithmic) and entropy; a rule stands at the page's own D."""
    ink = DARK if dark else LIGHT
    variance = [(p.dims, p.variance, p.scaled_variance) for p in points]
    spread = [(p.dims, p.entropy, p.scaled_entropy) for p in points]
    even = math.log(KEYS)
    return (figure("Variance of the scores", variance, head_dim, ink, {"type": "log"}),
            figure("Entropy of the weights, nats", spread, head_dim, ink, {"domain": [0, 4.5]}, (even, f"even, ln {KEYS} = {even:.2f}")))


def figure(title: str, rows: list[tuple], head_dim: int, ink: dict, scale: dict, bound: tuple[float, str] | None = None) -> dict:
    names = ("without √D", "divided by √D")
    values = [{"D": r[0], "value": r[n + 1], "series": names[n]} for r in rows for n in (0, 1)]
    x = {"field": "D", "type": "quantitative", "scale": {"type": "log", "base": 2, "domain": [1, 512]},
         "axis": {"values": list(DIMS), "grid": False, "title": "head size D"}}
    y = {"field": "value", "type": "quantitative", "scale": scale, "axis": {"title": None, "tickCount": 4}}
    colour = {"field": "series", "type": "nominal", "legend": None,
              "scale": {"domain": list(names), "range": [ink["without"], ink["with"]]}}
    both = {"x": x, "y": y, "color": colour}
    dash = {"field": "series", "type": "nominal", "legend": None, "scale": {"domain": list(names), "range": [[5, 3], [1, 0]]}}
    ends = [v for v in values if v["D"] == DIMS[-1]]
    layers = [
        {"data": {"values": values}, "mark": {"type": "line", "strokeWidth": 2}, "encoding": {**both, "strokeDash": dash}},
        {"data": {"values": values}, "mark": {"type": "point", "opacity": 0, "size": 200},
         "encoding": {**both, "tooltip": [{"field": "series"}, {"field": "D"}, {"field": "value", "format": ".3~g"}]}},
        {"data": {"values": ends}, "mark": {"type": "point", "filled": True, "size": 45, "opacity": 1}, "encoding": both},
        {"data": {"values": ends}, "mark": {"type": "text", "align": "right", "dx": -6, "dy": -10, "fontSize": 12},
         "encoding": {**both, "text": {"field": "series"}}},
        {"data": {"values": [{"D": head_dim}]}, "mark": {"type": "rule", "color": ink["pick"], "strokeWidth": 1.5}, "encoding": {"x": x}},
    ]
    if bound:
        layers += bound_layers(bound, ink)
    return {"title": {"text": title, "anchor": "start", "fontSize": 14, "color": ink["text"]}, "height": 190, "layer": layers,
            "config": {"axis": {"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal", "labelColor": ink["quiet"],
                                "titleColor": ink["quiet"], "gridColor": ink["hair"], "domainColor": ink["hair"], "ticks": False},
                       "view": {"stroke": None}}}


def bound_layers(bound: tuple[float, str], ink: dict) -> list[dict]:
    data = {"values": [{"value": bound[0], "D": 1, "text": bound[1]}]}
    y = {"field": "value", "type": "quantitative"}
    text = {"type": "text", "align": "left", "dx": 4, "dy": -8, "fontSize": 12, "color": ink["quiet"]}
    return [{"data": data, "mark": {"type": "rule", "strokeDash": [2, 3], "color": ink["quiet"]}, "encoding": {"y": y}},
            {"data": data, "mark": text, "encoding": {"y": y, "x": {"field": "D", "type": "quantitative"}, "text": {"field": "text"}}}]
