"""The colours of maps and figures, for the browser's canvases too, and the builder of Vega-Lite specs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain
from statistics import fmean
from typing import Any, Literal

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
    """The colours of a figure in a theme (`Ink.of(theme)`): of text, quiet text, thin lines, what is picked, and series."""

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
    low, high = np.sort(
        np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        @ (0.2126, 0.7152, 0.0722)
    )
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


# Specs as plain dicts: Altair takes 50 ms to validate each figure of a polled run.


PICKED = "picked"  # the selection of a grid
DRAWN_AT = "drawn"  # the field of the time at which a figure was drawn
DASHES = ([1, 0], [4, 3], [2, 2], [6, 2, 1, 2])
PLAIN = ",~r"  # numbers of an axis: 20, where ~g would write 2e+1
PERCENTAGES = "format(100 * datum.value, '~g') + '\u00a0%'"  # labels of an axis of shares of 1
TITLE_BELOW, TITLE_LEFT = 36, 44  # pixels from the plot to the title of an axis
MIN_GAP = 0.075  # of the height, between two names at the ends of curves

# The power of a length in each of these; what stands under the others is no length.
PIXELS = dict.fromkeys(
    (
        "fontSize labelFontSize titleFontSize height width dx dy strokeWidth padding offset radius "
        "labelPadding titlePadding labelLimit limit tickSize lineHeight"
    ).split(),
    1,
) | {"size": 2}
NOT_DRAWN = ("data", "datasets", "scale", "bin", "transform", "params", "tooltip", "field")

Spec = dict[str, Any]  # what st.vega_lite_chart takes as its spec


def figure(layers: Sequence[Spec], height: int | Spec) -> Spec:
    """A figure of layers, as wide as its place and `height` pixels high; {"step": 24} gives each row of y 24."""
    return {
        "layer": list(layers),
        "height": height,
        "width": "container",
        "config": {"view": {"stroke": None}},
    }


def picking_grid(
    layers: Sequence[Spec], picked: Spec, at: Spec, ink: Ink, row: int, fields: Sequence[str]
) -> Spec:
    """Layers over a grid with rows of `row` pixels: a click selects `fields` of the first one, `picked` is outlined."""
    ring = layer("rect", [picked], at, fill=None, stroke=ink.pick, strokeWidth=2.25)
    select = {"type": "point", "fields": list(fields), "on": "click", "toggle": False}
    return figure([layers[0] | {"name": "cells"}, *layers[1:], ring], {"step": row}) | {
        "params": [{"name": PICKED, "views": ["cells"], "select": select}]
    }


def each_press_counts(spec: Spec) -> Spec:
    """A figure whose selections hold when it was drawn, too: a press on what was pressed before is another one then.

    Otherwise a cell that was pressed could not be picked again after another one was picked in a list.
    """
    views = {view for param in spec["params"] for view in param["views"]}
    params = [
        {**param, "select": {**param["select"], "fields": [*param["select"]["fields"], DRAWN_AT]}}
        for param in spec["params"]
    ]
    stamp = {"calculate": "now()", "as": DRAWN_AT}
    return spec | {
        "params": params,
        "layer": [
            part | {"transform": [*part.get("transform", ()), stamp]}
            if part.get("name") in views
            else part
            for part in spec["layer"]
        ],
    }


def titled_figure(title: str, layers: Sequence[Spec], height: int, ink: Ink, **more: Any) -> Spec:
    """A figure of layers under a title, in the type and colours of all; `more` are further parts of the spec."""
    return {
        "title": {
            "text": title,
            "anchor": "start",
            "fontSize": 14,
            "fontWeight": 600,
            "color": ink.text,
        },
        "height": height,
        "layer": list(layers),
        "config": config(ink),
        **more,
    }


def right_margin(width: float) -> Spec:
    """The room right of all marks; names at the ends of curves are marks, for which Vega makes the plot smaller."""
    return {
        "padding": {"left": 4, "right": width, "top": 4, "bottom": 4},
        "autosize": {"type": "fit-x", "contains": "padding"},
    }


def names(curves: Sequence[tuple[str, str, Sequence[int]]], titles: Mapping[str, str] = {}) -> Spec:
    """Name, colour and dash of each curve, for a figure whose names stand beside it on the page: see `with_names`.

    `titles` are as those of `table_columns`.
    """
    named = [[name, colour, list(dash)] for name, colour, dash in curves]
    return {"usermeta": {"names": named} | table_columns(titles)["usermeta"]}


def table_columns(titles: Mapping[str, str]) -> Spec:
    """The fields of a figure's rows that its table has, each under its title; a row without one of them is none of it."""
    return {"usermeta": {"columns": dict(titles)}}


