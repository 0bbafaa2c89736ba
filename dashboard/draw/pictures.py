"""What a page shows, with its numbers: maps, charts, drawings and tables, each for a file of any format.

Every picture has `title`, `about` (model, head, text), `arrays()` (its numbers by name), `table()`, and `svg()` where
it is `drawn`, which a table is not.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from xml.etree import ElementTree

import numpy as np

from dashboard.draw.maps import PictureMap, maps_svg
from dashboard.draw.palette import light_colours
from dashboard.draw.vega import Spec, with_names

# The text of an SVG as paths, so that it looks the same where its font is missing, as in the editor of a journal.


SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"
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


def outlined(svg: str, to_pdf: Callable[[str], bytes]) -> str:
    """An SVG in which every text is a path, drawn by `to_pdf`, which writes text that clips as its outlines."""
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", XLINK)
    root = ElementTree.fromstring(svg)
    texts: list[tuple[ElementTree.Element, str]] = []
    _find(root, {}, texts)
    paths = _paths(list(dict.fromkeys(clip for _, clip in texts)), to_pdf)
    for node, clip in texts:
        for child in list(node):
            node.remove(child)
        node.tag, node.text = f"{{{SVG}}}path", None
        for name in (*FONT, *PLACE):
            node.attrib.pop(name, None)
        node.set("d", paths[clip])
    return ElementTree.tostring(root, encoding="unicode")


def _find(
    node: ElementTree.Element, font: Mapping[str, str], texts: list[tuple[ElementTree.Element, str]]
) -> None:
    """Add each text with the SVG of it alone, as it is placed before its transform."""
    font = {**font, **{name: node.attrib[name] for name in FONT if name in node.attrib}}
    if node.tag == f"{{{SVG}}}text":
        alone = ElementTree.Element(
            f"{{{SVG}}}text",
            {**font, **{name: node.attrib[name] for name in PLACE if name in node.attrib}},
        )
        alone.text = node.text
        alone.extend(list(node))
        texts.append((node, ElementTree.tostring(alone, encoding="unicode")))
        return
    for child in node:
        _find(child, font, texts)


def _paths(clips: list[str], to_pdf: Callable[[str], bytes]) -> dict[str, str]:
    """The outline of each text as the `d` of a path; one without ink has none."""
    inked = [clip for clip in clips if "".join(ElementTree.fromstring(clip).itertext()).strip()]
    if not inked:
        return dict.fromkeys(clips, "")
    parts = "".join(
        f'<clipPath id="c{at}">{clip}</clipPath><rect x="-9999" y="-9999" width="19998" height="19998" '
        f'clip-path="url(#c{at})"/>'
        for at, clip in enumerate(inked)
    )
    pdf = to_pdf(f'<svg xmlns="{SVG}" width="100" height="100">{parts}</svg>')
    contents = (
        _inflated(match[1])
        for match in re.finditer(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.DOTALL)
    )
    drawn = next(content for content in contents if re.search(rb"\bW\*?\s+n", content))
    outlines = [
        _path(part.rpartition(b" cm\n")[2]) for part in re.split(rb"\bW\*?\s+n", drawn)[:-1]
    ]
    return dict.fromkeys(clips, "") | dict(zip(inked, outlines, strict=True))


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
    """NAME.FORMAT of each job by name, made in a process of its own.

    A job has a `spec` or an `svg`, the `formats` (svg, pdf, png) and, where it has one, the `scale` of a PNG. With
    `millimetres` it is as wide as this: an SVG with its text as outlines, or a PDF. CalledProcessError for what is
    neither a spec nor an SVG.
    """
    done = subprocess.run(
        [sys.executable, "-m", "dashboard.draw.pictures"],
        input=json.dumps(jobs).encode(),
        capture_output=True,
        check=True,
        cwd=ROOT,
        timeout=SECONDS,
    )
    return {name: b64decode(text) for name, text in json.loads(done.stdout).items()}


def figure_svgs(specs: Mapping[str, Spec]) -> dict[str, str]:
    """Figures on white by name."""
    jobs = {name: {"spec": spec, "formats": ["svg"]} for name, spec in specs.items()}
    return {name: data.decode() for name, data in drawn_by_name(jobs).items()}


def drawn_by_name(jobs: Mapping[str, Mapping[str, Any]]) -> dict[str, bytes]:
    """The only file of each job, by its name."""
    files = render(jobs) if jobs else {}
    return {name: files[f"{name}.{job['formats'][0]}"] for name, job in jobs.items()}


def drawing_file(svg: str, file_format: str, scale: float = 1.0) -> bytes:
    """An SVG as "pdf" or, enlarged by `scale`, "png"."""
    job = {"svg": svg, "formats": [file_format], "scale": scale}
    return drawn_by_name({"drawing": job})["drawing"]


def with_own_ids(svg: str, start: str) -> str:
    """An SVG whose ids begin with `start`, so that it can stand beside another one."""
    return re.sub(r"""(\bid="|url\(#|href="#)""", rf"\g<1>{start}", svg)


def convert(jobs: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The files of each job of `render` as base64, converted in this process."""
    import vl_convert

    files: dict[str, str] = {}
    for name, job in jobs.items():
        svg = job["svg"] if "svg" in job else vl_convert.vegalite_to_svg(_on_white(job["spec"]))
        if "millimetres" in job and job["formats"] == ["svg"]:
            svg = outlined(as_wide_as(svg, job["millimetres"], "mm"), vl_convert.svg_to_pdf)
        elif "millimetres" in job:  # of a pixel of an SVG, a PDF makes a point
            svg = as_wide_as(svg, job["millimetres"] / 25.4 * 72, "")
        make: dict[str, Callable[[], bytes]] = {
            "svg": svg.encode,
            "pdf": partial(vl_convert.svg_to_pdf, svg),
            "png": partial(vl_convert.svg_to_png, svg, scale=job.get("scale", 1.0)),
        }
        files |= {f"{name}.{kind}": b64encode(make[kind]()).decode() for kind in job["formats"]}
    return files


def _on_white(spec: Spec) -> Spec:
    """A spec of a fixed width with a white background."""
    width = spec.get("width", "container")
    return {
        **spec,
        "width": WIDTH if width == "container" else width,
        "config": {**spec.get("config", {}), "background": "white"},
    }


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
    """The width and height of an SVG in pixels."""
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


LINE_NAMES = ("model", "name", "place")  # fields that name a line
Point: TypeAlias = tuple[float, tuple[float, float] | None]  # a value, and the ends of its band


@dataclass(frozen=True)
class Series:
    """Lines over an axis: by name their points by place. `band` says what the ends of an interval are, where known."""

    axis: str
    lines: Mapping[str, Mapping[Any, Point]]
    band: str


class Picture(Protocol):
    """A picture of the page and its numbers."""

    @property
    def title(self) -> str: ...

    @property
    def about(self) -> Mapping[str, str]:
        """Model, head and text, where it has them."""

    def arrays(self) -> Arrays: ...

    def table(self) -> tuple[list[str], Rows]: ...

    @property
    def drawn(self) -> bool: ...

    def svg(self) -> str:
        """The drawing; ValueError for what is not drawn."""


@dataclass(frozen=True, eq=False)
class MapsPicture:
    """Maps in lines of `across`, 0 for a square; `row` is the outlined query, `reads` the words over the maps.

    `trace` is what they are of, with all its heads, where there is one, and `pick` its picked layer and head.
    """

    drawn = True
    title: str
    maps: tuple[PictureMap, ...]
    row: int | None = None
    reads: str = ""
    across: int = 0
    trace: AttentionTrace | None = None
    pick: tuple[int, int] = (0, 0)
    about: Mapping[str, str] = field(default_factory=dict)

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
        layer, head = self.pick
        shown = (
            self.trace is not None
            and len(self.maps) == sum(len(item.weights) for item in self.trace.maps) > 1
        )
        return (
            sum(len(item.weights) for item in self.trace.maps[:layer]) + head
            if shown and self.trace
            else None
        )


@dataclass(frozen=True, eq=False)
class ChartPicture:
    """A Vega-Lite figure; `data` is its table where it is not inside of the spec."""

    drawn = True
    title: str
    spec: Spec
    data: Any = None
    about: Mapping[str, str] = field(default_factory=dict)

    def arrays(self) -> Arrays:
        """The columns of its table."""
        head, rows = self.table()
        return {name: _column([row[at] for row in rows]) for at, name in enumerate(head)}

    def table(self) -> tuple[list[str], Rows]:
        """Every row that is drawn, under the titles of its axes, by layer where the layers have their own; not those
        that only place words."""
        tables = _values(self.spec)
        if self.data is not None:
            rows = _without_words(self.spec, rows_of(self.data))
        elif len(tables) == 1:
            rows = tables[0]
        else:
            rows = [{"layer": n, **row} for n, part in enumerate(tables, 1) for row in part]
        fields = list(dict.fromkeys(name for row in rows for name in row))
        return column_names(self.spec, fields), [[row.get(name) for name in fields] for row in rows]

    def series(self) -> Series | None:
        """Its lines by name, where it has lines."""
        lines: dict[str, dict[Any, Point]] = {}
        axis, words = "", dict[str, str]()
        for part in self.spec.get("layer", (self.spec,)):
            encoding = part.get("encoding", {})
            words |= {
                one["field"]: str(one.get("title") or "").strip()
                for one in _listed(encoding.get("tooltip", ()))
                if "field" in one
            }
            x, y = (encoding.get(name) or {} for name in ("x", "y"))
            if _mark(part) != "line" or "field" not in x or "field" not in y:
                continue
            axis = axis or _title(x) or str(x["field"])
            for row in self._rows_of(part):
                if row.get(y["field"]) is not None:
                    name = next(
                        (str(row[key]) for key in LINE_NAMES if key != x["field"] and row.get(key)),
                        "",
                    )
                    low, high = row.get("low"), row.get("high")
                    band = None if low is None or high is None else (float(low), float(high))
                    lines.setdefault(name, {})[row[x["field"]]] = (row[y["field"]], band)
        if not lines:
            return None
        if len(lines) > 1:
            lines.pop("", None)  # a line without a name is a reference beside those that have one
        ends = [words[name] for name in ("spread", "told_low", "told_high") if words.get(name)]
        return Series(
            axis, {name or self.title: line for name, line in lines.items()}, " to ".join(ends)
        )

    def _rows_of(self, part: Spec) -> list[dict[str, Any]]:
        """The rows that a layer draws."""
        data = part.get("data") or self.spec.get("data") or {}
        rows = rows_of(self.data) if self.data is not None else data.get("values", [])
        for step in part.get("transform", ()):
            if match := FILTER.fullmatch(str(step.get("filter", ""))):
                rows = [row for row in rows if str(row.get(match[1])) == match[2]]
        return list(rows)

    def whole_spec(self) -> Spec:
        """The spec with its rows and the names of its curves inside, in the colours of a light page."""
        spec = with_names(self.spec)
        if self.data is not None:
            spec = {**spec, "data": {"values": rows_of(self.data)}}
        text = json.dumps(spec, default=lambda value: getattr(value, "item", lambda: value)())
        whole: Spec = json.loads(light_colours(text))
        return whole

    def svg(self) -> str:
        return figure_svgs({"figure": self.whole_spec()})["figure"]


@dataclass(frozen=True, eq=False)
class TablePicture:
    """A table of words and numbers."""

    drawn = False
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    @property
    def about(self) -> Mapping[str, str]:
        return {}

    def arrays(self) -> Arrays:
        return {
            name or f"column {at + 1}": _column([row[at] for row in self.rows])
            for at, name in enumerate(self.head)
        }

    def table(self) -> tuple[list[str], Rows]:
        return list(self.head), [list(row) for row in self.rows]

    def svg(self) -> str:
        raise ValueError(f"{self.title} is a table, which has no drawing.")


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
        return list(data.to_pylist())
    if hasattr(data, "to_dict"):
        return list(data.to_dict("records"))
    return list(data)


def column_names(spec: Spec, fields: Sequence[str]) -> list[str]:
    """The titles that a reader sees of the fields; the field's own name where it has none, or shares it."""
    titles: dict[str, str] = {}
    for part in (True, False):
        for name, title in _titles(spec, part):
            titles.setdefault(name, title)
    names = [titles.get(name, name) for name in fields]
    return [
        title if names.count(title) == 1 else name
        for name, title in zip(fields, names, strict=True)
    ]


def _titles(spec: Any, axes: bool) -> Iterator[tuple[str, str]]:
    """The titles of fields on the axes of a spec and its parts, or else in its legends and tooltips."""
    if isinstance(spec, list):
        for part in spec:
            yield from _titles(part, axes)
    if not isinstance(spec, Mapping):
        return
    for channel, values in spec.get("encoding", {}).items():
        for one in values if isinstance(values, list) else [values]:
            if (channel in ("x", "y")) == axes and "field" in one and (title := _title(one)):
                yield one["field"], title
    for name in ("layer", "hconcat", "vconcat", "concat", "spec"):
        yield from _titles(spec.get(name), axes)


def _title(channel: Mapping[str, Any]) -> str:
    """The title of an axis, a legend or a line of a tooltip; empty where it has none."""
    for part in (
        channel,
        channel.get("axis") or {},
        channel.get("legend") or {},
        channel.get("header") or {},
    ):
        if isinstance(part.get("title"), str) and (title := part["title"].strip()):
            return str(title)
    return ""


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


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _mark(part: Any) -> str:
    mark = part.get("mark", "")
    return str(mark.get("type", "") if isinstance(mark, Mapping) else mark)


def _without_words(spec: Spec, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a figure's own table but for those that only marks of text draw, whose numbers are places."""
    marks: dict[tuple[str, str], set[str]] = {}
    for part in spec.get("layer", ()):
        for step in part.get("transform", ()):
            if match := FILTER.fullmatch(str(step.get("filter", ""))):
                marks.setdefault((match[1], match[2]), set()).add(_mark(part))
    words = [key for key, types in marks.items() if types == {"text"}]
    return [row for row in rows if not any(str(row.get(name)) == value for name, value in words)]


def _column(values: Sequence[Any]) -> np.ndarray:
    """Numbers as float64, None as NaN; anything else as text."""
    if values and all(
        value is None or isinstance(value, (int, float)) and not isinstance(value, bool)
        for value in values
    ):
        return np.array(
            [math.nan if value is None else value for value in values], dtype=np.float64
        )
    return np.array(["" if value is None else str(value) for value in values])
