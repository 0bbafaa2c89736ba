"""Curves: of any measure over any axis, over the steps of a run, one mark a seed, and the sizes of caches."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dashboard.draw.figures import (
    CATEGORIES,
    DASHES,
    PERCENTAGES,
    PLAIN,
    Ink,
    Spec,
    Theme,
    axis_style,
    config,
    field,
    figure,
    filtered_layer,
    layer,
    names,
    right_margin,
    separate,
    series_encoding,
    table_columns,
    text_tip,
    titled_figure,
    whole_tip,
)
from dashboard.draw.formats import byte_size, number, percent, percent as as_percent, plain

# Curves of any measure over any axis: named at their ends, with bands and a rule.


if TYPE_CHECKING:  # at run time torch would come with them
    from core.training.evaluate import Record
    from core.training.seed_stats import Line, SeedStats

    # its name, the numbers of its seeds, colour and shape
    SeedRow = tuple[str, SeedStats, str, str]

HEIGHT = 240  # pixels
FLOOR = 1e-9  # the smallest value that a logarithmic axis shows, unless a chart names another
MAX_TICKS = 12
TOP = 1.04  # of the axis of `fixed_chart`
NAME_STYLE: Spec = {
    "align": "left",
    "dx": 8,
    "fontSize": 12,
    "fontWeight": 600,
    "baseline": "middle",
}
RAISED = {
    str(power): f"10{str(power).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"
    for power in range(-18, 13)
}
POWERS = f"{json.dumps(RAISED)}[toString(round(log(datum.value) / LN10))]"


Points = Sequence[tuple[float, float | None]]


@dataclass(frozen=True)
class Curve:
    """A named series of (x, y), with a band around it where low and high are given.

    Without a colour and a dash (an index of DASHES) of its own, it takes those of its place among the series.
    A `step_chart` leaves out points without a value.
    """

    name: str
    points: Points
    band: Sequence[tuple[float, float]] = ()
    colour: str = ""
    dash: int | None = None

    def defined_points(self) -> list[tuple[float, float]]:
        return [(x, y) for x, y in self.points if y is not None]

    def style(self, ink: Ink, at: int, dash: int) -> tuple[str, list[int]]:
        """Colour and dash; without its own, those at these places."""
        dash = dash if self.dash is None else self.dash
        return self.colour or ink.series[at % len(ink.series)], DASHES[dash % len(DASHES)]


def line_chart(
    title: str,
    x_title: str,
    curves: Sequence[Curve],
    ink: Ink,
    *,
    log: bool = False,
    log_x: bool = False,
    rule: float | None = None,
    named: bool = True,
    measured: bool = False,
    share: bool = False,
    domain: tuple[float, float] | None = None,
    floor: float = FLOOR,
) -> Spec:
    """Curves that end in a dot and, if `named`, their names; `rule` is a line in the accent, `log_x` needs x above 0.

    The ends of y are those of the `domain`, else of the curves with some air. On a logarithmic axis what is below
    `floor` lies on it.

    `measured` puts a tick at each x of the curves, if these are few; a `share` of 1 is written as a percentage.
    """
    points = [point for curve in curves for point in curve.defined_points()]
    ends = [end for curve in curves for pair in curve.band for end in pair]
    low, high = domain or bounds([*(y for _, y in points), *ends], log, floor)
    # also those of points without a value
    xs = sorted({x for curve in curves for x, _ in curve.points})
    # ticks at each x, else at some numbers, whole ones where all x are
    near_one = low >= 1e-4 and high <= 1e6
    decades = {"format": PLAIN} if near_one else {"labelExpr": POWERS}
    whole = {"tickMinStep": 1, "format": "d"} if all(x == int(x) for x in xs) else {}
    ticks = {"tickCount": MAX_TICKS, **whole}
    if log_x or measured and len(xs) <= MAX_TICKS:
        ticks = {"values": xs, "format": PLAIN}
    x = {
        "field": "x",
        "type": "quantitative",
        "title": x_title,
        "scale": {"domain": [xs[0], xs[-1]], "nice": False, **({"type": "log"} if log_x else {})},
        "axis": {"grid": False, **ticks},
    }
    y = {
        "field": "y",
        "type": "quantitative",
        "title": None,
        "axis": {
            "tickCount": 4,
            **({"values": powers(low, high), **decades} if log else {}),
            **({"labelExpr": PERCENTAGES} if share else {}),
        },
        "scale": {"domain": [low, high], "nice": False, **({"type": "log"} if log else {})},
    }
    layers, both, y_min = list[Spec](), {"x": x, "y": y}, floor if log else -math.inf
    write = percent if share else number
    tips = [
        {"field": "name", "title": " "},
        {"field": "x", "title": x_title},
        {"field": "text", "title": "value"},
    ]
    titles = {"name": "name", "x": x_title, "value": title} | (
        {"low": "low", "high": "high"} if ends else {}
    )
    styles = [curve.style(ink, at, at // len(ink.series)) for at, curve in enumerate(curves)]
    for curve, (colour, dash) in zip(curves, styles, strict=True):
        points = curve.defined_points()
        rows: list[Spec] = [
            {"x": a, "y": max(b, y_min), "name": curve.name, "text": write(b), "value": b}
            | dict.fromkeys([*titles][3:])
            for a, b in points
        ]
        if curve.band:
            rows = [
                row | {"low": low, "high": high, "y0": max(low, y_min), "y1": max(high, y_min)}
                for row, (low, high) in zip(rows, curve.band, strict=True)
            ]
            around = {"x": x, "y": {**y, "field": "y0"}, "y2": {"field": "y1"}}
            layers.append(layer("area", rows, around, color=colour, opacity=0.18))
        layers += _line_layers(rows, both, tips, colour, dash)
    named_styles = [(curve.name, *style) for curve, style in zip(curves, styles, strict=True)]
    if named:
        last = [low, high, *(curve.defined_points()[-1][1] for curve in curves)]
        bottom, top, *ends = np.log(np.maximum(last, floor)) if log else last
        layers += _names_at_ends(
            [
                (name, (end - bottom) / (top - bottom), colour)
                for (name, colour, _), end in zip(named_styles, ends, strict=True)
            ]
        )
    if rule is not None:
        layers.append(layer("rule", [{"x": rule}], {"x": x}, color=ink.pick, strokeWidth=1.5))
    drawn = titled_figure(title, layers, HEIGHT, ink) | right_margin(4 if named else 12)
    return drawn | names([] if named else named_styles, titles)


def powers(low: float, high: float) -> list[float]:
    """The powers of ten from `low` to `high`: the ticks of a logarithmic axis."""
    ends = math.ceil(math.log10(low)), math.floor(math.log10(high))
    return [10.0**power for power in range(ends[0], ends[1] + 1)]


def bounds(values: Sequence[float], log: bool, floor: float = FLOOR) -> tuple[float, float]:
    """The ends of an axis around all values, with a little air; a logarithmic one ends at whole powers of ten."""
    if log:
        logs = [math.log10(max(value, floor)) for value in values]
        return 10.0 ** math.floor(min(logs)), 10.0 ** math.ceil(max(logs) + 0.05)
    low, high = min(values), max(values)
    air = 0.06 * (high - low) or 0.5
    return low - air, high + air


def _line_layers(
    rows: Sequence[Spec],
    at: Spec,
    tips: Sequence[Spec],
    colour: str,
    dash: Sequence[int],
    reach: int = 160,
    **end: Any,
) -> list[Spec]:
    """A line, the dot at its end, and invisible points around it, `reach` large, with tooltips."""
    dot = {"filled": True, "size": 36, "opacity": 1, **end}
    return [
        layer("line", rows, at, color=colour, strokeWidth=2, strokeDash=dash),
        layer("point", rows[-1:], at, color=colour, **dot),
        layer("point", rows, {**at, "tooltip": tips}, opacity=0, size=reach),
    ]


def _names_at_ends(ends: Sequence[tuple[str, float, str]]) -> list[Spec]:
    """Each name in its colour, right of the plot at its share of the height, moved apart where ends meet."""
    return [
        layer(
            "text",
            [{}],
            {},
            **NAME_STYLE,
            text=name,
            color=colour,
            x="width",
            y={"expr": f"height * {round(1 - height, 4)}"},
        )
        for (name, _, colour), height in zip(
            ends, separate([share for _, share, _ in ends]), strict=True
        )
    ]


def fixed_chart(names: Sequence[str], x_title: str, first: float, last: float, ink: Ink) -> Spec:
    """Curves from 0 to 1 with the data of `curve_rows` apart, so that a control redraws no chart."""
    x = {
        "field": "x",
        "type": "quantitative",
        "title": x_title,
        "scale": {"domain": [first, last], "nice": False},
        "axis": {"grid": False, "format": "d"},
    }
    y = {
        "field": "y",
        "type": "quantitative",
        "title": None,
        "scale": {"domain": [0, TOP], "nice": False},
        "axis": {"tickCount": 5},
    }
    colours = [ink.series[at % len(ink.series)] for at in range(len(names))]
    both = {"x": x, "y": y, "color": series_encoding("name", names, colours)}
    tips = [
        {"field": "name", "title": " "},
        {"field": "x", "title": "score", "format": ".2f"},
        {"field": "y", "title": "weight", "format": ".3f"},
    ]
    layers = [
        filtered_layer("curve", "line", both, strokeWidth=2),
        filtered_layer("curve", "point", {**both, "tooltip": tips}, opacity=0, size=160),
        filtered_layer("end", "point", both, filled=True, size=36, opacity=1),
        filtered_layer(
            "label",
            "text",
            {**both, "x": {"value": "width"}, "text": {"field": "name"}},
            **NAME_STYLE,
        ),
        filtered_layer("rule", "rule", {"x": x}, color=ink.pick, strokeWidth=1.5),
    ]
    return {"height": HEIGHT, "layer": layers, "config": config(ink), **right_margin(4)}


def curve_rows(curves: Sequence[Curve], rule: float | None) -> list[Spec]:
    """The data of `fixed_chart`: kind, name, x and y."""
    ends = [curve.defined_points()[-1] for curve in curves]
    heights = separate([y / TOP for _, y in ends])
    rows = [
        *(("curve", curve.name, x, y) for curve in curves for x, y in curve.defined_points()),
        *(("end", curve.name, *end) for curve, end in zip(curves, ends, strict=True)),
        *(("label", one.name, 0.0, at * TOP) for one, at in zip(curves, heights, strict=True)),
        *([] if rule is None else [("rule", "", rule, 0.0)]),
    ]
    return [dict(zip(("kind", "name", "x", "y"), row, strict=True)) for row in rows]


# Curves over training steps, layers or seconds, and the legend that names them; a rule marks the picked step.


def step_chart(
    curves: Sequence[Curve],
    *,
    ink: Ink,
    last_x: float,
    step: float | None = None,
    high: float | None = None,
    guess: tuple[float, str] | None = None,
    percent: bool = False,
    height: int = 200,
    unit: str = "step",
) -> Spec:
    """Curves over training steps, layers or seconds (`unit`), which `legend` names; `guess` is a level to beat and its
    words, on the side where there is room, `step` the picked place, `high` fixes y."""
    curves = [curve for curve in curves if curve.defined_points()]
    points = [point for curve in curves for point in curve.defined_points()]
    most = max([*(y for _, y in points), *(guess or ())[:1]], default=1.0) or 1.0
    top, whole = most if high is None else high, not unit.startswith("seconds")
    across: Spec = {"grid": False, "tickCount": 4, "titleAnchor": "end", "titlePadding": 2}
    # whole steps only: a short run would repeat its rounded labels
    across |= {"tickMinStep": 1, "format": ",d"} if whole else {"format": ",.3~r"}
    up: Spec = {"grid": True, "gridColor": ink.hairline, "tickCount": 4}
    if percent:
        up |= {
            "labelExpr": "datum.value + ' %'",
            "values": [0, 25, 50, 75, 100],
            "labelOverlap": False,
        }
    at = {
        "x": field("x", unit, domain=[0, last_x or 1], axis=axis_style(ink) | across),
        "y": field("y", None, domain=[0, top * 1.04], axis=axis_style(ink) | up),
    }
    layers, styles = [], [curve.style(ink, i, i) for i, curve in enumerate(curves)]
    if guess is not None:
        # on the side of the chart on which every curve is further from the level
        level, words = guess
        left, right = (
            min((abs(y - level) for x, y in points if (x > last_x / 2) == late), default=math.inf)
            for late in (False, True)
        )
        end, align, dx = (0, "left", 4) if left > right else (last_x, "right", -6)
        line = [{"x": x, "y": level} for x in (0, last_x)]
        layers = [
            layer("line", line, at, color=ink.quiet, strokeWidth=1, strokeDash=[2, 2]),
            layer(
                "text",
                [{"x": end, "y": level, "name": words}],
                at | {"text": {"field": "name", "type": "nominal"}},
                align=align,
                dx=dx,
                baseline="bottom",
                dy=-3,
                fontSize=12,
                color=ink.quiet,
            ),
        ]
    for curve, style in zip(curves, styles, strict=True):
        rows = [
            {
                "x": x,
                "y": y,
                "name": curve.name,
                "at": number(x),
                "told": as_percent(y / 100) if percent else number(y),
            }
            for x, y in curve.defined_points()
        ]
        tips = [
            whole_tip("x", unit) if whole else text_tip("at", unit),
            text_tip("told", curve.name),
        ]
        layers += _line_layers(rows, at, tips, *style, reach=200)
    if step is not None:
        on = [{"x": step, "y": y} for c in curves[:1] for x, y in c.defined_points() if x == step]
        layers += [
            layer("rule", [{"x": step}], {"x": at["x"]}, color=ink.pick, strokeWidth=1.5),
            layer(
                "point",
                on,
                at,
                color=ink.pick,
                filled=False,
                size=60,
                strokeWidth=2,
                opacity=1,
            ),
        ]
    named = [(curve.name, *style) for curve, style in zip(curves, styles, strict=True)]
    drawn = figure(layers, height) | right_margin(12)  # the last tick may stand close to the end
    return drawn | (names(named) if len(named) > 1 else {})


def legend(curves: Sequence[Curve], ink: Ink, least: int = 2) -> str:
    """The names of `least` curves or more as Markdown with HTML, each in its colour after a piece of its line."""
    parts = [
        f'<span style="color: {colour}; font-weight: 600; white-space: nowrap; margin-right: 8px">'
        f"{'━╍┅┉'[DASHES.index(dash)]} {plain(curve.name)}</span>"
        for i, curve in enumerate(curve for curve in curves if curve.defined_points())
        for colour, dash in [curve.style(ink, i, i)]
    ]
    return " ".join(parts) if len(parts) >= least else ""


# Curves that several pages draw of a run's records.


APART = 0.01  # the smallest difference between two shares that a second curve could show


def points(records: Sequence[Record], name: str, scale: float = 1.0) -> Points:
    return [
        (r.step, None if (value := getattr(r, name)) is None else scale * value) for r in records
    ]


def loss_curves(records: Sequence[Record]) -> list[Curve]:
    return [
        Curve("validation", points(records, "loss")),
        Curve("training", points(records, "train_loss")),
    ]


def balanced_points(records: Sequence[Record]) -> Points:
    """Balanced accuracy in percent over the steps; empty where classes are so even that it is the accuracy."""
    accuracy = [
        r.sequence_accuracy if r.token_accuracy is None else r.token_accuracy for r in records
    ]
    if all(
        r.balanced is None or share is None or abs(r.balanced - share) < APART
        for r, share in zip(records, accuracy, strict=True)
    ):
        return []
    return points(records, "balanced", 100)


# Rows of marks: every seed of a value or condition, over the interval of their mean.


def seed_marks(
    title: str,
    rows: Sequence[SeedRow],
    x: Spec,
    ink: Ink,
    *,
    ends: tuple[float, float] = (-math.inf, math.inf),
    height: int = 30,
    labels: int = 220,
    write: Callable[[float], str] = number,
) -> Spec:
    """Every seed a mark over the 95 % interval of the mean, cut at the `ends` of the axis.

    `x` encodes the field x; `height` and `labels` are the pixels of a row and of the names before the rows.
    """
    names = [name for name, *_ in rows]
    y = {
        "field": "name",
        "type": "nominal",
        "title": None,
        "sort": names,
        "scale": {"domain": names},
        "axis": {
            "labelLimit": labels,
            "domain": False,
            "grid": False,
            "labelFontSize": 13,
            "labelColor": ink.text,
            "labelFlush": False,
        },
    }
    layers = []
    for name, stats, colour, shape in rows:
        mean = stats.mean
        low, high = stats.interval or (mean, mean)
        interval = [{"x": mean, "low": max(ends[0], low), "high": min(ends[1], high), "name": name}]
        points = [
            {"x": value, "name": name, "text": write(value), "seed": value}
            | {"mean": mean}
            | dict(zip(("from", "to"), stats.interval or (None, None), strict=True))
            for value in stats.values
        ]
        layers += [
            layer(
                "rule",
                interval,
                {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y},
                strokeWidth=6,
                opacity=0.25,
                color=colour,
            ),
            layer(
                "tick",
                interval,
                {"x": x, "y": y},
                thickness=3,
                size=20,
                opacity=1,
                color=colour,
            ),
            layer(
                "point",
                points,
                {"x": x, "y": y, "tooltip": [{"field": "text", "title": "this seed"}]},
                filled=True,
                size=60,
                opacity=0.75,
                shape=shape,
                color=colour,
            ),
        ]
    titles = {"name": "name", "seed": f"{title}, this seed", "mean": "mean of the seeds"} | {
        "from": "95 % interval from",
        "to": "95 % interval to",
    }
    drawn = titled_figure(title, layers, height * max(1, len(rows)), ink, **right_margin(12))
    return drawn | table_columns(titles)


BYTES = "replace(format(datum.value, '~s'), /([MGT])/, ' $1') + 'B'"  # of an axis: 10 MB
TOKENS = "datum.value < 1048576 ? datum.value / 1024 + 'k' : datum.value / 1048576 + 'M'"
LOW = 1e6  # bytes


def size_figure(
    curves: Mapping[str, Sequence[tuple[int, int]]],
    order: Sequence[str],
    lengths: Sequence[int],
    theme: Theme,
    powers: int = 7,
) -> Spec:
    """Points (tokens, bytes) of each name, over so many powers of ten from 1 MB.

    `order` lists all names that may occur, which decides their colours.
    """
    ink, high = Ink.of(theme), LOW * 10.0**powers
    x = {
        "field": "x",
        "type": "quantitative",
        "title": "tokens",
        "scale": {"type": "log", "base": 2, "domain": [lengths[0], lengths[-1]], "nice": False},
        "axis": {"grid": False, "values": list(lengths), "labelExpr": TOKENS},
    }
    y = {
        "field": "y",
        "type": "quantitative",
        "title": None,
        "scale": {"type": "log", "domain": [LOW, high], "nice": False, "clamp": True},
        "axis": {"values": [LOW * 10.0**power for power in range(powers + 1)], "labelExpr": BYTES},
    }
    places, count = [str(at) for at in range(len(order))], range(len(order))
    colour = series_encoding("place", places, [CATEGORIES[theme][at % 8] for at in count])
    dash = series_encoding("place", places, [DASHES[at // 4 % len(DASHES)] for at in count])
    drawn = {name: points for name, points in curves.items() if points}
    rows = [
        {
            "x": length,
            "y": size,
            "name": name,
            "place": str(order.index(name)),
            "told": byte_size(size),
        }
        for name, points in drawn.items()
        for length, size in points
    ]
    span = np.log(high / LOW)
    heights = separate(
        [float(np.log(max(LOW, points[-1][1]) / LOW) / span) for points in drawn.values()]
    )
    ends = [
        {
            "x": points[-1][0],
            "y": float(LOW * np.exp(span * height)),
            "name": name,
            "place": str(order.index(name)),
        }
        for (name, points), height in zip(drawn.items(), heights, strict=True)
    ]
    at = {"x": x, "y": y, "color": colour}
    tips = [
        text_tip("name", " "),
        {"field": "x", "title": "tokens", "format": ",d"},
        text_tip("told", " "),
    ]
    layers = [
        layer("line", rows, {**at, "strokeDash": dash}, strokeWidth=2),
        layer("point", rows, {**at, "tooltip": tips}, filled=True, size=40, opacity=1),
        layer(
            "text",
            ends,
            {**at, "text": {"field": "name"}},
            align="left",
            dx=8,
            fontSize=12,
            fontWeight=600,
        ),
    ]
    return titled_figure("Size of the cache of one text", layers, 240, ink, **right_margin(4))


# The figures of a sweep: means with their bands over training, and every seed at the end.


SHAPES = (
    "circle",
    "square",
    "triangle-up",
    "diamond",
    "triangle-down",
    "cross",
    "triangle-right",
    "triangle-left",
)


@dataclass(frozen=True)
class Scale:
    """The measure's axis in both figures: its ends, and `end`, the largest value, a little below `high`."""

    low: float
    end: float
    high: float

    @classmethod
    def around(cls, values: Sequence[float], whole: float | None) -> Scale:
        """From zero or the smallest value to the largest; to `whole` for a measure with a maximum."""
        low, high = min([0.0, *values]), max([1e-9 if whole is None else whole, *values])
        return cls(low, high, high + 0.04 * (high - low))

    def axis(self, field: str) -> Spec:
        return {
            "field": field,
            "type": "quantitative",
            "title": None,
            "axis": {"tickCount": 5, "grid": True},
            "scale": {"domain": [self.low, self.high], "nice": False},
        }


