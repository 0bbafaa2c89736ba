"""Curves over training steps, layers or seconds, named at their ends; a rule marks the picked step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from dashboard.charts.numbers import number
from dashboard.charts.numbers import percent as as_percent
from dashboard.charts.palette import Ink
from dashboard.charts.vega import DASHES, Spec, axis_style, field, figure, layer, text_tip, whole_tip

LINE = 22  # pixels from one name to the next, in a height that the axis shares

Points = Sequence[tuple[float, float | None]]


@dataclass(frozen=True)
class Curve:
    """A named series of (step, value); points without a value are left out. `place` fixes its colour and dash."""

    name: str
    points: Points
    place: int | None = None

    def defined_points(self) -> list[tuple[float, float]]:
        return [(x, y) for x, y in self.points if y is not None]


def step_chart(curves: Sequence[Curve], *, ink: Ink, last_x: float, step: float | None = None,
               high: float | None = None, guess: tuple[float, str] | None = None, percent: bool = False,
               height: int = 200, unit: str = "step", named: bool = True) -> Spec:
    """Curves over training steps, layers or seconds (`unit`); `guess` is a level to beat and its words, on the side
    where there is room, `step` the picked place, `high` fixes y; `named` writes each curve's name at its end."""
    curves = [curve for curve in curves if curve.defined_points()]
    top = high if high is not None else _top(curves, guess)
    at = {"x": field("x", unit, domain=[0, last_x or 1], axis=_across(ink, unit)),
          "y": field("y", None, domain=[0, top * 1.04], axis=_up(ink, percent))}
    layers = [] if guess is None else _guess(guess, at, ink, last_x, _free_side(curves, guess[0], last_x))
    for i, curve in enumerate(curves):
        layers += _curve(curve, at, _colour(curve, i, ink), DASHES[_place(curve, i) % len(DASHES)], unit,
                         write_share if percent else number)
    layers += _labels(curves, at, ink, last_x, top, gap=LINE / height) if named else []
    if step is not None:
        layers += _picked(curves, step, at, ink)
    return figure(layers, height)


def legend(curves: Sequence[Curve], ink: Ink) -> str:
    """The names of curves as HTML, each in its colour after a piece of its line: for a chart whose ends are crowded."""
    marks = "━", "╍", "┅", "┉"
    return " ".join(f'<span style="color: {_colour(curve, i, ink)}; font-weight: 600; white-space: nowrap">'
                    f"{marks[_place(curve, i) % len(marks)]} {curve.name}</span>" for i, curve in enumerate(curves)
                    if curve.defined_points())


def _place(curve: Curve, i: int) -> int:
    return i if curve.place is None else curve.place


def _colour(curve: Curve, i: int, ink: Ink) -> str:
    return ink.series[_place(curve, i) % len(ink.series)]


def _top(curves: Sequence[Curve], guess: tuple[float, str] | None) -> float:
    values = [y for curve in curves for _, y in curve.defined_points()] + ([guess[0]] if guess else [])
    return max(values, default=1.0) or 1.0


def _across(ink: Ink, unit: str) -> Spec:
    # whole steps only: a short run would repeat its rounded labels
    ticks = {"tickMinStep": 1, "format": ",d"} if unit != "seconds" else {"format": ".3~g"}
    return {**axis_style(ink), "grid": False, "tickCount": 4, "titleAnchor": "end", "titlePadding": 2, **ticks}


def _up(ink: Ink, percent: bool) -> Spec:
    shares = {"labelExpr": "datum.value + ' %'", "values": [0, 25, 50, 75, 100], "labelOverlap": False}
    return {**axis_style(ink), "grid": True, "gridColor": ink.hairline, "tickCount": 4, **(shares if percent else {})}


def write_share(value: float) -> str:
    """A share from 0 to 100 as a percentage."""
    return as_percent(value / 100)


def _rows(points: Points, name: str = "") -> list[Spec]:
    return [{"x": x, "y": y, "name": name} for x, y in points]


