"""A picture as a file of any format: images, numbers, a figure of a paper, and a report as a PDF."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from core.latex import latex
from dashboard.draw.maps import FONT, maps_svg, placed, svg_of
from dashboard.draw.palette import LIGHT_INK
from dashboard.draw.pictures import (
    ChartPicture,
    MapsPicture,
    Picture,
    Point,
    Series,
    column_names,
    drawing_file,
    drawn_by_name,
    size_of,
    with_own_ids,
)
from dashboard.draw.vega import Spec

# A picture as a file of any format: images for papers and slides, its numbers for programs and tables.


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
}
PICTURE_FONT = "'Source Sans 3', 'Source Sans', 'Liberation Sans', sans-serif"
MAX_PLACES = 6  # columns of a LaTeX table whose rows are the lines of a chart
MARGIN, TITLE, SOURCE = 16, 30, 24  # px around a drawing, and of the lines above and below it
WHITE = '<rect width="100%" height="100%" fill="#FFFFFF"/>'
NAME_LENGTH, LINE_LENGTH = (
    40,
    120,
)  # signs of one part of a file's name, and of the line below a picture


@dataclass(frozen=True)
class Source:
    """Where a picture comes from: the page, the model, head and text where there are any, the controls, and the day."""

    page: str
    day: str
    about: Mapping[str, str]
    controls: Mapping[str, Any]

    @property
    def line(self) -> str:
        """What stands below the picture."""
        about = (
            text if len(text) <= LINE_LENGTH else f"{text[:LINE_LENGTH]}…"
            for text in self.about.values()
        )
        return " · ".join(["Attention Lab", self.page, *about, self.day])

    def file_name(self, title: str, suffix: str) -> str:
        """Page, title, model, head and text as one file's name of letters, digits and hyphens."""
        parts = (_slug(part) for part in (self.page, title, *self.about.values()))
        return "_".join(part for part in parts if part) + f".{suffix}"


def picture_file(picture: Picture, name: str, source: Source) -> bytes:
    """The picture in a format of IMAGES or NUMBERS; KeyError for another one."""
    if name in IMAGES:
        kind, scale = IMAGES[name]
        svg = framed_svg(picture, source)
        return svg.encode() if kind == "svg" else drawing_file(svg, kind, scale)
    if NUMBERS[name] == "csv":
        return csv_file(*picture.table())
    return {"npz": npz_of, "json": json_of, "tex": latex_of}[NUMBERS[name]](picture, source)


def framed_svg(picture: Picture, source: Source) -> str:
    """The drawing on white, under its title and above its source; ValueError for what cannot be drawn."""
    inner = picture.svg()
    width, height = size_of(inner)
    heads, lines = (
        _wrapped(line, max(width, 320), letter)
        for line, letter in ((picture.title, 8.2), (source.line, 5.4))
    )
    top = MARGIN + TITLE + 19 * (len(heads) - 1)
    whole_width = max(width, 320) + 2 * MARGIN
    whole_height = top + height + MARGIN + SOURCE + 15 * (len(lines) - 1)
    above = "".join(
        f'<text x="{MARGIN}" y="{MARGIN + 14 + 19 * at}" font-size="15" font-weight="600" '
        f'fill="{LIGHT_INK.text}">{escape(line)}</text>'
        for at, line in enumerate(heads)
    )
    below = "".join(
        f'<text x="{MARGIN}" y="{top + height + 20 + 15 * at:.0f}" font-size="11" '
        f'fill="{LIGHT_INK.quiet}">{escape(line)}</text>'
        for at, line in enumerate(lines)
    )
    return svg_of(
        round(whole_width),
        round(whole_height),
        f"<title>{escape(picture.title)}</title>{WHITE}{above}{placed(inner, MARGIN, top)}{below}",
        f'font-family="{PICTURE_FONT}"',
    )


def _wrapped(line: str, width: float, letter: float) -> list[str]:
    """A line broken at its spaces where it is wider than the picture; `letter` is the width of one in pixels."""
    return textwrap.wrap(line, max(24, int(width / letter))) or [""]


