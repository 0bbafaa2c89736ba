"""Maps as SVG: title, tokens on both axes, the colour scale, and the picked row, as a paper would print them."""

from __future__ import annotations

import io
import math
import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape

import numpy as np

from dashboard.draw.formats import cut, number
from dashboard.draw.palette import LIGHT_INK, SIGNED, WEIGHTS, colours_at, rgb_of

LETTER, FONT = 6.4, 12  # px a letter is wide, and high
BAR, SWATCH = 96, 12  # px of a colour scale, and of the hatched square beside it
HATCH = 5 * math.sqrt(2)  # px from line to line along an axis, as the canvas draws it
HATCHED = "#C4C7CB"
WORD = "masked"


def legend(item: PictureMap, x: float, y: float, masks: bool) -> str:
    """The colour scale with the numbers of its ends, and of its middle where that is zero; then what is hatched."""
    shades = colours_at((SIGNED if item.signed else WEIGHTS)["light"], np.linspace(0, 1, 24))
    parts = [
        f'<rect x="{x + 4 * at:.1f}" y="{y:.1f}" width="4.5" height="8" fill="rgb({r},{g},{b})"/>'
        for at, (r, g, b) in enumerate(shades.round().astype(int))
    ]
    ends = [(0, "start", item.low), (BAR, "end", item.high)]
    if item.signed:
        ends.insert(1, (BAR // 2, "middle", (item.low + item.high) / 2))
    words: list[tuple[float, int, str, str]]
    words = [(at, 21, number(value), anchor) for at, anchor, value in ends]
    if item.noun:
        words.append((BAR + 8, 8, item.noun, "start"))
    if masks:
        at = width_of_legend(item, False) + 6
        parts.append(hatching([(x + at, y - 2, SWATCH)]))
        words.append((at + SWATCH + 6, 8, WORD, "start"))
    return "".join(parts) + "".join(
        text(x + at, y + below, word, anchor=anchor, fill=LIGHT_INK.quiet)
        for at, below, word, anchor in words
    )


def width_of_legend(item: PictureMap, masks: bool) -> float:
    return (
        BAR
        + 8
        + (LETTER * len(item.noun) + 4 if item.noun else 0)
        + (SWATCH + 12 + LETTER * len(WORD) if masks else 0)
    )


def hatching(squares: Sequence[tuple[float, float, float]]) -> str:
    """Lines at 45° in squares (x, y, side), all in one pattern."""
    lines = "".join(
        f"M{max(x, c - y - side):.1f} {min(y + side, c - x):.1f}L{min(x + side, c - y):.1f} "
        f"{max(y, c - x - side):.1f}"
        for x, y, side in squares
        for c in (
            HATCH * at
            for at in range(math.ceil((x + y) / HATCH), math.floor((x + y + 2 * side) / HATCH) + 1)
        )
    )
    return f'<path d="{lines}" fill="none" stroke="{HATCHED}" stroke-width="1"/>' if lines else ""


def text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    fill: str = LIGHT_INK.text,
    weight: int = 400,
    at: str = "",
) -> str:
    """One line of text; `at` is a transform."""
    place = f' transform="{at}"' if at else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}" font-size="{FONT}" '
        f'font-weight="{weight}"{place}>{escape(text)}</text>'
    )


def svg_of(width: float, height: float, inner: str, more: str = "") -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="{width}" '
        f'height="{height}" viewBox="0 0 {width} {height}" {more}>{inner}</svg>'
    )


def placed(svg: str, x: float, y: float) -> str:
    return svg[svg.index("<svg") :].replace("<svg", f'<svg x="{x}" y="{y}"', 1)


