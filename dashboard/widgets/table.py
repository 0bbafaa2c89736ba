"""A small table in the lab's look: hairlines, numbers to the right, a marker before each name, at home on a phone."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import streamlit as st

from dashboard.components.multiples import mark_html
from dashboard.widgets.panels import theme

STYLE = """<style>
.lab-table{overflow-x:auto;border:1px solid var(--hair);border-radius:6px;
  --hair:color-mix(in srgb,currentColor 10%,transparent)}
.lab-table table{border-collapse:collapse;width:100%;font-size:14px;line-height:20px;white-space:nowrap;
  font-variant-numeric:tabular-nums}
.lab-table th,.lab-table td{padding:6px 10px;border-bottom:1px solid var(--hair);text-align:right}
.lab-table tr:last-child>*{border-bottom:0}
.lab-table thead th{font-weight:400;opacity:.62}
.lab-table tbody th{font-weight:400}
.lab-table th.left,.lab-table td.left{text-align:left}
.lab-table span{vertical-align:-1px;margin-right:8px}
</style>"""


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, caption: str, left: int = 1,
          markers: bool = True) -> None:
    """Rows of text under a head; the first `left` columns stand left, the first with the series' marker before it.

    `caption` is what a screen reader hears first. Everything is escaped.
    """
    def row(cells: Sequence[str], place: int | None) -> str:
        out = []
        for at, cell in enumerate(cells):
            tag = "th" if place is None or at == 0 else "td"
            scope = f' scope="{"col" if place is None else "row"}"' if tag == "th" else ""
            mark = mark_html(place, theme()) if markers and place is not None and at == 0 else ""
            side = ' class="left"' if at < left else ""
            out.append(f"<{tag}{scope}{side}>{mark}{escape(cell)}</{tag}>")
        return f"<tr>{''.join(out)}</tr>"

    body = "".join(row(cells, place) for place, cells in enumerate(rows))
    st.html(STYLE)  # apart, since it never changes: a rerun then sends and cleans the rows alone
    st.html(f'<div class="lab-table"><table aria-label="{escape(caption)}"><thead>{row(head, None)}</thead>'
            f"<tbody>{body}</tbody></table></div>")
