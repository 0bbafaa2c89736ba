"""Parts that every page has: title, fact, sources, and the link to the next page."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from html import escape
from typing import TYPE_CHECKING, Any

import streamlit as st

from dashboard.draw.components import COPY_LINK, page_actions
from dashboard.draw.formats import plain
from dashboard.draw.glossary import STYLE as TERM_STYLE
from dashboard.draw.glossary import explain, explain_markdown
from dashboard.draw.palette import PAGE, PICK, Theme
from dashboard.navigation import following
from dashboard.runtime import page_pictures, reports
from dashboard.runtime.lesson_state import lesson_runs
from dashboard.runtime.page_reset import CURRENT, is_pending, request_reset
from dashboard.ui import export
from dashboard.ui.presentation import is_new, presenting, toggle

if TYPE_CHECKING:
    from core.attention import Entry  # at run time torch would come with it


# A wide equation scrolls in its own box and fades where it goes on; 4 px hold what a last italic letter leans out.
# On a phone, a line says that a wide table scrolls: without anything to scroll, its animation does not run.
SCROLL_STYLE = """<style>
[data-testid=stMain] :is(.katex-display, p:has(> .katex):not(:has(> :not(.katex)))) {
  overflow: auto hidden; padding: 2px 4px 2px 0; animation: fade-out linear both;
  animation-timeline: scroll(self inline) }
[data-testid=stCaptionContainer] code { color: inherit; background: none; padding: 0 }
@keyframes fade-out { 0%, 95% { mask-image: linear-gradient(90deg, #000 calc(100% - 64px), transparent) } }
@media (max-width: 640px) {
:is([data-testid=stDataFrame], .lab-table)::after { content: "Scroll sideways for more."; position: sticky; left: 0;
  display: block; padding: 2px 8px; font-size: 12px; line-height: 20px; opacity: .62 }
@supports (animation-timeline: scroll()) {
.lab-table::after { max-height: 0; padding: 0 8px; overflow: hidden; animation: wide linear both;
  animation-timeline: scroll(nearest inline) }
@keyframes wide { from, to { max-height: 24px; padding: 2px 8px } }
}}</style>"""

# Streamlit writes white on the primary color, which is too light for it on a dark page.
DARK_STYLE = f"<style>[data-testid^=stBaseButton-primary] {{ color: {PAGE['dark']} }}</style>"


def title(
    name: str,
    lead: str,
    beside: Callable[[], object] = lambda: None,
    *,
    first: bool = True,
    copy_link: str = COPY_LINK,
) -> None:
    """Title and lead, and on a page of the app its buttons; not `first` where the script has drawn pictures before.

    `beside` draws a button of the page's own before them; `copy_link` names what the link holds.
    """
    if is_pending() or is_new():
        st.rerun(scope="app")
    page = st.session_state.get(CURRENT)
    if page is None:
        st.markdown(f"# {name}\n\n{lead}")
        beside()
        return
    with st.container(gap=None):
        with st.container(
            horizontal=True,
            horizontal_alignment="distribute",
            vertical_alignment="bottom",
            gap=None,
        ):
            st.markdown(f"# {name}", width="content")
            with st.container(
                horizontal=True, vertical_alignment="bottom", width="content", gap="xsmall"
            ):
                beside()
                page_actions(
                    key=f"{page}:actions",
                    presenting=presenting(),
                    theme=theme(),
                    on_present=toggle,
                    on_export=export.request,
                    on_reset=request_reset,
                    cookie=reports.cookie(),
                    label=copy_link,
                )
        paragraph(lead)
    st.html(TERM_STYLE + SCROLL_STYLE + (DARK_STYLE if theme() == "dark" else ""))
    export.show_where_requested(name)
    if first:
        page_pictures.begin()


def paragraph(text: str, **layout: Any) -> None:
    """Draw a paragraph of Markdown that explains the first use of each term."""
    st.markdown(explain_markdown(text), unsafe_allow_html=True, **layout)


def caption(text: str) -> None:
    """Draw the conditions of a picture or number, in Markdown that explains the first use of each term."""
    st.caption(explain_markdown(text), unsafe_allow_html=True)


def field_error(error: object) -> None:
    """Draw an error below the field that it is about."""
    st.markdown(f":small[:red[{plain(str(error))}]]")


def chart_title(text: str, column: Any = st, legend: str = "") -> None:
    """Draw the small title of a chart, which explains its terms, and after it a legend in HTML."""
    column.markdown(
        f":small[{explain_markdown(f'**{text}**')}{legend and '&ensp;'}{legend}]",
        unsafe_allow_html=True,
    )


def theme() -> Theme:
    """The browser's theme; light until it is known."""
    return "dark" if st.context.theme.type == "dark" else "light"


def fact(text: str) -> None:
    """The page's measured sentence, in the serif of the headings; **bold** and :primary[accent], tokens by plain."""
    page_pictures.note_fact(text)
    size = "17px/25px" if len(text) > 180 else "19px/28px"
    st.html(
        f"<p style=\"font:400 {size} 'Source Serif', serif;margin:0;overflow-wrap:anywhere\">"
        f"{_as_html(text, PICK[theme()])}</p>"
    )


def _as_html(text: str, accent: str) -> str:
    """The little Markdown that a fact needs, as HTML in which all else is escaped; terms outside it are explained."""
    out, bold, picked = [], False, False
    seen: set[str] = set()
    for sign in re.findall(r"\*\*|:primary\[|\]|(?:\\.|[^\\*:\]])+|.", text, re.DOTALL):
        if sign == "**":
            bold = not bold
            out.append("<b style='font-weight:600'>" if bold else "</b>")
        elif sign == ":primary[":
            picked = True
            out.append(f"<span style='color:{accent}'>")
        elif sign == "]":
            picked = False
            out.append("</span>")
        else:
            plain_text = re.sub(r"\\(.)", r"\1", sign, flags=re.DOTALL)
            out.append(escape(plain_text) if bold or picked else explain(plain_text, seen))
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
    with st.container(
        border=True, height=height, vertical_alignment="center", horizontal_alignment="center"
    ):
        st.caption(text)


def next_page(key: str) -> None:
    """Draw the link to the next page; a lesson's questions come instead."""
    if lesson_runs():
        return
    step = following(key)
    st.page_link(step.page(), label=f"Next: {step.invite}", icon=":material/arrow_forward:")
