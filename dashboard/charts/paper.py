"""A picture as a figure of a paper: as wide as its column, type of 8 points, axes with titles, nothing around it."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dashboard.charts.figure_files import paper_files, size_of
from dashboard.charts.map_legend import FONT
from dashboard.charts.map_svg import maps_svg
from dashboard.charts.pictures import ChartPicture, MapsPicture, Picture, column_names
from dashboard.charts.vega import Spec

WIDTHS = {"8.5 cm, one column": 85.0, "17 cm, two columns": 170.0}  # mm
FORMATS = {"SVG for a paper": "svg", "PDF for a paper": "pdf"}
POINTS = 8.0
TYPE = POINTS * 96 / 72  # pixels of 1/96 inch
FAMILY = "Liberation Sans, Arial, Helvetica, sans-serif"
MARGIN = 2  # pixels around a drawing
PLOT = 0.85  # of the width, what a plot may take beside its axis
LETTER = 0.55 * TYPE  # pixels of a letter
SYMBOL = 32  # pixels of the line before a name in a legend
FIELDS = {
    "p": "probability",
    "column": "position",
    "name": "",
}  # names of axes by fields that say less
TITLE_MARKS = '"field": "title"'  # of a chart that draws the titles of its axes itself
TALLEST = 0.75  # of the width, the height of a plot
SIZES = ("fontSize", "labelFontSize", "titleFontSize", "subtitleFontSize")
WITHOUT = re.compile(
    r" (?:over|after|against|by|as) |, (?:by|largest|a line|one line|layers) | of (?=\d|[A-Z])"
)


class NotForPaper(ValueError):
    """A drawing whose type would be smaller than that of a paper."""


def paper_file(picture: Picture, millimetres: float, file_format: str) -> bytes:
    """The picture as "svg" with its text as outlines, or as "pdf" with its fonts; NotForPaper says what is too wide."""
    return paper_files(paper_drawing(picture, millimetres), millimetres, file_format)


def why_not(picture: Picture, millimetres: float) -> str:
    """Why there is no such figure, or ""; only a drawing whose places are fixed can be too wide."""
    if isinstance(picture, (ChartPicture, MapsPicture)):
        return ""
    try:
        paper_drawing(picture, millimetres)
    except NotForPaper as error:
        return str(error)
    return ""


def paper_drawing(picture: Picture, millimetres: float) -> dict[str, Any]:
    """What is drawn: `spec` or `svg`, which is so wide that its type has 8 points."""
    pixels = millimetres * 96 / 25.4
    if isinstance(picture, ChartPicture):
        return {"spec": paper_spec(picture, pixels)}
    if isinstance(picture, MapsPicture):
        maps = picture.maps if len(picture.maps) > 1 else (replace(picture.maps[0], name=""),)
        room = pixels * FONT / TYPE
        inner = maps_svg(
            maps, picture.row, picture.reads, picture.across, picture.picked, room - 2 * MARGIN
        )
        return {"svg": _on_white(inner, room, size_of(inner)[1])}
    inner = picture.svg()
    width, height = size_of(inner)
    smallest = min(
        (float(size) for size in re.findall(r'font-size[:=]\s?"?([\d.]+)', inner)), default=FONT
    )
    room = pixels * smallest / TYPE
    if width > room:
        raise NotForPaper(
            f"At {millimetres / 10:g} cm the type of this drawing would have "
            f"{POINTS * room / width:.1f} points; a paper needs {POINTS:g}."
        )
    return {"svg": _on_white(inner, room, height)}


def _on_white(inner: str, width: float, height: float) -> str:
    left = (width - size_of(inner)[0]) / 2
    placed = inner[inner.index("<svg") :].replace("<svg", f'<svg x="{left:.1f}" y="{MARGIN}"', 1)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="{width:.3f}" '
        f'height="{height + 2 * MARGIN:.3f}" font-family="{FAMILY}">'
        f'<rect width="100%" height="100%" fill="#FFFFFF"/>{placed}</svg>'
    )


def paper_spec(picture: ChartPicture, pixels: float) -> Spec:
    """A chart's spec as wide as this, without its title, with a title of each axis and all type of one size."""
    spec = picture.whole_spec()
    heading = spec.pop("title", "")
    heading = heading.get("text", "") if isinstance(heading, Mapping) else heading
    quantity = WITHOUT.split(f"{heading or picture.title} ")[0].rpartition(": ")[2].strip(" ,")
    height = spec.get("height")
    if isinstance(height, (int, float)):
        spec["height"] = min(height, TALLEST * pixels)
    config = _sized({**spec.get("config", {}), "background": "white", "font": FAMILY})
    for name in ("axis", "legend", "header"):
        config[name] = {
            **config.get(name, {}),
            "labelFontSize": TYPE,
            "titleFontSize": TYPE,
            "labelFont": FAMILY,
            "titleFont": FAMILY,
        }
    config["axis"] |= {"titleAnchor": "middle", "titleLimit": 0}
    names = [name for name, *_ in picture.spec.get("usermeta", {}).get("names", ())]
    if names:
        config["legend"]["columns"] = max(1, int(pixels / (LETTER * max(map(len, names)) + SYMBOL)))
    config["text"] = {**config.get("text", {}), "fontSize": TYPE, "font": FAMILY}
    sized: Spec = _sized({name: part for name, part in spec.items() if name != "config"})
    titled = (
        sized
        if TITLE_MARKS in json.dumps(sized.get("layer", ()))
        else _titled(sized, quantity, pixels)
    )
    return _in_cells(titled, pixels) | {
        "width": pixels,
        "config": config,
        "padding": TYPE / 2 + 2,
        "autosize": {"type": "fit-x", "contains": "padding"},
    }


