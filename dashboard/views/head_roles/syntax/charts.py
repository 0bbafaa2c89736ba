"""Accuracy by head and by relation as Vega-Lite, and the weights of each query over its sentence as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from core.interpret.syntax import Parse, RelationScore
from core.interpret.trace import Head
from dashboard.draw.formats import number, percent
from dashboard.draw.palette import BAR, PICK, Ink, Theme, shade, text_on
from dashboard.draw.vega import Spec, axis_style, figure, layer, literal, text_tip
from dashboard.views.head_roles.charts import head_grid, share_cell
from dashboard.views.head_roles.syntax.compute import NAMES, Interval, Query, SyntaxResult

STYLE = """<style>
.syntax-lines{display:grid;gap:10px;font-size:15px;line-height:30px}
.syntax-lines .words span{padding:2px 4px;border-radius:4px;margin-right:2px}
.syntax-lines .asks{font-weight:600}
.syntax-lines .target{text-decoration:underline;text-decoration-thickness:2px;text-underline-offset:4px}
.syntax-lines .verdict{font-size:13px;line-height:18px;opacity:.8}
</style>"""


def accuracy_grid(result: SyntaxResult, score: RelationScore, head: Head, theme: Theme) -> Spec:
    """A cell a head with its accuracy; faint where the best fixed offset is at least as good."""
    readings, offset = result.readings, float(score.offset_hits.mean(-1).max())
    rows = []
    for one in result.heads():
        share = float(score.accuracy[one])
        rows.append(
            share_cell(
                readings,
                one,
                share,
                theme,
                f"{percent(share)} of {score.count}",
                faint=share <= offset,
            )
        )
    return head_grid(readings, max(readings.heads), rows, head, theme, "accuracy")


def relation_dots(result: SyntaxResult, relation: int, theme: Theme) -> Spec:
    """A relation a row: the best head's accuracy with its interval, and a tick for the best offset's."""
    ink, rows = Ink.of(theme), []
    for index, score in enumerate(result.scores):
        if score is not None:
            best, offset = Interval.of(score.held_out[1]), float(score.offset_held_out.mean())
            rows.append(
                {
                    "relation": NAMES[index],
                    "share": best.share,
                    "low": best.low,
                    "high": best.high,
                    "offset": offset,
                    "text": percent(best.share),
                    "by": percent(offset),
                    "within": f"{percent(best.low)} to {percent(best.high)}",
                    "colour": PICK[theme] if index == relation else BAR[theme],
                }
            )
    y = {
        "field": "relation",
        "type": "nominal",
        "title": None,
        "sort": [row["relation"] for row in rows],
        "axis": {
            **axis_style(ink),
            "labelColor": ink.text,
            "labelFontSize": 13,
            "labelLimit": 170,
            "labelFlush": False,
        },
    }
    x = {
        "type": "quantitative",
        "title": None,
        "scale": {"domain": [0, 1]},
        "axis": {
            **axis_style(ink),
            "values": [0, 0.25, 0.5, 0.75, 1],
            "format": "%",
            "grid": True,
            "gridColor": ink.hairline,
        },
    }
    tips = [
        text_tip("relation", "relation"),
        text_tip("text", "best head"),
        text_tip("within", "95 % interval"),
        text_tip("by", "best offset"),
    ]
    colour = literal("colour")
    at = {"y": y, "tooltip": tips}
    return figure([
        layer("rule", rows, {**at, "x": {**x, "field": "low"}, "x2": {"field": "high"}, "color": colour},
              strokeWidth=2),
        layer("tick", rows, {**at, "x": {**x, "field": "offset"}}, color=ink.text, thickness=2, height={"band": 0.7}),
        layer("circle", rows, {**at, "x": {**x, "field": "share"}, "color": colour}, size=80, opacity=1)],
        {"step": 24})  # fmt: skip


def query_lines(parse: Parse, weights: np.ndarray, queries: Sequence[Query], theme: Theme) -> str:
    """The sentence once for each query as HTML: each word on the colour of its weight, the targets underlined."""
    lines = [
        f'<div><div class="words">{_words(parse, weights[query.word], query, theme)}</div>'
        f'<div class="verdict">{escape(_verdict(parse, weights[query.word], query))}</div></div>'
        for query in queries
    ]
    return f'<div class="syntax-lines">{"".join(lines)}</div>'


def _words(parse: Parse, weights: np.ndarray, query: Query, theme: Theme) -> str:
    out = []
    for index, word in enumerate(parse.words):
        fill = shade(float(weights[index]), theme)
        style = f"background:{fill};color:{text_on(fill, theme)}"
        if index == query.word:
            style = f"color:{PICK[theme]};box-shadow:inset 0 0 0 2px {PICK[theme]}"
        name = "asks" if index == query.word else "target" if index in query.targets else ""
        weight = "the query" if index == query.word else f"weight {number(float(weights[index]))}"
        out.append(
            f'<span class="{name}" title="{escape(weight)}" style="{style}">{escape(word.form)}</span>'
        )
    return " ".join(out)


def _verdict(parse: Parse, weights: np.ndarray, query: Query) -> str:
    """Right or wrong, with the weights of the top word and of the target."""
    forms = [word.form for word in parse.words]
    best = max(query.targets, key=lambda index: weights[index])
    target = f"“{forms[best]}” {number(float(weights[best]))}"
    if query.right:
        return f"✓ {forms[query.word]} → {target}"
    if query.top < 0:
        return f"✗ {forms[query.word]} attends to no other word; right is {target}"
    top = f"“{forms[query.top]}” {number(float(weights[query.top]))}"
    return f"✗ {forms[query.word]} → {top}; right is {target}"
