"""Running text as tokens: shaded by how much one step looked at each, the said one in the accent, the rest faint."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from dashboard.charts.numbers import number
from dashboard.charts.palette import WEIGHTS, Ink, Theme

STYLE = """<style>
.lab-strip{display:flex;flex-wrap:wrap;gap:3px 2px;font-size:14px;line-height:18px}
.lab-strip span{border-radius:4px;padding:2px 5px;text-align:center;white-space:pre}
.lab-strip small{display:block;font-size:11px;line-height:13px;min-height:13px;font-variant-numeric:tabular-nums}
</style>"""
MOST = 256  # tokens of which all are shown
LEAST = 0.005  # a weight below it is not written
READABLE = 4.5


def shade(weight: float, theme: Theme) -> tuple[str, str]:
    """The ink of a weight from 0 to 1 between the stops of the scale, and the colour of what is written on it."""
    stops, place = WEIGHTS[theme], min(max(weight, 0.0), 1.0) * (len(WEIGHTS[theme]) - 1)
    low = min(int(place), len(stops) - 2)
    parts = [round(int(stops[low][i:i + 2], 16) * (low + 1 - place) + int(stops[low + 1][i:i + 2], 16) * (place - low))
             for i in (1, 3, 5)]
    ground = "#" + "".join(f"{part:02X}" for part in parts)
    written = (Ink.of(theme).text, "#FFFFFF", "#000000")
    return ground, next((text for text in written if contrast(text, ground) >= READABLE), written[0])


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, 1 to 21 (WCAG 2.2, section 1.4.3)."""
    low, high = sorted(_luminance(colour) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    parts = (int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5))
    return sum(share * (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4)
               for share, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True))


def strip(tokens: Sequence[str], weights: Sequence[float | None], theme: Theme, *, label: str, now: int | None = None,
          chance: float | None = None) -> str:
    """HTML of the tokens; a weight None is none that could be given. `now` is the place of the token that is being
    said, with its `chance`; what comes after it is faint. Of very many tokens those alone that have some weight."""
    ink, cells, many, left_out = Ink.of(theme), [], len(tokens) > MOST, False
    for place, (token, weight) in enumerate(zip(tokens, weights, strict=True)):
        below, look = "", ""
        if many and weight is not None and weight < LEAST:
            cells += [] if left_out else ["<span>…</span>"]
            left_out = True
            continue
        left_out = False
        if place == now:
            look = f"box-shadow:inset 0 0 0 2px {ink.pick};color:{ink.pick};font-weight:600"
            below = "" if chance is None else number(chance)
        elif now is not None and place > now:
            look = "opacity:.4"
        elif weight is not None:
            ground, text = shade(weight, theme)
            look, below = f"background:{ground};color:{text}", number(weight) if weight >= LEAST else ""
        cells.append(f'<span style="{look}">{escape(token)}<small>{below}</small></span>')
    return f'<div class="lab-strip" role="img" aria-label="{escape(label)}">{"".join(cells)}</div>'