MAX_RECTANGLES = 20_000  # of a picture; beyond, a map is an image of a pixel a cell
CELL, MIN_CELL = 20, 0.25  # px
MANY = 12  # more maps than this are drawn small, without names
WIDTH, SMALL_WIDTH = 640, 120  # px, the most of a map
GAP, TITLE, NOTE, LEGEND = 28, 18, 16, 36  # px
MAX_LETTERS = 24  # of a name beside a map
COLUMN_CELL, COLUMN_GAP = (
    36,
    8,
)  # px, the most of a cell where the width is given, and between small maps
MIN_MAP, MIN_SMALL = 80, 24  # px, of a map where the width is given
AXIS = 16  # px of the title of an axis
READS = re.compile(r"(.+?)(?: \(row\).*?)? (?:attends to →|→|·|…) (.+?)(?: \(column\))?")
MASKED = "#FFFFFF"


@dataclass(frozen=True, eq=False)
class PictureMap:
    """Cells (T, S) with the names of rows and columns; False in `mask` (T, S) is masked; the scale is [low, high].

    `noun` is what a cell holds, such as weight, and `across` what its columns are where the picture's words do not say.
    """

    name: str
    values: np.ndarray
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    note: str = ""
    mask: np.ndarray | None = None
    low: float = 0.0
    high: float = 1.0
    signed: bool = False
    noun: str = ""
    across: str = ""

    @property
    def allowed(self) -> np.ndarray:
        return np.broadcast_to(True if self.mask is None else self.mask, self.values.shape)

    @property
    def colours(self) -> np.ndarray:
        """RGB (T, S, 3) of each cell, a masked one white."""
        share = np.nan_to_num(np.asarray(self.values, dtype=np.float64)) - self.low
        stops = (SIGNED if self.signed else WEIGHTS)["light"]
        rgb = colours_at(stops, share / ((self.high - self.low) or 1.0)).round().astype(np.uint8)
        rgb[~self.allowed] = 255
        return rgb

    @property
    def scale(self) -> tuple[float, float, bool, str]:
        return self.low, self.high, self.signed, self.noun


class _Box:
    """The place of one map: the size of a cell and the room for the names of its rows and columns, none when small.

    `named` says whether its rows and its columns have names here, `axes` are the titles of both, and `room` is the
    width of its cells alone where the figure's is given; `fits` whether that is enough for the map, its whole name
    and its legend, which is `legend` wide, 0 for none.
    """

    def __init__(
        self,
        item: PictureMap,
        small: bool,
        legend: bool,
        axes: tuple[str, str] = ("", ""),
        room: float = 0.0,
        named: tuple[bool, bool] = (True, True),
    ) -> None:
        rows, columns = item.values.shape
        self.small, self.named = small, (named[0] and not small, named[1] and not small)
        self.axes = (
            axes[0] if self.named[0] else "",
            (item.across or axes[1]) if self.named[1] else "",
        )
        self.left, top = (
            (_room(names) if shown else 0.0) + (AXIS if axis else 0)
            for names, shown, axis in zip(
                (item.rows, item.columns), self.named, self.axes, strict=True
            )
        )
        # a narrow map has no room to say what is hatched
        self.masks = _masks([item]) and (
            not room or width_of_legend(item, True) <= self.left + room
        )
        self.legend = width_of_legend(item, self.masks) if legend else 0.0
        least = self.left + max(MIN_SMALL if small else MIN_MAP, LETTER * len(item.name))
        self.fits = max(least, self.legend) <= self.left + room
        cell = min(CELL, (SMALL_WIDTH if small else WIDTH) / max(rows, columns, 1))
        if room:
            letters = int(room / LETTER)
            item = replace(item, name=cut(item.name, letters), note=cut(item.note, letters))
            cell = min(COLUMN_CELL, (room - 1) / max(columns, 1), (self.left + room) / max(rows, 1))
        self.item, self.cell = item, max(MIN_CELL, cell)
        self.top = top + (TITLE if item.name else 0) + (NOTE if item.note else 0)
        titles = LETTER * max(len(item.name) + 1, len(item.note))
        key = self.left + self.legend if legend else 0
        drawn = self.left + self.cell * columns + 1
        self.width = self.left + max(0.0, room) if room else max(drawn, titles, key, SMALL_WIDTH)
        self.below = self.cell * rows + (LEGEND if legend else 1)


