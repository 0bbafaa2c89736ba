"""Heads by role, score and accuracy, and a sentence's words by weight: arrays to Vega-Lite and HTML."""

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
from jaxtyping import Bool, Float

from core.interpret.roles import ROLES, RoleScores
from core.interpret.syntax import Parse
from core.interpret.trace import Head, NumberedHeads
from core.studies.head_roles import NAMES, Query, SyntaxResult
from dashboard.draw.formats import cell, number, percent
from dashboard.draw.palette import BAR, CATEGORIES, PICK, WEIGHTS, Ink, Theme, shade, text_on
from dashboard.draw.vega import (
    Spec,
    axis_style,
    figure,
    layer,
    literal,
    names,
    names_axis,
    text_tip,
)

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
    roles = scores.head_roles
    cells = {
        head: {
            "fill": CATEGORIES[theme][roles[head]],
            "mark": ROLES[roles[head]].mark,
            "says": role_figure(scores, roles[head], head),
        }
        if head in roles
        else {"fill": WEIGHTS[theme][0], "mark": "", "says": "no role"}
        for head in scores.heads
    }
    beside = [
        (ROLES[index].name, CATEGORIES[theme][index], [1, 0])
        for index in sorted(set(roles.values()))
    ]
    return head_grid(scores, cells, picked, theme) | names(beside)


def share_grid(
    scores: NumberedHeads,
    shares: Float[np.ndarray, "L H"],
    says: Mapping[Head, str],
    faint: Bool[np.ndarray, "L H"],
    picked: Head,
    theme: Theme,
    title: str = "score",
) -> Spec:
    """A cell for each head that `says` something, with its share from 0 to 1 in blue ink; a dash where that is NaN.

    Heads that prove nothing are `faint`; `title` is that of what they say.
    """
    cells = {
        head: {"fill": "transparent", "ink": Ink.of(theme).quiet, "mark": "–", "says": "–"}
        if np.isnan(share := float(shares[head]))
        else {
            "fill": shade(share, theme),
            "mark": "<.001" if 0 < share < 0.001 else cell(number(share)),
            "faint": bool(faint[head]),
            "says": words,
        }
        for head, words in says.items()
    }
    return head_grid(scores, cells, picked, theme, title)


