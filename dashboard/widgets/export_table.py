"""The numbers of a picture as a table on the page: to be read, heard, or walked through by keyboard."""

from __future__ import annotations

from html import escape

import streamlit as st

from dashboard.draw.html_file import table_html
from dashboard.draw.pictures import Picture

MOST_ROWS = 200  # that are shown; a file has all
STYLE = """<style>
.numbers { overflow: auto; max-height: 320px }
.numbers table { border-collapse: collapse; font-size: 14px; line-height: 20px; font-variant-numeric: tabular-nums }
.numbers :is(th, td) { padding: 4px 10px; text-align: left; font-weight: 400;
  border-bottom: 1px solid color-mix(in srgb, currentColor 10%, transparent) }
</style>"""


def table_section(picture: Picture) -> None:
    """Draw the switch and, where it is on, the table; a picture makes its table only then."""
    if not st.toggle("Show them as a table", key="export:table", help="Arrow keys scroll it."):
        return
    head, rows = picture.table()
    if len(rows) > MOST_ROWS:
        st.caption(f"The first {MOST_ROWS} of {len(rows):,} rows; a file has all.")
    st.html(
        f'{STYLE}<div class="numbers" tabindex="0" role="region" aria-label="{escape(picture.title)}, its numbers">'
        f"{table_html(head, rows[:MOST_ROWS])}</div>"
    )
