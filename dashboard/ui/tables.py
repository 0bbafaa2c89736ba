"""A small table: hairlines, numbers aligned right, a marker before each name; it scrolls on a phone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from html import escape

import streamlit as st

from dashboard.draw.multiples import mark_html
from dashboard.draw.page_pictures import add
from dashboard.draw.pictures import TablePicture
from dashboard.ui.panels import theme

STYLE = """<style>
.lab-table{overflow-x:auto;border:1px solid var(--hair);border-radius:6px;
  --hair:color-mix(in srgb,currentColor 10%,transparent)}
.lab-table table{border-collapse:collapse;width:100%;font-size:14px;line-height:20px;white-space:nowrap;
  font-variant-numeric:tabular-nums}
.lab-table th,.lab-table td{padding:6px 10px;border-bottom:1px solid var(--hair);text-align:right}
.lab-table tr:last-child>*{border-bottom:0}
.lab-table thead th{font-weight:400;opacity:.62;white-space:normal;vertical-align:bottom}
.lab-table tbody th{font-weight:400}
.lab-table th.left,.lab-table td.left{text-align:left}
.lab-table.wrap td{white-space:normal}
.lab-table span{vertical-align:-1px;margin-right:8px}
</style>"""


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, caption: str, left: int | Collection[int] = 1,
          markers: bool = True, marks: Sequence[str] = (), wrap: bool = False) -> None:  # fmt: skip
    """Rows of text under a head, their names after `marks` (HTML) or, with `markers`, the marker of their series.

    `left` are the columns that are aligned left, or the number of the first ones. `caption` is what a screen reader
    hears first. All text is escaped. With `wrap` long cells have several lines.
    """
    add(f"table:{caption}", lambda: TablePicture(caption, tuple(head), tuple(map(tuple, rows))))
    aligned = range(left) if isinstance(left, int) else left

    def row(cells: Sequence[str], index: int | None) -> str:
        out = []
        for column, cell in enumerate(cells):
            tag, mark = "th" if index is None or column == 0 else "td", ""
            scope = f' scope="{"col" if index is None else "row"}"' if tag == "th" else ""
            if index is not None and column == 0:
                mark = marks[index] if marks else mark_html(index, theme()) if markers else ""
            side = ' class="left"' if column in aligned else ""
            out.append(f"<{tag}{scope}{side}>{mark}{escape(cell)}</{tag}>")
        return f"<tr>{''.join(out)}</tr>"

    body = "".join(row(cells, index) for index, cells in enumerate(rows))
    st.html(STYLE)  # apart, since it never changes: a rerun then sends and cleans the rows alone
    style = "lab-table wrap" if wrap else "lab-table"
    st.html(
        f'<div class="{style}" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'  # keys scroll it
        f"<thead>{row(head, None)}</thead><tbody>{body}</tbody></table></div>"
    )
