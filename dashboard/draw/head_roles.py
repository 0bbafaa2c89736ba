"""Heads by role, score and accuracy, and a sentence's words by weight: arrays to Vega-Lite and HTML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

import numpy as np

from core.interpret.head_tests import RepeatScores, SuccessorScores
from core.interpret.roles import ROLES, RoleScores
from core.interpret.syntax import Parse, RelationScore
from core.interpret.trace import Head, NumberedHeads
from core.studies.head_roles import NAMES, Interval, Query, SyntaxResult
from dashboard.draw.formats import cell, number, percent
from dashboard.draw.palette import BAR, CATEGORIES, PICK, WEIGHTS, Ink, Theme, shade, text_on
from dashboard.draw.vega import Spec, axis_style, figure, layer, literal, names, text_tip

ACROSS = 352  # px of a grid's cells, beside each other on a wide page and alone on a phone
CELL = (9, 34)
LETTERS = 26  # px from which a cell has room for its mark or number
GAP = 0.06
END = 1.14  # of the bars' scale: right of every bar its number has room
SENTENCE_STYLE = """<style>
.syntax-lines{display:grid;gap:10px;font-size:15px;line-height:30px}
.syntax-lines .words span{padding:2px 4px;border-radius:4px;margin-right:2px}
.syntax-lines .asks{font-weight:600}
.syntax-lines .target{text-decoration:underline;text-decoration-thickness:2px;text-underline-offset:4px}
.syntax-lines .verdict{font-size:13px;line-height:18px;opacity:.8}
</style>"""


def role_grid(scores: RoleScores, picked: Head, theme: Theme) -> Spec:
    """A cell a head, in the colour and with the mark of its role; a bare cell is none of these."""
    roles, none = scores.head_roles, WEIGHTS[theme][0]
    cells = {
        head: {
            "fill": CATEGORIES[theme][roles[head]],
            "mark": ROLES[roles[head]].mark,
            "says": _figure(scores, roles[head], head),
        }
        if head in roles
        else {"fill": none, "mark": "", "says": "no role"}
        for head in _heads(scores)
    }
    beside = [
        (ROLES[index].name, CATEGORIES[theme][index], [1, 0])
        for index in sorted(set(roles.values()))
    ]
    return head_grid(scores, cells, picked, theme) | names(beside)


def score_grid(scores: RoleScores, index: int, picked: Head, theme: Theme) -> Spec:
    """A cell a head, with its score in one role in blue ink from 0 to 1; faint where it is not above its baseline."""
    cells = {
        head: share_cell(
            float(scores.score[index][head]),
            theme,
            _figure(scores, index, head),
            faint=not scores.counts[index][head],
        )
        for head in _heads(scores)
    }
    return head_grid(scores, cells, picked, theme)


def accuracy_grid(result: SyntaxResult, score: RelationScore, picked: Head, theme: Theme) -> Spec:
    """A cell a head with its accuracy; faint where the best fixed offset is at least as good."""
    offset, shares = float(score.offset_hits.mean(-1).max()), score.accuracy
    cells = {
        head: share_cell(
            shares[head],
            theme,
            f"{percent(shares[head])} of {score.count}",
            faint=shares[head] <= offset,
        )
        for head in result.heads()
    }
    return head_grid(result.readings, cells, picked, theme, "accuracy")


def repeat_grid(scores: RepeatScores, test: int, picked: Head, theme: Theme) -> Spec:
    """A cell a head with its score; faint where it is not above that of uniform attention."""
    shares, margins, uniform = scores.score[test], scores.margin[test], scores.uniform[test]
    cells = {
        head: share_cell(
            shares[head],
            theme,
            f"{number(shares[head])} ± {number(margins[head])}",
            faint=shares[head] - margins[head] <= uniform,
        )
        for head in sorted(scores.ranked(test))
    }
    return head_grid(scores, cells, picked, theme, "score")


def successor_grid(scores: SuccessorScores, picked: Head, theme: Theme) -> Spec:
    """A cell a head with its share; faint where the interval reaches chance."""
    ends = {head: scores.interval(head) for head in sorted(scores.ranked())}
    cells = {
        head: share_cell(
            scores.score[head],
            theme,
            f"{percent(scores.score[head])}, 95 % interval {percent(low)} to {percent(high)}",
            faint=low <= scores.chance,
        )
        for head, (low, high) in ends.items()
    }
    return head_grid(scores, cells, picked, theme, "items")


def head_bars(scores: RoleScores, head: Head, theme: Theme) -> Spec:
    """One head: a bar for its score in each role, and a tick with a whisker of 3 std at its chance."""
    ink = Ink.of(theme)
    measured = [index for index in range(len(ROLES)) if not np.isnan(scores.score[index][head])]
    rows = [
        {
            "role": ROLES[index].name,
            "score": float(scores.score[index][head]),
            "chance": (chance := float(scores.chance[index][head])),
            "low": max(0.0, chance - 3 * (std := float(scores.std[index][head]))),
            "high": chance + 3 * std,
            "fill": CATEGORIES[theme][index],
            "faint": not scores.counts[index][head],
            "text": number(scores.score[index][head]),
            "by": number(chance),
        }
        for index in measured
    ]
    y = {
        "field": "role",
        "type": "nominal",
        "title": None,
        "sort": [row["role"] for row in rows],
        "axis": {**axis_style(ink), "labelColor": ink.text, "labelFontSize": 13, "labelLimit": 130},
    }
    x = {"type": "quantitative", "scale": {"domain": [0, END]}, "axis": None}
    tips = [
        {"field": "role", "title": "role"},
        {"field": "text", "title": "score"},
        {"field": "by", "title": "chance"},
    ]
    at = {"y": y, "x": {**x, "field": "score"}}
    layers = [
        layer(
            "bar",
            rows,
            {**at, "tooltip": tips, "color": literal("fill"), "opacity": _faint(0.35)},
            cornerRadius=2,
            height={"band": 0.62},
        ),
        layer(
            "rule",
            rows,
            {"y": y, "x": {**x, "field": "low"}, "x2": {"field": "high"}},
            color=ink.text,
            strokeWidth=1,
        ),
        layer(
            "tick",
            rows,
            {"y": y, "x": {**x, "field": "chance"}, "tooltip": tips},
            color=ink.text,
            thickness=2,
            height={"band": 0.8},
        ),
        layer(
            "text",
            rows,
            {"y": y, "x": {**x, "datum": END}, "text": {"field": "text"}},
            align="right",
            fontSize=12,
            color=ink.text,
            baseline="middle",
        ),
    ]
    return figure(layers, 26 * len(rows))


def _heads(scores: RoleScores) -> Iterator[Head]:
    """The heads that exist: layers may have fewer than the widest one."""
    for layer_, head in np.ndindex(*scores.score.shape[1:]):
        if not np.isnan(scores.score[:, layer_, head]).all():
            yield layer_, head


def share_cell(share: float, theme: Theme, says: str, *, faint: bool) -> Spec:
    """A cell of `head_grid` in the colour of a share from 0 to 1, with its number; a dash for NaN."""
    if np.isnan(share):
        return {"fill": "transparent", "ink": Ink.of(theme).quiet, "mark": "–", "says": "–"}
    mark = "<.001" if 0 < share < 0.001 else cell(number(share))
    return {"fill": shade(float(share), theme), "mark": mark, "faint": bool(faint), "says": says}


def _figure(scores: RoleScores, index: int, head: Head) -> str:
    score, chance, spread = (
        number(one[index][head]) for one in (scores.score, scores.chance, scores.std)
    )
    return f"{ROLES[index].name} {score}, chance {chance} ± {spread}"


def _faint(opacity: float) -> Spec:
    return {"condition": {"test": "datum.faint", "value": opacity}, "value": 1}


def head_grid(
    scores: NumberedHeads,
    cells: Mapping[Head, Spec],
    picked: Head,
    theme: Theme,
    says: str = "role",
) -> Spec:
    """A cell a head, with its `fill`, `mark` and what it `says`, also `faint` and an `ink` of its own for the mark.

    The picked one is ringed; `says` is the title of what cells say.
    """
    heads = 1 + max(head for _, head in cells)
    ink = Ink.of(theme)
    size = int(np.clip(ACROSS // heads, *CELL))  # all heads of a layer fit beside each other

    at = {
        "x": {
            "field": "head",
            "type": "ordinal",
            "title": "head",
            "axis": _axis("top", range(heads), size, ink),
            "scale": {"domain": list(range(heads)), "paddingInner": GAP, "paddingOuter": GAP},
        },
        "y": {
            "field": "layer",
            "type": "ordinal",
            "title": None,
            "axis": _axis("left", scores.numbers, size, ink),
            "scale": {"domain": list(scores.numbers), "paddingInner": GAP, "paddingOuter": GAP},
        },
    }
    tips = [{"field": "name", "title": "head"}, {"field": "says", "title": says}]
    description = {"description": {"field": "tells", "type": "nominal"}}
    rows = [
        {
            "layer": scores.numbers[head[0]],
            "head": head[1],
            "name": scores.name(head),
            "faint": False,
            "tells": f"{scores.name(head)}: {each['says']}",
            **each,
            "ink": each.get("ink") or text_on(each["fill"], theme),
        }
        for head, each in cells.items()
    ]
    layers = [
        layer(
            "rect",
            rows,
            {**at, **description, "color": literal("fill"), "tooltip": tips},
            cornerRadius=2,
            stroke=ink.hairline,
            strokeWidth=1,
            cursor="pointer",
        )
        | {"name": "cells"},
        layer(
            "rect",
            [row for row in rows if row["name"] == scores.name(picked)],
            at,
            fillOpacity=0,
            stroke=ink.pick,
            strokeWidth=2.25,
            cornerRadius=3,
        ),
    ]
    if size >= LETTERS:
        layers.append(
            layer(
                "text",
                rows,
                {
                    **at,
                    "text": {"field": "mark"},
                    "color": literal("ink"),
                    "opacity": _faint(0.62),
                },
                fontSize=11,
                baseline="middle",
            )
        )
    pick = {"name": "head", "select": {"type": "point", "fields": ["name"]}, "views": ["cells"]}
    return {
        "layer": layers,
        "params": [pick],
        "width": {"step": size},
        "height": {"step": size},
        "config": {"view": {"stroke": None}},
        "padding": {"left": 2, "right": 4, "top": 2, "bottom": 2},
    }


def _axis(orient: str, values: Sequence[int], size: int, ink: Ink) -> Spec:
    """An axis of `head_grid`, with as many numbers as cells of this size have room for."""
    step = 1 if size >= 14 else 4 if size >= 10 else 8
    return {
        **axis_style(ink),
        "orient": orient,
        "labelAngle": 0,
        "values": list(values[::step]),
        "grid": False,
        "titleAnchor": "start",
        "titlePadding": 2,
    }


def relation_dots(result: SyntaxResult, relation: int, theme: Theme) -> Spec:
    """A relation a row: the best head's accuracy with its interval, and a tick for the best offset's."""
    ink = Ink.of(theme)
    measured = [(index, score) for index, score in enumerate(result.scores) if score is not None]
    rows = [
        {
            "relation": NAMES[index],
            "share": (best := Interval.of(score.held_out[1])).share,
            "low": best.low,
            "high": best.high,
            "offset": (offset := float(score.offset_held_out.mean())),
            "text": percent(best.share),
            "by": percent(offset),
            "within": f"{percent(best.low)} to {percent(best.high)}",
            "colour": PICK[theme] if index == relation else BAR[theme],
        }
        for index, score in measured
    ]
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
