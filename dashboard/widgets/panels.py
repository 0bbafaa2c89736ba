"""Parts that every page has: title, fact, sources, and the link to the next page."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from html import escape
from typing import TYPE_CHECKING

import streamlit as st

from dashboard.charts.palette import PICK, Theme
from dashboard.charts.tokens import plain as plain
from dashboard.navigation import following

if TYPE_CHECKING:
    from core.attention import Entry  # at run time torch would come with it


def title(name: str, lead: str) -> None:
    """Title and lead in one element, which saves a gap."""
    st.markdown(f"# {name}\n\n{lead}")


def theme() -> Theme:
    """The browser's theme; light until it is known."""
    return "dark" if st.context.theme.type == "dark" else "light"


def fact(text: str) -> None:
    """The page's measured sentence, in the serif of the headings; **bold** and :primary[accent], tokens by plain."""
    size = "17px/25px" if len(text) > 180 else "19px/28px"
    st.html(f'<p style="font:400 {size} \'Source Serif\', serif;margin:0;overflow-wrap:anywhere">'
            f"{_as_html(text, PICK[theme()])}</p>")


def _as_html(text: str, accent: str) -> str:
    """The little Markdown that a fact needs, as HTML in which everything else is escaped."""
    out, bold = [], False
    for sign, escaped in re.findall(r"(\\(.)|\*\*|:primary\[|\]|[^\\*:\]]+|.)", text, re.DOTALL):
        if sign == "**":
            bold = not bold
            out.append("<b style='font-weight:600'>" if bold else "</b>")
        elif sign == ":primary[":
            out.append(f"<span style='color:{accent}'>")
        elif sign == "]":
            out.append("</span>")
        else:
            out.append(escape(escaped or sign))
    return "".join(out)


def entries_panel(entries: Iterable[Entry]) -> None:
    """Name, equation, meaning and paper of each choice in use."""
    for item in entries:
        paper = f" [{item.paper} {item.year}]({item.url})" if item.url else ""
        st.markdown(f"**{item.name}** — {item.meaning}{paper}")
        st.latex(item.latex)


def source_panel(function: object) -> None:
    """The source of a function, as it just ran."""
    st.code(inspect.getsource(function), language="python")  # type: ignore[arg-type]


def details(label: str, draw: Callable[[], object], key: str | None = None) -> None:
    """An expander whose content is drawn only while it is open."""
    panel = st.expander(label, on_change="rerun", key=key)
    if panel.open:
        with panel:
            draw()


def placeholder(text: str, height: int = 420) -> None:
    """A box of the figures' size with a line of text."""
    with st.container(border=True, height=height, vertical_alignment="center", horizontal_alignment="center"):
        st.caption(text)


def next_page(key: str) -> None:
    """Draw the link to the next page."""
    step = following(key)
    st.page_link(step.path, label=f"Next: {step.invite}", icon=":material/arrow_forward:")
