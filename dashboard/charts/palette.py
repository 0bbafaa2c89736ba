"""The colours of maps and figures, for the browser's canvases and for Vega-Lite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Theme = Literal["light", "dark"]

# Equal steps in CAM02-UCS, lightness monotonic also for colour-blind readers; zero is the page's own grey.
WEIGHTS: dict[str, tuple[str, ...]] = {
    "light": ("#F4F5F5", "#C7DEDF", "#95C9CF", "#64B2C5", "#399AC2",
              "#257FC2", "#3461BD", "#4141AD", "#412389", "#2E1357"),
    "dark": ("#1E2128", "#2B2F4F", "#3C3F85", "#4259B3", "#357ACC",
             "#269AD2", "#43B5D0", "#77CCCD", "#B1E1D5", "#E6F6EB"),
}

# Eleven stops, so that zero falls on the middle one.
SIGNED: dict[str, tuple[str, ...]] = {
    "light": ("#552571", "#8143A0", "#A66DBE", "#C29BCF", "#DCC9E1", "#F4F5F5",
              "#C1D6BC", "#8BB686", "#58955A", "#316E3D", "#144927"),
    "dark": ("#E5D0E8", "#C89ED7", "#A56DBD", "#784B8D", "#483656", "#1E2128",
             "#2D4236", "#386842", "#519459", "#84BE80", "#C6E1BB"),
}

# Eight series, and after them the grey of what is no series of its own: a head that spreads over everything.
CATEGORIES: dict[str, tuple[str, ...]] = {
    "light": ("#576BA3", "#B68024", "#05A68B", "#8E2658", "#6B39A2", "#706105", "#1D6068", "#784434", "#8A9099"),
    "dark": ("#8CA4EC", "#E6AF4D", "#6DEFD0", "#C7648B", "#977EB8", "#CFDC99", "#ABDCF4", "#D48A76", "#7C828B"),
}

PICK: dict[str, str] = {"light": "#B8430F", "dark": "#FF9A66"}
BAR: dict[str, str] = {"light": "#2A6FC4", "dark": "#2FA6D3"}
PAGE: dict[str, str] = {"light": "#FFFFFF", "dark": "#12151B"}
READABLE = 4.5  # the least contrast of text (WCAG 2.2)


@dataclass(frozen=True)
class Ink:
    """The colours of a figure on a light or a dark page."""

    text: str
    quiet: str
    hairline: str
    pick: str
    series: tuple[str, ...]

    @classmethod
    def of(cls, theme: str | None) -> Ink:
        return DARK_INK if theme == "dark" else LIGHT_INK


LIGHT_INK = Ink("#131A26", "#6F7681", "#E3E4E6", PICK["light"], ("#576BA3", "#97691A", "#05806B", "#8E2658"))
DARK_INK = Ink("#E6E8EB", "#9A9EA5", "#2B2F37", PICK["dark"], ("#8CA4EC", "#E6AF4D", "#6DEFD0", "#C7648B"))


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
    return "#" + "".join(f"{round(part):02X}" for part in colours_at(colour_scale(theme, signed=signed), share))


def text_on(fill: str, theme: Theme) -> str:
    """The colour of text on this one: the page's own where it can be read, else white or black."""
    inks = (Ink.of(theme).text, "#FFFFFF", "#000000")
    return next((ink for ink in inks if contrast(ink, fill) >= READABLE), inks[0])


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, 1 to 21 (WCAG 2.2, section 1.4.3)."""
    low, high = sorted(_luminance(colour) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    parts = (part / 255 for part in rgb_of(colour))
    return sum(share * (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4)
               for share, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True))


def rgb_of(colour: str) -> list[int]:
    """Red, green and blue of #RRGGBB."""
    return [int(colour[start : start + 2], 16) for start in (1, 3, 5)]


def for_browser() -> dict[str, dict[str, object]]:
    """Every palette under its theme, as the browser components take it."""
    return {theme: {"weights": WEIGHTS[theme], "signed": SIGNED[theme], "categories": CATEGORIES[theme],
                    "pick": PICK[theme], "bar": BAR[theme], "text": Ink.of(theme).text} for theme in ("light", "dark")}