def maps_svg(
    maps: Sequence[PictureMap],
    row: int | None = None,
    reads: str = "",
    across: int = 0,
    picked: int | None = None,
    width: float = 0.0,
) -> str:
    """Maps in lines of so many, 0 for as square a grid as they fill; ValueError without a map.

    The query `row` is outlined in each map, and the map number `picked`, from 0. Maps of one scale have one legend.
    With a `width` in pixels the figure has just this one, fewer maps a line where they need it, and the words of
    `reads` as the titles of the axes.
    """
    if not maps:
        raise ValueError("a picture needs at least one map; got none")
    shared = len({item.scale for item in maps}) == 1
    small, given = len(maps) > MANY, across
    across = across or (len(maps) if len(maps) <= 3 else math.ceil(math.sqrt(len(maps))))
    gap, boxes = GAP, [_Box(item, small, not shared) for item in maps]
    if width:
        gap = COLUMN_GAP if small or shared else GAP
        match = READS.fullmatch(reads)
        axes = (match[1], match[2]) if match else ("", "")
        for each in range(across, 0, -1):
            if each == 1 or not given or given % each == 0:
                across, room = each, width - gap * (each - 1)
                boxes = _boxes(maps, small, shared, axes, each, room)
                if all(box.fits for box in boxes):
                    break
    lines = [boxes[start : start + across] for start in range(0, len(boxes), across)]
    widths = [
        max(line[at].width for line in lines if at < len(line)) for at in range(len(lines[0]))
    ]
    as_image = sum(item.values.size for item in maps) > MAX_RECTANGLES
    parts, y = [], 0.0
    if reads and not width:
        parts.append(text(0, FONT, reads, fill=LIGHT_INK.quiet))
        y = FONT + 12
    for number_, line in enumerate(lines):
        top = max(box.top for box in line)
        for at, box in enumerate(line):
            x, ring = sum(widths[:at]) + gap * at, number_ * across + at == picked
            drawn = _map(box, top, row, as_image, ring)
            parts.append(f'<g transform="translate({x:.1f} {y:.1f})">{drawn}</g>')
        y += max(box.below for box in line) + top + gap
    if shared:
        parts.append(legend(maps[0], boxes[0].left, y - gap + 10, _masks(maps)))
        y += LEGEND
    width = width or max(
        sum(widths) + GAP * (len(widths) - 1),
        LETTER * len(reads),
        width_of_legend(maps[0], _masks(maps)) + boxes[0].left,
    )
    return svg_of(round(width), round(y - gap), "".join(parts))


def _boxes(
    maps: Sequence[PictureMap],
    small: bool,
    shared: bool,
    axes: tuple[str, str],
    across: int,
    width: float,
) -> list[_Box]:
    """The boxes in a width without gaps; maps of the same rows and columns name them in the first column and line."""
    once = shared and len({(item.rows, item.columns, item.across) for item in maps}) == 1
    lefts = [_Box(item, small, False, axes).left for item in maps]
    names = lefts[0] if once else sum(max(lefts[at::across]) for at in range(across))
    return [
        _Box(
            item,
            small,
            not shared,
            axes,
            (width - names) / across,
            (not once or at % across == 0, not once or at < across),
        )
        for at, item in enumerate(maps)
    ]


