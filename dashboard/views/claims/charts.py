"""The figures of a claim: curves over x, or marks by condition, from one or two sources of results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape

from core.claims.base import Figure
from core.training.seed_stats import SeedStats
from dashboard.draw.curves import FLOOR, Curve, SeedRow, line_chart, seed_marks
from dashboard.draw.palette import PICK, Ink, Theme
from dashboard.draw.vega import DASHES, PERCENTAGES, Spec
from dashboard.views.claims.compute import ClaimResult
from dashboard.views.claims.text import write

Guess = Mapping[float, float]  # x -> the reader's y
ROW, LABELS = 34, 260  # pixels of a condition's row, and of the names before the rows
STROKES = ("solid", "dashed", "dotted", "double")  # in a legend, for each of DASHES
GUESS = "your guess"


@dataclass(frozen=True)
class Series:
    """One condition of one source of results, and how it is drawn: a colour a condition, a dash a source."""

    name: str
    measured: ClaimResult
    condition: str
    colour: str
    dash: int


def series_of(sources: Mapping[str, ClaimResult], theme: Theme) -> list[Series]:
    """Every condition of each source, whose name follows that of the condition where there are several."""
    conditions = list(
        dict.fromkeys(one for measured in sources.values() for one in measured.conditions)
    )
    colours = Ink.of(theme).series
    first = len(conditions) > len(colours)  # then dashes tell conditions apart, too
    return [
        Series(
            f"{condition} ({name})" if len(sources) > 1 else condition,
            measured,
            condition,
            colours[(at := conditions.index(condition)) % len(colours)],
            (dash + first * (at // len(colours))) % len(DASHES),
        )
        for dash, (name, measured) in enumerate(sources.items())
        for condition in measured.conditions
    ]


def results_figure(
    figure: Figure,
    sources: Mapping[str, ClaimResult],
    theme: Theme,
    guess: Guess | None = None,
    *,
    named: bool = False,
) -> Spec:
    """One figure of a claim from each source of results, with the guess over it.

    `named`: it stands alone, with its title and the names at the ends of its curves; on the page a legend has them.
    """
    series = series_of(sources, theme)
    if figure.x:
        curves = [curve for one in series if (curve := _curve(one, figure)) is not None]
        if guess:
            curves.append(Curve(GUESS, sorted(guess.items()), colour=PICK[theme], dash=1))
        spec = line_chart(
            figure.title,
            figure.x,
            curves,
            Ink.of(theme),
            log="y" in figure.log,
            log_x="x" in figure.log,
            named=named,
            measured=True,
            share=figure.unit == "share",
        )
    else:
        spec = marks(
            figure,
            [
                (one, each)
                for one in series
                if (each := one.measured.stats(one.condition, figure)) is not None
            ],
            theme,
        )
    return spec if named else {name: value for name, value in spec.items() if name != "title"}


def legend(
    figure: Figure, sources: Mapping[str, ClaimResult], theme: Theme, guess: Guess | None = None
) -> str:
    """The names of a figure's curves as HTML, each after a piece of its line; rows of marks have their names."""
    if not figure.x:
        return ""
    items = [
        (one.name, one.colour, one.dash)
        for one in series_of(sources, theme)
        if _curve(one, figure) is not None
    ]
    items += [(GUESS, PICK[theme], 1)] if guess else []
    return "".join(
        f'<span style="white-space:nowrap;margin-right:12px"><span style="display:inline-block;width:20px;margin-right:'
        f'6px;vertical-align:4px;border-top:2px {STROKES[dash]} {colour}"></span>{escape(name)}</span> '
        for name, colour, dash in items
    )


def _curve(series: Series, figure: Figure) -> Curve | None:
    measured, xs = series.measured, series.measured.results.xs(series.condition, figure.measure)
    stats = [
        (x, each) for x in xs if (each := measured.stats(series.condition, figure, x)) is not None
    ]
    if not stats:
        return None
    floor = FLOOR if "y" in figure.log else -math.inf
    band = [
        (max(low, floor), high)
        for _, each in stats
        for low, high in [each.interval or (each.mean, each.mean)]
    ]
    return Curve(
        series.name, [(x, each.mean) for x, each in stats], band, series.colour, series.dash
    )


def marks(figure: Figure, rows: Sequence[tuple[Series, SeedStats]], theme: Theme) -> Spec:
    """A row a condition: every seed a mark, over the 95 % interval of their mean."""
    log = bool(figure.log)  # of either axis: the measure is across
    x = {
        "field": "x",
        "type": "quantitative",
        "title": None,
        "scale": {"zero": False, **({"type": "log"} if log else {})},
        "axis": {"tickCount": 5, **({"labelExpr": PERCENTAGES} if figure.unit == "share" else {})},
    }
    least = (
        min((stats.low for _, stats in rows), default=0.0) / 2 if log else -math.inf
    )  # an interval may end below 0
    return seed_marks(
        figure.title,
        [SeedRow(series.name, stats, series.colour) for series, stats in rows],
        x,
        Ink.of(theme),
        ends=(least, math.inf),
        height=ROW,
        labels=LABELS,
        write=partial(write, unit=figure.unit),
    )
