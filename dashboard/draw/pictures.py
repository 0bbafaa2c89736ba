"""What a page shows, with its numbers: maps, charts, drawings and tables, each for a file of any format."""

from __future__ import annotations

import io
import json
import math
import re
import subprocess
import sys
from base64 import b64decode, b64encode
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias
from xml.etree import ElementTree

import numpy as np
from PIL import Image

from dashboard.draw.figures import (
    LIGHT_INK,
    SIGNED,
    WEIGHTS,
    Spec,
    colours_at,
    light_colours,
    rgb_of,
    with_names,
)
from dashboard.draw.formats import Written, cut, number

if TYPE_CHECKING:
    from core.interpret.trace import AttentionTrace

# The text of an SVG as paths, so that it looks the same where its font is missing, as in the editor of a journal.


SVG = "http://www.w3.org/2000/svg"
INHERITED = (
    "font-family",
    "font-size",
    "font-weight",
    "font-style",
    "text-anchor",
    "letter-spacing",
)
PLACE = ("x", "y", "dx", "dy", "dominant-baseline", "lengthAdjust", "textLength", "style")
# of what a clip path of a PDF is drawn with, in a path's `d`
NAMES = {b"m": "M", b"l": "L", b"c": "C", b"h": "Z"}
STEP = re.compile(rb"((?:-?[\d.]{1,20}\s+){0,6})([mlch])\s")
CLIPS = re.compile(rb"\bW\*?\s+n")  # what ends a clip path of a PDF
SVG_TEXT = f"{{{SVG}}}text"


def outlined(svg: str, to_pdf: Callable[[str], bytes]) -> str:
    """An SVG in which every text is a path, drawn by `to_pdf`, which writes text that clips as its outlines."""
    from pypdf import PdfReader

    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    root = ElementTree.fromstring(svg)
    fonts: dict[ElementTree.Element, dict[str, str]] = {root: _some(root, INHERITED)}
    texts: list[tuple[ElementTree.Element, str]] = []
    for node in root.iter():
        fonts |= {child: fonts[node] | _some(child, INHERITED) for child in node}
        if node.tag == SVG_TEXT:  # the SVG of it alone, as it is placed before its transform
            alone = ElementTree.Element(SVG_TEXT, fonts[node] | _some(node, PLACE))
            alone.text = node.text
            alone.extend(list(node))
            clip = ElementTree.tostring(alone, encoding="unicode")
            texts.append((node, clip if "".join(alone.itertext()).strip() else ""))
    inked = list(dict.fromkeys(clip for _, clip in texts if clip))
    parts = "".join(
        f'<clipPath id="c{at}">{clip}</clipPath><rect x="-9999" y="-9999" width="19998" height="19998" '
        f'clip-path="url(#c{at})"/>'
        for at, clip in enumerate(inked)
    )
    pdf = to_pdf(f'<svg xmlns="{SVG}" width="100" height="100">{parts}</svg>')
    drawn = PdfReader(io.BytesIO(pdf)).pages[0].get_contents()
    assert drawn is not None
    outlines = [
        _path(part.rpartition(b" cm\n")[2]) for part in re.split(CLIPS, drawn.get_data())[:-1]
    ]
    paths = {"": ""} | dict(zip(inked, outlines, strict=True))
    for node, clip in texts:
        del node[:]
        node.tag, node.text = f"{{{SVG}}}path", None
        for name in (*INHERITED, *PLACE):
            node.attrib.pop(name, None)
        node.set("d", paths[clip])
    return ElementTree.tostring(root, encoding="unicode")


def _some(node: ElementTree.Element, names: Sequence[str]) -> dict[str, str]:
    return {name: node.attrib[name] for name in names if name in node.attrib}


