"""Maps as SVG: title, tokens on both axes, the colour scale, and the picked row, as a paper would print them."""

from __future__ import annotations

import io
import math
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from dashboard.charts.numbers import number
from dashboard.charts.palette import LIGHT_INK, SIGNED, WEIGHTS, colours_at

MOST_RECTANGLES = 20_000  # of a picture; beyond, a map is an image of a pixel a cell
CELL, LEAST_CELL = 20, 0.25  # px
MANY = 12  # more maps than this are drawn small, without names
WIDTH, SMALL_WIDTH = 640, 120  # px, the most of a map
GAP, TITLE, NOTE, LEGEND = 28, 18, 16, 34  # px
LETTER, FONT = 6.4, 12  # px a letter is wide, and high
MASKED = "#FFFFFF"


@dataclass(frozen=True, eq=False)
class PictureMap:
    """Cells (T, S) with the names of rows and columns; False in `mask` (T, S) is masked; the scale is [low, high]."""

    name: str
    values: np.ndarray
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    note: str = ""
    mask: np.ndarray | None = None
    low: float = 0.0
    high: float = 1.0
    signed: bool = False

    @property
    def allowed(self) -> np.ndarray:
        """The cells (T, S) that are not masked."""
        shape = self.values.shape
        return np.broadcast_to(True if self.mask is None else self.mask, shape)

    @property
    def colours(self) -> np.ndarray:
        """RGB (T, S, 3) of each cell, a masked one white."""
        share = (np.nan_to_num(np.asarray(self.values, dtype=np.float64)) - self.low) / ((self.high - self.low) or 1.0)
        rgb = colours_at((SIGNED if self.signed else WEIGHTS)["light"], share).round().astype(np.uint8)
        rgb[~self.allowed] = 255
        return rgb


@dataclass(frozen=True)
class _Box:
    """The place of one map: the size of a cell and the room for the names of its rows and columns, none when small."""

    item: PictureMap
    cell: float
    left: float
    top: float
    small: bool

    @classmethod
    def of(cls, item: PictureMap, small: bool) -> _Box:
        rows, columns = item.values.shape
        cell = min(CELL, max(LEAST_CELL, (SMALL_WIDTH if small else WIDTH) / max(rows, columns, 1)))
        left, top = (0.0 if small else _room(names) for names in (item.rows, item.columns))
        return cls(item, cell, left, top + TITLE + (NOTE if item.note else 0), small)

    @property
    def width(self) -> float:
        titles = LETTER * max(len(self.item.name) + 1, len(self.item.note))
        return max(self.left + self.cell * self.item.values.shape[1], titles, SMALL_WIDTH)

    @property
    def height(self) -> float:
        return self.top + self.cell * self.item.values.shape[0] + (0 if self.small else LEGEND)


def maps_svg(maps: Sequence[PictureMap], row: int | None = None, reads: str = "", across: int = 0) -> str:
    """Maps in lines of so many, 0 for as square a grid as they fill; `row` is outlined; ValueError without a map."""
    if not maps:
        raise ValueError("a picture needs at least one map; got none")
    boxes = [_Box.of(item, len(maps) > MANY) for item in maps]
    across = across or (len(boxes) if len(boxes) <= 3 else math.ceil(math.sqrt(len(boxes))))
    lines = [boxes[start : start + across] for start in range(0, len(boxes), across)]
    as_image = sum(box.item.values.size for box in boxes) > MOST_RECTANGLES
    parts, y, width = [], 0.0, 0.0
    if reads:
        parts.append(_text(0, FONT, reads, fill=LIGHT_INK.quiet))
        y, width = FONT + 12, LETTER * len(reads)
    for line in lines:
        x = 0.0
        for box in line:
            parts.append(f'<g transform="translate({x:.1f} {y:.1f})">{_map(box, row, as_image)}</g>')
            x += box.width + GAP
        width = max(width, x - GAP)
        y += max(box.height for box in line) + GAP
    if boxes[0].small:
        parts.append(_legend(maps[0], 0, y))
        y += LEGEND + GAP
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{y - GAP:.0f}" '
            f'viewBox="0 0 {width:.0f} {y - GAP:.0f}">{"".join(parts)}</svg>')