def with_names(spec: Spec) -> Spec:
    """A figure with a legend of its `names`, for a file, which has nothing beside it."""
    curves = spec.get("usermeta", {}).get("names", ())
    if not curves:
        return spec
    domain, *ranges = (list(part) for part in zip(*curves, strict=True))
    look = {
        "title": None,
        "orient": "top",
        "symbolType": "stroke",
        "symbolOpacity": 1,
        "labelFontSize": 12,
    }
    channels = {
        channel: series_encoding("name", domain, values) | {"legend": look}
        for channel, values in zip(("color", "strokeDash"), ranges, strict=True)
    }
    legend = layer("line", [{"name": name} for name in domain], channels, opacity=0)
    # Scales of its own: those of the figure have no legend on the page.
    return spec | {
        "layer": [*spec["layer"], legend],
        "resolve": {"scale": dict.fromkeys(channels, "independent")},
    }


def layer(mark: str, rows: Sequence[Spec], encoding: Spec, **look: Any) -> Spec:
    """One mark of Vega-Lite ("line", "rect", "text" …) for the rows, which are dicts.

    `encoding` says which field of a row is at which channel: {"x": field("step", "Step"), "color": literal("fill")}.
    `look` is what all marks have: `strokeWidth=2`.
    """
    return {"data": {"values": list(rows)}, "mark": {"type": mark, **look}, "encoding": encoding}


def filtered_layer(kind: str, mark: str, encoding: Spec, **look: Any) -> Spec:
    """One mark of those rows of the figure's own table whose `kind` this is."""
    return {
        "transform": [{"filter": f"datum.kind === '{kind}'"}],
        "mark": {"type": mark, **look},
        "encoding": encoding,
    }


def split_data(spec: Spec) -> tuple[Spec, list[Spec]]:
    """A figure of layers without its rows, and all rows in one list that names each one's layer, counted from 1.

    Layers of the same rows share those of the first. The browser then changes the marks of a figure that is drawn
    again; with rows inside of the spec it builds all anew.
    """
    tables = [part["data"]["values"] for part in spec["layer"]]
    firsts = [1 + tables.index(table) for table in tables]
    rows = [{"layer": first} | row for first in dict.fromkeys(firsts) for row in tables[first - 1]]
    layers = [
        {
            "transform": [{"filter": f"datum.layer === {first}"}],
            **{name: value for name, value in part.items() if name != "data"},
        }
        for first, part in zip(firsts, spec["layer"], strict=True)
    ]
    return spec | {"layer": layers}, rows


def titles_as_marks(spec: Spec, ink: Ink) -> Spec:
    """A figure of layers whose titles of both axes are rows of its data, so that other titles build it not anew."""
    look = {"color": ink.quiet, "fontSize": 12, "tooltip": False}
    titles = {
        axis: next(
            part["encoding"][axis]["title"] for part in spec["layer"] if axis in part["encoding"]
        )
        for axis in ("x", "y")
    }
    layers = [
        {
            **part,
            "encoding": {
                name: {**channel, "title": None} if name in titles else channel
                for name, channel in part["encoding"].items()
            },
        }
        for part in spec["layer"]
    ]
    return spec | {
        "layer": layers
        + [
            layer("text", [{"title": titles[axis]}], {"text": {"field": "title"}}, **look, **place)
            for axis, place in {
                "x": {"x": {"expr": "width / 2"}, "y": {"expr": "height"}, "dy": TITLE_BELOW},
                "y": {"x": 0, "y": {"expr": "height / 2"}, "dy": -TITLE_LEFT, "angle": -90},
            }.items()
        ]
    }


def field(
    name: str, title: str | None, *, domain: Sequence[float] | None = None, axis: Spec | None = None
) -> Spec:
    scale = {"zero": False} if domain is None else {"domain": list(domain), "nice": False}
    return {"field": name, "type": "quantitative", "title": title, "scale": scale, "axis": axis}


