"""Parts that every page has: its look and title, its texts, charts and tables, panels that open, and messages."""

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any

import streamlit as st

from core import plugins
from core.entries import ConfigError, Entry
from core.files import sentence_of
from dashboard.draw.components import (
    COPY_LINK,
    HEIGHT,
    WIDTH,
    add,
    begin,
    notes,
    page_actions,
    sent,
)
from dashboard.draw.figures import (
    PAGE,
    PICK,
    PICKED,
    Spec,
    Theme,
    each_press_counts,
    enlarged,
    mark_html,
    ordered,
)
from dashboard.draw.formats import plain, spoken
from dashboard.draw.glossary import STYLE as TERM_STYLE, explain, explain_markdown
from dashboard.draw.picture_files import table_html
from dashboard.draw.pictures import ChartPicture, TablePicture
from dashboard.fields.link import (
    VISITS,
    link_value,
    one_of,
    visited_pages,
)
from dashboard.fields.reset import is_pending, request_reset
from dashboard.server.session import CURRENT, SessionValue
from dashboard.ui import export

# Present: the sidebar away and everything half as large again, for a room that reads from a projector.


PRESENT = "present"  # its name in the link
IS_PRESENT = SessionValue(False, PRESENT)
# the mode and the browser's theme in the last run of the whole app
DRAWN = SessionValue[Any](None, "presentation:drawn")
SCALE, WIDE_SCALE = 1.5, 2  # of 1,280 px: 1,920 and, from WIDE on, 2,560
WIDE = 2400
# Streamlit measures in rem; the components and the HTML of our own in pixels. Vega reads the pointer in pixels of the
# screen, so that its figures are enlarged in their specs. The box of the buttons beside the title is fixed in pixels.
STYLE = f"""<style>
:root {{ --present: {SCALE}; font-size: calc(16px * var(--present)) !important; }}
@media (min-width: {WIDE}px) {{ :root {{ --present: {WIDE_SCALE}; }} }}
[data-testid=stSidebar], [data-testid=stExpandSidebarButton] {{ display: none !important; }}
[data-testid^=stBidiComponent], [data-testid=stHtml] {{ zoom: var(--present); }}
.stElementContainer[class*="-actions"] {{ flex: none; width: calc({WIDTH}px * var(--present)) !important;
  height: calc({HEIGHT}px * var(--present)) !important; }}
</style>"""


def _turn_presentation() -> None:
    IS_PRESENT.value = not IS_PRESENT.value


def _look() -> tuple[bool, str | None]:
    return IS_PRESENT.value, st.context.theme.type


def room(width: int) -> int:
    """A width in pixels for Streamlit, which holds the same words while the session presents, on any screen."""
    return width * WIDE_SCALE if IS_PRESENT.value else width


def apply_look() -> None:
    """Take the mode from the link, write it there, and draw its style; on each run of each page."""
    link_value(PRESENT, False, one_of([True, False]))
    DRAWN.value = _look()
    if IS_PRESENT.value:
        st.html(STYLE)


def pressed_point(key: str, name: str = PICKED) -> dict[str, Any] | None:
    """What a figure says of the cell or point that was pressed in it; None for a press beside all; for a callback."""
    points = (sent(key, "selection") or {}).get(name)
    return points[0] if points else None


def draw_chart(
    place: Any,
    spec: Spec,
    data: Any = None,
    *,
    alt: str,
    heading: str = "",
    legend: str = "",
    **options: Any,
) -> Any:
    """Draw a Vega-Lite figure under its `heading`, enlarged while the session presents; Export has it by its `alt`."""
    if heading:
        chart_title(heading, place, legend)
    alt, spec = spoken(alt), ordered(spec)
    add(str(options.get("key") or alt), lambda: ChartPicture(alt.rstrip("."), spec, data))
    # what files alone have of it would build the drawing anew where it changes
    shown = {name: part for name, part in spec.items() if name != "usermeta"}
    shown = each_press_counts(shown) if "selection_mode" in options else shown
    return place.vega_lite_chart(
        data, enlarged(shown, SCALE) if IS_PRESENT.value else shown, alt=alt, **options
    )


