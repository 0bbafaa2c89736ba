"""A claim as the index shows it, in HTML: statement, source, verdict, and its first figure as a thumbnail."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from core.claims.base import Claim
from dashboard.draw.curves import FLOOR, bounds
from dashboard.draw.palette import Ink, Theme
from dashboard.views.claims.charts import Series, series_of
from dashboard.views.claims.compute import ClaimResult
from dashboard.views.claims.intervals import image, state_mark
from dashboard.views.claims.text import parts_count

WIDTH, HEIGHT, PAD = 240, 72, 5  # of a thumbnail, which is as wide as its card
Points = Sequence[tuple[float, float]]


def card(claim: Claim, measured: ClaimResult | None, theme: Theme, hidden: bool = False) -> str:
    """Statement, subject and source; then, unless `hidden`, the verdict, how many parts hold, and the first figure."""
    ink = Ink.of(theme)
    parts = [
        f'<div style="font-size:14px;line-height:20px">{escape(claim.statement)}</div>',
        f'<div style="font-size:13px;color:{ink.quiet};margin:4px 0 8px">{escape(claim.subject)} · '
        f"{escape(claim.source.text)}</div>",
    ]
    if hidden:
        return "".join(parts)
    if measured is None:
        parts.append(f'<div style="font-size:13px;color:{ink.quiet}">Not measured yet</div>')
    else:
        count = parts_count(measured.verdict)
        parts.append(
            f"<div>{state_mark(measured.verdict.state, theme)}"
            f'<span style="font-size:13px;color:{ink.quiet}">{count and f" · {count}"}</span></div>'
        )
        parts.append(_figure(claim, measured, theme))
    return "".join(parts)


def _figure(claim: Claim, measured: ClaimResult, theme: Theme) -> str:
    """The first figure without axes, under its title and the names of its conditions."""
    figure, ink = claim.figures[0], Ink.of(theme)
    lines = [
        (series, points)
        for series in series_of({"": measured}, theme)
        if (points := _points(series, claim))
    ]
    if not lines:
        return ""
    names = " ".join(
        f'<span style="color:{series.colour};margin-right:8px;white-space:nowrap">'
        f"{'' if figure.x else '● '}{escape(series.name)}</span>"
        for series, _ in lines
    )
    draw = _curves if figure.x else _rows
    return (
        f'<div style="font-size:12px;line-height:16px;color:{ink.quiet};margin:8px 0 4px">'
        f"{escape(figure.title)}&ensp;{names}</div>"
        + image(
            draw(lines, figure.log),
            WIDTH,
            HEIGHT,
            f"{figure.title}, by condition",
            f"width:100%;height:{HEIGHT}px",
        )
    )


def _points(series: Series, claim: Claim) -> Points:
    """The means of a condition over x, or its seeds without x."""
    figure, measured = claim.figures[0], series.measured
    if not figure.x:
        return [(value, 0.0) for value in measured.results.values(series.condition, figure.measure)]
    xs = measured.results.xs(series.condition, figure.measure)
    return [
        (x, stats.mean)
        for x in xs
        if (stats := measured.stats(series.condition, figure, x)) is not None
    ]


def _curves(lines: Sequence[tuple[Series, Points]], log: str) -> str:
    x, y = (
        _scale([point[axis] for _, points in lines for point in points], name in log, size)
        for axis, name, size in ((0, "x", WIDTH), (1, "y", HEIGHT))
    )
    return "".join(
        f'<polyline fill="none" stroke="{series.colour}" stroke-width="2" vector-effect="non-scaling-stroke" points="'
        f'{" ".join(f"{round(x(a), 1)},{round(HEIGHT - y(b), 1)}" for a, b in points)}"/>'
        for series, points in lines
    )


def _rows(lines: Sequence[tuple[Series, Points]], log: str) -> str:
    x = _scale([value for _, points in lines for value, _ in points], bool(log), WIDTH)
    pitch = HEIGHT / len(lines)
    return "".join(
        f'<path d="M{round(x(value), 1)} {round((row + 0.2) * pitch, 1)}v{round(0.6 * pitch, 1)}" '
        f'stroke="{series.colour}" stroke-width="3" vector-effect="non-scaling-stroke" opacity="0.75"/>'
        for row, (series, points) in enumerate(lines)
        for value, _ in points
    )


def _scale(values: Sequence[float], log: bool, size: int) -> Callable[[float], float]:
    """Values to pixels between PAD and size − PAD."""
    place = (lambda value: math.log(max(value, FLOOR))) if log else (lambda value: value)
    low, high = place(min(values)), place(max(values))
    if low == high:
        low, high = (place(end) for end in bounds(values, log))
    return lambda value: PAD + (size - 2 * PAD) * (place(value) - low) / (high - low)