def _curve(curve: Curve, at: Spec, colour: str, dash: list[int], unit: str,
           format_value: Callable[[float], str]) -> list[Spec]:
    """One curve; its tooltips hold x and y as `dashboard.charts.numbers` writes them."""
    tips = [text_tip("at", unit) if unit == "seconds" else whole_tip("x", unit), text_tip("told", curve.name)]
    points = curve.defined_points()
    with_text = [row | {"at": number(row["x"]), "told": format_value(row["y"])} for row in _rows(points, curve.name)]
    return [layer("line", _rows(points, curve.name), at, color=colour, strokeWidth=2, strokeDash=dash),
            layer("point", _rows(points[-1:]), at, color=colour, filled=True, size=36, opacity=1),
            layer("point", with_text, {**at, "tooltip": tips}, opacity=0, size=200)]


def _labels(curves: Sequence[Curve], at: Spec, ink: Ink, last_x: float, top: float, gap: float) -> list[Spec]:
    """Each curve's name at its end, on the inner side near the right edge, stacked where ends meet."""
    ends = [curve.defined_points()[-1] for curve in curves]
    inside = max((end_x for end_x, _ in ends), default=0) > 0.62 * last_x
    heights = _apart([end_y / top for _, end_y in ends], inside, gap)
    layers = []
    for i, (curve, (end_x, _), height) in enumerate(zip(curves, ends, heights, strict=True)):
        turned = end_x > 0.62 * last_x
        layers.append(layer("text", _rows([(end_x, height * top)], curve.name), _written(at),
                            align="right" if turned else "left", dx=-8 if turned else 9, fontSize=12, fontWeight=600,
                            color=_colour(curve, i, ink), baseline="middle"))
    return layers


def _written(at: Spec) -> Spec:
    return {**at, "text": {"field": "name", "type": "nominal"}}


def _apart(heights: Sequence[float], off_line: bool, gap: float) -> list[float]:
    """Heights of labels, as shares: high ends are stacked downwards, low ones upwards."""
    result = [0.0] * len(heights)
    for high in (True, False):
        sign, before = (-1 if high else 1), None
        group = sorted((i for i, h in enumerate(heights) if (h > 0.5) == high), key=lambda i: sign * heights[i])
        for i in group:
            # a curve that ends high varies below its end, so its name is placed well below
            step_off = sign * (0.3 if high else gap) if off_line else 0
            height = min(max(heights[i] + step_off, 0.06), 0.97)
            if before is not None:
                height = min(height, before - gap) if high else max(height, before + gap)
            result[i] = before = height
    upper, lower = [[height for height, h in zip(result, heights, strict=True) if (h > 0.5) == high]
                    for high in (True, False)]
    lift = max(0.0, max(lower) + gap - min(upper)) if upper and lower else 0.0  # the two stacks must not meet
    return [height + lift * (h > 0.5) for height, h in zip(result, heights, strict=True)]


def _free_side(curves: Sequence[Curve], level: float, last_x: float) -> Literal["left", "right"]:
    """The side of the chart on which every curve is further from a level, so that its label is not crossed."""
    points = [point for curve in curves for point in curve.defined_points()]
    left, right = (min((abs(y - level) for x, y in points if (x > last_x / 2) == late), default=float("inf"))
                   for late in (False, True))
    return "left" if left > right else "right"


def _guess(guess: tuple[float, str], at: Spec, ink: Ink, last_x: float, side: Literal["left", "right"]) -> list[Spec]:
    level, words = guess
    right = side == "right"
    return [layer("line", _rows([(0, level), (last_x, level)]), at, color=ink.quiet, strokeWidth=1, strokeDash=[2, 2]),
            layer("text", _rows([(last_x if right else 0, level)], words), _written(at), align=side,
                  baseline="bottom", dx=-6 if right else 4, dy=-3, fontSize=12, color=ink.quiet)]


def _picked(curves: Sequence[Curve], step: float, at: Spec, ink: Ink) -> list[Spec]:
    on = [(step, dict(curve.defined_points())[step]) for curve in curves[:1] if step in dict(curve.defined_points())]
    return [layer("rule", _rows([(step, 0)]), {"x": at["x"]}, color=ink.pick, strokeWidth=1.5),
            layer("point", _rows(on), at, color=ink.pick, filled=False, size=60, strokeWidth=2, opacity=1)]