def csv_file(
    head: Sequence[str], rows: Iterable[Sequence[object]], dialect: str = "excel"
) -> bytes:
    """A table under its head as CSV, or with tabs (excel-tab); a text that a spreadsheet would take for a formula is
    quoted."""
    out = io.StringIO()
    lines = [[_cell(name) for name in head], *([_cell(value) for value in row] for row in rows)]
    csv.writer(out, dialect).writerows(lines)
    return out.getvalue().encode("utf-8")


def _cell(value: object) -> object:
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        try:
            float(value)
        except ValueError:
            return f"'{value}"
    return value


def npz_of(picture: Picture, source: Source) -> bytes:
    """The arrays of a picture by name, and its source; all heads of a trace, which a page can open again."""
    if isinstance(picture, MapsPicture) and picture.trace is not None:
        return trace_npz(picture.trace)
    arrays = {
        name.replace("/", "∕"): array for name, array in picture.arrays().items()
    }  # a slash makes a folder
    return _npz(arrays | {"source": np.array(source.line)})


def trace_npz(trace: AttentionTrace) -> bytes:
    """Every layer's weights (H, T, S) float32 as kind_layer, with the tokens of its rows and columns."""
    arrays: dict[str, np.ndarray] = {}
    for item in trace.maps:
        name = f"{item.kind}_{item.layer}"
        arrays |= {
            name: item.weights,
            f"{name}_queries": np.array(item.queries),
            f"{name}_keys": np.array(item.keys),
        }
    return _npz(arrays)


def _npz(arrays: Mapping[str, np.ndarray]) -> bytes:
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)  # type: ignore[arg-type]
    return out.getvalue()


def json_of(picture: Picture, source: Source) -> bytes:
    """Title, source, controls and arrays; what is not finite is null."""
    data = {
        "title": picture.title,
        "page": source.page,
        "date": source.day,
        **source.about,
        "controls": dict(source.controls),
        "numbers": {name: _listed(array) for name, array in picture.arrays().items()},
    }
    return json.dumps(data, ensure_ascii=False, indent=1, default=str).encode()


def _listed(array: np.ndarray) -> Any:
    return (
        np.where(np.isfinite(array), array, np.array(None)) if array.dtype.kind == "f" else array
    ).tolist()


def latex_of(picture: Picture, source: Source) -> bytes:
    """The table for the package booktabs, a row a line of a chart, with its title as the caption, and a label.

    Its source is a comment.
    """
    series = picture.series() if isinstance(picture, ChartPicture) else None
    notes, caption, label = [source.line], picture.title, _label(source.page, picture.title)
    if series is None:
        head, rows = picture.table()
        columns = "".join(
            "r" if rows and all(_is_number(row[at]) for row in rows) else "l"
            for at in range(len(head))
        )
        heads = [_latex_row([latex(name) for name in head])]
        lines = [_latex_row(map(_latex_cell, row)) for row in rows]
    else:
        places = _places(series)
        every = len({place for line in series.lines.values() for place in line})
        notes += [f"{len(places)} of {every} places along {series.axis}; the CSV has all"] * (
            len(places) < every
        )
        caption += f" ({series.band})" if series.band else ""
        columns = "l" + "r" * len(places)
        heads = [
            rf"& \multicolumn{{{len(places)}}}{{c}}{{{latex(series.axis)}}} \\",
            rf"\cmidrule(lr){{2-{len(places) + 1}}}",
            _latex_row(["", *map(_latex_cell, places)]),
        ]
        even = all(
            math.isclose(value - band[0], band[1] - value, rel_tol=1e-3, abs_tol=1e-12)
            for line in series.lines.values()
            for value, band in line.values()
            if band
        )
        lines = [
            _latex_row(
                [_latex_cell(name), *(_latex_point(line.get(place), even) for place in places)]
            )
            for name, line in series.lines.items()
        ]
    return "\n".join(
        [
            *("% " + " ".join(note.split()) for note in notes),
            r"% \usepackage{booktabs}",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{latex(' '.join(caption.split()))}}}",
            rf"\label{{tab:{label}}}",
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


