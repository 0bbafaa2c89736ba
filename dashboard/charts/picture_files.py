"""A picture as a file of any format: images for papers and slides, its numbers for programs and tables."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from core.latex import latex
from dashboard.charts.figure_files import drawing_file, size_of
from dashboard.charts.palette import LIGHT_INK
from dashboard.charts.pictures import ChartPicture, MapsPicture, Picture, Point, Series

if TYPE_CHECKING:
    from core.trace import AttentionTrace  # at run time torch would come with it

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
FONT = "'Source Sans 3', 'Source Sans', 'Liberation Sans', sans-serif"
MOST_PLACES = 6  # columns of a LaTeX table whose rows are the lines of a chart
MARGIN, TITLE, SOURCE = 16, 30, 24  # px around a drawing, and of the lines above and below it
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
    return {"csv": csv_of, "npz": npz_of, "json": json_of, "tex": latex_of}[NUMBERS[name]](
        picture, source
    )


def suffix_of(name: str) -> str:
    """The ending of a format's files."""
    return IMAGES[name][0] if name in IMAGES else NUMBERS[name]


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
    placed = inner[inner.index("<svg") :].replace("<svg", f'<svg x="{MARGIN}" y="{top}"', 1)
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
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'width="{whole_width:.0f}" height="{whole_height:.0f}" viewBox="0 0 {whole_width:.0f} '
        f'{whole_height:.0f}" font-family="{FONT}"><title>{escape(picture.title)}</title>'
        f'<rect width="100%" height="100%" fill="#FFFFFF"/>{above}{placed}{below}</svg>'
    )


def _wrapped(line: str, width: float, letter: float) -> list[str]:
    """A line broken at its spaces where it is wider than the picture; `letter` is the width of one in pixels."""
    return textwrap.wrap(line, max(24, int(width / letter))) or [""]


def csv_of(picture: Picture, source: Source) -> bytes:
    """The table of a picture."""
    return csv_file(*picture.table())


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
    most = min(MOST_PLACES, len(places))
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