def _map(box: _Box, top: float, row: int | None, as_image: bool, ring: bool) -> str:
    item, cell, left = box.item, box.cell, box.left
    rows, columns = item.values.shape
    parts = [text(0, FONT, item.name, weight=600)] if item.name else []
    if item.note:
        parts.append(text(0, (TITLE if item.name else 0) + FONT, item.note, fill=LIGHT_INK.quiet))
    # names of all rows and columns, or as many as fit
    every = max(1, math.ceil((FONT - 1) / cell))
    parts += [
        text(
            left - 6,
            top + (i + 0.5) * cell + 4,
            cut(item.rows[i], MAX_LETTERS),
            anchor="end",
            fill=LIGHT_INK.pick if i == row else LIGHT_INK.text,
        )
        for i in range(0, rows if box.named[0] else 0, every)
    ]
    parts += [
        text(
            0,
            4,
            cut(item.columns[j], MAX_LETTERS),
            at=f"translate({left + (j + 0.5) * cell:.1f} {top - 6:.1f}) rotate(-90)",
        )
        for j in range(0, columns if box.named[1] else 0, every)
    ]
    places = (
        f"translate({FONT - 2} {top + rows * cell / 2:.1f}) rotate(-90)",
        f"translate({left + columns * cell / 2:.1f} {top - _room(item.columns) - 4:.1f})",
    )
    parts += [
        text(0, 0, axis, anchor="middle", at=at)
        for axis, at in zip(box.axes, places, strict=True)
        if axis
    ]
    parts.append((_image if as_image else _cells)(box, top))
    outlined = [(top + row * cell, cell)] if row is not None and row < rows else []
    parts += [
        f'<rect x="{left:.1f}" y="{y:.1f}" width="{columns * cell:.1f}" height="{height:.1f}" fill="none" '
        f'stroke="{LIGHT_INK.pick}" stroke-width="1.5"/>'
        for y, height in outlined + ([(top, rows * cell)] if ring else [])
    ]
    if box.legend:  # of a narrow map, from under the names of its rows
        at = min(left, box.width - box.legend)
        parts.append(legend(item, at, top + rows * cell + 10, box.masks))
    return "".join(parts)


def _cells(box: _Box, top: float) -> str:
    """A rectangle a cell with its number; in a map without names one path a colour, a third of the bytes."""
    item, side = box.item, box.cell if box.small or box.cell < 8 else box.cell - 1
    colours, allowed = item.colours, item.allowed
    drawn: list[str] = []
    hatched: list[tuple[float, float, float]] = []
    paths: dict[str, list[str]] = {}
    for i, j in np.ndindex(*item.values.shape):
        x, y = box.left + j * box.cell, top + i * box.cell
        fill = "rgb({},{},{})".format(*colours[i, j]) if allowed[i, j] else MASKED
        if not allowed[i, j]:
            hatched.append((x, y, side))
        if not box.small:
            title = number(float(item.values[i, j])) if allowed[i, j] else "masked"
            drawn.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{side:.1f}" height="{side:.1f}" fill="{fill}">'
                f"<title>{title}</title></rect>"
            )
        elif allowed[i, j]:
            square = f"M{x:.1f} {y:.1f}h{side:.2f}v{side:.2f}h-{side:.2f}z"
            paths.setdefault(fill, []).append(square)
    drawn += [f'<path d="{"".join(part)}" fill="{fill}"/>' for fill, part in paths.items()]
    return "".join(drawn) + hatching(hatched)


def _image(box: _Box, top: float) -> str:
    """The cells as an image of whole pixels, since a renderer may smooth one that it enlarges."""
    from PIL import Image

    item, times = box.item, max(1, round(box.cell))
    pixels, masked = (
        part.repeat(times, 0).repeat(times, 1) for part in (item.colours, ~item.allowed)
    )
    pixels[masked & (np.add.outer(*map(np.arange, masked.shape)) % round(HATCH) == 0)] = rgb_of(
        HATCHED
    )
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG", optimize=True)
    rows, columns = item.values.shape
    return (
        f'<image x="{box.left:.1f}" y="{top:.1f}" width="{columns * box.cell:.1f}" '
        f'height="{rows * box.cell:.1f}" preserveAspectRatio="none" '
        f'href="data:image/png;base64,{b64encode(out.getvalue()).decode()}"/>'
    )


def _masks(maps: Sequence[PictureMap]) -> bool:
    return not all(item.allowed.all() for item in maps)


def _room(names: Sequence[str]) -> float:
    return 12 + LETTER * min(MAX_LETTERS, max((len(name) for name in names), default=0))