def lines(
    title: str,
    x_title: str,
    last_x: float,
    names: Sequence[str],
    means: dict[int, Line],
    scale: Scale,
    theme: Theme,
    write: Callable[[float], str] = number,
) -> Spec:
    """The mean of each value over training, in a band from its lowest to its highest seed, named at its end."""
    x = {
        "field": "x",
        "type": "quantitative",
        "title": x_title,
        "axis": {"grid": False, "tickMinStep": 1, "tickCount": 10},
        "scale": {"domain": [0, last_x], "nice": False},
    }
    y, layers, ends, ink = scale.axis("y"), list[Spec](), [], Ink.of(theme)
    tips = [
        {"field": name, "title": label}
        for name, label in (
            ("name", " "),
            ("x" if x_title == "step" else "at", x_title),
            ("told", "mean"),
            ("told_low", "lowest seed"),
            ("told_high", "highest seed"),
        )
    ]
    for index, line in means.items():
        rows = [
            {
                "x": a,
                "y": b,
                "low": low,
                "high": high,
                "name": names[index],
                "at": number(a),
                "told": write(b),
                "told_low": write(low),
                "told_high": write(high),
            }
            for a, b, low, high in zip(line.x, line.mean, line.low, line.high, strict=True)
        ]
        colour = CATEGORIES[theme][index % len(CATEGORIES[theme])]
        area = {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}}
        layers += [
            layer("area", rows, area, opacity=0.09, color=colour),
            *_line_layers(
                rows,
                {"x": x, "y": y},
                tips,
                colour,
                DASHES[0],
                size=44,
                shape=SHAPES[index % len(SHAPES)],
            ),
        ]
        ends.append((names[index], (line.mean[-1] - scale.low) / (scale.high - scale.low), colour))
    layers += _names_at_ends(ends)
    titles = {"name": "name", "x": x_title, "y": f"{title}, mean"} | {
        "low": "lowest seed",
        "high": "highest seed",
    }
    return titled_figure(title, layers, HEIGHT, ink, **right_margin(4)) | table_columns(titles)


def seeds(
    title: str,
    names: Sequence[str],
    stats: dict[int, SeedStats],
    scale: Scale,
    theme: Theme,
    write: Callable[[float], str] = number,
) -> Spec:
    """A row a value: every seed a mark, over the 95 % interval of their mean, cut where the axis ends."""
    ink, colours = Ink.of(theme), CATEGORIES[theme]
    rows = [
        (names[index], each, colours[index % len(colours)], SHAPES[index % len(SHAPES)])
        for index, each in stats.items()
    ]
    return seed_marks(title, rows, scale.axis("x"), ink, ends=(scale.low, scale.end), write=write)
