"""Components in one HTML file of their own: no server, no network, both themes, pointer and keys.

    Path("attention.html").write_text(trace_html(trace, title="Attention of GPT-2", source="the cat sat"))

A trace opens as all its heads beside the picked one. Any other component is shown as the page draws it now.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dashboard.components.attention_view.payload import READS, allowed_bits, labels, packed
from dashboard.components.lib import COMPONENTS, css_of
from dashboard.components.lib.bundle import bundle, bundle_all
from dashboard.draw.palette import for_browser

if TYPE_CHECKING:
    from core.trace import AttentionMap, AttentionTrace

FOLDER = Path(__file__).parent
MOST_CELLS = 4_000_000  # of all heads: 8 MB, twice of them as a file


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
    """A whole file that shows the parts below each other; `source` is its last line."""
    names = list(dict.fromkeys(part.name for part in parts if part.name))
    styles = {name: css_of(name) for name in names}
    shown = [
        {
            "name": part.name,
            "root": part.root,
            "title": part.title,
            "data": dict(part.data),
            "html": part.html,
            "below": part.below,
        }
        for part in parts
    ]
    values = {"parts": shown, "styles": styles, "palette": for_browser()}
    template = (FOLDER / "page.html").read_text("utf-8")
    fields = {
        "TITLE": escape(title),
        "SOURCE": escape(source),
        "DATA": _inline(values),
        "COMPONENTS": bundle_all({name: COMPONENTS / name / "main.js" for name in names}),
        "DRIVER": bundle(FOLDER / "driver.js"),
    }
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
    """A file with every head of a trace; ValueError for a trace without maps or with more than MOST_CELLS weights."""
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
    if not fits(trace):
        raise ValueError(
            f"this trace has {cells:,} weights; a file holds {MOST_CELLS:,}: take fewer tokens or layers"
        )
    data = {
        "layer": layer,
        "head": head,
        "query": query,
        "signed": signed,
        "numbers": list(trace.numbers),
        "layers": [_layer(item) for item in trace.maps],
    }
    return Part(title, "attention_view", "av", data)


def fits(trace: AttentionTrace) -> bool:
    """Whether a file can hold every weight of a trace."""
    return _cells(trace) <= MOST_CELLS


def _cells(trace: AttentionTrace) -> int:
    return sum(item.weights.size for item in trace.maps)


def _layer(item: AttentionMap) -> dict[str, Any]:
    heads, rows, columns = item.weights.shape
    return {
        **labels(item, None),
        "reads": READS[item.kind],
        "heads": heads,
        "rows": rows,
        "cols": columns,
        "values": packed(np.asarray(item.weights), False),
        "mask": allowed_bits(item.mask, item.weights.shape, range(heads)),
    }


def _inline(value: object) -> str:
    """JSON that cannot end the script in which it stands."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
