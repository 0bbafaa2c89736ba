"""The page's Vega-Lite figure of an answer with heads on and off."""

from __future__ import annotations

from collections.abc import Sequence

from dashboard.draw.palette import Ink
from dashboard.draw.vega import Spec, axis_style, figure
from dashboard.views.evidence.compute import WAYS


def before_after(
    rows: Sequence[Spec], words: Sequence[str], ink: Ink, logits: bool = False
) -> Spec:
    """Three marks a word, by WAYS: bars from 0, or of logits, whose 0 means nothing, points; rows hold word, of, p."""
    y = {
        "field": "word",
        "type": "nominal",
        "sort": list(words),
        "title": None,
        "axis": {
            **axis_style(ink),
            "labelColor": ink.text,
            "labelFontSize": 13,
            "labelLimit": 130,
            "grid": False,
        },
    }
    low, high = min(row["p"] for row in rows), max(row["p"] for row in rows)
    room = 0.3 * ((high - low) or 1.0)  # for the number behind the mark
    domain = [low - 0.2 * room, high + room] if logits else [min(0, low), 1.25 * max(0.01, high)]
    x = {
        "field": "p",
        "type": "quantitative",
        "title": None,
        "axis": None,
        "scale": {"domain": domain, "zero": False},
    }
    base = {"y": y, "x": x, "yOffset": {"field": "of", "sort": list(WAYS)}}
    key = {
        "title": None,
        "orient": "top",
        "labelColor": ink.quiet,
        "labelFontSize": 12,
        "offset": 2,
        "symbolType": "square",
    }
    colour = {
        "field": "of",
        "type": "nominal",
        "sort": list(WAYS),
        "legend": key,
        "scale": {"domain": list(WAYS), "range": [ink.quiet, ink.series[0], ink.pick]},
    }
    tips = [
        {"field": "word", "title": "answer"},
        {"field": "of", "title": "heads"},
        {"field": "text", "title": "value"},
    ]
    data = {"values": [row | {"end": max(row["p"], domain[0] if logits else 0)} for row in rows]}
    mark = (
        {"type": "point", "filled": True, "size": 60, "opacity": 1}
        if logits
        else {"type": "bar", "cornerRadius": 2}
    )
    number = {**base, "x": {**x, "field": "end"}, "text": {"field": "text"}}
    return figure(
        [
            {"data": data, "mark": mark, "encoding": {**base, "color": colour, "tooltip": tips}},
            {
                "data": data,
                "encoding": number,
                "mark": {
                    "type": "text",
                    "align": "left",
                    "dx": 8 if logits else 4,
                    "fontSize": 12,
                    "color": ink.quiet,
                },
            },
        ],
        {"step": 15},
    )
