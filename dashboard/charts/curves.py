"""Curves over training steps, layers or seconds, and the legend that names them; a rule marks the picked step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from dashboard.charts.numbers import number
from dashboard.charts.numbers import percent as as_percent
from dashboard.charts.palette import Ink
from dashboard.charts.tokens import plain
from dashboard.charts.vega import (
    DASHES,
    Spec,
    axis_style,
    field,
    figure,
    layer,
    names,
    text_tip,
    whole_tip,
)

Points = Sequence[tuple[float, float | None]]


@dataclass(frozen=True)
class Curve:
    """A named series of (step, value); points without a value are left out. `place` fixes its colour and dash."""

    name: str
    points: Points
    place: int | None = None

    def defined_points(self) -> list[tuple[float, float]]:
        return [(x, y) for x, y in self.points if y is not None]


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
    top = high if high is not None else _top(curves, guess)
    at = {
        "x": field("x", unit, domain=[0, last_x or 1], axis=_across(ink, unit)),
        "y": field("y", None, domain=[0, top * 1.04], axis=_up(ink, percent)),
    }
    layers = (
        []
        if guess is None
        else _guess(guess, at, ink, last_x, _free_side(curves, guess[0], last_x))
    )
    for i, curve in enumerate(curves):
        layers += _curve(
            curve,
            at,
            _colour(curve, i, ink),
            DASHES[_place(curve, i) % len(DASHES)],
            unit,
            write_share if percent else number,
        )
    if step is not None:
        layers += _picked(curves, step, at, ink)
    beside = [
        (curve.name, _colour(curve, i, ink), DASHES[_place(curve, i) % len(DASHES)])
        for i, curve in enumerate(curves)
    ]
    return figure(layers, height) | (names(beside) if len(beside) > 1 else {})


def legend(curves: Sequence[Curve], ink: Ink) -> str:
    """The names of two curves or more as Markdown with HTML, each in its colour after a piece of its line."""
    marks = "━", "╍", "┅", "┉"
    parts = [
        f'<span style="color: {_colour(curve, i, ink)}; font-weight: 600; white-space: nowrap; margin-right: 8px">'
        f"{marks[_place(curve, i) % len(marks)]} {plain(curve.name)}</span>"
        for i, curve in enumerate(curves)
        if curve.defined_points()
    ]
    return " ".join(parts) if len(parts) > 1 else ""


def _place(curve: Curve, i: int) -> int:
    return i if curve.place is None else curve.place


def _colour(curve: Curve, i: int, ink: Ink) -> str:
    return ink.series[_place(curve, i) % len(ink.series)]


def _top(curves: Sequence[Curve], guess: tuple[float, str] | None) -> float:
    values = [y for curve in curves for _, y in curve.defined_points()] + (
        [guess[0]] if guess else []
    )
    return max(values, default=1.0) or 1.0


def _across(ink: Ink, unit: str) -> Spec:
    # whole steps only: a short run would repeat its rounded labels
    ticks = {"tickMinStep": 1, "format": ",d"} if unit != "seconds" else {"format": ".3~g"}
    return {
        **axis_style(ink),
        "grid": False,
        "tickCount": 4,
        "titleAnchor": "end",
        "titlePadding": 2,
        **ticks,
    }


def _up(ink: Ink, percent: bool) -> Spec:
    shares = {
        "labelExpr": "datum.value + ' %'",
        "values": [0, 25, 50, 75, 100],
        "labelOverlap": False,
    }
    return {
        **axis_style(ink),
        "grid": True,
        "gridColor": ink.hairline,
        "tickCount": 4,
        **(shares if percent else {}),
    }


def write_share(value: float) -> str:
    """A share from 0 to 100 as a percentage."""
    return as_percent(value / 100)


def _rows(points: Points, name: str = "") -> list[Spec]:
    return [{"x": x, "y": y, "name": name} for x, y in points]


def _curve(
    curve: Curve,
    at: Spec,
    colour: str,
    dash: list[int],
    unit: str,
    format_value: Callable[[float], str],
) -> list[Spec]:
    """One curve; its tooltips hold x and y as `dashboard.charts.numbers` writes them."""
    tips = [
        text_tip("at", unit) if unit == "seconds" else whole_tip("x", unit),
        text_tip("told", curve.name),
    ]
    points = curve.defined_points()
    with_text = [
        row | {"at": number(row["x"]), "told": format_value(row["y"])}
        for row in _rows(points, curve.name)
    ]
    return [
        layer("line", _rows(points, curve.name), at, color=colour, strokeWidth=2, strokeDash=dash),
        layer("point", _rows(points[-1:]), at, color=colour, filled=True, size=36, opacity=1),
        layer("point", with_text, {**at, "tooltip": tips}, opacity=0, size=200),
    ]


def _written(at: Spec) -> Spec:
    return {**at, "text": {"field": "name", "type": "nominal"}}


def _free_side(curves: Sequence[Curve], level: float, last_x: float) -> Literal["left", "right"]:
    """The side of the chart on which every curve is further from a level, so that its label is not crossed."""
    points = [point for curve in curves for point in curve.defined_points()]
    left, right = (
        min((abs(y - level) for x, y in points if (x > last_x / 2) == late), default=float("inf"))
        for late in (False, True)
    )
    return "left" if left > right else "right"


def _guess(
    guess: tuple[float, str], at: Spec, ink: Ink, last_x: float, side: Literal["left", "right"]
) -> list[Spec]:
    level, words = guess
    right = side == "right"
    return [
        layer(
            "line",
            _rows([(0, level), (last_x, level)]),
            at,
            color=ink.quiet,
            strokeWidth=1,
            strokeDash=[2, 2],
        ),
        layer(
            "text",
            _rows([(last_x if right else 0, level)], words),
            _written(at),
            align=side,
            baseline="bottom",
            dx=-6 if right else 4,
            dy=-3,
            fontSize=12,
            color=ink.quiet,
        ),
    ]


def _picked(curves: Sequence[Curve], step: float, at: Spec, ink: Ink) -> list[Spec]:
    on = [
        (step, dict(curve.defined_points())[step])
        for curve in curves[:1]
        if step in dict(curve.defined_points())
    ]
    return [
        layer("rule", _rows([(step, 0)]), {"x": at["x"]}, color=ink.pick, strokeWidth=1.5),
        layer(
            "point", _rows(on), at, color=ink.pick, filled=False, size=60, strokeWidth=2, opacity=1
        ),
    ]