def _map(box: _Box, row: int | None, as_image: bool) -> str:
    item, cell = box.item, box.cell
    rows, columns = item.values.shape
    parts = [_text(0, FONT, item.name, weight=600)]
    if item.note:
        parts.append(_text(0, TITLE + FONT, item.note, fill=LIGHT_INK.quiet))
    named = (0, 0) if box.small else (rows, columns)
    parts += [_text(box.left - 6, box.top + (i + 0.5) * cell + 4, item.rows[i], anchor="end",
                    fill=LIGHT_INK.pick if i == row else LIGHT_INK.text) for i in _named(named[0], cell)]
    parts += [_text(0, 4, item.columns[j], at=f"translate({box.left + (j + 0.5) * cell:.1f} {box.top - 6:.1f}) "
                                              "rotate(-90)") for j in _named(named[1], cell)]
    parts.append(_image(item, box) if as_image else _cells(item, box))
    if row is not None and row < rows:
        parts.append(f'<rect x="{box.left:.1f}" y="{box.top + row * cell:.1f}" width="{columns * cell:.1f}" '
                     f'height="{cell:.1f}" fill="none" stroke="{LIGHT_INK.pick}" stroke-width="1.5"/>')
    if not box.small:
        parts.append(_legend(item, box.left, box.top + rows * cell + 10))
    return "".join(parts)


def _cells(item: PictureMap, box: _Box) -> str:
    gap = 1 if box.cell >= 8 else 0
    colours, allowed = item.colours, item.allowed
    out = []
    for i, j in np.ndindex(*item.values.shape):
        place = f'x="{box.left + j * box.cell:.1f}" y="{box.top + i * box.cell:.1f}"'
        size = f'width="{box.cell - gap:.1f}" height="{box.cell - gap:.1f}"'
        if allowed[i, j]:
            red, green, blue = colours[i, j]
            title = number(float(item.values[i, j]))
            out.append(f'<rect {place} {size} fill="rgb({red},{green},{blue})"><title>{title}</title></rect>')
        else:
            out.append(f'<rect {place} {size} fill="{MASKED}" stroke="{LIGHT_INK.hairline}" stroke-width="0.5">'
                       "<title>masked</title></rect>")
    return "".join(out)


def _image(item: PictureMap, box: _Box) -> str:
    """The cells as an image of whole pixels, since a renderer may smooth one that it enlarges."""
    from PIL import Image

    times = max(1, round(box.cell))
    pixels = item.colours.repeat(times, 0).repeat(times, 1)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG", optimize=True)
    rows, columns = item.values.shape
    return (f'<image x="{box.left:.1f}" y="{box.top:.1f}" width="{columns * box.cell:.1f}" '
            f'height="{rows * box.cell:.1f}" preserveAspectRatio="none" '
            f'href="data:image/png;base64,{b64encode(out.getvalue()).decode()}"/>')


def _legend(item: PictureMap, x: float, y: float) -> str:
    """The colour scale with the numbers of its ends, and of its middle where that is zero."""
    stops = colours_at((SIGNED if item.signed else WEIGHTS)["light"], np.linspace(0, 1, 24)).round().astype(int)
    bar = "".join(f'<rect x="{x + 4 * at:.1f}" y="{y:.1f}" width="4.5" height="8" fill="rgb({r},{g},{b})"/>'
                  for at, (r, g, b) in enumerate(stops))
    ends = [(0, "start", item.low), (96, "end", item.high)]
    if item.signed:
        ends.insert(1, (48, "middle", (item.low + item.high) / 2))
    return bar + "".join(_text(x + at, y + 20, number(value), anchor=anchor, size=10, fill=LIGHT_INK.quiet)
                         for at, anchor, value in ends)


def _room(names: Sequence[str]) -> float:
    return 12 + LETTER * max((len(name) for name in names), default=0)


def _named(count: int, cell: float) -> range:
    """The rows or columns whose names fit: each of them, or every n-th one."""
    return range(0, count, max(1, math.ceil((FONT - 1) / cell)))


def _text(x: float, y: float, text: str, *, anchor: str = "start", fill: str = LIGHT_INK.text, weight: int = 400,
          size: int = FONT, at: str = "") -> str:
    place = f' transform="{at}"' if at else ""
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}" font-size="{size}" '
            f'font-weight="{weight}"{place}>{escape(text)}</text>')