# A wide equation scrolls in its own box and fades where it goes on; 4 px hold what a last italic letter leans out.
# On a phone, a line says that a wide table or equation scrolls: without anything to scroll, its animation does not run.
EQUATION = "[data-testid=stMain] :is(.katex-display, p:has(> .katex):not(:has(> :not(.katex))))"
SCROLL_STYLE = """<style>
EQUATION {
  overflow: auto hidden; padding: 2px 4px 2px 0; animation: fade-out linear both;
  animation-timeline: scroll(self inline) }
[data-testid=stCaptionContainer] code { color: inherit; background: none; padding: 0 }
@keyframes fade-out { 0%, 95% { mask-image: linear-gradient(90deg, #000 calc(100% - 64px), transparent) } }
@media (max-width: 640px) {
:is([data-testid=stDataFrame], .lab-table, EQUATION)::after { position: sticky; left: 0; display: block;
  padding: 2px 8px; font-size: 12px; line-height: 20px; text-align: left; opacity: .62 }
:is([data-testid=stDataFrame], .lab-table)::after { content: "Scroll sideways for more." }
@supports (animation-timeline: scroll()) {
EQUATION::after { content: "Scroll sideways for more." }
:is(.lab-table, EQUATION)::after { max-height: 0; padding: 0 8px; overflow: hidden; animation: wide linear both;
  animation-timeline: scroll(nearest inline) }
@keyframes wide { from, to { max-height: 24px; padding: 2px 8px } }
}}</style>""".replace("EQUATION", EQUATION)

# Streamlit writes white on the primary color, which is too light for it on a dark page.
DARK_STYLE = f"<style>[data-testid^=stBaseButton-primary] {{ color: {PAGE['dark']} }}</style>"


def title(
    name: str,
    lead: str,
    *,
    first: bool = True,
    copy_link: str = COPY_LINK,
) -> None:
    """Title and lead, and on a page of the app its buttons; not `first` where the script has drawn pictures before.

    `copy_link` names what the link holds.
    """
    # The mode or the theme may change after the app was drawn: a fragment that hears of it reruns alone.
    if is_pending() or _look() != (DRAWN.value or _look()):
        st.rerun(scope="app")
    page = CURRENT.value
    if page is None:
        st.markdown(f"# {name}\n\n{lead}")
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
                page_actions(
                    key=f"{page}:actions",
                    presenting=IS_PRESENT.value,
                    theme=theme(),
                    on_present=_turn_presentation,
                    on_export=export.request,
                    on_reset=request_reset,
                    cookies=[*export.report_cookie(), f"{VISITS}={'.'.join(visited_pages())}"],
                    label=copy_link,
                )
        paragraph(lead)
    st.html(TERM_STYLE + SCROLL_STYLE + (DARK_STYLE if theme() == "dark" else ""))
    export.show_where_requested(name)
    if first:
        begin()


BODY, PROSE = 540, 460  # pixels: 75 signs of a paragraph, and of a caption


def paragraph(text: str, width: Any = BODY) -> None:
    st.markdown(explain_markdown(text), unsafe_allow_html=True, width=width)


def caption(text: str, width: Any = PROSE) -> None:
    st.caption(explain_markdown(text), unsafe_allow_html=True, width=width)


def chart_title(text: str, column: Any = st, legend: str = "") -> None:
    legend = legend and f"&ensp;{legend}"
    column.markdown(
        f":small[{explain_markdown(f'**{text}**')}{legend}]",
        unsafe_allow_html=True,
    )


def theme() -> Theme:
    return "dark" if st.context.theme.type == "dark" else "light"


def fact(text: str) -> None:
    """The page's measured sentence, in the serif of the headings; **bold** and :primary[accent], tokens by plain."""
    notes().fact = spoken(text)
    size = "17px/25px" if len(text) > 180 else "19px/28px"
    st.html(
        f"<p style=\"font:400 {size} 'Source Serif', serif;margin:0;max-width:34em;overflow-wrap:anywhere\">"
        f"{_as_html(text, PICK[theme()])}</p>"
    )


def _as_html(text: str, accent: str) -> str:
    """The little Markdown that a fact needs, as HTML in which all else is escaped; terms outside it are explained."""
    out, bold, picked, seen = [], False, False, set[str]()
    for sign in re.findall(r"\*\*|:primary\[|\]|(?:\\.|[^\\*:\]])+|.", text, re.DOTALL):
        if sign == "**":
            bold = not bold
            out.append("<b style='font-weight:600'>" if bold else "</b>")
        elif sign == ":primary[":
            picked = True
            out.append(f"<span style='color:{accent}'>")
        elif sign == "]" and picked:
            picked = False
            out.append("</span>")
        else:
            plain_text = re.sub(r"\\(.)", r"\1", sign, flags=re.DOTALL)
            out.append(escape(plain_text) if bold or picked else explain(plain_text, seen))
    return "".join(out)


