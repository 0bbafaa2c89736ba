"""The page's Vega-Lite figures: the effect of each head over layers × heads, an answer with heads on and off."""

from __future__ import annotations

from collections.abc import Sequence

from dashboard.charts.palette import Ink, Theme, colour_scale
from dashboard.charts.vega import Spec, axis_style, figure, layer, picking_grid
from dashboard.views.evidence.compute import WAYS
from dashboard.views.evidence.text import short

WIDE, TALL = 30, 24  # pixels of a cell: its least width that shows a number, and its height
SIGN = 6  # pixels that a character of a number takes
MOST_NUMBERS = 16  # heads a layer, beyond which cells hold no numbers
LAYER = "all"


def effects(rows: Sequence[Spec], layers: Sequence[str], heads: int, picked: tuple[str, str], theme: Theme) -> Spec:
    """Layers × heads, each cell the answer's change without that head, the last column without the whole layer.

    `rows` hold layer, head, change and the tooltip's texts. The scale ends at the largest change of one head.
    """
    ink = Ink.of(theme)
    most = max((abs(row["change"]) for row in rows if row["head"] != LAYER), default=0.0) or 1e-9
    columns = [str(head) for head in range(heads)] + [LAYER]
    at = {"x": _band("head", "head", columns, ink, "top"), "y": _band("layer", None, layers, ink, "left")}
    colour = {"field": "change", "type": "quantitative",
              "scale": {"range": colour_scale(theme, signed=True), "domain": [-most, most], "domainMid": 0,
                        "clamp": True, "interpolate": "rgb"},
              "legend": {"title": "change of the answer", "orient": "bottom", "direction": "horizontal",
                         "gradientLength": 160, "gradientThickness": 8, "tickCount": 3,
                         "labelColor": ink.quiet, "titleColor": ink.quiet, "titleFontWeight": "normal"}}
    tips = [{"field": name, "title": title} for name, title in
            (("name", "without"), ("now", "answer"), ("by", "change"), ("share", "rank"))]
    texts = [short(row["change"], most) for row in rows]
    wide = max([WIDE, *(SIGN * len(text) for text in texts)])
    rows = [row | {"short": text} for row, text in zip(rows, texts, strict=True)]
    parts = [layer("rect", rows, {**at, "color": colour, "tooltip": tips}, cursor="pointer", stroke=None)]
    if heads <= MOST_NUMBERS:
        light = {"test": f"abs(datum.change) > {0.55 * most}", "value": "#FFFFFF" if theme == "light" else "#12151B"}
        parts.append(layer("text", rows, {**at, "text": {"field": "short"},
                                          "color": {"condition": light, "value": ink.text}},
                           fontSize=10, tooltip=False, opacity={"expr": f"width < {wide * (heads + 1)} ? 0 : 1"}))
    ring = {"layer": picked[0], "head": picked[1]}
    return picking_grid(parts, ring, at, ink, TALL, ["layer", "head"])


def _band(name: str, title: str | None, sort: Sequence[str], ink: Ink, orient: str) -> Spec:
    return {"field": name, "type": "ordinal", "sort": list(sort), "title": title,
            "scale": {"domain": list(sort), "paddingInner": 0.06},
            "axis": {**axis_style(ink), "orient": orient, "labelAngle": 0, "labelOverlap": True, "grid": False,
                     "titlePadding": 2, "labelPadding": 4}}


def before_after(rows: Sequence[Spec], words: Sequence[str], ink: Ink, logits: bool = False) -> Spec:
    """Three marks a word, by WAYS: bars from 0, or of logits, whose 0 means nothing, points; rows hold word, of, p."""
    y = {"field": "word", "type": "nominal", "sort": list(words), "title": None,
         "axis": {**axis_style(ink), "labelColor": ink.text, "labelFontSize": 13, "labelLimit": 130, "grid": False}}
    low, high = min(row["p"] for row in rows), max(row["p"] for row in rows)
    room = 0.3 * ((high - low) or 1.0)  # for the number behind the mark
    domain = [low - 0.2 * room, high + room] if logits else [min(0, low), 1.25 * max(0.01, high)]
    x = {"field": "p", "type": "quantitative", "title": None, "axis": None, "scale": {"domain": domain, "zero": False}}
    base = {"y": y, "x": x, "yOffset": {"field": "of", "sort": list(WAYS)}}
    key = {"title": None, "orient": "top", "labelColor": ink.quiet, "labelFontSize": 12, "offset": 2,
           "symbolType": "square"}
    colour = {"field": "of", "type": "nominal", "sort": list(WAYS), "legend": key,
              "scale": {"domain": list(WAYS), "range": [ink.quiet, ink.series[0], ink.pick]}}
    tips = [{"field": "word", "title": "answer"}, {"field": "of", "title": "heads"},
            {"field": "text", "title": "value"}]
    data = {"values": [row | {"end": max(row["p"], domain[0] if logits else 0)} for row in rows]}
    mark = {"type": "point", "filled": True, "size": 60, "opacity": 1} if logits else {"type": "bar", "cornerRadius": 2}
    number = {**base, "x": {**x, "field": "end"}, "text": {"field": "text"}}
    return figure([{"data": data, "mark": mark, "encoding": {**base, "color": colour, "tooltip": tips}},
                   {"data": data, "encoding": number, "mark": {
                       "type": "text", "align": "left", "dx": 8 if logits else 4, "fontSize": 12, "color": ink.quiet}}],
                  {"step": 15})