def head_bars(scores: RoleScores, head: Head, theme: Theme) -> Spec:
    """One head: a bar for its score in each role, and a tick with a whisker of 3 std at its chance."""
    ink = Ink.of(theme)
    rows = [
        {
            "role": role.name,
            "score": float(scores.score[index][head]),
            "chance": (chance := float(scores.chance[index][head])),
            "low": max(0.0, chance - 3 * (std := float(scores.std[index][head]))),
            "high": chance + 3 * std,
            "fill": CATEGORIES[theme][index],
            "faint": not scores.counts[index][head],
            "text": number(scores.score[index][head]),
            "by": number(chance),
        }
        for index, role in enumerate(ROLES)
        if not np.isnan(scores.score[index][head])
    ]
    y = names_axis("role", [str(row["role"]) for row in rows], 130, ink)
    x = {"type": "quantitative", "scale": {"domain": [0, END]}, "axis": None}
    tips = [
        {"field": name, "title": title}
        for name, title in (("role", "role"), ("text", "score"), ("by", "chance"))
    ]
    bars = {"x": {**x, "field": "score"}, "color": literal("fill"), "opacity": _faint(0.35)}
    layers = [
        layer(
            "bar", rows, {"y": y, **bars, "tooltip": tips}, cornerRadius=2, height={"band": 0.62}
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


def role_figure(scores: RoleScores, index: int, head: Head) -> str:
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
    heads = range(1 + max(head for _, head in cells))
    ink = Ink.of(theme)
    size = int(np.clip(ACROSS // len(heads), *CELL))  # all heads of a layer fit beside each other
    step = 1 if size >= 14 else 4 if size >= 10 else 8  # between the numbers that have room
    at = {
        channel: {
            "field": field,
            "type": "ordinal",
            "title": title,
            "axis": {
                **axis_style(ink),
                "orient": orient,
                "labelAngle": 0,
                "values": list(values[::step]),
                "grid": False,
                "titleAnchor": "start",
                "titlePadding": 2,
            },
            "scale": {"domain": list(values), "paddingInner": GAP, "paddingOuter": GAP},
        }
        for channel, field, title, orient, values in (
            ("x", "head", "head", "top", heads),
            ("y", "layer", None, "left", scores.numbers),
        )
    }
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
    shown = {
        "description": {"field": "tells", "type": "nominal"},
        "color": literal("fill"),
        "tooltip": [{"field": "name", "title": "head"}, {"field": "says", "title": says}],
    }
    marks = {"text": {"field": "mark"}, "color": literal("ink"), "opacity": _faint(0.62)}
    pick = {"name": "head", "select": {"type": "point", "fields": ["name"]}, "views": ["cells"]}
    return {
        "layer": [
            layer(
                "rect",
                rows,
                at | shown,
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
            *(
                [layer("text", rows, at | marks, fontSize=11, baseline="middle")]
                if size >= LETTERS
                else ()
            ),
        ],
        "params": [pick],
        "width": {"step": size},
        "height": {"step": size},
        "config": {"view": {"stroke": None}},
        "padding": {"left": 2, "right": 4, "top": 2, "bottom": 2},
    }


def relation_dots(result: SyntaxResult, relation: int, theme: Theme) -> Spec:
    """A relation a row: the best head's accuracy with its interval, and a tick for the best offset's."""
    ink = Ink.of(theme)
    rows = [
        {
            "relation": NAMES[index],
            **(best := dict(zip(("share", "low", "high"), score.held_out_share, strict=True))),
            "offset": (offset := float(score.offset_held_out.mean())),
            "text": percent(best["share"]),
            "by": percent(offset),
            "within": f"{percent(best['low'])} to {percent(best['high'])}",
            "colour": PICK[theme] if index == relation else BAR[theme],
        }
        for index, score in enumerate(result.scores)
        if score is not None
    ]
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
    at = {
        "y": names_axis(
            "relation", [str(row["relation"]) for row in rows], 170, ink, labelFlush=False
        ),
        "tooltip": tips,
    }
    return figure([
        layer("rule", rows, {**at, "x": {**x, "field": "low"}, "x2": {"field": "high"}, "color": colour},
              strokeWidth=2),
        layer("tick", rows, {**at, "x": {**x, "field": "offset"}}, color=ink.text, thickness=2, height={"band": 0.7}),
        layer("circle", rows, {**at, "x": {**x, "field": "share"}, "color": colour}, size=80, opacity=1)],
        {"step": 24})  # fmt: skip


def query_lines(parse: Parse, weights: np.ndarray, queries: Sequence[Query], theme: Theme) -> str:
    """The sentence once for each query as HTML: each word on the colour of its weight, the targets underlined."""
    lines = []
    for query in queries:
        row, words = weights[query.word], []
        for index, word in enumerate(parse.words):
            fill, weight = shade(float(row[index]), theme), f"weight {number(float(row[index]))}"
            name, style = "", f"background:{fill};color:{text_on(fill, theme)}"
            if index == query.word:
                name, weight = "asks", "the query"
                style = f"color:{PICK[theme]};box-shadow:inset 0 0 0 2px {PICK[theme]}"
            elif index in query.targets:
                name = "target"
            words.append(
                f'<span class="{name}" title="{escape(weight)}" style="{style}">{escape(word.form)}</span>'
            )
        # Right or wrong, with the weights of the top word and of the target
        asks = parse.words[query.word].form
        top, target = (
            f"“{parse.words[index].form}” {number(float(row[index]))}"
            for index in (query.top, max(query.targets, key=lambda index: row[index]))
        )
        verdict = f"✗ {asks} → {top}; right is {target}"
        if query.right:
            verdict = f"✓ {asks} → {target}"
        elif query.top < 0:
            verdict = f"✗ {asks} attends to no other word; right is {target}"
        lines.append(
            f'<div><div class="words">{" ".join(words)}</div>'
            f'<div class="verdict">{escape(verdict)}</div></div>'
        )
    return f'<div class="syntax-lines">{"".join(lines)}</div>'
