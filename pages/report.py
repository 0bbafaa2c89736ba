"""Report: views from any page, in order, as one HTML or PDF file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import streamlit as st

from dashboard.draw.formats import plain
from dashboard.draw.pictures import DrawnPicture
from dashboard.draw.pictures import size_of as size_of_svg
from dashboard.navigation import step_of
from dashboard.runtime.link_values import write_link
from dashboard.runtime.page_pictures import add
from dashboard.runtime.reports import (
    ID,
    REPORT,
    Report,
    ReportFull,
    ReportView,
    current_report,
    read_report,
    save,
    size_of,
)
from dashboard.ui.panels import caption, fact, next_page, paragraph, title
from dashboard.ui.progress import flash_errors, pop_flash
from dashboard.ui.tables import table
from dashboard.views.report import compute, text
from dashboard.views.report.text import TITLE

# The page Report: the views that were added, in order, and the report as one file.


MOST_TITLE, MOST_TEXT = 200, 1_000  # letters

MOST_SHOWN = 50  # rows of a table


def page() -> None:
    """Draw the report, or what one looks like."""
    title("Report", text.LEAD)
    lost = unknown_link()
    report = take_report()
    if message := pop_flash(REPORT):
        st.error(plain(message))
    if lost:
        st.warning("The report of this link is not on this server, or was deleted.")
    if report is None or not report.views:
        st.info(text.EMPTY, icon=":material/playlist_add:")
        _draw_view(compute.example(), 1)
    else:
        base = (st.context.url or "").partition("?")[0].rpartition("/")[0]
        left, right = st.columns([0.5, 0.5], gap="medium", vertical_alignment="bottom")
        with left:
            draw_title(report)
        with right, st.container(horizontal=True, gap="small", vertical_alignment="center"):
            st.download_button(
                "HTML",
                partial(compute.html_file, report, base),
                "report.html",
                "text/html",
                icon=":material/download:",
                key=f"{REPORT}:html",
                on_click="ignore",
                help="One file with its pictures alive, which needs no network.",
            )
            st.download_button(
                "PDF",
                partial(compute.pdf_file, report, base),
                "report.pdf",
                "application/pdf",
                icon=":material/download:",
                key=f"{REPORT}:pdf",
                on_click="ignore",
                help="Vector pictures and text on A4 sheets; each view has a link that opens it live.",
            )
            draw_new()
        caption(text.room(report, size_of(report)))
        for at, view in enumerate(report.views):
            _draw_view(view, at + 1, len(report.views))
    next_page("report")


def _draw_view(view: ReportView, number: int, count: int = 0) -> None:
    """One view beside its texts; the example, without a count, has no fields."""
    step = step_of(view.page)
    shown, texts = st.columns([0.58, 0.42], gap="medium")
    with shown:
        paragraph(f"**{number}. {plain(view.title)}**")
        _draw_picture(view)
    with texts:
        if count:
            draw_texts(view)
            draw_buttons(view, number - 1, count)
        else:
            fact(plain(view.sentence))
            st.markdown(plain(view.note))
        st.page_link(
            step.page(),
            label=f"Open it live on {step.title}",
            icon=step.icon,
            query_params=dict(view.query),
        )
        st.caption(plain(view.source.removeprefix("Attention Lab · ")))


def _draw_picture(view: ReportView) -> None:
    """The drawing on white, or the table; Export takes either as files."""
    if not view.svg:
        table(
            view.head,
            [
                ["" if value is None else str(value) for value in row]
                for row in view.rows[:MOST_SHOWN]
            ],
            caption=view.title,
            markers=False,
        )
        if len(view.rows) > MOST_SHOWN:
            st.caption(f"The first {MOST_SHOWN} of {len(view.rows):,} rows; the HTML file has all.")
        return
    paper = compute.on_paper(view.svg)
    st.image(paper, width=round(size_of_svg(paper)[0]), alt=view.title)
    add(
        f"{REPORT}:{view.id}",
        lambda: DrawnPicture(view.title, tuple(view.head), tuple(map(tuple, view.rows)), view.svg),
    )


# The fields and buttons of a report: each change is saved at once.


def take_report() -> Report | None:
    """The report of the link, else the one of the session or the browser; its id is written into the link."""
    linked = st.query_params.get(REPORT, "")
    if ID.fullmatch(linked) and read_report(linked):
        st.session_state[REPORT] = linked
    report = current_report()
    write_link(REPORT, None if report is None else report.id)
    return report


def unknown_link() -> bool:
    """Whether the link names a report that is not here."""
    linked = st.query_params.get(REPORT)
    return linked is not None and read_report(linked) is None


def draw_title(report: Report) -> None:
    """The field of the report's title."""
    _field(
        "Title of the report",
        report.title,
        f"{REPORT}:title",
        lambda now, text: _with_title(now, text),
        MOST_TITLE,
        "Stands above the views in the file.",
        placeholder=TITLE,
    )


