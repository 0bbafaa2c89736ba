"""Rotations as dials: one for each pair of dimensions and position."""

from __future__ import annotations

import math
from collections.abc import Sequence

from core.positions.measure import Pair
from dashboard.components.lib import draw
from dashboard.draw.drawings import dials_svg
from dashboard.draw.palette import Ink
from dashboard.draw.pictures import DrawnPicture
from dashboard.runtime.page_pictures import add

MOST_PAIRS = 8


def dials(
    pairs: Sequence[Pair],
    positions: int,
    ink: Ink,
    *,
    key: str,
    label: str,
    before: Sequence[Pair] = (),
) -> None:
    """Draw a row a pair, a column a position, hands rotating counter-clockwise, those of `before` faintly."""
    faint = {(pair.first, pair.second): pair.angle for pair in before}
    rows = [
        {
            "name": f"{pair.first}, {pair.second}",
            "angle": pair.angle,
            "circle": wavelength_text(pair.wavelength),
            "before": faint.get((pair.first, pair.second)),
        }
        for pair in pairs
    ]
    data = {
        "rows": rows,
        "positions": positions,
        "label": label,
        "hand": ink.series[0],
        "pick": ink.pick,
    }
    head = ("dimensions", "angle of a position", "wavelength")
    add(
        key,
        lambda: DrawnPicture(
            label,
            head,
            tuple(
                (row["name"], pair.angle, pair.wavelength)
                for row, pair in zip(rows, pairs, strict=True)
            ),
            dials_svg(rows, positions),
        ),
    )
    draw("position_dials", "dials", data, key=key)


def sample_pairs(pairs: Sequence[Pair], most: int = MOST_PAIRS) -> list[Pair]:
    """At most so many pairs, from the fastest to the slowest at even steps."""
    ranked = sorted(pairs, key=lambda pair: -abs(pair.angle))
    if len(ranked) <= most:
        return ranked
    return [ranked[round(at * (len(ranked) - 1) / (most - 1))] for at in range(most)]


def wavelength_text(wavelength: float) -> str:
    """A number of positions: one decimal below 100, thousands separated."""
    if math.isinf(wavelength):
        return "∞"
    return f"{wavelength:.1f}" if wavelength < 100 else f"{wavelength:,.0f}"
