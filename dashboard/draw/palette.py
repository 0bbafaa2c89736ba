"""The colours of maps and figures, for the browser's canvases and for Vega-Lite."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain
from typing import Literal

import numpy as np

Theme = Literal["light", "dark"]

# Equal steps in CAM02-UCS, lightness monotonic also for colour-blind readers; zero is the page's own grey.
WEIGHTS: dict[str, tuple[str, ...]] = {
    "light": (
        "#F4F5F5",
        "#C7DEDF",
        "#95C9CF",
        "#64B2C5",
        "#399AC2",
        "#257FC2",
        "#3461BD",
        "#4141AD",
        "#412389",
        "#2E1357",
    ),
    "dark": (
        "#1E2128",
        "#2B2F4F",
        "#3C3F85",
        "#4259B3",
        "#357ACC",
        "#269AD2",
        "#43B5D0",
        "#77CCCD",
        "#B1E1D5",
        "#E6F6EB",
    ),
}

# Eleven stops, so that zero falls on the middle one.
SIGNED: dict[str, tuple[str, ...]] = {
    "light": (
        "#552571",
        "#8143A0",
        "#A66DBE",
        "#C29BCF",
        "#DCC9E1",
        "#F4F5F5",
        "#C1D6BC",
        "#8BB686",
        "#58955A",
        "#316E3D",
        "#144927",
    ),
    "dark": (
        "#E5D0E8",
        "#C89ED7",
        "#A56DBD",
        "#784B8D",
        "#483656",
        "#1E2128",
        "#2D4236",
        "#386842",
        "#519459",
        "#84BE80",
        "#C6E1BB",
    ),
}

# Eight series, and after them the grey of what is no series of its own: a head that spreads over everything.
CATEGORIES: dict[str, tuple[str, ...]] = {
    "light": (
        "#576BA3",
        "#B68024",
        "#05A68B",
        "#8E2658",
        "#6B39A2",
        "#706105",
        "#1D6068",
        "#784434",
        "#8A9099",
    ),
    "dark": (
        "#8CA4EC",
        "#E6AF4D",
        "#6DEFD0",
        "#C7648B",
        "#977EB8",
        "#CFDC99",
        "#ABDCF4",
        "#D48A76",
        "#7C828B",
    ),
}

PICK: dict[str, str] = {"light": "#B8430F", "dark": "#FF9A66"}
BAR: dict[str, str] = {"light": "#2A6FC4", "dark": "#2FA6D3"}
PAGE: dict[str, str] = {"light": "#FFFFFF", "dark": "#12151B"}
SHADES = 4_001  # of a scale, so that each colour that `shade` gives is among them
READABLE = 4.5  # the least contrast of text (WCAG 2.2)


@dataclass(frozen=True)
class Ink:
    text: str
    quiet: str
    hairline: str
    pick: str
    series: tuple[str, ...]

    @classmethod
    def of(cls, theme: str | None) -> Ink:
        return DARK_INK if theme == "dark" else LIGHT_INK


LIGHT_INK = Ink(
    "#131A26", "#6F7681", "#E3E4E6", PICK["light"], ("#576BA3", "#97691A", "#05806B", "#8E2658")
)
DARK_INK = Ink(
    "#E6E8EB", "#9A9EA5", "#2B2F37", PICK["dark"], ("#8CA4EC", "#E6AF4D", "#6DEFD0", "#C7648B")
)


def colour_scale(theme: Theme = "light", *, signed: bool = False) -> list[str]:
    """The stops of a colour scale, lowest first; signed ones need ``domainMid: 0``. ValueError for an unknown theme."""
    stops = SIGNED if signed else WEIGHTS
    if theme not in stops:
        raise ValueError(f"theme is light or dark, not {theme!r}")
    return list(stops[theme])


def colours_at(stops: Sequence[str], shares: float | np.ndarray) -> np.ndarray:
    """RGB (…, 3), 0 to 255, of shares (…) of a colour scale, linear between its stops in sRGB."""
    rgb = np.array([rgb_of(stop) for stop in stops], dtype=float)
    position = np.clip(shares, 0, 1) * (len(stops) - 1)
    low = np.minimum(position.astype(int), len(stops) - 2)
    return rgb[low] + (rgb[low + 1] - rgb[low]) * (position - low)[..., None]


def shade(value: float, theme: Theme, *, signed: bool = False) -> str:
    """The colour of a weight from 0 to 1, or of a signed value from −1 to 1, as #RRGGBB."""
    share = (value + 1) / 2 if signed else value
    return _hex(colours_at(colour_scale(theme, signed=signed), share))