def _latex_row(cells: Iterable[str]) -> str:
    r"""A line of a table; the line before it ends with \\, which would take a [ or * that comes next as its own."""
    line = " & ".join(" ".join(cell.split()) for cell in cells)
    return ("{}" if line[:1] in ("[", "*") else "") + line + r" \\"


def _label(*parts: str) -> str:
    """Words as a label that LaTeX takes in any file."""
    plain = "-".join(parts).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:NAME_LENGTH].rstrip("-")


def _places(series: Series) -> list[Any]:
    """A few places along the axis, with the first and the last, of those that all lines share if there are any."""
    places = list(dict.fromkeys(place for line in series.lines.values() for place in line))
    if all(_is_number(place) for place in places):
        places.sort()
    shared = [place for place in places if all(place in line for line in series.lines.values())]
    places = shared if len(shared) > 1 else places
    most = min(MAX_PLACES, len(places))
    return [places[round(at)] for at in np.linspace(0, len(places) - 1, most)]


def _latex_point(point: Point | None, even: bool) -> str:
    """A value, with ± where every band is as far below as above, else with the ends of its band."""
    value, band = point or (None, None)
    if value is None or band is None:
        return _latex_cell(value)
    low, high = band
    return (
        rf"${value:.4g} \pm {high - value:.2g}$"
        if even
        else f"{_latex_cell(value)} [{_latex_cell(low)}, {_latex_cell(high)}]"
    )


def _is_number(value: object) -> bool:
    return value is None or isinstance(value, (int, float)) and not isinstance(value, bool)


def _latex_cell(value: object) -> str:
    if value is None or isinstance(value, float) and math.isnan(value):
        return "--"
    return (
        latex(f"{value:.4g}".replace("-", "−")) if isinstance(value, float) else latex(str(value))
    )


def _slug(text: str) -> str:
    plain = re.sub(r"[^\w]+", "-", text, flags=re.UNICODE).strip("-")
    return plain[:NAME_LENGTH].rstrip("-")


# A picture as a figure of a paper: as wide as its column, type of 8 points, axes with titles, nothing around it.


