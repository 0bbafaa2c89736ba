"""The page Report: the views that were added, in order, and the report as one file."""

from __future__ import annotations

from functools import partial

import streamlit as st

from dashboard.charts.figure_files import size_of as size_of_svg
from dashboard.charts.pictures import DrawnPicture
from dashboard.navigation import step_of
from dashboard.runtime.page_pictures import add
from dashboard.runtime.reports import REPORT, Report, ReportView, size_of
from dashboard.views.report import compute, text
from dashboard.views.report.controls import (
    draw_buttons,
    draw_new,
    draw_texts,
    draw_title,
    take_report,
    unknown_link,
)
from dashboard.widgets.flash import pop_flash
from dashboard.widgets.panels import caption, fact, next_page, paragraph, plain, title
from dashboard.widgets.table import table

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
        _draw(report)
    next_page("report")


def _draw(report: Report) -> None:
    base = (st.context.url or "").partition("?")[0].rpartition("/")[0]
    left, right = st.columns([0.5, 0.5], gap="medium", vertical_alignment="bottom")
    with left:
        draw_title(report)
    with right, st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.download_button("HTML", partial(compute.html_file, report, base), "report.html", "text/html",
                           icon=":material/download:", key=f"{REPORT}:html", on_click="ignore",
                           help="One file with its pictures alive, which needs no network.")
        st.download_button("PDF", partial(compute.pdf_file, report, base), "report.pdf", "application/pdf",
                           icon=":material/download:", key=f"{REPORT}:pdf", on_click="ignore",
                           help="Vector pictures and text on A4 sheets; each view has a link that opens it live.")
        draw_new()
    caption(text.room(report, size_of(report)))
    for at, view in enumerate(report.views):
        _draw_view(view, at + 1, len(report.views))


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
        st.page_link(step.path, label=f"Open it live on {step.title}", icon=step.icon, query_params=dict(view.query))
        st.caption(plain(view.source.removeprefix("Attention Lab · ")))


def _draw_picture(view: ReportView) -> None:
    """The drawing on white, or the table; Export takes either as files."""
    if not view.svg:
        table(view.head, [["" if value is None else str(value) for value in row] for row in view.rows[:MOST_SHOWN]],
              caption=view.title, markers=False)
        if len(view.rows) > MOST_SHOWN:
            st.caption(f"The first {MOST_SHOWN} of {len(view.rows):,} rows; the HTML file has all.")
        return
    paper = compute.on_paper(view.svg)
    st.image(paper, width=round(size_of_svg(paper)[0]), alt=view.title)
    add(f"{REPORT}:{view.id}", lambda: DrawnPicture(view.title, tuple(view.head), tuple(map(tuple, view.rows)),
                                                    view.svg))