def entries_panel(entries: Iterable[Entry]) -> None:
    for item in entries:
        paper = f" [{item.paper} {item.year}]({item.url})" if item.url else ""
        st.markdown(f"**{item.name}** — {item.meaning}{paper}")
        st.latex(item.latex, width="content")


def source_panel(*functions: Any) -> None:
    for function in functions:
        st.code(inspect.getsource(function), language="python")


def sources(text: str, *functions: object) -> None:
    if text:
        st.markdown(text)
    source_panel(*functions)


def details(
    label: str, draw: Callable[[], object], key: str | None = None, opened: bool = False
) -> None:
    """An expander whose content is drawn only while it is open, as it is at first where it is `opened`."""
    if opened and key:
        st.session_state.setdefault(key, True)
    panel = lazy_panel(label, key)
    if panel.open:
        with panel:
            draw()


def lazy_panel(label: str, key: str | None, into: Any = st) -> Any:
    """An expander that the caller fills only while it is `open`."""
    return into.expander(label, on_change="rerun", key=key)


def settings_panel(label: str, key: str | None = None, opened: bool = False) -> Any:
    """An expander of controls or of what a link may open: it runs while it is closed, too."""
    return st.expander(label, opened, key=key)


def placeholder(text: str, height: int = 420) -> None:
    with st.container(
        border=True, height=height, vertical_alignment="center", horizontal_alignment="center"
    ):
        st.caption(text)


# A small table: hairlines, numbers aligned right, a marker before each name; it scrolls on a phone.


TABLE_STYLE = """<style>
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
          markers: bool = True, marks: Sequence[str] = (), wrap: bool = False,
          exported: TablePicture | None = None) -> None:  # fmt: skip
    """Rows of text under a head, their names after `marks` (HTML) or, with `markers`, the marker of their series.

    `left` are the columns that are aligned left, or the number of the first ones. `caption` is what a screen reader
    hears first. All text is escaped. With `wrap` long cells have several lines. `exported` has a row for each thing
    where a row of the page has several.
    """
    picture = exported or TablePicture(caption, tuple(head), tuple(map(tuple, rows)))
    add(f"table:{caption}", lambda: picture)
    if markers and not marks:
        marks = [mark_html(index, theme()) for index in range(len(rows))]
    left = range(left) if isinstance(left, int) else left
    look = "lab-table wrap" if wrap else "lab-table"
    # apart, since it never changes: a rerun then sends and cleans the rows alone
    st.html(TABLE_STYLE)
    st.html(
        f'<div class="{look}" tabindex="0" '  # keys scroll it
        f'role="region" aria-label="{escape(caption)}">{table_html(head, rows, left, marks)}</div>'
    )


# A message that a callback leaves for the next run of its page.


def flash(page: str, message: str) -> None:
    SessionValue("", f"{page}:trouble").value = message


def pop_flash(page: str) -> str:
    return SessionValue("", f"{page}:trouble").pop()


def flash_errors(
    page: str, prefix: str, action: Callable[[], object], *errors: type[Exception]
) -> bool:
    """Run an action; an error of these types becomes the page's message. Returns whether it succeeded."""
    try:
        action()
    except errors as error:
        flash(page, prefix + sentence_of(error))
        return False
    return True


@contextmanager
def shown_errors(*errors: type[Exception]) -> Iterator[None]:
    """Show a ConfigError, or one of these errors, in place of what it ends, and go on after the block or function."""
    kinds: tuple[type[Exception], ...] = (ConfigError, *errors)
    try:
        yield
    except kinds as error:
        st.error(plain(str(error)))


@contextmanager
def plugin_problems() -> Iterator[None]:
    if plugins.folder() is None:
        yield
        return
    place = st.container()
    try:
        yield
    finally:
        for owner, faults in plugins.faults.items():
            for fault in faults:
                text = f"{plain(owner)} is a plug-in. {plain(fault)}"
                place.warning(text, icon=":material/rule:")
        for problem in plugins.problems:
            place.warning(
                f"{plain(problem)} Correct it and start the dashboard again.",
                icon=":material/extension:",
            )