WIDTHS = {"8.5 cm, one column": 85.0, "17 cm, two columns": 170.0}  # mm
FORMATS = {"SVG for a paper": "svg", "PDF for a paper": "pdf"}
POINTS = 8.0
TYPE = POINTS * 96 / 72  # pixels of 1/96 inch
FAMILY = "Liberation Sans, Arial, Helvetica, sans-serif"
FIGURE_MARGIN = 2  # pixels around a drawing
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
    job = {"formats": [file_format], "millimetres": millimetres}
    return drawn_by_name({"paper": paper_drawing(picture, millimetres) | job})["paper"]


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
            maps,
            picture.row,
            picture.reads,
            picture.across,
            picture.picked,
            room - 2 * FIGURE_MARGIN,
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
    return svg_of(
        round(width, 3),
        round(height + 2 * FIGURE_MARGIN, 3),
        WHITE + placed(inner, round((width - size_of(inner)[0]) / 2, 1), FIGURE_MARGIN),
        f'font-family="{FAMILY}"',
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
        titles = (
            one.get("title") or (one.get("axis") or {}).get("title") or ""
            for one in (layer["encoding"][channel] for layer in drawn)
        )
        own = [title.strip() for title in map(str, titles) if title.strip()]
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


WIDE, HIGH = 794, 1123  # px of an A4 sheet
SHEET_MARGIN, APART = 64, 36  # px around a sheet, and between two views
TALL = 620  # px that a picture has at most
MAX_ROWS, MAX_CELL = 24, 28  # of a table; letters of a cell


@dataclass(frozen=True)
class Entry:
    """One view in a PDF: its drawing, or else a table, and what stands above and below it."""

    title: str
    svg: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    sentence: str
    note: str
    source: str
    link: str


class _Piece(NamedTuple):
    """A part of a sheet: its drawing from its top on, its height, and of a link the address and the width."""

    svg: str
    height: float
    link: str = ""
    width: float = 0.0


def report_pdf(title: str, line: str, entries: Sequence[Entry]) -> bytes:
    """The report as a PDF with `line` under its title; its links lead to the pages that reopen the views."""
    from pypdf import PdfReader, PdfWriter
    from pypdf.annotations import Link

    heading = [*_lines(title, 26, weight=600), *_lines(line, 11, fill=LIGHT_INK.quiet)]
    sheets: list[list[_Piece]] = [[]]
    for block in [heading, *(_block(entry, f"v{at}-") for at, entry in enumerate(entries))]:
        tall = sum(piece.height for piece in (*sheets[-1], *block))
        if sheets[-1] and tall > HIGH - 2 * SHEET_MARGIN:
            sheets.append([])
        sheets[-1] += [*block, _Piece("", APART)]
    pages = [
        list(
            zip(
                sheet,
                accumulate((piece.height for piece in sheet), initial=SHEET_MARGIN),
                strict=False,
            )
        )
        for sheet in sheets
    ]
    jobs = {}
    for at, page in enumerate(pages):
        parts = (
            f'<g transform="translate({SHEET_MARGIN} {y:.1f})">{piece.svg}</g>' for piece, y in page
        )
        svg = svg_of(WIDE, HIGH, WHITE + "".join(parts), f'font-family="{PICTURE_FONT}"')
        jobs[str(at)] = {"svg": svg, "formats": ["pdf"]}
    writer = PdfWriter()
    for at, file in enumerate(drawn_by_name(jobs).values()):
        sheet = writer.add_page(PdfReader(io.BytesIO(file)).pages[0])
        scale = float(sheet.mediabox.height) / HIGH
        for piece, y in pages[at]:
            if piece.link:
                left, low, wide, high = (
                    scale * part
                    for part in (SHEET_MARGIN, HIGH - y - piece.height, piece.width, HIGH - y)
                )
                box = (left, low, left + wide, high)
                writer.add_annotation(at, Link(rect=box, url=piece.link, border=[0, 0, 0]))
    writer.add_metadata({"/Title": title, "/Creator": "Attention Lab"})
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def _block(entry: Entry, ids: str) -> list[_Piece]:
    """A view's title, its drawing or the first rows of its table, its words and its link."""
    pieces = _lines(entry.title, 17, weight=600)
    if entry.svg:
        width, height = size_of(entry.svg)
        scale = min(1.0, (WIDE - 2 * SHEET_MARGIN) / width, TALL / height)
        inner = with_own_ids(entry.svg[entry.svg.index("<svg") :].partition(">")[2], ids)
        drawing = (
            f'<svg y="6" width="{width * scale:.1f}" height="{height * scale:.1f}" '
            f'viewBox="0 0 {width} {height}" font-size="12">{inner}'
        )
        pieces.append(_Piece(drawing, height * scale + 16))
    else:
        shown = (" · ".join(cell[:MAX_CELL] for cell in row) for row in entry.rows[:MAX_ROWS])
        pieces += _lines(" · ".join(cell[:MAX_CELL] for cell in entry.head), 11, weight=600)
        pieces += _lines("\n".join(shown), 11)
        if len(entry.rows) > MAX_ROWS:
            pieces += _lines(f"… and {len(entry.rows) - MAX_ROWS:,} more rows", 11)
    pieces += _lines(entry.sentence, 14) + _lines(entry.note, 13, style="italic")
    pieces += _lines(entry.source, 10, fill=LIGHT_INK.quiet)
    if entry.link:
        pieces += _lines("Open this view live", 11, fill=LIGHT_INK.pick, link=entry.link)
    return pieces


def _lines(
    words: str,
    size: int,
    fill: str = LIGHT_INK.text,
    weight: int = 400,
    style: str = "normal",
    link: str = "",
) -> list[_Piece]:
    """A text broken at the width of the sheet."""
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