@lru_cache(maxsize=1024)
def text_on(fill: str, theme: Theme) -> str:
    """The colour of text on this one: the page's own where it can be read, else white or black."""
    inks = (Ink.of(theme).text, "#FFFFFF", "#000000")
    return next((ink for ink in inks if contrast(ink, fill) >= READABLE), inks[0])


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, 1 to 21 (WCAG 2.2, section 1.4.3)."""
    parts = np.array([rgb_of(one), rgb_of(other)]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    low, high = np.sort(linear @ (0.2126, 0.7152, 0.0722))
    return float((high + 0.05) / (low + 0.05))


def light_colours(text: str) -> str:
    """A figure's JSON in the colours of a light page; one that is drawn for it stays as it is."""
    if not any(ink in text for ink in (DARK_INK.text, DARK_INK.quiet, DARK_INK.hairline)):
        return text
    return re.sub("#[0-9A-F]{6}", lambda match: _light_of().get(match[0], match[0]), text)


@cache
def _light_of() -> dict[str, str]:
    """The light page's colour for each of the dark one's: of scales, series and inks, and of text on a cell."""
    dark, light = _colours("dark"), _colours("light")
    return {"#000000": "#FFFFFF"} | dict(zip(dark, light, strict=True))


def _colours(theme: Theme) -> list[str]:
    shares, ink = np.linspace(0, 1, SHADES), Ink.of(theme)
    of_scales = (map(_hex, colours_at(one[theme], shares)) for one in (WEIGHTS, SIGNED))
    single = (PICK[theme], BAR[theme], PAGE[theme], ink.text, ink.quiet, ink.hairline)
    return [*chain(*of_scales), *single, *CATEGORIES[theme], *ink.series]


def _hex(rgb: np.ndarray) -> str:
    return "#" + "".join(f"{round(part):02X}" for part in rgb)


def rgb_of(colour: str) -> list[int]:
    return [int(colour[start : start + 2], 16) for start in (1, 3, 5)]


def for_browser() -> dict[str, dict[str, object]]:
    return {
        theme: {
            "weights": WEIGHTS[theme],
            "signed": SIGNED[theme],
            "categories": CATEGORIES[theme],
            "pick": PICK[theme],
            "bar": BAR[theme],
            "text": Ink.of(theme).text,
        }
        for theme in ("light", "dark")
    }


# Paths in a box of 12 × 12, in the order of the series: ● ■ ▲ ◆ ▼ ✚ ⬟ ★
MARKS: tuple[str, ...] = (
    "M6 1a5 5 0 1 0 .001 0Z",
    "M1.5 1.5h9v9h-9Z",
    "M6 .5 11.8 11H.2Z",
    "M6 0 11.5 6 6 12 .5 6Z",
    "M6 11.5 .2 1h11.6Z",
    "M4 .5h4V4h3.5v4H8v3.5H4V8H.5V4H4Z",
    "M6 .3 11.7 4.5 9.5 11.2h-7L.3 4.5Z",
    "M6 0 7.5 4.2 12 4.4 8.5 7.2 9.7 11.6 6 9.1 2.3 11.6 3.5 7.2 0 4.4 4.5 4.2Z",
)


def mark_html(index: int, theme: Theme) -> str:
    """The marker of a series for st.html, which takes SVG out: a coloured box cut to the shape."""
    colour = CATEGORIES[theme][index % len(CATEGORIES[theme])]
    return (
        f'<span aria-hidden="true" style="display:inline-block;width:12px;height:12px;background:{colour};'
        f"clip-path:path('{MARKS[index % len(MARKS)]}')\"></span>"
    )