def _sized(spec: Any) -> Any:
    """A spec whose every type has the paper's size and font; rows as they are."""
    if isinstance(spec, dict):
        return {
            name: TYPE
            if name in SIZES
            else FAMILY
            if name in ("font", "labelFont", "titleFont")
            else part
            if name in ("data", "datasets")
            else _sized(part)
            for name, part in spec.items()
        }
    return [_sized(one) for one in spec] if isinstance(spec, list) else spec


def _in_cells(spec: Spec, pixels: float) -> Spec:
    """The spec whose words in a grid end where their cell does, and stand upright below or above it if they must."""
    layers = []
    for layer in spec.get("layer", [spec]):
        x, mark = layer.get("encoding", {}).get("x"), layer.get("mark")
        if isinstance(x, Mapping) and x.get("type") in ("ordinal", "nominal") and "field" in x:
            rows = layer.get("data", spec.get("data", {})).get("values", ())
            places = {str(row[x["field"]]) for row in rows if x["field"] in row} or {""}
            cell = PLOT * pixels / len(places)
            if isinstance(mark, Mapping) and mark.get("type") == "text":
                layer = {**layer, "mark": {**mark, "limit": cell}}
            if x.get("axis", 1) is not None and LETTER * max(map(len, places)) > cell:
                above = (x.get("axis") or {}).get("orient") == "top"
                upright = {
                    "labelAngle": -90,
                    "labelAlign": "left" if above else "right",
                    "labelBaseline": "middle",
                }
                encoding = {
                    **layer["encoding"],
                    "x": {**x, "axis": {**(x.get("axis") or {}), **upright}},
                }
                layer = {**layer, "encoding": encoding}
        layers.append(layer)
    return {**spec, "layer": layers} if "layer" in spec else layers[0]


def _titled(spec: Spec, quantity: str, pixels: float) -> Spec:
    """The spec whose x and y have titles: their own, or the tooltip's, or the quantity, or the field's name."""
    layers = [
        {**layer, "encoding": dict(layer.get("encoding", {}))}
        for layer in spec.get("layer", [spec])
    ]
    for channel in ("x", "y"):
        drawn = [
            layer
            for layer in layers
            if isinstance(one := layer["encoding"].get(channel), Mapping)
            and "field" in one
            and one.get("axis", 1) is not None
        ]
        own = [title for layer in drawn if (title := _axis_title(layer["encoding"][channel]))]
        for layer in drawn:
            one = layer["encoding"][channel]
            name = own[0] if own else _name_of(drawn[0], drawn[0]["encoding"][channel], quantity)
            tall = spec.get("height")
            length = tall if channel == "y" and isinstance(tall, (int, float)) else PLOT * pixels
            lines = textwrap.wrap(name, max(10, int(length / LETTER))) or None
            layer["encoding"][channel] = {
                **{name: part for name, part in one.items() if name != "title"},
                "axis": {**(one.get("axis") or {}), "title": lines},
            }
    return {**spec, "layer": layers} if "layer" in spec else layers[0]


def _axis_title(channel: Mapping[str, Any]) -> str:
    title = channel.get("title") or (channel.get("axis") or {}).get("title") or ""
    return str(title).strip()


def _name_of(layer: Spec, channel: Mapping[str, Any], quantity: str) -> str:
    field = str(channel["field"])
    if field in FIELDS:
        return FIELDS[field]
    if "'L'" in str((channel.get("axis") or {}).get("labelExpr", "")):
        return "layer"
    (name,) = column_names({"encoding": layer.get("encoding", {})}, [field])
    if name.strip() and name != field:
        return name
    if field == "from":  # where a bar begins: the first line of its tooltip says of what
        tips = layer.get("encoding", {}).get("tooltip") or [{}]
        return str(tips[0].get("title") or field)
    is_number = channel.get("type") == "quantitative"
    return quantity if is_number and (len(field) < 4 or field in ("value", "score")) else field