def _path(steps: bytes) -> str:
    """The steps of a PDF's path as those of an SVG's, but for the empty one that a clip path begins with."""
    parts = [
        (NAMES[name], " ".join(f"{float(one):.6g}" for one in numbers.split()))
        for numbers, name in STEP.findall(steps)
    ]
    return "".join(
        name + numbers
        for at, (name, numbers) in enumerate(parts)
        if name != "M" or parts[at + 1 :] and parts[at + 1][0] != "M"
    )


# Vega-Lite figures and SVG drawings as SVG, PDF and PNG, for a paper or a slide.


WIDTH = 640  # pixels of a figure with the names at the ends of its curves
ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60.0


def render(jobs: Mapping[str, Mapping[str, Any]]) -> dict[str, bytes]:
    """The file of each job by its name, made in a process of its own.

    A job has a `spec` or an `svg`, the `format` (svg, pdf, png) and, where it has one, the `scale` of a PNG. With
    `millimetres` it is as wide as this: an SVG with its text as outlines, or a PDF; else a PDF has the size of its SVG,
    96 pixels an inch. CalledProcessError for what is neither a spec nor an SVG.
    """
    if not jobs:
        return {}
    done = subprocess.run(
        [sys.executable, "-m", "dashboard.draw.pictures"],
        input=json.dumps(jobs).encode(),
        capture_output=True,
        check=True,
        cwd=ROOT,
        timeout=SECONDS,
    )
    return {name: b64decode(text) for name, text in json.loads(done.stdout).items()}


def drawing_file(svg: str, file_format: str, scale: float = 1.0) -> bytes:
    return render({"": {"svg": svg, "format": file_format, "scale": scale}})[""]


def with_own_ids(svg: str, start: str) -> str:
    """An SVG whose ids begin with `start`, so that it can stand beside another one."""
    return re.sub(r"""(\bid="|url\(#|href="#)""", rf"\g<1>{start}", svg)


