"""A page as one HTML file: its pictures, alive where a component draws them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from dashboard.draw.attention_view import READS, allowed_bits, labels, packed
from dashboard.draw.components import COMPONENTS, bundle, bundle_all, css_of
from dashboard.draw.formats import number
from dashboard.draw.page_exports import Component
from dashboard.draw.palette import for_browser
from dashboard.draw.picture_files import Source
from dashboard.draw.pictures import ChartPicture, MapsPicture, Picture, render, with_own_ids

# Components in one HTML file of their own: no server, no network, both themes, pointer and keys.


if TYPE_CHECKING:
    from core.interpret.trace import AttentionTrace

FOLDER = COMPONENTS / "standalone"
MAX_CELLS = 4_000_000  # of all heads: 8 MB, twice of them as a file


@dataclass(frozen=True)
class Part:
    """One part of a file under its heading: a component by its folder, the class of its root and its data, or HTML.

    `below` is HTML that stands after it.
    """

    title: str
    name: str = ""
    root: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    html: str = ""
    below: str = ""


def page_html(parts: Sequence[Part], *, title: str, source: str = "") -> str:
    names = list(dict.fromkeys(part.name for part in parts if part.name))
    values = {
        "parts": [vars(part) | {"data": dict(part.data)} for part in parts],
        "styles": {name: css_of(name) for name in names},
        "palette": for_browser(),
    }
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
    fields = {
        "TITLE": escape(title),
        "SOURCE": escape(source),
        "DATA": text.replace("<", "\\u003c"),  # so that it cannot end the script in which it stands
        "COMPONENTS": bundle_all({name: COMPONENTS / name / "main.js" for name in names}),
        "DRIVER": bundle(FOLDER / "driver.js"),
    }
    template = (FOLDER / "page.html").read_text("utf-8")
    return re.sub("@@([A-Z]+)@@", lambda match: fields[match[1]], template)


def trace_html(
    trace: AttentionTrace,
    *,
    title: str,
    source: str = "",
    layer: int = 0,
    head: int = 0,
    query: int | None = None,
    signed: bool = False,
) -> str:
    """A file with every head of a trace; ValueError for a trace without maps or with more than MAX_CELLS weights."""
    return page_html(
        [trace_part(trace, title, layer, head, query, signed)], title=title, source=source
    )


def trace_part(
    trace: AttentionTrace,
    title: str,
    layer: int = 0,
    head: int = 0,
    query: int | None = None,
    signed: bool = False,
) -> Part:
    """Every head of a trace, 16 bits a weight, opened at a head; `query` is the row in the accent."""
    cells = _cells(trace)
    if not cells:
        raise ValueError("a file needs at least one map; this trace has none")
    if cells > MAX_CELLS:
        raise ValueError(
            f"this trace has {cells:,} weights; a file holds {MAX_CELLS:,}: take fewer tokens or layers"
        )
    layers = [
        {
            **labels(item, None),
            "reads": READS[item.kind],
            **dict(zip(("heads", "rows", "cols"), item.weights.shape, strict=True)),
            "values": packed(np.asarray(item.weights), False),
            "mask": allowed_bits(item.mask, item.weights.shape, range(len(item.weights))),
        }
        for item in trace.maps
    ]
    data = {
        "layer": layer,
        "head": head,
        "query": query,
        "signed": signed,
        "numbers": list(trace.numbers),
        "layers": layers,
    }
    return Part(title, "attention_view", "av", data)


def page_file(
    source: Source, pictures: Mapping[str, Picture], drawn: Mapping[str, Component]
) -> bytes:
    """One HTML file of a page's pictures: components alive, a trace with all its heads, charts drawn, tables."""
    charts = {key: one for key, one in pictures.items() if isinstance(one, ChartPicture)}
    svgs = render({key: {"spec": one.whole_spec(), "format": "svg"} for key, one in charts.items()})
    parts: list[Part] = []
    traces: set[int] = set()
    for at, (key, picture) in enumerate(pictures.items()):
        trace = _whole_trace(picture)
        part = live_part(key, pictures, drawn)
        if part is not None:
            if trace is None or id(trace) not in traces:
                parts.append(part)
            traces.add(id(trace))
        elif key in charts:
            parts.append(
                Part(picture.title, html=scrolled(with_own_ids(svgs[key].decode(), f"p{at}-")))
            )
        else:
            parts.append(Part(picture.title, html=table_html(*picture.table())))
    return page_html(parts, title=f"{source.page} · Attention Lab", source=source.line).encode()


def live_part(
    key: str, pictures: Mapping[str, Picture], drawn: Mapping[str, Component]
) -> Part | None:
    """A picture as a component draws it: all heads of a trace that fits into a file, else what the page shows."""
    picture = pictures[key]
    trace = _whole_trace(picture)
    if trace is not None:
        # at the head and the row that the reader picked
        shown = [
            one for one in pictures.values() if isinstance(one, MapsPicture) and one.trace is trace
        ]
        row = next((one.row for one in shown if one.row is not None), None)
        return trace_part(trace, shown[0].title, *shown[-1].pick, row, shown[0].maps[0].signed)
    if isinstance(picture, ChartPicture) or key not in drawn:
        return None
    name, root, data = drawn[key]
    return Part(picture.title, name, root, data)


def scrolled(svg: str) -> str:
    return f'<div style="overflow-x:auto">{svg}</div>'


def _whole_trace(picture: Picture) -> AttentionTrace | None:
    """The trace of a picture that a file can hold; a larger one is shown as the page draws it."""
    trace = picture.trace if isinstance(picture, MapsPicture) else None
    return trace if trace and _cells(trace) <= MAX_CELLS else None


def _cells(trace: AttentionTrace) -> int:
    return sum(item.weights.size for item in trace.maps)


def table_html(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    texts = ([escape(cell_text(value)) for value in row] for row in rows)
    lines = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{one}</td>" for one in rest)}</tr>'
        for first, *rest in texts
    )
    columns = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    return f"<table><thead><tr>{columns}</tr></thead><tbody>{lines}</tbody></table>"


def cell_text(value: Any) -> str:
    """A cell as it is read: a float as pages write numbers, nothing for None."""
    return "" if value is None else number(value) if isinstance(value, float) else str(value)
