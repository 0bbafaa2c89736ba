"""The builder of Vega-Lite specs, as plain dicts: Altair takes 50 ms to validate each figure of a polled run."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from dashboard.draw.palette import Ink

PICKED = "picked"  # the selection of a grid
DRAWN_AT = "drawn"  # the field of the time at which a figure was drawn
DASHES = ([1, 0], [4, 3], [2, 2], [6, 2, 1, 2])
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
    layers = [
        part | {"transform": [*part.get("transform", ()), stamp]}
        if part.get("name") in views
        else part
        for part in spec["layer"]
    ]
    return spec | {"params": params, "layer": layers}


def titled_figure(title: str, layers: Sequence[Spec], height: int, ink: Ink, **more: Any) -> Spec:
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


def names(curves: Sequence[tuple[str, str, Sequence[int]]]) -> Spec:
    """Name, colour and dash of each curve, for a figure whose names stand beside it on the page: see `with_names`."""
    return {"usermeta": {"names": [[name, colour, list(dash)] for name, colour, dash in curves]}}


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
    apart = {"scale": dict.fromkeys(channels, "independent")}
    return spec | {"layer": [*spec["layer"], legend], "resolve": apart}


def layer(mark: str, rows: Sequence[Spec], encoding: Spec, **look: Any) -> Spec:
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
    places = {
        "x": {"x": {"expr": "width / 2"}, "y": {"expr": "height"}, "dy": TITLE_BELOW},
        "y": {"x": 0, "y": {"expr": "height / 2"}, "dy": -TITLE_LEFT, "angle": -90},
    }
    return spec | {
        "layer": layers
        + [
            layer("text", [{"title": titles[axis]}], {"text": {"field": "title"}}, **look, **place)
            for axis, place in places.items()
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
    most = max(0.0, 1.0 - MIN_GAP * (len(heights) - 1))
    bases = [min(max(fmean(group), 0.0), most) for group in groups for _ in group]
    result = [0.0] * len(heights)
    for rank, (at, base) in enumerate(zip(order, bases, strict=True)):
        result[at] = base + rank * MIN_GAP
    return result
