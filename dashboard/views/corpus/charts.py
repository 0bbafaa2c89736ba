"""Heads as points of two measures, one head's values over texts, and its queries and keys: arrays to Vega-Lite."""

from __future__ import annotations

from collections import Counter

import numpy as np

from core.corpus import Measure
from core.corpus.joint_map import HeadVectors, JointMap
from core.interpret.trace import Head
from core.roles import ROLES
from dashboard.draw.formats import number, percent
from dashboard.draw.palette import CATEGORIES, WEIGHTS, Ink, Theme
from dashboard.draw.vega import Spec, axis_style, figure, layer, right_margin, text_tip
from dashboard.views.corpus.compute import Axis, Measurement

HEIGHT, SMALL = 380, 150
EDGE = 12  # pixels right of a plot, for half of its last tick
BINS = 24
NAMED = 7  # tokens with a colour of their own
OTHER = "other"


def head_scatter(measurement: Measurement, x: Axis, y: Axis, picked: Head, theme: Theme) -> Spec:
    """A point a head at the means of two measures, in the colour of its role, with both 95 % intervals."""
    ink, rows = Ink.of(theme), scatter_rows(measurement, x, y, theme)
    at = {"x": _value("x", _title(x.measure), ink), "y": _value("y", _title(y.measure), ink)}
    whisker = {"color": _literal("fill")}
    tips = [
        text_tip("name", "head"),
        text_tip("role", "role"),
        text_tip("xs", "across"),
        text_tip("ys", "upwards"),
    ]
    one = [row for row in rows if row["name"] == measurement.scores.name(picked)]
    layers = [
        layer(
            "rule",
            rows,
            {"x": {**at["x"], "field": "x0"}, "x2": {"field": "x1"}, "y": at["y"], **whisker},
            opacity=0.4,
            strokeWidth=1,
            tooltip=False,
            aria=False,
        ),
        layer(
            "rule",
            rows,
            {"y": {**at["y"], "field": "y0"}, "y2": {"field": "y1"}, "x": at["x"], **whisker},
            opacity=0.4,
            strokeWidth=1,
            tooltip=False,
            aria=False,
        ),
        layer(
            "circle",
            rows,
            {
                **at,
                "color": _literal("fill"),
                "tooltip": tips,
                "description": {"field": "says", "type": "nominal"},
            },
            size=90,
            opacity=0.95,
            cursor="pointer",
        )
        | {"name": "heads"},
        layer(
            "point",
            one,
            at,
            size=230,
            stroke=ink.pick,
            strokeWidth=2.25,
            filled=False,
            tooltip=False,
            aria=False,
        ),
        layer(
            "text",
            one,
            {**at, "text": {"field": "name"}},
            color=ink.pick,
            dy=-16,
            fontSize=13,
            fontWeight=600,
            tooltip=False,
            aria=False,
        ),
    ]
    select = {"name": "head", "select": {"type": "point", "fields": ["name"]}, "views": ["heads"]}
    return figure(layers, HEIGHT) | right_margin(EDGE) | {"params": [select]}


def scatter_rows(measurement: Measurement, x: Axis, y: Axis, theme: Theme) -> list[Spec]:
    """The heads that have both measures: means, ends of the intervals, role and texts of the tooltip."""
    rows, roles = [], measurement.scores.head_roles
    for name, head in measurement.heads.items():
        (a, b), (half_a, half_b) = (
            [float(values[head]) for values in both]
            for both in ((x.mean, y.mean), np.nan_to_num((x.half, y.half)))
        )
        if np.isnan(a) or np.isnan(b):
            continue
        index = roles.get(head)
        row = {
            "name": name,
            "x": a,
            "x0": a - half_a,
            "x1": a + half_a,
            "y": b,
            "y0": b - half_b,
            "y1": b + half_b,
            "fill": CATEGORIES[theme][-1] if index is None else CATEGORIES[theme][index],
            "role": "none" if index is None else ROLES[index].name,
            "xs": _with_interval(x.measure, a, half_a),
            "ys": _with_interval(y.measure, b, half_b),
        }
        rows.append(row | {"says": f"{name}: {row['xs']}, {row['ys']}"})
    return rows


def _with_interval(measure: Measure, mean: float, half: float) -> str:
    return f"{measure.name} {number(mean)}" + (f" ± {number(half)}" if half else "")


