"""Maps as SVG: title, tokens on both axes, the colour scale, and the picked row, as a paper would print them."""

from __future__ import annotations

import io
import math
import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import NamedTuple

import numpy as np

from dashboard.draw.formats import number
from dashboard.draw.palette import LIGHT_INK, SIGNED, WEIGHTS, colours_at, rgb_of

# What maps as SVG are labelled with: text, the colour scale with its numbers, and the hatch of masked cells.


LETTER, FONT = 6.4, 12  # px a letter is wide, and high
BAR, SWATCH = 96, 12  # px of a colour scale, and of the hatched square beside it
HATCH = 5 * math.sqrt(2)  # px from line to line along an axis, as the canvas draws it
HATCHED = "#C4C7CB"
WORD = "masked"


class Scale(NamedTuple):
    """What the colours of a map mean: the numbers at both ends, whether zero is in the middle, and what they are of."""

    low: float
    high: float
    signed: bool
    noun: str


def legend(scale: Scale, x: float, y: float, masks: bool) -> str:
    """The colour scale with the numbers of its ends, and of its middle where that is zero; then what is hatched."""
    stops = (
        colours_at((SIGNED if scale.signed else WEIGHTS)["light"], np.linspace(0, 1, 24))
        .round()
        .astype(int)
    )
    parts = [
        f'<rect x="{x + 4 * at:.1f}" y="{y:.1f}" width="4.5" height="8" fill="rgb({r},{g},{b})"/>'
        for at, (r, g, b) in enumerate(stops)
    ]
    ends = [(0, "start", scale.low), (BAR, "end", scale.high)]
    if scale.signed:
        ends.insert(1, (BAR // 2, "middle", (scale.low + scale.high) / 2))
    parts += [
        text(x + at, y + 21, number(value), anchor=anchor, fill=LIGHT_INK.quiet)
        for at, anchor, value in ends
    ]
    if scale.noun:
        parts.append(text(x + BAR + 8, y + 8, scale.noun, fill=LIGHT_INK.quiet))
    if masks:
        at = x + width_of_legend(scale, False) + 6
        parts += [
            hatching(hatch(at, y - 2, SWATCH)),
            text(at + SWATCH + 6, y + 8, WORD, fill=LIGHT_INK.quiet),
        ]
    return "".join(parts)


def width_of_legend(scale: Scale, masks: bool) -> float:
    """How wide a legend is, in pixels."""
    return (
        BAR
        + 8
        + (LETTER * len(scale.noun) + 4 if scale.noun else 0)
        + (SWATCH + 12 + LETTER * len(WORD) if masks else 0)
    )


def hatch(x: float, y: float, side: float) -> str:
    """Lines at 45° in a square, in one pattern with its neighbours'."""
    first, last = math.ceil((x + y) / HATCH), math.floor((x + y + 2 * side) / HATCH)
    return "".join(
        f"M{max(x, c - y - side):.1f} {min(y + side, c - x):.1f}L{min(x + side, c - y):.1f} "
        f"{max(y, c - x - side):.1f}"
        for c in (HATCH * at for at in range(first, last + 1))
    )


def hatching(lines: str) -> str:
    """The lines of `hatch`, drawn."""
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
    """An SVG document of this size in pixels; `more` are further attributes."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="{width}" '
        f'height="{height}" viewBox="0 0 {width} {height}" {more}>{inner}</svg>'
    )


def placed(svg: str, x: float, y: float) -> str:
    """An SVG at its place in another one."""
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
        """The cells (T, S) that are not masked."""
        shape = self.values.shape
        return np.broadcast_to(True if self.mask is None else self.mask, shape)

    @property
    def colours(self) -> np.ndarray:
        """RGB (T, S, 3) of each cell, a masked one white."""
        share = (np.nan_to_num(np.asarray(self.values, dtype=np.float64)) - self.low) / (
            (self.high - self.low) or 1.0
        )
        rgb = (
            colours_at((SIGNED if self.signed else WEIGHTS)["light"], share)
            .round()
            .astype(np.uint8)
        )
        rgb[~self.allowed] = 255
        return rgb

    @property
    def scale(self) -> Scale:
        """What its colours mean."""
        return Scale(self.low, self.high, self.signed, self.noun)


@dataclass(frozen=True)
class _Box:
    """The place of one map: the size of a cell and the room for the names of its rows and columns, none when small.

    `named` says whether its rows and its columns have names here, `axes` are the titles of both, and `room` is the
    width that it takes where the figure's is given.
    """

    item: PictureMap
    cell: float
    left: float
    top: float
    small: bool
    legend: bool
    named: tuple[bool, bool] = (True, True)
    axes: tuple[str, str] = ("", "")
    room: float = 0.0

    @classmethod
    def of(
        cls,
        item: PictureMap,
        small: bool,
        legend: bool,
        axes: tuple[str, str] = ("", ""),
        room: float = 0.0,
        named: tuple[bool, bool] = (True, True),
    ) -> _Box:
        """The box of a map; `room` is the width of its cells alone."""
        rows, columns = item.values.shape
        named = (named[0] and not small, named[1] and not small)
        axes = (axes[0] if named[0] else "", (item.across or axes[1]) if named[1] else "")
        left, top = (
            (_room(names) if shown else 0.0) + (AXIS if axis else 0)
            for names, shown, axis in zip((item.rows, item.columns), named, axes, strict=True)
        )
        if room:
            letters = int(room / LETTER)
            item = replace(item, name=_cut(item.name, letters), note=_cut(item.note, letters))
            cell = min(COLUMN_CELL, (room - 1) / max(columns, 1), (left + room) / max(rows, 1))
        else:
            cell = min(CELL, (SMALL_WIDTH if small else WIDTH) / max(rows, columns, 1))
        heading = (TITLE if item.name else 0) + (NOTE if item.note else 0)
        return cls(
            item,
            max(MIN_CELL, cell),
            left,
            top + heading,
            small,
            legend,
            named,
            axes,
            left + max(0.0, room) if room else 0.0,
        )

    def fits(self, name: str) -> bool:
        """Whether its room is enough for the map, its whole name and its legend."""
        least = self.left + max(MIN_SMALL if self.small else MIN_MAP, LETTER * len(name))
        return max(least, self.legend_width) <= self.room

    @property
    def masks(self) -> bool:
        """Whether its legend says what is hatched, for which a narrow map has no room."""
        return _masks([self.item]) and (
            not self.room or width_of_legend(self.item.scale, True) <= self.room
        )

    @property
    def legend_width(self) -> float:
        return width_of_legend(self.item.scale, self.masks) if self.legend else 0.0

    @property
    def width(self) -> float:
        if self.room:
            return self.room
        titles = LETTER * max(len(self.item.name) + 1, len(self.item.note))
        legend = self.left + self.legend_width if self.legend else 0
        return max(
            self.left + self.cell * self.item.values.shape[1] + 1, titles, legend, SMALL_WIDTH
        )

    @property
    def height(self) -> float:
        return self.top + self.cell * self.item.values.shape[0] + (LEGEND if self.legend else 1)


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
    gap, boxes = GAP, [_Box.of(item, small, not shared) for item in maps]
    if width:
        gap = COLUMN_GAP if small or shared else GAP
        axes = READS.fullmatch(reads)
        tried = (
            (each, _boxes(maps, small, shared, axes, each, width - gap * (each - 1)))
            for each in range(across, 0, -1)
            if each == 1 or not given or given % each == 0
        )
        across, boxes = next(
            (each, made)
            for each, made in tried
            if each == 1 or all(box.fits(item.name) for box, item in zip(made, maps, strict=True))
        )
    lines = [boxes[start : start + across] for start in range(0, len(boxes), across)]
    widths = [
        max(line[at].width for line in lines if at < len(line)) for at in range(len(lines[0]))
    ]
    as_image = sum(box.item.values.size for box in boxes) > MAX_RECTANGLES
    parts, y = [], 0.0
    if reads and not width:
        parts.append(text(0, FONT, reads, fill=LIGHT_INK.quiet))
        y = FONT + 12
    for number_, line in enumerate(lines):
        top = max(box.top for box in line)
        for at, box in enumerate(line):
            x, ring = sum(widths[:at]) + gap * at, number_ * across + at == picked
            drawn = _map(replace(box, top=top), row, as_image, ring)
            parts.append(f'<g transform="translate({x:.1f} {y:.1f})">{drawn}</g>')
        y += max(box.height - box.top for box in line) + top + gap
    if shared:
        parts.append(legend(maps[0].scale, boxes[0].left, y - gap + 10, _masks(maps)))
        y += LEGEND
    width = width or max(
        sum(widths) + GAP * (len(widths) - 1),
        LETTER * len(reads),
        width_of_legend(maps[0].scale, _masks(maps)) + boxes[0].left,
    )
    return svg_of(round(width), round(y - gap), "".join(parts))


def _boxes(
    maps: Sequence[PictureMap],
    small: bool,
    shared: bool,
    reads: re.Match[str] | None,
    across: int,
    width: float,
) -> list[_Box]:
    """The boxes in a width without gaps; maps of the same rows and columns name them in the first column and line."""
    once = shared and len({(item.rows, item.columns, item.across) for item in maps}) == 1
    axes = (reads[1], reads[2]) if reads else ("", "")
    left = _Box.of(maps[0], small, False, axes).left
    lefts = [
        max(_Box.of(item, small, False, axes).left for item in maps[at::across])
        for at in range(across)
    ]
    room = (width - (left if once else sum(lefts))) / across
    return [
        _Box.of(
            item,
            small,
            not shared,
            axes,
            room,
            (not once or at % across == 0, not once or at < across),
        )
        for at, item in enumerate(maps)
    ]


def _map(box: _Box, row: int | None, as_image: bool, ring: bool) -> str:
    item, cell = box.item, box.cell
    rows, columns = item.values.shape
    parts = [text(0, FONT, item.name, weight=600)] if item.name else []
    if item.note:
        parts.append(text(0, (TITLE if item.name else 0) + FONT, item.note, fill=LIGHT_INK.quiet))
    named = [
        _named(count if shown else 0, cell)
        for count, shown in zip((rows, columns), box.named, strict=True)
    ]
    parts += [
        text(
            box.left - 6,
            box.top + (i + 0.5) * cell + 4,
            _cut(item.rows[i]),
            anchor="end",
            fill=LIGHT_INK.pick if i == row else LIGHT_INK.text,
        )
        for i in named[0]
    ]
    parts += [
        text(
            0,
            4,
            _cut(item.columns[j]),
            at=f"translate({box.left + (j + 0.5) * cell:.1f} {box.top - 6:.1f}) rotate(-90)",
        )
        for j in named[1]
    ]
    for axis, at in zip(
        box.axes,
        (
            f"translate({FONT - 2} {box.top + rows * cell / 2:.1f}) rotate(-90)",
            f"translate({box.left + columns * cell / 2:.1f} "
            f"{box.top - _room(item.columns) - 4:.1f})",
        ),
        strict=True,
    ):
        parts += [text(0, 0, axis, anchor="middle", at=at)] if axis else []
    parts.append((_image if as_image else _small_cells if box.small else _cells)(item, box))
    if row is not None and row < rows:
        parts.append(_outline(box.left, box.top + row * cell, columns * cell, cell))
    if ring:
        parts.append(_outline(box.left, box.top, columns * cell, rows * cell))
    if box.legend:
        left = min(
            box.left, box.width - box.legend_width
        )  # of a narrow map, from under the names of its rows
        parts.append(legend(item.scale, left, box.top + rows * cell + 10, box.masks))
    return "".join(parts)


def _outline(x: float, y: float, width: float, height: float) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="none" '
        f'stroke="{LIGHT_INK.pick}" stroke-width="1.5"/>'
    )


def _cells(item: PictureMap, box: _Box) -> str:
    gap = 1 if box.cell >= 8 else 0
    colours, allowed = item.colours, item.allowed
    out, lines = [], []
    for i, j in np.ndindex(*item.values.shape):
        x, y, side = box.left + j * box.cell, box.top + i * box.cell, box.cell - gap
        place = f'x="{x:.1f}" y="{y:.1f}" width="{side:.1f}" height="{side:.1f}"'
        if allowed[i, j]:
            red, green, blue = colours[i, j]
            title = number(float(item.values[i, j]))
            out.append(
                f'<rect {place} fill="rgb({red},{green},{blue})"><title>{title}</title></rect>'
            )
        else:
            out.append(f'<rect {place} fill="{MASKED}"><title>masked</title></rect>')
            lines.append(hatch(x, y, side))
    return "".join(out) + hatching("".join(lines))


def _small_cells(item: PictureMap, box: _Box) -> str:
    """The cells of a map without names: one path a colour, a third of the bytes of a rectangle a cell."""
    paths: dict[tuple[int, ...], list[str]] = {}
    colours, allowed, side = item.colours, item.allowed, f"{box.cell:.2f}"
    lines = []
    for i, j in np.ndindex(*item.values.shape):
        x, y = box.left + j * box.cell, box.top + i * box.cell
        if allowed[i, j]:
            paths.setdefault(tuple(colours[i, j]), []).append(
                f"M{x:.1f} {y:.1f}h{side}v{side}h-{side}z"
            )
        else:
            lines.append(hatch(x, y, box.cell))
    drawn = (
        f'<path d="{"".join(squares)}" fill="rgb({red},{green},{blue})"/>'
        for (red, green, blue), squares in paths.items()
    )
    return "".join(drawn) + hatching("".join(lines))


def _image(item: PictureMap, box: _Box) -> str:
    """The cells as an image of whole pixels, since a renderer may smooth one that it enlarges."""
    from PIL import Image

    times = max(1, round(box.cell))
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
        f'<image x="{box.left:.1f}" y="{box.top:.1f}" width="{columns * box.cell:.1f}" '
        f'height="{rows * box.cell:.1f}" preserveAspectRatio="none" '
        f'href="data:image/png;base64,{b64encode(out.getvalue()).decode()}"/>'
    )


def _masks(maps: Sequence[PictureMap]) -> bool:
    """Whether a cell of them is masked."""
    return not all(item.allowed.all() for item in maps)


def _cut(name: str, most: int = MAX_LETTERS) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def _room(names: Sequence[str]) -> float:
    return 12 + LETTER * min(MAX_LETTERS, max((len(name) for name in names), default=0))


def _named(count: int, cell: float) -> range:
    """The rows or columns whose names fit: each of them, or every n-th one."""
    return range(0, count, max(1, math.ceil((FONT - 1) / cell)))
