"""What maps as SVG are labelled with: text, the colour scale with its numbers, and the hatch of masked cells."""

from __future__ import annotations

import math
from html import escape
from typing import NamedTuple

import numpy as np

from dashboard.charts.numbers import number
from dashboard.charts.palette import LIGHT_INK, SIGNED, WEIGHTS, colours_at

LETTER, FONT = 6.4, 12  # px a letter is wide, and high
BAR, SWATCH = 96, 12  # px of a colour scale, and of the hatched square beside it
HATCH = 5 * math.sqrt(2)  # px from line to line along an axis, as the canvas draws it
HATCHED = "#C4C7CB"
WORD = "masked"


class Scale(NamedTuple):
    """What the colours of a map mean: the numbers at both ends, whether zero is in the middle, and what they are of."""

    low: float
    high: float
    signed: bool
    noun: str


def legend(scale: Scale, x: float, y: float, masks: bool) -> str:
    """The colour scale with the numbers of its ends, and of its middle where that is zero; then what is hatched."""
    stops = (
        colours_at((SIGNED if scale.signed else WEIGHTS)["light"], np.linspace(0, 1, 24))
        .round()
        .astype(int)
    )
    parts = [
        f'<rect x="{x + 4 * at:.1f}" y="{y:.1f}" width="4.5" height="8" fill="rgb({r},{g},{b})"/>'
        for at, (r, g, b) in enumerate(stops)
    ]
    ends = [(0, "start", scale.low), (BAR, "end", scale.high)]
    if scale.signed:
        ends.insert(1, (BAR // 2, "middle", (scale.low + scale.high) / 2))
    parts += [
        text(x + at, y + 21, number(value), anchor=anchor, fill=LIGHT_INK.quiet)
        for at, anchor, value in ends
    ]
    if scale.noun:
        parts.append(text(x + BAR + 8, y + 8, scale.noun, fill=LIGHT_INK.quiet))
    if masks:
        at = x + legend_width(scale, False) + 6
        parts += [
            hatching(hatch(at, y - 2, SWATCH)),
            text(at + SWATCH + 6, y + 8, WORD, fill=LIGHT_INK.quiet),
        ]
    return "".join(parts)


def legend_width(scale: Scale, masks: bool) -> float:
    """How wide a legend is, in pixels."""
    return (
        BAR
        + 8
        + (LETTER * len(scale.noun) + 4 if scale.noun else 0)
        + (SWATCH + 12 + LETTER * len(WORD) if masks else 0)
    )


def hatch(x: float, y: float, side: float) -> str:
    """Lines at 45° in a square, in one pattern with its neighbours'."""
    first, last = math.ceil((x + y) / HATCH), math.floor((x + y + 2 * side) / HATCH)
    return "".join(
        f"M{max(x, c - y - side):.1f} {min(y + side, c - x):.1f}L{min(x + side, c - y):.1f} "
        f"{max(y, c - x - side):.1f}"
        for c in (HATCH * at for at in range(first, last + 1))
    )


def hatching(lines: str) -> str:
    """The lines of `hatch`, drawn."""
    return f'<path d="{lines}" fill="none" stroke="{HATCHED}" stroke-width="1"/>' if lines else ""


def text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    fill: str = LIGHT_INK.text,
    weight: int = 400,
    at: str = "",
) -> str:
    """One line of text; `at` is a transform."""
    place = f' transform="{at}"' if at else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}" font-size="{FONT}" '
        f'font-weight="{weight}"{place}>{escape(text)}</text>'
    )