def draw_texts(view: ReportView) -> None:
    """The fields of one view."""
    key = f"{REPORT}:{view.id}"
    _field(
        "Heading",
        view.title,
        f"{key}:title",
        lambda now, text: now.change(view.id, title=text),
        MOST_TITLE,
        "Stands above the picture.",
    )
    _field(
        "Sentence",
        view.sentence,
        f"{key}:sentence",
        lambda now, text: now.change(view.id, sentence=text),
        MOST_TEXT,
        "The page's own sentence. You can shorten it.",
        tall=True,
    )
    _field(
        "Note",
        view.note,
        f"{key}:note",
        lambda now, text: now.change(view.id, note=text),
        MOST_TEXT,
        "What you want to say about this view.",
        tall=True,
    )


def draw_buttons(view: ReportView, at: int, count: int) -> None:
    """Up, down and remove."""
    key = f"{REPORT}:{view.id}"
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.button(
            "Up",
            icon=":material/arrow_upward:",
            key=f"{key}:up",
            disabled=at == 0,
            on_click=_change,
            args=(lambda now: now.move(view.id, -1),),
            help="Show it before the view above.",
        )
        st.button(
            "Down",
            icon=":material/arrow_downward:",
            key=f"{key}:down",
            disabled=at == count - 1,
            on_click=_change,
            args=(lambda now: now.move(view.id, 1),),
            help="Show it after the view below.",
        )
        st.button(
            "Remove",
            icon=":material/delete:",
            key=f"{key}:remove",
            on_click=_change,
            args=(lambda now: now.without(view.id),),
            help="Take it out of the report.",
        )


def draw_new() -> None:
    """The button that begins another report."""
    st.button(
        "New report",
        icon=":material/note_add:",
        key=f"{REPORT}:new",
        on_click=_forget,
        help="Begin with an empty one. This one stays under the link of this page: copy it first.",
    )


def _field(
    label: str,
    value: str,
    key: str,
    change: Callable[[Report, str], Report],
    most: int,
    help_text: str,
    *,
    tall: bool = False,
    placeholder: str = "",
) -> None:
    """A text field that saves what is typed."""

    def take() -> None:
        _change(lambda now: change(now, str(st.session_state[key]).strip()))

    if tall:
        st.text_area(
            label, value, key=key, max_chars=most, height=104, on_change=take, help=help_text
        )
    else:
        st.text_input(
            label,
            value,
            key=key,
            max_chars=most,
            on_change=take,
            help=help_text,
            placeholder=placeholder,
        )


def _with_title(report: Report, title: str) -> Report:
    return Report(report.id, title, report.views)


def _change(change: Callable[[Report], Report]) -> None:
    """Save the report as it is now, changed; an error is shown on the page."""
    report = current_report()
    if report is not None:
        flash_errors(REPORT, "", lambda: save(change(report)), ReportFull, OSError)


def _forget() -> None:
    """No report in this session, until one is added to."""
    st.session_state[REPORT] = ""
    write_link(REPORT, None)
