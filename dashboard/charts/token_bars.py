"""The most probable next tokens as bars, of one distribution or of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from dashboard.charts.numbers import number
from dashboard.charts.palette import Ink
from dashboard.charts.tokens import distinct
from dashboard.charts.vega import Spec, figure

MAX_BARS = 8
TOOLTIP = [{"field": name, "type": "nominal"} for name in ("token", "of", "text")]


def likeliest(probabilities: Tensor, token: int, most: int = MAX_BARS) -> list[int]:
    """The most probable tokens; `token` replaces the last of them where it is not among them."""
    top = probabilities.topk(min(most, len(probabilities))).indices.tolist()
    return top if token in top else [*top[:-1], token]


def bars(
    distributions: dict[str, Tensor],
    names: Sequence[str] | Mapping[int, str],
    token: int,
    ink: Ink,
    most: int = MAX_BARS,
) -> Spec:
    """A bar a token for each distribution, the picked token in the accent."""
    top = likeliest(next(iter(distributions.values())), token, most)
    labels = distinct([names[i] for i in top])
    rows = [
        {
            "token": label,
            "p": float(p[i]),
            "of": of,
            "picked": i == token,
            "text": number(float(p[i])),
        }
        for of, p in distributions.items()
        for i, label in zip(top, labels, strict=True)
    ]
    several = len(distributions) > 1
    axis = {
        "labelColor": ink.text,
        "labelFontSize": 13,
        "domain": False,
        "ticks": False,
        "labelLimit": 120,
        "labelOverlap": False,
        "grid": False,
    }
    at = {
        "y": {"field": "token", "type": "nominal", "sort": labels, "title": None, "axis": axis},
        "x": {
            "field": "p",
            "type": "quantitative",
            "title": None,
            "axis": None,
            "scale": {"domain": [0, 1.18]},
        },
        "tooltip": TOOLTIP,
    }
    if several:
        at["yOffset"] = {"field": "of", "type": "nominal", "sort": list(distributions)}
    colour = {"condition": {"test": "datum.picked", "value": ink.pick}, "value": ink.series[0]}
    faint = {
        "condition": {"test": "datum.of == 'model'", "value": 0.45 if several else 1.0},
        "value": 1.0,
    }
    layers = [
        {
            "mark": {"type": "bar", "cornerRadius": 2},
            "encoding": {**at, "color": colour, "opacity": faint},
        },
        {
            "mark": {"type": "text", "align": "left", "dx": 4, "fontSize": 12, "color": ink.quiet},
            "encoding": {**at, "text": {"field": "text", "type": "nominal"}},
        },
    ]
    return {"data": {"values": rows}} | figure(layers, len(top) * (38 if several else 26))
