"""What a page shows, with its numbers: maps, charts, drawings and tables, each for a file of any format.

Every picture has `title`, `about` (model, head, text), `arrays()` (its numbers by name), `table()`, and `svg()` where
it is `drawn`, which a table is not.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from dashboard.charts.figure_files import figure_svgs
from dashboard.charts.map_svg import PictureMap, maps_svg
from dashboard.charts.palette import light_colours
from dashboard.charts.vega import Spec, with_names

if TYPE_CHECKING:
    from core.trace import AttentionTrace  # at run time torch would come with it

Rows: TypeAlias = list[list[Any]]
Arrays: TypeAlias = dict[str, np.ndarray]
FILTER = re.compile(r"datum\.(\w+) === '?([^']*)'?")  # which rows of a table a layer draws


NAMES = ("model", "name", "place")  # fields that name a line
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
        rows = (
            self._own_rows() if self.data is None else _without_words(self.spec, rows_of(self.data))
        )
        fields = list(dict.fromkeys(name for row in rows for name in row))
        return column_names(self.spec, fields), [[row.get(name) for name in fields] for row in rows]

    def _own_rows(self) -> list[dict[str, Any]]:
        tables = list(_values(self.spec))
        if len(tables) == 1:
            return tables[0]
        return [{"layer": number, **row} for number, rows in enumerate(tables, 1) for row in rows]

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
                        (str(row[key]) for key in NAMES if key != x["field"] and row.get(key)), ""
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
        whole: Spec = json.loads(light_colours(json.dumps(spec, default=_plain)))
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


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
