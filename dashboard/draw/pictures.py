"""What a page shows, with its numbers: maps, charts, drawings and tables, each for a file of any format."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias
from xml.etree import ElementTree

import numpy as np

from dashboard.draw.maps import PictureMap, maps_svg
from dashboard.draw.palette import light_colours
from dashboard.draw.vega import Spec, with_names

# The text of an SVG as paths, so that it looks the same where its font is missing, as in the editor of a journal.


SVG = "http://www.w3.org/2000/svg"
FONT = (
    "font-family",
    "font-size",
    "font-weight",
    "font-style",
    "text-anchor",
    "letter-spacing",
)  # what is inherited
PLACE = ("x", "y", "dx", "dy", "dominant-baseline", "lengthAdjust", "textLength", "style")
NAMES = {
    b"m": "M",
    b"l": "L",
    b"c": "C",
    b"h": "Z",
}  # of what a clip path of a PDF is drawn with, in a path's `d`
STEP = re.compile(rb"((?:-?[\d.]+\s+)*)([mlch])\s")
CLIPS = re.compile(rb"\bW\*?\s+n")  # what ends a clip path of a PDF
TEXT = f"{{{SVG}}}text"


def outlined(svg: str, to_pdf: Callable[[str], bytes]) -> str:
    """An SVG in which every text is a path, drawn by `to_pdf`, which writes text that clips as its outlines."""
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    root = ElementTree.fromstring(svg)
    fonts: dict[ElementTree.Element, dict[str, str]] = {root: _some(root, FONT)}
    texts: list[tuple[ElementTree.Element, str]] = []
    for node in root.iter():
        fonts |= {child: fonts[node] | _some(child, FONT) for child in node}
        if node.tag == TEXT:  # the SVG of it alone, as it is placed before its transform
            alone = ElementTree.Element(TEXT, fonts[node] | _some(node, PLACE))
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
    streams = map(_inflated, re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.DOTALL))
    drawn = next((stream for stream in streams if re.search(CLIPS, stream)), b"")
    outlines = [_path(part.rpartition(b" cm\n")[2]) for part in re.split(CLIPS, drawn)[:-1]]
    paths = {"": ""} | dict(zip(inked, outlines, strict=True))
    for node, clip in texts:
        del node[:]
        node.tag, node.text = f"{{{SVG}}}path", None
        for name in (*FONT, *PLACE):
            node.attrib.pop(name, None)
        node.set("d", paths[clip])
    return ElementTree.tostring(root, encoding="unicode")


def _some(node: ElementTree.Element, names: Sequence[str]) -> dict[str, str]:
    return {name: node.attrib[name] for name in names if name in node.attrib}


def _inflated(stream: bytes) -> bytes:
    try:
        return zlib.decompress(stream)
    except zlib.error:
        return stream


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
    `millimetres` it is as wide as this: an SVG with its text as outlines, or a PDF. CalledProcessError for what is
    neither a spec nor an SVG.
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
        elif millimetres:  # of a pixel of an SVG, a PDF makes a point
            svg = as_wide_as(svg, millimetres / 25.4 * 72, "")
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
    head = svg[svg.index("<svg") :].partition(">")[0]
    sizes = dict(re.findall(r'\s(width|height)="([\d.]+)', head))
    return float(sizes["width"]), float(sizes["height"])


if __name__ == "__main__":
    json.dump(convert(json.load(sys.stdin)), sys.stdout)


if TYPE_CHECKING:
    from core.interpret.trace import AttentionTrace

Rows: TypeAlias = list[list[Any]]
Arrays: TypeAlias = dict[str, np.ndarray]
FILTER = re.compile(r"datum\.(\w+) === '?([^']*)'?")  # which rows of a table a layer draws


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
        for number, item in enumerate(self.maps, 1):
            name = item.name or f"map {number}"
            if name in arrays:
                name = f"{name} ({number})"
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
        """Every row that is drawn, under the titles of its axes, by layer where the layers have their own; not those
        that only place words."""
        tables = _values(self.spec)
        if self.data is not None:
            marks: dict[Any, set[str]] = {}
            for part in self.spec.get("layer", ()):
                for one in _filters(part):
                    marks.setdefault(one, set()).add(_mark(part))
            words = [one for one, types in marks.items() if types == {"text"}]
            rows = [
                row
                for row in rows_of(self.data)
                if not any(str(row.get(name)) == value for name, value in words)
            ]
        elif len(tables) == 1:
            rows = tables[0]
        else:
            rows = [{"layer": n, **row} for n, part in enumerate(tables, 1) for row in part]
        fields = list(dict.fromkeys(name for row in rows for name in row))
        return column_names(self.spec, fields), [[row.get(name) for name in fields] for row in rows]

    def series(self) -> tuple[str, dict[str, dict[Any, Point]], str] | None:
        """The name of its axis, its lines by name with their points by place, and what a band is, where it has lines."""
        lines: dict[str, dict[Any, Point]] = {}
        axis, words = "", dict[str, str]()
        for part in self.spec.get("layer", (self.spec,)):
            words |= {
                one["field"]: str(one.get("title") or "").strip()
                for channel, one in _channels({"encoding": part.get("encoding", {})})
                if channel == "tooltip" and "field" in one
            }
            x, y = (part.get("encoding", {}).get(name) or {} for name in ("x", "y"))
            if _mark(part) != "line" or "field" not in x or "field" not in y:
                continue
            axis = axis or _title(x) or str(x["field"])
            data = part.get("data") or self.spec.get("data") or {}
            for row in data.get("values", []) if self.data is None else rows_of(self.data):
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
            spec = {**spec, "data": {"values": rows_of(self.data)}}
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
        return list(self.head), [list(row) for row in self.rows]


@dataclass(frozen=True, eq=False)
class DrawnPicture(TablePicture):
    """A drawing that is an SVG already, with the table of what it shows."""

    drawn = True
    drawing: str

    def svg(self) -> str:
        return self.drawing


def rows_of(data: Any) -> list[dict[str, Any]]:
    """The rows of a table of pyarrow or pandas, or of a list of them."""
    if hasattr(data, "to_pylist"):
        data = data.to_pylist()
    return list(data.to_dict("records") if hasattr(data, "to_dict") else data)


def column_names(spec: Spec, fields: Sequence[str]) -> list[str]:
    """The titles that a reader sees of the fields; the field's own name where it has none, or shares it.

    That of an axis comes before that of a legend or tooltip.
    """
    titles: dict[str, str] = {}
    for _, one in sorted(_channels(spec), key=lambda pair: pair[0] not in ("x", "y")):
        if "field" in one and (title := _title(one)):
            titles.setdefault(one["field"], title)
    names = [titles.get(name, name) for name in fields]
    return [
        title if names.count(title) == 1 else name
        for name, title in zip(fields, names, strict=True)
    ]


def _channels(spec: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every channel of a spec and its parts by name, each line of a tooltip as one."""
    if isinstance(spec, list):
        for part in spec:
            yield from _channels(part)
    elif isinstance(spec, Mapping):
        for channel, values in spec.get("encoding", {}).items():
            for one in values if isinstance(values, list) else [values]:
                yield channel, one
        for name in ("layer", "hconcat", "vconcat", "concat", "spec"):
            yield from _channels(spec.get(name))


def _title(channel: Mapping[str, Any]) -> str:
    parts = (channel, *(channel.get(name) or {} for name in ("axis", "legend", "header")))
    titles = (part["title"].strip() for part in parts if isinstance(part.get("title"), str))
    return next(filter(None, titles), "")


def _values(spec: Any) -> Sequence[list[dict[str, Any]]]:
    """The rows of every layer or panel of a spec, in the order in which they are drawn."""
    tables: list[list[dict[str, Any]]] = []
    if isinstance(spec, Mapping):
        data = spec.get("data")
        if isinstance(data, Mapping) and isinstance(data.get("values"), list):
            tables.append(data["values"])
        for name in ("layer", "hconcat", "vconcat", "concat"):
            parts = list(spec.get(name, ()))
            for part in [one for one in parts if _mark(one) != "text"] or parts:
                tables.extend(_values(part))
        if "spec" in spec:
            tables.extend(_values(spec["spec"]))
    return tables


def _mark(part: Any) -> str:
    mark = part.get("mark", "")
    return str(mark.get("type", "") if isinstance(mark, Mapping) else mark)


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