def convert(jobs: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The file of each job of `render` as base64, converted in this process."""
    import vl_convert

    files: dict[str, str] = {}
    for name, job in jobs.items():
        spec, kind, millimetres = job.get("spec", {}), job["format"], job.get("millimetres")
        svg = job.get("svg") or vl_convert.vegalite_to_svg({
            **spec,
            "width": WIDTH if spec.get("width", "container") == "container" else spec["width"],
            "config": {**spec.get("config", {}), "background": "white"},
        })  # fmt: skip
        if millimetres and kind == "svg":
            svg = outlined(as_wide_as(svg, millimetres, "mm"), vl_convert.svg_to_pdf)
        elif kind == "pdf":  # which makes a point of a pixel, of which 96 are an inch
            inches = millimetres / 25.4 if millimetres else size_of(svg)[0] / 96
            svg = as_wide_as(svg, inches * 72, "")
        make: dict[str, Callable[[], bytes]] = {
            "svg": svg.encode,
            "pdf": partial(vl_convert.svg_to_pdf, svg),
            "png": partial(vl_convert.svg_to_png, svg, scale=job.get("scale", 1.0)),
        }
        files[name] = b64encode(make[kind]()).decode()
    return files


def as_wide_as(svg: str, most: float, unit: str) -> str:
    """An SVG of another width, and of the height that follows; its own pixels become its units."""
    width, height = size_of(svg)
    head, end, rest = svg[svg.index("<svg") :].partition(">")
    return (
        re.sub(r'\s(?:width|height|viewBox)="[^"]*"', "", head)
        + f' width="{most:g}{unit}" height="{height / width * most:.3f}{unit}" '
        f'viewBox="0 0 {width:g} {height:g}"{end}{rest}'
    )


def size_of(svg: str) -> tuple[float, float]:
    sizes = dict(
        re.findall(r'\s(width|height)="([\d.]+)', svg[svg.index("<svg") :].partition(">")[0])
    )
    return float(sizes["width"]), float(sizes["height"])


# Maps as SVG: title, tokens on both axes, the colour scale, and the picked row, as a paper would print them.


LETTER, FONT = 6.4, 12  # px a letter is wide, and high
SCALE, SWATCH = 96, 12  # px of a colour scale, and of the hatched square beside it
HATCH = 5 * math.sqrt(2)  # px from line to line along an axis, as the canvas draws it
HATCHED = "#C4C7CB"
WORD = "masked"


def scale_legend(item: PictureMap, x: float, y: float, masks: bool) -> str:
    """The colour scale with the numbers of its ends, and of its middle where that is zero; then what is hatched."""
    shades = colours_at((SIGNED if item.signed else WEIGHTS)["light"], np.linspace(0, 1, 24))
    parts = [
        f'<rect x="{x + 4 * at:.1f}" y="{y:.1f}" width="4.5" height="8" fill="rgb({r},{g},{b})"/>'
        for at, (r, g, b) in enumerate(shades.round().astype(int))
    ]
    right = width_of_legend(item, False) + 6
    words = (
        (0, 21, number(item.low), "start"),
        (SCALE // 2, 21, "0" if item.signed and item.low == -item.high else "", "middle"),
        (SCALE, 21, number(item.high), "end"),
        (SCALE + 8, 8, item.noun, "start"),
        (right + SWATCH + 6, 8, WORD if masks else "", "start"),
    )
    return "".join(
        [
            *parts,
            hatching([(x + right, y - 2, SWATCH)] if masks else []),
            *(
                text(x + at, y + below, word, anchor=anchor, fill=LIGHT_INK.quiet)
                for at, below, word, anchor in words
            ),
        ]
    )


def width_of_legend(item: PictureMap, masks: bool) -> float:
    return (
        SCALE
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
    """One line of text, nothing for none; `at` is a transform."""
    place = f' transform="{at}"' if at else ""
    return text and (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}" font-size="{FONT}" '
        f'font-weight="{weight}"{place}>{escape(text)}</text>'
    )


def svg_source(svg: str) -> str:
    """An SVG as the source of an HTML image: st.html takes an SVG out, but leaves an image of one."""
    return f"data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}"


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
SMALL_WIDTH = 120  # px, the most of a map; of one that is not small WIDTH
GAP, TITLE, NOTE, LEGEND = 28, 18, 16, 36  # px
MAX_LETTERS = 24  # of a name beside a map
# px, the most of a cell where the width is given, and between small maps
COLUMN_CELL, COLUMN_GAP = 36, 8
MIN_MAP, MIN_SMALL = 80, 24  # px, of a map where the width is given
AXIS = 16  # px of the title of an axis
_TO = r" (?:takes from →|attends to →|→|·|…) "  # of a report of before, too
READ = re.compile(rf"(?>(.+?)(?= \(row\)|{_TO}))(?>(?: \(row\).*?)?{_TO})(.+?)(?: \(column\))?")
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
        least = max(MIN_SMALL if small else MIN_MAP, LETTER * len(item.name))
        self.fits = max(self.left + least, self.legend) <= self.left + room
        cell = min(CELL, (SMALL_WIDTH if small else WIDTH) / max(rows, columns, 1))
        if room:
            letters = int(room / LETTER)
            item = replace(item, name=cut(item.name, letters), note=cut(item.note, letters))
            cell = min(COLUMN_CELL, (room - 1) / max(columns, 1), (self.left + room) / max(rows, 1))
        self.item, self.cell = item, max(MIN_CELL, cell)
        self.top = top + (TITLE if item.name else 0) + (NOTE if item.note else 0)
        drawn = self.left + max(self.cell * columns + 1, self.legend)
        titles = LETTER * max(len(item.name) + 1, len(item.note))
        self.width = self.left + max(0.0, room) if room else max(drawn, titles, SMALL_WIDTH)


class _Layout(NamedTuple):
    """Lines of maps, the gap between them, whether one legend is of all, and the height; infinite where none fits."""

    lines: list[list[_Box]]
    gap: float
    shared: bool
    height: float


def maps_layout(
    maps: Sequence[PictureMap],
    reads: str = "",
    across: int = 0,
    width: float = 0.0,
    tall: float = math.inf,
) -> _Layout:
    """Where `maps_svg` draws each map; with `tall` their cells are made lower until the figure is no taller.

    Its height is infinite where a map would then be too small to be read.
    """
    shared = len({item.scale for item in maps}) == 1
    small, given = len(maps) > MANY, across
    across = across or (len(maps) if len(maps) <= 3 else math.ceil(math.sqrt(len(maps))))
    gap, boxes = GAP, [_Box(item, small, not shared) for item in maps]
    if width:
        gap = COLUMN_GAP if small or shared else GAP
        match = READ.fullmatch(reads)
        axes = (match[1], match[2]) if match else ("", "")
        for each in [n for n in range(across, 0, -1) if n == 1 or not given or given % n == 0]:
            across = each
            boxes = _boxes(maps, small, shared, axes, each, width - gap * (each - 1))
            if all(box.fits for box in boxes):
                break
    lines = [boxes[start : start + across] for start in range(0, len(boxes), across)]
    around = float(len(lines) * gap - gap + LEGEND * shared)
    around += sum(max(box.top for box in line) + max(map(_under, line)) for line in lines)
    cells = [max(box.cell * len(box.item.rows) for box in line) for line in lines]
    share = min(1.0, (tall - around) / sum(cells))
    for box in boxes:
        box.cell *= share
    least = MIN_SMALL if small else MIN_MAP
    fits = share == 1 or all(box.cell * max(box.item.values.shape) >= least for box in boxes)
    return _Layout(lines, gap, shared, around + share * sum(cells) if fits else math.inf)


def _under(box: _Box) -> float:
    return LEGEND if box.legend else 1


def maps_svg(
    maps: Sequence[PictureMap],
    row: int | None = None,
    reads: str = "",
    across: int = 0,
    picked: int | None = None,
    width: float = 0.0,
    tall: float = math.inf,
) -> str:
    """Maps in lines of so many, 0 for as square a grid as they fill; ValueError without a map.

    The query `row` is outlined in each map, and the map number `picked`, from 0. Maps of one scale have one legend.
    With a `width` in pixels the figure has just this one, fewer maps a line where they need it, and the words of
    `reads` as the titles of the axes; with `tall` it is at most so high.
    """
    if not maps:
        raise ValueError("a picture needs at least one map; got none")
    lines, gap, shared, _ = maps_layout(maps, reads, across, width, tall)
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
            x = sum(widths[:at]) + gap * at
            drawn = _map(box, top, row, as_image, number_ * len(lines[0]) + at == picked)
            parts.append(f'<g transform="translate({x:.1f} {y:.1f})">{drawn}</g>')
        y += max(box.cell * len(box.item.rows) + _under(box) for box in line) + top + gap
    first = lines[0][0]
    if shared:
        parts.append(scale_legend(maps[0], first.left, y - gap + 10, _masks(maps)))
        y += LEGEND
    width = width or max(
        sum(widths) + GAP * (len(widths) - 1),
        LETTER * len(reads),
        width_of_legend(maps[0], _masks(maps)) + first.left,
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
    every = max(1, math.ceil((FONT - 1) / cell))  # names all rows and columns, or as many as fit
    places = (
        f"translate({FONT - 2} {top + rows * cell / 2:.1f}) rotate(-90)",
        f"translate({left + columns * cell / 2:.1f} {top - _room(item.columns) - 4:.1f})",
    )
    outlines = [(top + row * cell, cell)] if row is not None and row < rows else []
    parts = [
        text(0, FONT, item.name, weight=600),
        text(0, (TITLE if item.name else 0) + FONT, item.note, fill=LIGHT_INK.quiet),
        *(
            text(
                left - 6,
                top + (i + 0.5) * cell + 4,
                cut(item.rows[i], MAX_LETTERS),
                anchor="end",
                fill=LIGHT_INK.pick if i == row else LIGHT_INK.text,
            )
            for i in range(0, rows if box.named[0] else 0, every)
        ),
        *(
            text(
                0,
                4,
                cut(item.columns[j], MAX_LETTERS),
                at=f"translate({left + (j + 0.5) * cell:.1f} {top - 6:.1f}) rotate(-90)",
            )
            for j in range(0, columns if box.named[1] else 0, every)
        ),
        *(
            text(0, 0, axis, anchor="middle", at=at)
            for axis, at in zip(box.axes, places, strict=True)
        ),
        (_image if as_image else _cells)(box, top),
        *(
            f'<rect x="{left:.1f}" y="{y:.1f}" width="{columns * cell:.1f}" height="{height:.1f}" fill="none" '
            f'stroke="{LIGHT_INK.pick}" stroke-width="1.5"/>'
            for y, height in outlines + ([(top, rows * cell)] if ring else [])
        ),
    ]
    if box.legend:  # of a narrow map, from under the names of its rows
        at = min(left, box.width - box.legend)
        parts.append(scale_legend(item, at, top + rows * cell + 10, box.masks))
    return "".join(parts)


def _cells(box: _Box, top: float) -> str:
    """A rectangle a cell with its number; in a map without names one path a colour, a third of the bytes."""
    side = box.cell if box.small or box.cell < 8 else box.cell - 1
    drawn, hatched, paths = "", list[tuple[float, float, float]](), defaultdict[str, str](str)
    colours, allowed = box.item.colours, box.item.allowed
    for (i, j), value in np.ndenumerate(box.item.values):
        x, y = box.left + j * box.cell, top + i * box.cell
        fill, title = "rgb({},{},{})".format(*colours[i, j]), number(float(value))
        if not allowed[i, j]:
            hatched.append((x, y, side))
            fill, title = MASKED, "masked"
        if not box.small:
            drawn += (
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{side:.1f}" height="{side:.1f}" fill="{fill}">'
                f"<title>{title}</title></rect>"
            )
        elif allowed[i, j]:
            paths[fill] += f"M{x:.1f} {y:.1f}h{side:.2f}v{side:.2f}h-{side:.2f}z"
    drawn += "".join(f'<path d="{part}" fill="{fill}"/>' for fill, part in paths.items())
    return drawn + hatching(hatched)


def _image(box: _Box, top: float) -> str:
    """The cells as an image of whole pixels, since a renderer may smooth one that it enlarges."""
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


# Pictures and their numbers.


Rows: TypeAlias = list[list[Any]]
Arrays: TypeAlias = dict[str, np.ndarray]
FILTER = re.compile(r"datum\.(\w+) === '?([^']*)'?")  # which rows of a table a layer draws


NUMBER = re.compile(r"[<+−-]?\.?\d")  # how a text begins that writes a number out
EMPTY = (None, "", "–")  # a cell without a number


WITHOUT = re.compile(  # where what a picture is of ends in its title
    r" (?:over|after|against|by|as) |, (?:by|largest|a line|one line|layers) | of (?=\d|[A-Z])"
)
Point: TypeAlias = tuple[float, tuple[float, float] | None]  # a value, and the ends of its band


@dataclass(frozen=True, eq=False)
class Picture:
    """A picture of the page and its numbers; `about` has its model, head and text, where it has them."""

    drawn: ClassVar[bool] = True
    title: str
    about: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    def table(self) -> tuple[list[str], Rows]:
        raise NotImplementedError

    def arrays(self) -> Arrays:
        head, rows = self.table()
        return {
            name or f"column {at + 1}": _column([row[at] for row in rows])
            for at, name in enumerate(head)
        }

    def svg(self) -> str:
        raise ValueError(f"{self.title} is a table, which has no drawing.")


@dataclass(frozen=True, eq=False)
class MapsPicture(Picture):
    """Maps in lines of `across`, 0 for a square; `row` is the outlined query, `reads` the words over the maps.

    `trace` is what they are of, with all its heads, where there is one, and `pick` its picked layer and head.
    """

    maps: tuple[PictureMap, ...]
    row: int | None = None
    reads: str = ""
    across: int = 0
    trace: AttentionTrace | None = None
    pick: tuple[int, int] = (0, 0)

    def arrays(self) -> Arrays:
        """The cells of each map by its name, and the names of its rows and columns."""
        arrays: Arrays = {}
        for at, item in enumerate(self.maps, 1):
            name = item.name or f"map {at}"
            if name in arrays:
                name = f"{name} ({at})"
            arrays |= {
                name: np.asarray(item.values),
                f"{name}: rows": np.array(item.rows),
                f"{name}: columns": np.array(item.columns),
            }
        return arrays

    def table(self) -> tuple[list[str], Rows]:
        """One map as the matrix that it is; several with a row for each cell."""
        if len(self.maps) == 1:
            item = self.maps[0]
            return ["row \\ column", *item.columns], [
                [name, *map(float, line)] for name, line in zip(item.rows, item.values, strict=True)
            ]
        rows: Rows = [
            [item.name, i, item.rows[i], j, item.columns[j], float(item.values[i, j])]
            for item in self.maps
            for i, j in np.ndindex(*item.values.shape)
        ]
        return ["map", "row", "row name", "column", "column name", "value"], rows

    def svg(self) -> str:
        maps = self.maps
        if len(maps) == 1 and maps[0].name in self.title:
            maps = (replace(maps[0], name=""),)
        return maps_svg(maps, self.row, self.reads, self.across, self.picked)

    @property
    def picked(self) -> int | None:
        """The number of the picked head among the maps, where they are all heads of the trace."""
        heads = [len(item.weights) for item in self.trace.maps] if self.trace else []
        layer, head = self.pick
        return sum(heads[:layer]) + head if len(self.maps) == sum(heads) > 1 else None


@dataclass(frozen=True, eq=False)
class ChartPicture(Picture):
    """A Vega-Lite figure; `data` is its table where it is not inside of the spec."""

    spec: Spec
    data: Any = None

    def table(self) -> tuple[list[str], Rows]:
        """What is drawn, a row a thing: what axes, colours, sizes and tooltips say of it.

        A layer that draws rows of another one again, such as the points of a line or the ring of the picked cell, adds
        none, and neither does a text that writes out a number. Of a figure that names its `columns` these are all.
        """
        titles = self.spec.get("usermeta", {}).get("columns", {})
        drawn = [part for part in self.spec["layer"] if _shows_data(part)] or self.spec["layer"]
        channels = [one for part in drawn for one in _channels(part)]
        tables = [
            [
                row
                for row in (part["data"]["values"] if self.data is None else self.data)
                if all(str(row.get(name)) == value for name, value in _filters(part))
            ]
            for part in drawn
        ]
        shown = set(titles or {"name", *(one["field"] for _, one in channels)})
        rows = _distinct(
            [
                [part for row in table if (part := {k: row[k] for k in row if k in shown})]
                for table in tables
            ]
        )
        if titles:
            rows = [row for row in rows if row.keys() == titles.keys()]
        fields = list(titles or dict.fromkeys(name for row in rows for name in row))
        columns = {name: _as_numbers([row.get(name) for row in rows]) for name in fields}
        titles = titles or self._titles(columns, channels)
        return [*titles.values()], [
            list(row) for row in zip(*map(columns.__getitem__, titles), strict=True)
        ]

    def _titles(
        self, columns: Mapping[str, Sequence[Any]], channels: Sequence[tuple[str, Spec]]
    ) -> dict[str, str]:
        """The name of each column; a number's without one is that of the tooltip's text that writes it out, or what
        the picture is of."""
        marks = {one["field"]: one for channel, one in channels if channel != "tooltip"}
        written = [
            name
            for name, values in columns.items()
            if name not in {*marks, "name"}
            and any(isinstance(value, str) for value in values)
            and all(NUMBER.match(str(value)) for value in values if value not in EMPTY)
        ]
        fields = [name for name in columns if name not in written and name != "place"]
        titles = dict(zip(fields, column_names(self.spec, fields), strict=True))
        bare = [
            name
            for name, one in marks.items()
            if one.get("type") == "quantitative" and titles.get(name) == name
        ]
        named = (
            {str(one.get("title") or "").strip() for _, one in channels if one["field"] == name}
            for name in written
        )
        words = [
            word for one in named if len(one) == 1 for word in one - {*titles.values(), "value", ""}
        ]
        if len(words) != len(bare):
            words = [""] if len(bare) == 1 else bare
        quantity = WITHOUT.split(f"{self.title} ")[0].rpartition(": ")[2].strip(" ,")
        quantity = bare[0] if bare and quantity in titles.values() else quantity
        return titles | {name: word or quantity for name, word in zip(bare, words, strict=True)}

    def series(self) -> tuple[str, dict[str, dict[Any, Point]], str] | None:
        """The name of its axis, its lines by name with their points by place, and what a band is, where it has lines."""
        lines: dict[str, dict[Any, Point]] = {}
        axis, words = "", dict[str, str]()
        for part in self.spec["layer"]:
            words |= {
                one["field"]: str(one.get("title") or "").strip()
                for one in part["encoding"].get("tooltip", ())
            }
            if part["mark"]["type"] != "line":
                continue
            x, y = (part["encoding"][name] for name in ("x", "y"))
            axis = axis or title_of(x) or str(x["field"])
            for row in part["data"]["values"] if self.data is None else self.data:
                if row.get(y["field"]) is not None and all(
                    str(row.get(name)) == value for name, value in _filters(part)
                ):
                    names = (
                        str(row[key])
                        for key in ("model", "name", "place")
                        if key != x["field"] and row.get(key)
                    )
                    low, high = row.get("low"), row.get("high")
                    band = None if low is None or high is None else (float(low), float(high))
                    lines.setdefault(next(names, ""), {})[row[x["field"]]] = (row[y["field"]], band)
        if len(lines) > 1:
            lines.pop("", None)  # a line without a name is a reference beside those that have one
        ends = [words[name] for name in ("spread", "told_low", "told_high") if words.get(name)]
        named = {name or self.title: line for name, line in lines.items()}
        return (axis, named, " to ".join(ends)) if lines else None

    def whole_spec(self) -> Spec:
        """The spec with its rows and the names of its curves inside, in the colours of a light page."""
        spec = with_names(self.spec)
        if self.data is not None:
            spec = {**spec, "data": {"values": self.data}}
        text = json.dumps(spec, default=lambda value: getattr(value, "item", lambda: value)())
        return json.loads(light_colours(text))

    def svg(self) -> str:
        return render({"": {"spec": self.whole_spec(), "format": "svg"}})[""].decode()


@dataclass(frozen=True, eq=False)
class TablePicture(Picture):
    drawn = False
    head: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def table(self) -> tuple[list[str], Rows]:
        """With the numbers of texts that write some out, each with its unit at the head; nothing for a dash.

        A column whose name another one has is named after the one before it, too. One of unlike things, such as the
        settings of a model, stays as it is written.
        """
        columns = dict[str, list[Any]]()
        for at, title in enumerate(self.head):
            cells = [row[at] for row in self.rows]
            name = f"{self.head[at - 1]}: {title}" if self.head.count(title) > 1 else title
            named = [cell.numbers for cell in cells if isinstance(cell, Written)]
            parts = dict.fromkeys(part for numbers in named for part in numbers)
            if named and parts.keys() not in [numbers.keys() for numbers in named]:
                cells, parts = [*map(str, cells)], {}
            for first, part in enumerate(parts or [""]):
                whole = name.endswith(part.removeprefix(", "))
                columns[name if whole else f"{name}{part}"] = _as_numbers(
                    [
                        cell.numbers.get(part)
                        if isinstance(cell, Written)
                        else None
                        if parts and (first or cell in EMPTY)
                        else cell
                        for cell in cells
                    ]
                )
        return [*columns], [list(row) for row in zip(*columns.values(), strict=True)]


@dataclass(frozen=True, eq=False)
class DrawnPicture(TablePicture):
    """A drawing that is an SVG already, with the table of what it shows."""

    drawn = True
    drawing: str

    def svg(self) -> str:
        return self.drawing


def _shows_data(part: Spec) -> bool:
    """Not words, and no line across the whole figure, which marks a place."""
    mark = part["mark"]["type"]
    return mark != "text" and (mark != "rule" or {"x", "y"} <= part["encoding"].keys())


def _channels(part: Spec) -> list[tuple[str, Spec]]:
    """What shows data: not the words on a mark, and no colours that the rows hold as such."""
    return [
        (channel, one)
        for channel, values in part["encoding"].items()
        for one in (values if isinstance(values, list) else [values])
        if "field" in one and one.get("scale", {}) is not None and channel != "text"
    ]


def _distinct(tables: Sequence[Sequence[Spec]]) -> list[Spec]:
    """All rows but those that are a part of a row of another table; the table with the most fields has its rows first."""
    fields = [frozenset(name for row in table for name in row) for table in tables]
    shown = dict[int, list[Spec]]()
    for at in sorted(range(len(tables)), key=lambda at: -len(fields[at])):
        others = {
            repr([row.get(name) for name in fields[at]])
            for table in shown.values()
            for row in table
        }
        shown[at] = [
            row for row in tables[at] if repr([row.get(name) for name in fields[at]]) not in others
        ]
    return [row for at in sorted(shown) for row in shown[at]]


def _as_numbers(values: list[Any]) -> list[Any]:
    """A column of texts that are whole numbers, such as those of heads, as these, and of dashes, as nothing."""
    texts = {value for value in values if value not in EMPTY}
    if not all(isinstance(value, str) and value.isdecimal() for value in texts):
        return values
    return [None if value in EMPTY else int(value) for value in values]


def column_names(spec: Spec, fields: Sequence[str]) -> list[str]:
    """The titles that a reader sees of the fields; the field's own name where it has none, or shares it.

    That of an axis comes before that of a legend or tooltip.
    """
    titles: dict[str, str] = {}
    for _, one in sorted(
        [
            (channel, one)
            for part in spec["layer"]
            for channel, values in part["encoding"].items()
            for one in (values if isinstance(values, list) else [values])
        ],
        key=lambda pair: pair[0] not in ("x", "y"),
    ):
        if "field" in one and (title := title_of(one)):
            titles.setdefault(one["field"], title)
    names = [titles.get(name, name) for name in fields]
    return [
        title if names.count(title) == 1 else name
        for name, title in zip(fields, names, strict=True)
    ]


def title_of(channel: Mapping[str, Any]) -> str:
    parts = (channel, *(channel.get(name) or {} for name in ("axis", "legend", "header")))
    titles = (part["title"].strip() for part in parts if isinstance(part.get("title"), str))
    return next(filter(None, titles), "")


def _filters(part: Spec) -> list[tuple[Any, ...]]:
    texts = (str(step.get("filter", "")) for step in part.get("transform", ()))
    return [match.groups() for match in map(FILTER.fullmatch, texts) if match]


def is_number(value: object) -> bool:
    """Whether a cell of a table is a number, or empty among numbers."""
    return value is None or isinstance(value, (int, float)) and not isinstance(value, bool)


def _column(values: Sequence[Any]) -> np.ndarray:
    if values and all(map(is_number, values)):
        return np.array(values, dtype=np.float64)
    return np.array(["" if value is None else str(value) for value in values])


if __name__ == "__main__":
    json.dump(convert(json.load(sys.stdin)), sys.stdout)
