"""Arrays to Altair figures in the lab's style: a curve ends in a dot, labelled there; the accent rule is the step.

Makes no st call. Colours are LOOK's: one accent for what is picked, category colours for series.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import altair as alt

from dashboard.attention_view.palette import Ink

DASHES = ([1, 0], [4, 3], [2, 2], [6, 2, 1, 2])

Points = Sequence[tuple[float, float | None]]


@dataclass(frozen=True)
class Curve:
    """A named series of (step, value); points without a value are left out. `place` fixes its colour and dash."""

    name: str
    points: Points
    place: int | None = None

    def kept(self) -> list[tuple[float, float]]:
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
    named: bool = True,
    guess_at: Literal["left", "right"] = "right",
) -> alt.LayerChart:
    """Curves over training steps, or seconds (`unit`); `guess` is a level to beat and its words, on the side where
    there is room, `step` the picked place, `high` fixes y; `named` writes each curve's name at its end."""
    curves = [curve for curve in curves if curve.kept()]
    x = alt.X("x:Q", title=unit, scale=alt.Scale(domain=[0, last_x or 1], nice=False),
              axis=_axis(ink, False, unit=unit))
    top = high if high is not None else _top(curves, guess)
    axis = _axis(ink, True, "datum.value + ' %'" if percent else None)
    y = alt.Y("y:Q", title=None, scale=alt.Scale(domain=[0, top * 1.04], nice=False), axis=axis)
    layers = [] if guess is None else _guess(guess, x, y, ink, last_x, guess_at)
    for i, curve in enumerate(curves):
        layers += _curve(curve, x, y, _colour(curve, i, ink), DASHES[_place(curve, i) % len(DASHES)], unit)
    layers += _labels(curves, x, y, ink, last_x, top) if named else []
    if step is not None:
        layers += _picked(curves, step, x, y, ink)
    return alt.layer(*layers).properties(height=height, width="container").configure_view(stroke=None)


def _place(curve: Curve, i: int) -> int:
    return i if curve.place is None else curve.place


def _colour(curve: Curve, i: int, ink: Ink) -> str:
    return ink.series[_place(curve, i) % len(ink.series)]


def _top(curves: Sequence[Curve], guess: tuple[float, str] | None) -> float:
    values = [y for curve in curves for _, y in curve.kept()] + ([guess[0]] if guess else [])
    return max(values, default=1.0) or 1.0


def _axis(ink: Ink, vertical: bool, label: str | None = None, unit: str = "step") -> alt.Axis:
    shared = dict(labelColor=ink.quiet, labelFontSize=12, domain=False, ticks=False, labelPadding=6)
    if not vertical:
        # whole steps only: a short run would repeat its rounded labels
        ticks = dict(tickMinStep=1, format=",d") if unit == "step" else dict(format=".3~g")
        return alt.Axis(grid=False, tickCount=4, titleColor=ink.quiet, titleFontSize=12, titleFontWeight="normal",
                        titleAnchor="end", titlePadding=2, **ticks, **shared)
    extra = {"labelExpr": label, "values": [0, 25, 50, 75, 100], "labelOverlap": False} if label else {}
    return alt.Axis(grid=True, gridColor=ink.hairline, tickCount=4, **extra, **shared)


def _rows(points: Points, name: str = "") -> alt.Data:
    return alt.Data(values=[{"x": x, "y": y, "name": name} for x, y in points])


def _curve(curve: Curve, x: alt.X, y: alt.Y, colour: str, dash: list[int], unit: str) -> list[alt.Chart]:
    tips = [alt.Tooltip("x:Q", title=unit, format=",d" if unit == "step" else ".3~g"),
            alt.Tooltip("y:Q", title=curve.name, format=".3~f")]
    points = curve.kept()
    line = alt.Chart(_rows(points, curve.name)).mark_line(color=colour, strokeWidth=2, strokeDash=dash)
    touch = alt.Chart(_rows(points, curve.name)).mark_point(opacity=0, size=200).encode(x, y, tooltip=tips)
    end = alt.Chart(_rows(points[-1:])).mark_point(color=colour, filled=True, size=36, opacity=1)
    return [line.encode(x, y), end.encode(x, y), touch]


def _labels(
    curves: Sequence[Curve], x: alt.X, y: alt.Y, ink: Ink, last_x: float, top: float
) -> list[alt.Chart]:
    """Each curve's name at its end, turned inwards near the right edge and stacked where ends meet."""
    ends = [curve.kept()[-1] for curve in curves]
    inside = max((end_x for end_x, _ in ends), default=0) > 0.62 * last_x
    places = _apart([end_y / top for _, end_y in ends], off_line=inside)
    layers = []
    for i, (curve, (end_x, _), place) in enumerate(zip(curves, ends, places, strict=True)):
        turned = end_x > 0.62 * last_x
        mark = alt.Chart(_rows([(end_x, place * top)], curve.name)).mark_text(
            align="right" if turned else "left", dx=-8 if turned else 9, fontSize=12, fontWeight=600,
            color=_colour(curve, i, ink), baseline="middle",
        )
        layers.append(mark.encode(x, y, text="name:N"))
    return layers


def _apart(heights: Sequence[float], off_line: bool, gap: float = 0.11) -> list[float]:
    """Where labels stand, as shares of the height: high ends are stacked downwards, low ones upwards."""
    places = [0.0] * len(heights)
    for high in (True, False):
        sign, before = (-1 if high else 1), None
        group = sorted((i for i, h in enumerate(heights) if (h > 0.5) == high), key=lambda i: sign * heights[i])
        for i in group:
            # a curve that ends high wavers under its end, so its name stands well below it
            step_off = sign * (0.3 if high else gap) if off_line else 0
            place = min(max(heights[i] + step_off, 0.06), 0.97)
            if before is not None:
                place = min(place, before - gap) if high else max(place, before + gap)
            places[i] = before = place
    upper, lower = [[place for place, h in zip(places, heights, strict=True) if (h > 0.5) == high]
                    for high in (True, False)]
    lift = max(0.0, max(lower) + gap - min(upper)) if upper and lower else 0.0  # the two stacks must not meet
    return [place + lift * (h > 0.5) for place, h in zip(places, heights, strict=True)]


def _guess(
    guess: tuple[float, str], x: alt.X, y: alt.Y, ink: Ink, last_x: float, side: str
) -> list[alt.Chart]:
    level, words = guess
    rule = alt.Chart(_rows([(0, level), (last_x, level)])).mark_line(color=ink.quiet, strokeWidth=1, strokeDash=[2, 2])
    text = alt.Chart(_rows([(last_x if side == "right" else 0, level)], words)).mark_text(
        align=side, baseline="bottom", dx=0 if side == "right" else 4, dy=-3, fontSize=12, color=ink.quiet
    )
    return [rule.encode(x, y), text.encode(x, y, text="name:N")]


def _picked(curves: Sequence[Curve], step: float, x: alt.X, y: alt.Y, ink: Ink) -> list[alt.Chart]:
    rule = alt.Chart(_rows([(step, 0)])).mark_rule(color=ink.pick, strokeWidth=1.5).encode(x)
    on = [(step, dict(curve.kept())[step]) for curve in curves[:1] if step in dict(curve.kept())]
    ring = alt.Chart(_rows(on)).mark_point(color=ink.pick, filled=False, size=60, strokeWidth=2, opacity=1)
    return [rule, ring.encode(x, y)]
