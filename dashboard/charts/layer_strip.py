"""The layers of a model as a strip of cells, coloured by the kind of their attention."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from dashboard.charts.palette import CATEGORIES, Theme

STYLE = ("display:grid;grid-auto-flow:column;grid-auto-columns:minmax(6px,22px);gap:2px;margin:2px 0 6px",
         "height:18px;border-radius:3px;background:{colour}")
SHARED = "box-shadow:inset 0 0 0 6px {colour};background:transparent"  # a hollow cell: no keys of its own


def layer_strip(kinds: Sequence[str], theme: Theme, shared: int = 0, label: str = "Layers") -> str:
    """HTML: a cell for each layer, the first one left, and a legend of the kinds; the last `shared` cells are hollow.

    Equal texts are one kind; more than eight have the same grey.
    """
    names = list(dict.fromkeys(kinds))
    palette = CATEGORIES[theme]
    colours = {name: palette[min(index, len(palette) - 1)] for index, name in enumerate(names)}
    cells = []
    for index, kind in enumerate(kinds):
        hollow = index >= len(kinds) - shared
        style = (STYLE[1] + (";" + SHARED if hollow else "")).format(colour=colours[kind])
        words = f"Layer {index + 1}: {kind}" + (", with the keys and values of an earlier layer" if hollow else "")
        cells.append(f'<span title="{escape(words)}" style="{style}"></span>')
    legend = "".join(
        f'<span style="display:inline-flex;align-items:center;gap:5px;margin-right:14px"><span style="width:10px;'
        f'height:10px;border-radius:2px;background:{colours[name]}"></span>{escape(name)} × {kinds.count(name)}</span>'
        for name in names)
    return (f'<div role="img" aria-label="{escape(label)}: {escape(", ".join(kinds))}"><div style="{STYLE[0]}">'
            f'{"".join(cells)}</div><div style="font-size:13px;line-height:20px">{legend}</div></div>')
