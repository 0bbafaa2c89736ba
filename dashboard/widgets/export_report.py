"""Add a view to the report, from the Export dialog of any page: the picture, the page's sentence, a note, the link."""

from __future__ import annotations

import json
from collections.abc import Mapping

import streamlit as st

from core.files import sentence_of
from dashboard.draw.formats import byte_size, plain
from dashboard.draw.html_file import live_part
from dashboard.draw.picture_files import Source
from dashboard.draw.pictures import Picture
from dashboard.navigation import step_of
from dashboard.runtime.page_pictures import drawn_components, page_fact
from dashboard.runtime.page_reset import CURRENT
from dashboard.runtime.reports import (
    MOST_BYTES,
    MOST_ROWS,
    MOST_VIEWS,
    REPORT,
    Report,
    ReportFull,
    ReportView,
    current_report,
    new_id,
    save,
    size_of,
)

MOST_NOTE = 1_000  # letters
MOST_PART = 3_000_000  # bytes of a live component; beyond, a report has the drawing alone


def report_section(key: str, pictures: Mapping[str, Picture], source: Source) -> None:
    """Draw the field for a note and the button that adds the picked picture."""
    report, fact = current_report(), page_fact()
    st.caption("To your report, beside what you add from other pages")
    note = st.text_area(
        "Your note",
        key="export:note",
        max_chars=MOST_NOTE,
        height=80,
        help="Stands below the picture and the page's sentence. You can change it in the report.",
    )
    if fact:
        st.caption(f"The page's sentence goes with it: {plain(fact)}")
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.button(
            "Add to report",
            icon=":material/playlist_add:",
            key="export:report",
            help="The picture, its numbers, the sentence, your note, and a link that opens this view again.",
        ):
            _add(report or Report(new_id()), view_of(key, pictures, source, note or ""))
        st.page_link(
            step_of(REPORT).path,
            label="Open the report",
            icon=step_of(REPORT).icon,
            query_params={REPORT: report.id} if report else None,
        )
    st.caption(room(report))


def room(report: Report | None) -> str:
    """How much of its room a report takes."""
    views, taken = (len(report.views), size_of(report)) if report else (0, 0)
    return (
        f"The report has {views} of at most {MOST_VIEWS} views and takes {byte_size(taken)} of at most "
        f"{byte_size(MOST_BYTES)}."
    )


def view_of(key: str, pictures: Mapping[str, Picture], source: Source, note: str) -> ReportView:
    """The picked picture as a view of a report."""
    picture = pictures[key]
    head, rows = picture.table()
    part = live_part(key, pictures, drawn_components())
    live = None if part is None else [part.name, part.root, dict(part.data)]
    if live is not None and len(json.dumps(live, default=str)) > MOST_PART:
        live = None
    query = {name: st.query_params.get_all(name) for name in st.query_params}
    return ReportView(
        new_id(),
        picture.title,
        str(st.session_state[CURRENT]),
        query,
        page_fact(),
        note,
        source.line,
        picture.svg() if picture.drawn else "",
        list(head),
        rows if len(rows) <= MOST_ROWS else [],
        live,
    )


def _add(report: Report, view: ReportView) -> None:
    """Save the report with the view and close the dialog, or say why it does not fit."""
    try:
        save(report.with_view(view))
    except (ReportFull, OSError) as error:
        st.error(plain(sentence_of(error)))
        return
    count = len(report.views) + 1
    st.toast(
        f"Added to your report, which has {count} view{'s' if count > 1 else ''}.",
        icon=":material/playlist_add:",
    )
    del st.session_state["export:note"]
    st.rerun()
