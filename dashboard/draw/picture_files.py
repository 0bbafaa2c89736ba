"""Pictures as files: images, numbers, a figure of a paper, a report as a PDF, and a page as HTML that is alive."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from html import escape
from itertools import repeat
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import numpy as np

from core.files import zip_files
from core.latex import latex
from dashboard.draw.attention_view import (
    READS,
    allowed_bits,
    is_signed,
    labels,
    packed,
    state_lines,
)
from dashboard.draw.components import COMPONENTS, Component, bundle, bundle_all, css_of
from dashboard.draw.figures import LIGHT_INK, Spec, for_browser
from dashboard.draw.formats import cut, number
from dashboard.draw.pictures import (
    FONT,
    WITHOUT,
    ChartPicture,
    MapsPicture,
    Picture,
    PictureMap,
    Point,
    column_names,
    drawing_file,
    is_number,
    maps_layout,
    maps_svg,
    placed,
    render,
    size_of,
    svg_of,
    title_of,
    with_own_ids,
)

if TYPE_CHECKING:
    from core.interpret.trace import AttentionTrace

IMAGES = {
    "PNG, 2 ×": ("png", 2.0),
    "PNG, 4 ×": ("png", 4.0),
    "SVG": ("svg", 1.0),
    "PDF": ("pdf", 1.0),
}
NUMBERS = {"CSV": "csv", "NPZ": "npz", "JSON": "json", "LaTeX": "tex"}
MIME = {
    "png": "image/png",
    "svg": "image/svg+xml",
    "pdf": "application/pdf",
    "csv": "text/csv",
    "npz": "application/octet-stream",
    "json": "application/json",
    "tex": "text/x-tex",
    "zip": "application/zip",
}
PICTURE_FONT = "'Source Sans 3', 'Source Sans', 'Liberation Sans', sans-serif"
MAX_PLACES = 6  # columns of a LaTeX table whose rows are the lines of a chart
# of a LaTeX table, as a page has them
LATEX_ROWS, LATEX_COLUMNS = 48, 20
MARGIN, TITLE, SOURCE = 16, 30, 24  # px around a drawing, and of the lines above and below it
WHITE = '<rect width="100%" height="100%" fill="#FFFFFF"/>'
# signs of one part of a file's name, and of the line below a picture
NAME_LENGTH, LINE_LENGTH = 40, 120


@dataclass(frozen=True)
class Source:
    """Where a picture comes from: the page, the model, head and text where there are any, the controls, and the day."""

    page: str
    day: str
    about: Mapping[str, str]
    controls: Mapping[str, Any]

    @property
    def line(self) -> str:
        about = (cut(text, LINE_LENGTH + 1) for text in self.about.values())
        return " · ".join(["Attention Lab", self.page, *about, self.day])

    def file_name(self, title: str, suffix: str) -> str:
        parts = (_slug(part) for part in (self.page, title, *self.about.values()))
        return "_".join(part for part in parts if part) + f".{suffix}"


def picture_file(picture: Picture, name: str, source: Source) -> bytes:
    """The picture in a format of IMAGES or NUMBERS; KeyError for another one.

    An NPZ has the arrays by name and the source, or all heads of a trace, which a page can open again; in JSON what is
    not finite is null.
    """
    if name in IMAGES:
        kind, scale = IMAGES[name]
        svg = framed_svg(picture, source)
        return svg.encode() if kind == "svg" else drawing_file(svg, kind, scale)
    kind = NUMBERS[name]
    if kind == "csv":
        return csv_file(*picture.table())
    if kind == "tex":
        return latex_of(picture, source)
    if kind == "npz" and isinstance(picture, MapsPicture) and picture.trace is not None:
        return trace_npz(picture.trace)
    arrays = picture.arrays()
    if kind == "npz":  # a slash in a name makes a folder
        return _npz(
            {name.replace("/", "∕"): array for name, array in arrays.items()}
            | {"source": np.array(source.line)}
        )
    data = {
        "title": picture.title,
        "page": source.page,
        "date": source.day,
        **source.about,
        "controls": dict(source.controls),
        "numbers": {
            name: np.where(np.isfinite(array), array, np.array(None)).tolist()
            if array.dtype.kind == "f"
            else array.tolist()
            for name, array in arrays.items()
        },
    }
    return json.dumps(data, ensure_ascii=False, indent=1, default=str).encode()


def framed_svg(picture: Picture, source: Source) -> str:
    """The drawing on white, under its title and above its source; ValueError for what cannot be drawn."""
    inner = picture.svg()
    width, height = size_of(inner)
    wide = max(width, 320)
    # broken at their spaces where they are wider than the picture, by the width of a letter
    heads, lines = (
        textwrap.wrap(line, max(24, int(wide / letter))) or [""]
        for line, letter in ((picture.title, 8.2), (source.line, 5.4))
    )
    top = MARGIN + TITLE + 19 * (len(heads) - 1)
    around = "".join(
        f'<text x="{MARGIN}" y="{y + pitch * at:.0f}" font-size="{size}" font-weight="{weight}" '
        f'fill="{fill}">{escape(line)}</text>'
        for parts, y, pitch, size, weight, fill in (
            (heads, MARGIN + 14, 19, 15, 600, LIGHT_INK.text),
            (lines, top + height + 20, 15, 11, 400, LIGHT_INK.quiet),
        )
        for at, line in enumerate(parts)
    )
    return svg_of(
        round(wide + 2 * MARGIN),
        round(top + height + MARGIN + SOURCE + 15 * (len(lines) - 1)),
        f"<title>{escape(picture.title)}</title>{WHITE}{placed(inner, MARGIN, top)}{around}",
        f'font-family="{PICTURE_FONT}"',
    )


def csv_file(
    head: Sequence[str], rows: Iterable[Sequence[object]], dialect: str = "excel"
) -> bytes:
    """A table under its head as CSV, or with tabs (excel-tab); a text that a spreadsheet would take for a formula is
    quoted."""
    out = io.StringIO()
    csv.writer(out, dialect).writerows(
        [[_cell(name) for name in head], *([_cell(value) for value in row] for row in rows)]
    )
    return out.getvalue().encode("utf-8")


def _cell(value: object) -> object:
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        try:
            float(value)
        except ValueError:
            return f"'{value}"
    return value


def trace_npz(trace: AttentionTrace) -> bytes:
    """Every layer's weights (H, T, S) float32 as kind_number, with the tokens of its rows and columns, and what it is
    without softmax."""
    return _npz(
        {
            f"{item.kind}_{item.layer_number}{end}": np.asarray(values)
            for item in trace.maps
            for end, values in (
                ("", item.weights),
                ("_queries", item.queries),
                ("_keys", item.keys),
                ("_state", [item.state]),
            )
            if end != "_state" or item.state
        }
    )


def _npz(arrays: Mapping[str, np.ndarray]) -> bytes:
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)  # type: ignore[arg-type]
    return out.getvalue()


def latex_of(picture: Picture, source: Source) -> bytes:
    """The table for the package booktabs, a row a line of a chart, with its title as the caption, and a label.

    Its source is a comment. What is more than a page has room for is cut, as the caption says. A line of a chart has a
    few places along the axis, with the first and the last, of those that all lines share if there are any.
    """
    notes, caption, small = [source.line], picture.title, list[str]()
    if not isinstance(picture, ChartPicture) or (series := picture.series()) is None:
        head, rows, rest = latex_table(picture)
        heads = list(map(latex, head))
        if isinstance(picture, MapsPicture):
            notes.append(r"\usepackage{graphicx}")  # turns the names of columns
            small = [r"\scriptsize", r"\setlength{\tabcolsep}{2pt}"]
            heads = [name and rf"\rotatebox{{90}}{{{name}}}" for name in heads]
        caption += f" ({rest})" if rest else ""
        columns = "".join(
            "r" if rows and all(map(is_number, column)) else "l"
            for column in zip(*rows, strict=True)
        ) or "l" * len(head)
        heads = [_latex_row(heads)]
        lines = [_latex_row(map(_latex_cell, row)) for row in rows]
    else:
        axis, curves, band_is = series
        every = list(dict.fromkeys(place for line in curves.values() for place in line))
        if all(map(is_number, every)):
            every.sort()
        shared = [place for place in every if all(place in line for line in curves.values())]
        candidates = shared if len(shared) > 1 else every
        places = [
            candidates[round(at)]
            for at in np.linspace(0, len(candidates) - 1, min(MAX_PLACES, len(candidates)))
        ]
        if len(places) < len(every):
            notes.append(f"{len(places)} of {len(every)} places along {axis}; the CSV has all")
        caption += f" ({band_is})" if band_is else ""
        columns = "l" + "r" * len(places)
        heads = [
            rf"& \multicolumn{{{len(places)}}}{{c}}{{{latex(axis)}}} \\",
            rf"\cmidrule(lr){{2-{len(places) + 1}}}",
            _latex_row(["", *map(_latex_cell, places)]),
        ]
        # ± where every band is as far below as above, else the ends of each band
        even = all(
            math.isclose(value - band[0], band[1] - value, rel_tol=1e-3, abs_tol=1e-12)
            for line in curves.values()
            for value, band in line.values()
            if band
        )
        lines = [
            _latex_row(
                [_latex_cell(name), *(_with_band(line.get(place), even) for place in places)]
            )
            for name, line in curves.items()
        ]
    plain = f"{source.page}-{picture.title}".encode("ascii", "ignore").decode().lower()
    return "\n".join(
        [
            *("% " + " ".join(note.split()) for note in notes),
            r"% \usepackage{booktabs}",
            r"\begin{table}",
            r"\centering",
            *small,
            rf"\caption{{{latex(' '.join(caption.split()))}}}",
            rf"\label{{tab:{_slug(plain, '[^a-z0-9]+')}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            *heads,
            r"\midrule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    ).encode()


def latex_table(picture: Picture) -> tuple[list[str], list[list[Any]], str]:
    """The head and the rows that a page holds, and words on what it has no room for, "" where there is nothing.

    Of maps: a row for each of theirs, to a hundredth of the end of its scale, and nothing where it is masked.
    """
    if isinstance(picture, MapsPicture):
        lines, last = list[list[Any]](), None
        for item in picture.maps:
            if item.columns != last:
                lines.append(["", "", *item.columns])
                last = item.columns
            digits = 2 - math.floor(math.log10(max(abs(item.low), abs(item.high)) or 1.0))
            cells = np.where(item.allowed, np.round(item.values, digits) + 0.0, np.nan)
            lines += [
                ["" if at else item.name, name, *map(float, row)]
                for at, (name, row) in enumerate(zip(item.rows, cells, strict=True))
            ]
        wide = max(map(len, lines))
        head, *rows = (line + [""] * (wide - len(line)) for line in lines)
    else:
        head, rows = picture.table()
    sizes = (("rows", len(rows), LATEX_ROWS), ("columns", len(head), LATEX_COLUMNS))
    shown = [f"{most} of {count:,} {name}" for name, count, most in sizes if count > most]
    rest = f"the first {' and '.join(shown)}; the CSV has all" if shown else ""
    return head[:LATEX_COLUMNS], [row[:LATEX_COLUMNS] for row in rows[:LATEX_ROWS]], rest


def _latex_row(cells: Iterable[str]) -> str:
    r"""A line of a table; the line before it ends with \\, which would take a [ or * that comes next as its own."""
    line = " & ".join(" ".join(cell.split()) for cell in cells)
    return ("{}" if line[:1] in ("[", "*") else "") + line + r" \\"


def _with_band(point: Point | None, even: bool) -> str:
    value, band = point or (None, None)
    if value is None or band is None:
        return _latex_cell(value)
    if even:
        return rf"${value:.4g} \pm {band[1] - value:.2g}$"
    return "{} [{}, {}]".format(*map(_latex_cell, (value, *band)))


def _latex_cell(value: object) -> str:
    if value is None or isinstance(value, float) and math.isnan(value):
        return "--"
    return latex(f"{value:.4g}".replace("-", "−") if isinstance(value, float) else str(value))


def _slug(text: str, between: str = r"[^\w]+") -> str:
    return re.sub(between, "-", text).strip("-")[:NAME_LENGTH].rstrip("-")


WIDTHS = {"8.5 cm, one column": 85.0, "17 cm, two columns": 170.0}  # mm
FORMATS = {"SVG for a paper": "svg", "PDF for a paper": "pdf"}
TYPES = (8.0, 7.0, 6.0)  # points, the largest first
PAGE = 230.0  # mm, what a figure may have of the height of a page
TYPE = TYPES[0] * 96 / 72  # pixels of 1/96 inch
FAMILY = "Liberation Sans, Arial, Helvetica, sans-serif"
FIGURE_MARGIN = 2  # pixels around a drawing
PLOT = 0.85  # of the width, what a plot may take beside its axis
LETTER = 0.55 * TYPE  # pixels of a letter
SYMBOL = 32  # pixels of the line before a name in a legend
# names of axes by fields that say less
FIELDS = {"p": "probability", "column": "position", "name": ""}
TITLE_MARKS = '"field": "title"'  # of a chart that draws the titles of its axes itself
TALLEST = 0.75  # of the width, the height of a plot
ROWS = 170 * 96 / 25.4  # pixels, the most of all rows of a plot together
SIZES = ("fontSize", "labelFontSize", "titleFontSize", "subtitleFontSize")


class NotForPaper(ValueError):
    """A drawing whose type would be smaller than that of a paper, or that would be taller than its page."""


class PaperFit(NamedTuple):
    """The points of a figure's type, its width in the pixels of its drawing, and its height in mm."""

    points: float
    room: float
    height: float


def paper_file(picture: Picture, millimetres: float, file_format: str) -> bytes:
    """The picture as "svg" with its text as outlines, or as "pdf" with its fonts; a ZIP of several `paper_parts`.

    NotForPaper says what is too wide or too tall.
    """
    job = {"format": file_format, "millimetres": millimetres}
    drawings = [paper_drawing(part, millimetres) for part in paper_parts(picture, millimetres)]
    files = render({f"{at}.{file_format}": one | job for at, one in enumerate(drawings, 1)})
    return zip_files("figures", files) if len(files) > 1 else files[f"1.{file_format}"]


def paper_parts(picture: Picture, millimetres: float) -> list[Picture]:
    """The fewest figures, each no taller than a page, that hold all of a picture's maps; the picture where none are."""
    if isinstance(picture, MapsPicture):
        count, line = len(picture.maps), picture.across or 1
        for each in dict.fromkeys(-(-count // (line * n)) * line for n in range(1, count + 1)):
            parts = [
                replace(picture, maps=picture.maps[at : at + each]) for at in range(0, count, each)
            ]
            with suppress(NotForPaper):
                for part in parts:
                    paper_fit(part, millimetres)
                return list(parts)
    return [picture]


def paper_words(parts: Sequence[Picture], millimetres: float) -> str:
    """How large the figure is, or each of several, and its type; NotForPaper for one that does not fit."""
    fits = [paper_fit(part, millimetres) for part in parts]
    most = len(fits) > 1 or isinstance(parts[0], ChartPicture)
    heights = f"{'at most ' * most}{max(fit.height for fit in fits) / 10:.1f}"
    several = f"{len(fits)} figures in a ZIP, each " if len(fits) > 1 else ""
    points = min(fit.points for fit in fits)
    return (
        f"{several}{millimetres / 10:g} cm wide, {heights} cm tall, with type of {points:g} points."
    )


def paper_fit(picture: Picture, millimetres: float) -> PaperFit:
    """The figure with the largest of TYPES in which it is no taller than a page; NotForPaper for none."""
    if isinstance(picture, ChartPicture):
        paper_spec(picture, millimetres * 96 / 25.4)
        return PaperFit(TYPES[0], millimetres * 96 / 25.4, PAGE)
    width, smallest = 0.0, float(FONT)
    if not isinstance(picture, MapsPicture):
        inner = picture.svg()
        width, high = size_of(inner)
        smallest = min(map(float, re.findall(r'font-size[:=]\s?"?([\d.]+)', inner)), default=FONT)
    for points in TYPES:
        room = millimetres * smallest / points * 72 / 25.4
        if isinstance(picture, MapsPicture):
            high = maps_layout(*_in_column(picture, millimetres, room)).height
        height = (high + 2 * FIGURE_MARGIN) * millimetres / room
        if width <= room and height <= PAGE + 1e-6:
            return PaperFit(points, room, height)
    if width > room:
        raise NotForPaper(
            f"At {millimetres / 10:g} cm the type of this drawing would have "
            f"{points * room / width:.1f} points; a paper needs {points:g}."
        )
    raise NotForPaper(
        f"With type of {points:g} points this drawing would be taller than the {PAGE / 10:g} cm of a page."
    )


def _in_column(
    picture: MapsPicture, millimetres: float, room: float
) -> tuple[tuple[PictureMap, ...], str, int, float, float]:
    """What `maps_layout` takes of a page; a single map has no name, which is for the caption."""
    maps = picture.maps if len(picture.maps) > 1 else (replace(picture.maps[0], name=""),)
    inside = (one - 2 * FIGURE_MARGIN for one in (room, room * PAGE / millimetres))
    width, height = inside
    return maps, picture.reads, picture.across, width, height


def paper_drawing(picture: Picture, millimetres: float) -> dict[str, Any]:
    """What is drawn: `spec` or `svg`, which is so wide that its type has the points of `paper_fit`."""
    if isinstance(picture, ChartPicture):
        return {"spec": paper_spec(picture, millimetres * 96 / 25.4)}
    room = paper_fit(picture, millimetres).room
    if isinstance(picture, MapsPicture):
        maps, reads, across, *inside = _in_column(picture, millimetres, room)
        inner = maps_svg(maps, picture.row, reads, across, picture.picked, *inside)
    else:
        inner = picture.svg()
    width, height = size_of(inner)
    return {
        "svg": svg_of(
            round(room, 3),
            round(height + 2 * FIGURE_MARGIN, 3),
            WHITE + placed(inner, round((room - width) / 2, 1), FIGURE_MARGIN),
            f'font-family="{FAMILY}"',
        )
    }


def paper_spec(picture: ChartPicture, pixels: float) -> Spec:
    """A chart's spec as wide as this, without its title, with a title of each axis and all type of one size."""
    spec = picture.whole_spec()
    heading = (spec.pop("title", None) or {}).get("text") or picture.title
    quantity = WITHOUT.split(f"{heading} ")[0].rpartition(": ")[2].strip(" ,")
    if isinstance(spec["height"], (int, float)):
        spec["height"] = min(spec["height"], TALLEST * pixels)
    else:
        count = max((len(_places(spec, layer, "y")) for layer in spec["layer"]), default=1)
        spec["height"] = {"step": min(spec["height"]["step"], ROWS / count)}
        if spec["height"]["step"] < TYPE:
            raise NotForPaper(
                f"With type of {TYPES[0]:g} points the {count} rows of this chart would be taller than "
                f"the {PAGE / 10:g} cm of a page."
            )
    config = _sized({**spec.pop("config", {}), "background": "white", "font": FAMILY})
    look = {"labelFontSize": TYPE, "titleFontSize": TYPE, "labelFont": FAMILY, "titleFont": FAMILY}
    for name, more in (("axis", {"titleAnchor": "middle", "titleLimit": 0}), ("legend", {})):
        config[name] = config.get(name, {}) | look | more
    names = [name for name, *_ in picture.spec.get("usermeta", {}).get("names", ())]
    if names:
        config["legend"]["columns"] = max(1, int(pixels / (LETTER * max(map(len, names)) + SYMBOL)))
    config["text"] = {**config.get("text", {}), "fontSize": TYPE, "font": FAMILY}
    sized: Spec = _sized(spec)
    if TITLE_MARKS not in json.dumps(sized["layer"]):
        sized = _titled(sized, quantity, pixels)
    return _in_cells(sized, pixels) | {
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
    for layer in spec["layer"]:
        x = layer["encoding"].get("x", {})
        if x.get("type") in ("ordinal", "nominal"):
            places = _places(spec, layer, "x")
            cell = PLOT * pixels / len(places)
            if layer["mark"]["type"] == "text":
                layer = {**layer, "mark": {**layer["mark"], "limit": cell}}
            axis = x.get("axis", {})
            if axis is not None and LETTER * max(map(len, places)) > cell:
                upright = {
                    "labelAngle": -90,
                    "labelAlign": "left" if axis.get("orient") == "top" else "right",
                    "labelBaseline": "middle",
                }
                layer = {
                    **layer,
                    "encoding": {**layer["encoding"], "x": {**x, "axis": axis | upright}},
                }
        layers.append(layer)
    return {**spec, "layer": layers}


def _places(spec: Spec, layer: Spec, channel: str) -> set[str]:
    """The values of a layer's rows along an axis, as they are written."""
    field = layer["encoding"].get(channel, {}).get("field")
    rows = (layer.get("data") or spec.get("data") or {}).get("values", ())
    return {str(row[field]) for row in rows if field in row} or {""}


def _titled(spec: Spec, quantity: str, pixels: float) -> Spec:
    """The spec whose x and y have titles: their own, or the tooltip's, or the quantity, or the field's name."""
    layers = [{**layer, "encoding": dict(layer["encoding"])} for layer in spec["layer"]]
    tall = spec["height"] if isinstance(spec["height"], (int, float)) else PLOT * pixels
    for channel, length in (("x", PLOT * pixels), ("y", tall)):
        drawn = [
            (layer, one)
            for layer in layers
            if "field" in (one := layer["encoding"].get(channel, {}))
            and one.get("axis", {}) is not None
        ]
        own = next(filter(None, (title_of(one) for _, one in drawn)), "")
        for layer, one in drawn:
            name = own or _name_of(*drawn[0], quantity)
            layer["encoding"][channel] = {
                **{name: part for name, part in one.items() if name != "title"},
                "axis": {
                    **one.get("axis", {}),
                    "title": textwrap.wrap(name, max(10, int(length / LETTER))) or None,
                },
            }
    return {**spec, "layer": layers}


def _name_of(layer: Spec, channel: Mapping[str, Any], quantity: str) -> str:
    field = str(channel["field"])
    if field in FIELDS:
        return FIELDS[field]
    (name,) = column_names({"layer": [layer]}, [field])
    if name != field:
        return name
    if field == "from":  # where a bar begins: the first line of its tooltip says of what
        return str(layer["encoding"]["tooltip"][0]["title"])
    is_number = channel.get("type") == "quantitative"
    return quantity if is_number and (len(field) < 4 or field in ("value", "score")) else field


WIDE, HIGH = 794, 1123  # px of an A4 sheet
SHEET_MARGIN, APART = 64, 36  # px around a sheet, and between two views
TALL = 620  # px that a picture has at most
MAX_ROWS, MAX_CELL = 24, 28  # of a table; letters of a cell


# A drawing with its size, or no drawing
Svg = Annotated[
    str,
    msgspec.Meta(
        pattern=r'^(?:$|<svg [^>]*\bwidth="\d+(\.\d+)?"[^>]*\bheight="\d+(\.\d+)?"[^>]*>)'
    ),
]


@dataclass(frozen=True)
class ReportView:
    """One view: the drawing (SVG, empty for a table), its numbers, what is said of it, and the link that reopens it.

    `part` are folder, root and data of a component that can be drawn again in a file; None where there is none.
    """

    id: str
    title: str
    page: str
    query: Mapping[str, list[str]]
    sentence: str
    note: str
    source: str
    svg: Svg
    head: list[str]
    rows: list[list[Any]]
    part: list[Any] | None = None


class _Piece(NamedTuple):
    """A part of a sheet: its drawing from its top on, its height, and of a link the address and the width."""

    svg: str
    height: float
    link: str = ""
    width: float = 0.0


def report_pdf(
    title: str, line: str, views: Sequence[ReportView], address: Callable[[ReportView], str]
) -> bytes:
    """The views as a PDF with `line` under its title; its links lead to the `address` of each."""
    from pypdf import PdfReader, PdfWriter
    from pypdf.annotations import Link

    heading = [*_lines(title, 26, weight=600), *_lines(line, 11, fill=LIGHT_INK.quiet)]
    sheets: list[list[tuple[_Piece, float]]] = [[]]  # the pieces of each with their tops
    y: float = SHEET_MARGIN
    blocks = [_block(view, address(view), f"v{at}-") for at, view in enumerate(views)]
    for block in [heading, *blocks]:
        if sheets[-1] and y + sum(piece.height for piece in block) > HIGH - SHEET_MARGIN:
            sheets.append([])
            y = SHEET_MARGIN
        for piece in (*block, _Piece("", APART)):
            sheets[-1].append((piece, y))
            y += piece.height
    inner = [
        "".join(
            f'<g transform="translate({SHEET_MARGIN} {y:.1f})">{piece.svg}</g>'
            for piece, y in sheet
        )
        for sheet in sheets
    ]
    font = f'font-family="{PICTURE_FONT}"'
    jobs = {
        str(at): {"svg": svg_of(WIDE, HIGH, WHITE + each, font), "format": "pdf"}
        for at, each in enumerate(inner)
    }
    writer = PdfWriter()
    for at, file in enumerate(render(jobs).values()):
        scale = float(writer.add_page(PdfReader(io.BytesIO(file)).pages[0]).mediabox.height) / HIGH
        for piece, y in sheets[at]:
            if piece.link:
                low, high = HIGH - y - piece.height, HIGH - y
                rect = np.array((SHEET_MARGIN, low, SHEET_MARGIN + piece.width, high)) * scale
                writer.add_annotation(
                    at, Link(rect=tuple(rect.tolist()), url=piece.link, border=[0, 0, 0])
                )
    writer.add_metadata({"/Title": title, "/Creator": "Attention Lab"})
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def _block(view: ReportView, link: str, ids: str) -> list[_Piece]:
    if view.svg:
        width, height = size_of(view.svg)
        scale = min(1.0, (WIDE - 2 * SHEET_MARGIN) / width, TALL / height)
        inner = with_own_ids(view.svg[view.svg.index("<svg") :].partition(">")[2], ids)
        shown = [
            _Piece(
                f'<svg y="6" width="{width * scale:.1f}" height="{height * scale:.1f}" '
                f'viewBox="0 0 {width} {height}" font-size="12">{inner}',
                height * scale + 16,
            )
        ]
    else:
        head, *lines = (
            " · ".join(cell_text(cell)[:MAX_CELL] for cell in row)
            for row in (view.head, *view.rows[:MAX_ROWS])
        )
        if len(view.rows) > MAX_ROWS:
            lines.append(f"… and {len(view.rows) - MAX_ROWS:,} more rows")
        shown = _lines(head, 11, weight=600) + _lines("\n".join(lines), 11)
    return [
        *_lines(view.title, 17, weight=600),
        *shown,
        *_lines(view.sentence, 14),
        *_lines(view.note, 13, style="italic"),
        *_lines(view.source, 10, fill=LIGHT_INK.quiet),
        *_lines("Open this view live" if link else "", 11, fill=LIGHT_INK.pick, link=link),
    ]


def _lines(
    words: str,
    size: int,
    fill: str = LIGHT_INK.text,
    weight: int = 400,
    style: str = "normal",
    link: str = "",
) -> list[_Piece]:
    letters = int((WIDE - 2 * SHEET_MARGIN) / (size * (0.5 if weight == 400 else 0.56)))
    return [
        _Piece(
            f'<text y="{size}" font-size="{size}" font-weight="{weight}" font-style="{style}" '
            f'fill="{fill}">{escape(part)}</text>',
            size * 1.45,
            link,
            size * 0.5 * len(part),
        )
        for paragraph in words.splitlines()
        for part in textwrap.wrap(paragraph, letters)
    ]


# A page as one HTML file, alive where a component draws a picture: no server, no network, both themes, pointer and keys.


FOLDER = COMPONENTS / "standalone"
MAX_CELLS = 4_000_000  # of all heads: 8 MB, twice of them as a file


@dataclass(frozen=True)
class Part:
    """One part of a file under its heading: a component by its folder, the class of its root and its data, or HTML.

    `below` is HTML that stands after it.
    """

    title: str
    name: str = ""
    root: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    html: str = ""
    below: str = ""


def page_html(parts: Sequence[Part], *, title: str, source: str = "") -> str:
    names = list(dict.fromkeys(part.name for part in parts if part.name))
    values = {
        "parts": list(map(vars, parts)),
        "styles": {name: css_of(name) for name in names},
        "palette": for_browser(),
    }
    fields = {
        "TITLE": escape(title),
        "SOURCE": escape(source),
        "DATA": json.dumps(values, ensure_ascii=False, separators=(",", ":")).replace(
            "<", "\\u003c"
        ),  # so that it cannot end the script in which it stands
        "COMPONENTS": bundle_all({name: COMPONENTS / name / "main.js" for name in names}),
        "DRIVER": bundle(FOLDER / "driver.js"),
    }
    return re.sub(
        "@@([A-Z]+)@@", lambda match: fields[match[1]], (FOLDER / "page.html").read_text("utf-8")
    )


def trace_html(
    trace: AttentionTrace,
    *,
    title: str,
    source: str = "",
    layer: int = 0,
    head: int = 0,
    query: int | None = None,
    signed: bool = False,
) -> str:
    """A file with every head of a trace; ValueError for a trace without maps or with more than MAX_CELLS weights."""
    return page_html(
        [trace_part(trace, title, layer, head, query, signed)], title=title, source=source
    )


def trace_part(
    trace: AttentionTrace,
    title: str,
    layer: int = 0,
    head: int = 0,
    query: int | None = None,
    signed: bool = False,
) -> Part:
    """Every head of a trace, 16 bits a weight, opened at a head; `query` is the row in the accent."""
    cells = _cells(trace)
    if not cells:
        raise ValueError("a file needs at least one map; this trace has none")
    if cells > MAX_CELLS:
        raise ValueError(
            f"this trace has {cells:,} weights; a file holds {MAX_CELLS:,}: take fewer tokens or layers"
        )
    data = {
        "layer": layer,
        "head": head,
        "query": query,
        "signed": signed,
        "states": state_lines(trace),
        "numbers": list(trace.numbers),
        "layers": [
            {
                **labels(item, None),
                "reads": READS[item.kind],
                **dict(zip(("heads", "rows", "cols"), item.weights.shape, strict=True)),
                "state": item.state,
                "negative": not signed and is_signed(item),
                "values": packed(np.asarray(item.weights), False),
                "mask": allowed_bits(item.mask, item.weights.shape, range(len(item.weights))),
            }
            for item in trace.maps
        ],
    }
    return Part(title, "attention_view", "av", data)


def page_file(
    source: Source, pictures: Mapping[str, Picture], drawn: Mapping[str, Component]
) -> bytes:
    """One HTML file of a page's pictures: components alive, a trace with all its heads, charts drawn, tables."""
    charts = {key: one for key, one in pictures.items() if isinstance(one, ChartPicture)}
    svgs = render({key: {"spec": one.whole_spec(), "format": "svg"} for key, one in charts.items()})
    parts: list[Part] = []
    traces: set[int] = set()
    for at, (key, picture) in enumerate(pictures.items()):
        trace = _whole_trace(picture)
        if trace is not None and id(trace) in traces:
            continue
        traces.add(id(trace))
        live = live_part(key, pictures, drawn)
        if key in charts:
            live = Part(picture.title, html=scrolled(with_own_ids(svgs[key].decode(), f"p{at}-")))
        parts.append(live or Part(picture.title, html=table_html(*picture.table())))
    return page_html(parts, title=f"{source.page} · Attention Lab", source=source.line).encode()


def live_part(
    key: str, pictures: Mapping[str, Picture], drawn: Mapping[str, Component]
) -> Part | None:
    """A picture as a component draws it: all heads of a trace that fits into a file, else what the page shows."""
    picture = pictures[key]
    trace = _whole_trace(picture)
    if trace is not None:
        # at the head and the row that the reader picked
        shown = [
            one for one in pictures.values() if isinstance(one, MapsPicture) and one.trace is trace
        ]
        row = next((one.row for one in shown if one.row is not None), None)
        return trace_part(trace, shown[0].title, *shown[-1].pick, row, shown[0].maps[0].noun == "")
    if isinstance(picture, ChartPicture) or key not in drawn:
        return None
    return Part(picture.title, *drawn[key])


def scrolled(svg: str) -> str:
    return f'<div style="overflow-x:auto">{svg}</div>'


def _whole_trace(picture: Picture) -> AttentionTrace | None:
    """The trace of a picture that a file can hold; a larger one is shown as the page draws it."""
    trace = picture.trace if isinstance(picture, MapsPicture) else None
    return trace if trace and _cells(trace) <= MAX_CELLS else None


def _cells(trace: AttentionTrace) -> int:
    return sum(item.weights.size for item in trace.maps)


def table_html(
    head: Sequence[str],
    rows: Sequence[Sequence[Any]],
    left: Collection[int] = (),
    marks: Iterable[str] = (),
) -> str:
    """A table whose first column names its rows, after `marks` (HTML), with the class left for these columns."""
    sides = [' class="left"' if column in left else "" for column in range(len(head))]
    columns = "".join(
        f'<th scope="col"{side}>{escape(name)}</th>' for name, side in zip(head, sides, strict=True)
    )
    lines = []
    for row, mark in zip(rows, marks or repeat(""), strict=False):
        first, *rest = (escape(cell_text(value)) for value in row)
        cells = "".join(
            f"<td{side}>{cell}</td>" for cell, side in zip(rest, sides[1:], strict=True)
        )
        lines.append(f'<tr><th scope="row"{sides[0]}>{mark}{first}</th>{cells}</tr>')
    return f"<table><thead><tr>{columns}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def cell_text(value: Any) -> str:
    """A cell as it is read: a float as pages write numbers, nothing for None."""
    return "" if value is None else number(value) if isinstance(value, float) else str(value)