def histogram(values: np.ndarray, measure: Measure, nouns: str, theme: Theme) -> Spec:
    """One head's values over texts (`nouns`): how many lie in each of 24 steps, with deciles and the mean."""
    ink, valid = Ink.of(theme), values[~np.isnan(values)].astype(float)
    counts, edges = np.histogram(valid, BINS)
    bars = [
        {
            "low": float(low),
            "high": float(high),
            "count": int(count),
            "range": f"{number(low)} to {number(high)}",
        }
        for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
    ]
    marks = [_mark(f"decile {step}", np.quantile(valid, step / 10)) for step in range(1, 10)]
    mean = [_mark("mean", valid.mean())]
    x = {
        "type": "quantitative",
        "title": _title(measure),
        "scale": {"zero": False, "nice": False},
        "axis": {**axis_style(ink), "grid": False, "tickCount": 5},
    }
    y = {
        "field": "count",
        "type": "quantitative",
        "title": nouns,
        "axis": {**axis_style(ink), "tickCount": 3, "gridColor": ink.hairline},
    }
    tips = [text_tip("name", "mark"), text_tip("text", measure.name)]
    layers = [
        layer(
            "bar",
            bars,
            {
                "x": {**x, "field": "low"},
                "x2": {"field": "high"},
                "y": y,
                "y2": {"datum": 0},
                "tooltip": [text_tip("range", measure.name), text_tip("count", nouns)],
            },
            color=ink.series[0],
            cornerRadius=1,
        ),
        layer(
            "tick",
            marks,
            {"x": {**x, "field": "at"}, "y": {"value": "height"}, "tooltip": tips},
            orient="vertical",
            color=ink.text,
            thickness=1.5,
            size=14,
        ),
        layer(
            "rule",
            mean,
            {"x": {**x, "field": "at"}, "tooltip": tips},
            color=ink.pick,
            strokeWidth=2,
        ),
    ]
    return figure(layers, SMALL) | right_margin(EDGE)


def _mark(name: str, value: float) -> Spec:
    return {"name": name, "at": float(value), "text": number(value)}


def joint_chart(points: JointMap, vectors: HeadVectors, colour: str, theme: Theme) -> Spec:
    """Queries as circles and keys as triangles in one plane, coloured by token or by position."""
    ink = Ink.of(theme)
    common = [token for token, _ in Counter(vectors.tokens).most_common(NAMED)]
    rows = [
        {
            "x": float(x),
            "y": float(y),
            "token": token,
            "position": int(position),
            "text": int(text) + 1,
            "of": of,
            "group": token if token in common else OTHER,
        }
        for of, both in (("query", points.q), ("key", points.k))
        for (x, y), token, position, text in zip(
            both, vectors.tokens, vectors.positions, vectors.texts, strict=True
        )
    ]
    encoding = {
        "x": _value("x", f"first component, {percent(points.share[0])} of the variance", ink),
        "y": _value("y", f"second component, {percent(points.share[1])}", ink),
        "shape": {
            "field": "of",
            "type": "nominal",
            "legend": None,
            "scale": {"domain": ["query", "key"], "range": ["circle", "triangle-up"]},
        },
        "tooltip": [
            text_tip("of", "vector"),
            text_tip("token", "token"),
            text_tip("position", "position"),
            text_tip("text", "text"),
        ],
        "color": _token_colour(common, ink, theme)
        if colour == "token"
        else _position_colour(ink, theme),
    }
    return figure(
        [layer("point", rows, encoding, filled=True, size=42, opacity=0.75)], HEIGHT
    ) | right_margin(EDGE)


def _token_colour(common: list[str], ink: Ink, theme: Theme) -> Spec:
    shades = [*CATEGORIES[theme][: len(common)], CATEGORIES[theme][-1]]
    return {
        "field": "group",
        "type": "nominal",
        "title": None,
        "legend": _legend(ink),
        "scale": {"domain": [*common, OTHER], "range": shades},
    }


def _position_colour(ink: Ink, theme: Theme) -> Spec:
    return {
        "field": "position",
        "type": "quantitative",
        "title": "position",
        "scale": {"range": WEIGHTS[theme][2:]},
        "legend": {**_legend(ink), "gradientLength": 120},
    }


def _legend(ink: Ink) -> Spec:
    return {
        "orient": "bottom",
        "direction": "horizontal",
        "columns": 5,
        "labelColor": ink.text,
        "labelFontSize": 12,
        "titleColor": ink.quiet,
        "titleFontWeight": "normal",
    }


def _title(measure: Measure) -> str:
    return f"{measure.name}, {measure.unit}"


def _value(name: str, title: str, ink: Ink) -> Spec:
    return {
        "field": name,
        "type": "quantitative",
        "title": title,
        "scale": {"zero": False},
        "axis": {**axis_style(ink), "gridColor": ink.hairline, "tickCount": 6},
    }


def _literal(field: str) -> Spec:
    return {"field": field, "type": "nominal", "scale": None, "legend": None}