def literal(field: str) -> Spec:
    return {"field": field, "type": "nominal", "scale": None, "legend": None}


def series_encoding(name: str, domain: Sequence[str], values: Sequence[Any]) -> Spec:
    """A colour, shape or dash for each value of a field, without a legend."""
    return {
        "field": name,
        "type": "nominal",
        "legend": None,
        "scale": {"domain": list(domain), "range": list(values)},
    }


def whole_tip(name: str, title: str) -> Spec:
    return {"field": name, "type": "quantitative", "title": title, "format": ",d"}


def text_tip(name: str, title: str) -> Spec:
    return {"field": name, "type": "nominal", "title": title}


def ordered(spec: Any) -> Any:
    """A figure whose lists of an order are domains: of a list Vega-Lite writes an expression with each of its texts."""
    if isinstance(spec, list | tuple):
        return [ordered(part) for part in spec]
    if not isinstance(spec, dict):
        return spec
    parts = {name: part if name == "values" else ordered(part) for name, part in spec.items()}
    if (
        "field" in parts
        and isinstance(parts.get("sort"), list)
        and parts.get("scale", {}) is not None
    ):
        parts |= {"sort": None, "scale": {"domain": parts["sort"], **parts.get("scale", {})}}
    return parts


def quoted(text: str) -> str:
    """Any text as a string of Vega's expressions, whose parser takes the string "if" for the function."""
    if text == "if":
        return "('i' + 'f')"
    return (
        "'"
        + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", " ").replace("\r", " ")
        + "'"
    )


def axis_style(ink: Ink) -> Spec:
    return {
        "labelColor": ink.quiet,
        "labelFontSize": 12,
        "domain": False,
        "ticks": False,
        "labelPadding": 6,
        "titleColor": ink.quiet,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
    }


def names_axis(field: str, names: Sequence[str], limit: int, ink: Ink, **more: Any) -> Spec:
    """A named row for each of these, in their order; a name has at most `limit` px."""
    axis = {**axis_style(ink), "labelColor": ink.text, "labelFontSize": 13, "labelLimit": limit}
    return {
        "field": field,
        "type": "nominal",
        "title": None,
        "sort": list(names),
        "axis": axis | more,
    }


def config(ink: Ink, **axis: Any) -> Spec:
    return {
        "font": '"Source Sans", sans-serif',
        "axis": {
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "labelColor": ink.quiet,
            "titleColor": ink.quiet,
            "gridColor": ink.hairline,
            "domainColor": ink.hairline,
            "ticks": False,
            "titleAnchor": "end",
            **axis,
        },
        "view": {"stroke": None},
        "background": "transparent",
    }


def enlarged(spec: Any, factor: float, key: str = "") -> Any:
    """A spec with its lengths in pixels multiplied, its type among them, and areas by the square; data as they are."""
    if key in NOT_DRAWN:
        return spec
    if isinstance(spec, dict):
        return {
            name: enlarged(value, factor, name if name in PIXELS or name in NOT_DRAWN else key)
            for name, value in spec.items()
        }
    if isinstance(spec, list):
        return [enlarged(item, factor) for item in spec]
    is_length = key in PIXELS and isinstance(spec, (int, float)) and not isinstance(spec, bool)
    return spec * factor ** PIXELS[key] if is_length else spec


def separate(heights: Sequence[float]) -> list[float]:
    """Shares of the height moved apart to MIN_GAP or more, in their order and within 0 and 1, each as little as goes.

    Without the gaps below it, each height may be no less than the one before: neighbours that would be take their mean.
    """
    order = sorted(range(len(heights)), key=lambda at: heights[at])
    groups: list[list[float]] = []
    for rank, at in enumerate(order):
        groups.append([heights[at] - rank * MIN_GAP])
        while len(groups) > 1 and fmean(groups[-2]) > fmean(groups[-1]):
            groups[-2:] = [groups[-2] + groups[-1]]
    highest = max(0.0, 1.0 - MIN_GAP * (len(heights) - 1))
    bases = [min(max(fmean(group), 0.0), highest) for group in groups for _ in group]
    result = [0.0] * len(heights)
    for rank, (at, base) in enumerate(zip(order, bases, strict=True)):
        result[at] = base + rank * MIN_GAP
    return result
