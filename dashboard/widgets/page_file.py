"""A page as one HTML file: its pictures, alive where a component draws them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dashboard.components.standalone import Part, fits, page_html, trace_part
from dashboard.draw.picture_files import Source
from dashboard.draw.pictures import ChartPicture, MapsPicture, Picture, figure_svgs, with_own_ids
from dashboard.runtime.page_pictures import Component
from dashboard.widgets.export_table import table_html

if TYPE_CHECKING:
    from core.trace import AttentionTrace  # at run time torch would come with it


def page_file(
    source: Source, pictures: Mapping[str, Picture], drawn: Mapping[str, Component]
) -> bytes:
    """One HTML file of a page's pictures: components alive, a trace with all its heads, charts drawn, tables."""
    charts = {key: one for key, one in pictures.items() if isinstance(one, ChartPicture)}
    svgs = figure_svgs({key: one.whole_spec() for key, one in charts.items()})
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
            parts.append(Part(picture.title, html=scrolled(with_own_ids(svgs[key], f"p{at}-"))))
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
        return _trace_part(trace, pictures)
    if isinstance(picture, ChartPicture) or key not in drawn:
        return None
    name, root, data = drawn[key]
    return Part(picture.title, name, root, data)


def scrolled(svg: str) -> str:
    """A drawing that scrolls in its own box where it is wide."""
    return f'<div style="overflow-x:auto">{svg}</div>'


def _whole_trace(picture: Picture) -> AttentionTrace | None:
    """The trace of a picture that a file can hold; a larger one is shown as the page draws it."""
    trace = picture.trace if isinstance(picture, MapsPicture) else None
    return trace if trace is not None and fits(trace) else None


def _trace_part(trace: AttentionTrace, pictures: Mapping[str, Picture]) -> Part:
    """All heads of a trace, at the head and the row that the reader picked."""
    shown = [
        one for one in pictures.values() if isinstance(one, MapsPicture) and one.trace is trace
    ]
    row = next((one.row for one in shown if one.row is not None), None)
    return trace_part(trace, shown[0].title, *shown[-1].pick, row, shown[0].maps[0].signed)
