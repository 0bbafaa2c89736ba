"""A report as a PDF: vector pictures and text that can be selected, several views on a page where they fit."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from dashboard.charts.figure_files import drawing_files, size_of, with_own_ids
from dashboard.charts.palette import LIGHT_INK
from dashboard.charts.picture_files import FONT

WIDE, HIGH = 794, 1123  # px of an A4 sheet
MARGIN, APART = 64, 36  # px around a sheet, and between two views
TALL = 620  # px that a picture has at most
MOST_ROWS, MOST_CELL = 24, 28  # of a table; letters of a cell


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


@dataclass(frozen=True)
class _Line:
    """One line of text: its height, size, colour, weight and style, and its address where it is a link."""

    text: str
    size: int
    fill: str = LIGHT_INK.text
    weight: int = 400
    style: str = "normal"
    link: str = ""

    @property
    def height(self) -> float:
        return self.size * 1.45


@dataclass(frozen=True)
class _Block:
    """A picture between lines of text."""

    above: tuple[_Line, ...]
    svg: str
    below: tuple[_Line, ...]

    @property
    def shown(self) -> tuple[float, float]:
        """The width and height of the picture on the sheet."""
        if not self.svg:
            return 0.0, 0.0
        width, height = size_of(self.svg)
        scale = min(1.0, (WIDE - 2 * MARGIN) / width, TALL / height)
        return width * scale, height * scale

    @property
    def height(self) -> float:
        return (
            sum(line.height for line in (*self.above, *self.below))
            + self.shown[1]
            + (16 if self.svg else 0)
        )


def report_pdf(title: str, line: str, entries: Sequence[Entry]) -> bytes:
    """The report as a PDF with `line` under its title; its links lead to the pages that reopen the views."""
    from pypdf import PdfReader, PdfWriter
    from pypdf.annotations import Link

    heading = _Block(
        (*_lines(title, 26, weight=600), *_lines(line, 11, fill=LIGHT_INK.quiet)), "", ()
    )
    sheets = [_sheet(blocks) for blocks in _paged([heading, *map(_block, entries)])]
    files = drawing_files({str(at): svg for at, (svg, _) in enumerate(sheets)}, "pdf")
    writer = PdfWriter()
    for at, (_, links) in enumerate(sheets):
        page = writer.add_page(PdfReader(io.BytesIO(files[f"{at}.pdf"])).pages[0])
        scale = float(page.mediabox.height) / HIGH
        for address, (x, y, width, height) in links:
            box = (x * scale, (HIGH - y - height) * scale, (x + width) * scale, (HIGH - y) * scale)
            writer.add_annotation(at, Link(rect=box, url=address, border=[0, 0, 0]))
    writer.add_metadata({"/Title": title, "/Creator": "Attention Lab"})
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def _block(entry: Entry) -> _Block:
    table = [] if entry.svg else _table(entry.head, entry.rows)
    return _Block(
        (*_lines(entry.title, 17, weight=600), *table),
        entry.svg,
        (
            *_lines(entry.sentence, 14),
            *_lines(entry.note, 13, style="italic"),
            *_lines(entry.source, 10, fill=LIGHT_INK.quiet),
            *(
                [_Line("Open this view live", 11, LIGHT_INK.pick, link=entry.link)]
                if entry.link
                else []
            ),
        ),
    )


def _lines(
    text: str, size: int, fill: str = LIGHT_INK.text, weight: int = 400, style: str = "normal"
) -> list[_Line]:
    """A text broken at the width of the sheet."""
    letters = int((WIDE - 2 * MARGIN) / (size * (0.5 if weight == 400 else 0.56)))
    return [
        _Line(part, size, fill, weight, style)
        for paragraph in text.splitlines()
        for part in textwrap.wrap(paragraph, letters)
    ]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[_Line]:
    """The first rows of a table, a line each."""
    shown = [" · ".join(cell[:MOST_CELL] for cell in row) for row in (head, *rows[:MOST_ROWS])]
    more = [f"… and {len(rows) - MOST_ROWS:,} more rows"] if len(rows) > MOST_ROWS else []
    return [
        line
        for at, text in enumerate([*shown, *more])
        for line in _lines(text, 11, weight=400 if at else 600)
    ]


def _paged(blocks: Iterable[_Block]) -> list[list[_Block]]:
    """The blocks of each sheet: as many as fit."""
    sheets: list[list[_Block]] = [[]]
    room = HIGH - 2 * MARGIN
    for block in blocks:
        if sheets[-1] and sum(one.height + APART for one in sheets[-1]) + block.height > room:
            sheets.append([])
        sheets[-1].append(block)
    return sheets


def _sheet(
    blocks: Sequence[_Block],
) -> tuple[str, list[tuple[str, tuple[float, float, float, float]]]]:
    """One sheet as SVG, and its links with their boxes (x, y, width, height)."""
    parts, links, y = [], [], float(MARGIN)
    for at, block in enumerate(blocks):
        for line in block.above:
            parts.append(_text(line, y))
            y += line.height
        if block.svg:
            width, height = block.shown
            own = size_of(block.svg)
            start = block.svg.index("<svg")
            end = block.svg.index(">", start)
            parts.append(
                f'<svg x="{MARGIN}" y="{y + 6:.1f}" width="{width:.1f}" height="{height:.1f}" '
                f'viewBox="0 0 {own[0]} {own[1]}" font-size="12">'
                + with_own_ids(block.svg[end + 1 :], f"v{at}-")
            )
            y += height + 16
        for line in block.below:
            parts.append(_text(line, y))
            if line.link:
                links.append(
                    (line.link, (float(MARGIN), y, line.size * 0.5 * len(line.text), line.height))
                )
            y += line.height
        y += APART
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="{WIDE}" '
        f'height="{HIGH}" viewBox="0 0 {WIDE} {HIGH}" font-family="{FONT}"><rect width="100%" height="100%" '
        f'fill="#FFFFFF"/>{"".join(parts)}</svg>'
    ), links


def _text(line: _Line, y: float) -> str:
    return (
        f'<text x="{MARGIN}" y="{y + line.size:.1f}" font-size="{line.size}" font-weight="{line.weight}" '
        f'font-style="{line.style}" fill="{line.fill}">{escape(line.text)}</text>'
    )
