"""The parts of a claim as HTML: the interval of each beside its bounds, in numbers and as a picture."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape

from core.claims.base import Effect, Outcome, State
from dashboard.draw.palette import Ink, Theme
from dashboard.views.claims.text import bounds, interval_text, write

WIDTH, HEIGHT = 220, 26  # pixels of the picture of an interval
OUTCOME_COLOURS: Mapping[Theme, Mapping[Outcome, str]] = {
    "light": {"holds": "#05806B", "refuted": "#8E2658", "cannot be told": "#6F7681"},
    "dark": {"holds": "#6DEFD0", "refuted": "#C7648B", "cannot be told": "#9A9EA5"},
}
STATE_OUTCOMES: Mapping[State, Outcome] = {
    "holds": "holds",
    "holds in part": "holds",
    "does not hold": "refuted",
    "cannot be told here": "cannot be told",
}
STATE_SIGNS: Mapping[State, str] = {
    "holds": "✓",
    "holds in part": "◐",
    "does not hold": "✗",
    "cannot be told here": "?",
}


def state_mark(state: State, theme: Theme) -> str:
    """The verdict as a coloured word, in HTML; its sign tells it without the colour."""
    colour = OUTCOME_COLOURS[theme][STATE_OUTCOMES[state]]
    return (
        f'<span style="color:{colour};font-weight:600">{STATE_SIGNS[state]} {escape(state)}</span>'
    )


def parts_table(effects: Sequence[Effect], theme: Theme) -> str:
    """The parts of a claim as rows of HTML: statement, picture, quantity with its interval, outcome."""
    rows = "".join(
        f'<div style="padding:8px 0;border-top:1px solid {Ink.of(theme).hairline}">'
        f"<div>{escape(effect.part.statement)} "
        f'<span style="color:{OUTCOME_COLOURS[theme][effect.outcome]};font-weight:600">{effect.outcome}</span></div>'
        f'<div style="display:flex;flex-wrap:wrap;gap:4px 16px;align-items:center;font-size:14px">'
        f"{interval_picture(effect, theme)}<span>{escape(effect.part.name)}: "
        f"<b>{escape(write(effect.mean, effect.part.unit))}</b> [{escape(interval_text(effect))}]; "
        f"it must be {escape(bounds(effect.part))}</span></div>"
        f'<div style="font-size:13px;color:{Ink.of(theme).quiet}">{escape(effect.reason)}</div></div>'
        for effect in effects
    )
    return f"<div>{rows}</div>"


def interval_picture(effect: Effect, theme: Theme, width: int = WIDTH) -> str:
    """A part as an image: the band in which its quantity must lie, and the interval of its mean."""
    part, ends = effect.part, _ends(effect)
    if ends is None:
        return ""
    low, high = ends

    def place(value: float) -> float:
        return 4 + (width - 8) * (min(max(value, low), high) - low) / (high - low)

    left, right, middle, colour = (
        place(part.low),
        place(part.high),
        HEIGHT / 2,
        OUTCOME_COLOURS[theme][effect.outcome],
    )
    spoken = (
        f"{part.name}: {write(effect.mean, part.unit)}, interval {interval_text(effect)}; it must be "
        f"{bounds(part)}"
    )
    return image(
        f'<rect x="{round(left, 1)}" y="3" width="{round(right - left, 1)}" height="{HEIGHT - 6}" '
        f'fill="{Ink.of(theme).hairline}"/>'
        f'<line x1="{round(place(effect.low), 1)}" x2="{round(place(effect.high), 1)}" y1="{middle}" y2="{middle}" '
        f'stroke="{colour}" stroke-width="4" stroke-linecap="round"/>'
        f'<circle cx="{round(place(effect.mean), 1)}" cy="{middle}" r="5" fill="{colour}"/>',
        width,
        HEIGHT,
        spoken,
    )


def image(drawing: str, width: int, height: int, alt: str, style: str = "") -> str:
    """SVG elements as an HTML image: st.html takes an SVG out, but leaves an image of one."""
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'preserveAspectRatio="none">{drawing}</svg>'
    )
    return (
        f'<img alt="{escape(alt)}" width="{width}" height="{height}" style="{style}" '
        f'src="data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}"/>'
    )


def _ends(effect: Effect) -> tuple[float, float] | None:
    """What an interval's picture spans: the interval, its finite bounds, and zero's side of a one-sided bound."""
    values = [
        one
        for one in (effect.low, effect.mean, effect.high, effect.part.low, effect.part.high)
        if math.isfinite(one)
    ]
    if not math.isfinite(effect.mean):
        return None
    air = 0.15 * (max(values) - min(values)) or abs(effect.mean) or 1.0
    return min(values) - air, max(values) + air
