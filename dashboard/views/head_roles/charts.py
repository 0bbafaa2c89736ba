"""Layers × heads by role and by score, and one head in every role: arrays to Vega-Lite, without any st call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from core.interpret.roles import ROLES, RoleScores
from core.interpret.trace import Head, NumberedHeads
from dashboard.draw.formats import cell, number
from dashboard.draw.palette import CATEGORIES, WEIGHTS, Ink, Theme, shade, text_on
from dashboard.draw.vega import Spec, axis_style, figure, layer, literal, names

ACROSS = 352  # px of a grid's cells, beside each other on a wide page and alone on a phone
CELL = (9, 34)
LETTERS = 26  # px from which a cell has room for its mark or number
GAP = 0.06
END = 1.14  # of the bars' scale: right of every bar its number has room


def role_grid(scores: RoleScores, picked: Head, theme: Theme) -> Spec:
    """A cell a head, in the colour and with the mark of its role; a bare cell is none of these."""
    roles = scores.head_roles
    rows = []
    for head in _heads(scores):
        index = roles.get(head)
        rows.append(
            _cell(scores, head)
            | {
                "fill": WEIGHTS[theme][0] if index is None else CATEGORIES[theme][index],
                "mark": "" if index is None else ROLES[index].mark,
                "says": "no role" if index is None else _figure(scores, index, head),
            }
        )
    beside = [
        (ROLES[index].name, CATEGORIES[theme][index], [1, 0])
        for index in sorted(set(roles.values()))
    ]
    return head_grid(scores, scores.score.shape[2], rows, picked, theme) | names(beside)


def score_grid(scores: RoleScores, index: int, picked: Head, theme: Theme) -> Spec:
    """A cell a head, with its score in one role in blue ink from 0 to 1; faint where it is not above its baseline."""
    rows = []
    for head in _heads(scores):
        score = float(scores.score[index][head])
        if np.isnan(score):
            bare = {"fill": "transparent", "ink": Ink.of(theme).quiet, "mark": "–", "says": "–"}
            rows.append(_cell(scores, head) | bare)
        else:
            rows.append(
                share_cell(
                    scores,
                    head,
                    score,
                    theme,
                    _figure(scores, index, head),
                    faint=not bool(scores.counts[index][head]),
                )
            )
    return head_grid(scores, scores.score.shape[2], rows, picked, theme)


def head_bars(scores: RoleScores, head: Head, theme: Theme) -> Spec:
    """One head: a bar for its score in each role, and a tick with a whisker of 3 std at its chance."""
    ink = Ink.of(theme)
    rows = []
    for index, role in enumerate(ROLES):
        score, chance, std = (
            values[index][head] for values in (scores.score, scores.chance, scores.std)
        )
        if not np.isnan(score):
            rows.append(
                {
                    "role": role.name,
                    "score": float(score),
                    "chance": float(chance),
                    "low": max(0.0, float(chance - 3 * std)),
                    "high": float(chance + 3 * std),
                    "fill": CATEGORIES[theme][index],
                    "faint": not bool(scores.counts[index][head]),
                    "text": number(score),
                    "by": number(chance),
                }
            )
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


def share_cell(
    scores: NumberedHeads, head: Head, share: float, theme: Theme, says: str, *, faint: bool
) -> Spec:
    """A cell of `head_grid` in the colour of a share from 0 to 1, with its number."""
    mark = "<.001" if 0 < share < 0.001 else cell(number(share))
    return _cell(scores, head) | {
        "fill": shade(share, theme),
        "mark": mark,
        "faint": faint,
        "says": says,
    }


def _cell(scores: NumberedHeads, head: Head) -> Spec:
    return {
        "layer": scores.numbers[head[0]],
        "head": head[1],
        "name": scores.name(head),
        "faint": False,
    }


def _figure(scores: RoleScores, index: int, head: Head) -> str:
    score, chance, spread = (
        number(one[index][head]) for one in (scores.score, scores.chance, scores.std)
    )
    return f"{ROLES[index].name} {score}, chance {chance} ± {spread}"


def _faint(opacity: float) -> Spec:
    return {"condition": {"test": "datum.faint", "value": opacity}, "value": 1}


def head_grid(
    scores: NumberedHeads,
    heads: int,
    rows: list[Spec],
    picked: Head,
    theme: Theme,
    says: str = "role",
) -> Spec:
    """A cell a row of `layer`, `head`, `name`, `fill`, `mark`, `faint` and `says`; the picked one is ringed.

    `heads` are the most heads of a layer. A row may have an `ink` of its own for the mark.
    """
    ink = Ink.of(theme)
    size = int(np.clip(ACROSS // heads, *CELL))  # all heads of a layer fit beside each other

    def axis(orient: str, values: Sequence[int]) -> Spec:
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

    at = {
        "x": {
            "field": "head",
            "type": "ordinal",
            "title": "head",
            "axis": axis("top", range(heads)),
            "scale": {"domain": list(range(heads)), "paddingInner": GAP, "paddingOuter": GAP},
        },
        "y": {
            "field": "layer",
            "type": "ordinal",
            "title": None,
            "axis": axis("left", scores.numbers),
            "scale": {"domain": list(scores.numbers), "paddingInner": GAP, "paddingOuter": GAP},
        },
    }
    tips = [{"field": "name", "title": "head"}, {"field": "says", "title": says}]
    description = {"description": {"field": "tells", "type": "nominal"}}
    rows = [
        row
        | {
            "tells": f"{row['name']}: {row['says']}",
            "ink": row.get("ink") or text_on(row["fill"], theme),
        }
        for row in rows
    ]
    picked_cell = [row for row in rows if row["name"] == scores.name(picked)]
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
            picked_cell,
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
