"""Export: every picture of the page in every format, from one dialog that is the same on all pages."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from functools import partial

import streamlit as st

from dashboard.draw.components import copy_buttons
from dashboard.draw.html_file import page_file
from dashboard.draw.picture_files import (
    FORMATS,
    IMAGES,
    MIME,
    NUMBERS,
    WIDTHS,
    Source,
    csv_file,
    latex_of,
    paper_file,
    picture_file,
    suffix_of,
    why_not,
)
from dashboard.draw.pictures import Picture
from dashboard.runtime.page_pictures import (
    begin,
    drawn_components,
    has_script,
    page_about,
    page_pictures,
)
from dashboard.runtime.page_reset import CURRENT
from dashboard.runtime.reports import REPORT
from dashboard.widgets.export_code import code_section
from dashboard.widgets.export_report import report_section
from dashboard.widgets.export_table import table_section

REQUESTED = "export:requested"


def request() -> None:
    """Ask for the dialog; for a callback."""
    st.session_state[REQUESTED] = True


def begin_before_title() -> None:
    """Forget the pictures of the run before, on a page that draws before its title, where the dialog opens.

    Where the dialog was asked for they stay, since it also lists what is drawn below the title.
    """
    if REQUESTED not in st.session_state:
        begin()


def show_where_requested(page: str) -> None:
    """Open the dialog if it was asked for; `page` is the page's name."""
    if st.session_state.pop(REQUESTED, False):
        _dialog(page)


@st.dialog("Export", width="medium")
def _dialog(page: str) -> None:
    pictures = page_pictures()
    if not pictures:
        st.markdown("This page shows no picture yet.")
        code_section(source_of(page), pictures)
        return
    key = st.selectbox(
        "Picture",
        list(pictures),
        format_func=partial(_title, pictures),
        key="export:picture",
        help="Every map, chart, drawing and table that the page shows now.",
    )
    picture = pictures[key]
    source = source_of(page, picture)
    sections: dict[str, Callable[[], None]] = {"Picture": partial(_files, picture, source)}
    if st.session_state[CURRENT] != REPORT:
        sections["Report"] = partial(report_section, key, pictures, source)
    if has_script():
        sections["Python"] = partial(code_section, source_of(page), pictures)
    sections["Whole page"] = partial(_whole_page, source, pictures)
    for tab, draw in zip(st.tabs(list(sections)), sections.values(), strict=True):
        with tab:
            draw()
    st.caption(source.line.replace("$", r"\$"))


def _whole_page(source: Source, pictures: dict[str, Picture]) -> None:
    """Draw the button of the page's one HTML file."""
    st.caption("Every picture of the page in one file, alive without a network")
    about = Source(source.page, source.day, page_about(), {})
    st.download_button(
        "HTML",
        partial(page_file, about, pictures, drawn_components()),
        f"{source.page}.html",
        "text/html",
        on_click="ignore",
        help="Opens in any browser, in both themes.",
    )


def _files(picture: Picture, source: Source) -> None:
    """Draw the buttons of every format of a picture, its table, and what copies it."""
    images = IMAGES if picture.drawn else {}
    for label, formats in (("With its title and source", images), ("Its numbers", NUMBERS)):
        if formats:
            st.caption(label)
            with st.container(horizontal=True):
                for name in formats:
                    _button(name, picture, source)
    if picture.drawn:
        _for_a_paper(picture, source)
    table_section(picture)
    st.caption("To the clipboard")
    copy_buttons(copied_formats(picture, source), key="export:copy")


def _for_a_paper(picture: Picture, source: Source) -> None:
    """Draw the choice of a width and the buttons of the figure that is so wide."""
    width = st.selectbox(
        "For a paper",
        list(WIDTHS),
        key="export:paper",
        help="Type of 8 points and titles of the axes; no title and no source, which are for your "
        "caption. The SVG has its text as outlines.",
    )
    problem = why_not(picture, WIDTHS[width])
    if problem:
        st.caption(problem)
        return
    with st.container(horizontal=True):
        for label, suffix in FORMATS.items():
            st.download_button(
                label,
                partial(paper_file, picture, WIDTHS[width], suffix),
                source.file_name(f"{WIDTHS[width]:g} mm {picture.title}", suffix),
                MIME[suffix],
                on_click="ignore",
                key=f"export:paper:{suffix}",
            )


def copied_formats(picture: Picture, source: Source) -> dict[str, tuple[str, Callable[[], bytes]]]:
    """What of a picture can be copied: its image, and its table for a spreadsheet or for LaTeX."""
    formats: dict[str, tuple[str, Callable[[], bytes]]] = {
        "Table": ("text", lambda: csv_file(*picture.table(), dialect="excel-tab")),
        "LaTeX table": ("text", partial(latex_of, picture, source)),
    }
    return (
        {"Picture": ("png", partial(picture_file, picture, "PNG, 2 ×", source))}
        if picture.drawn
        else {}
    ) | formats


def _title(pictures: dict[str, Picture], key: str) -> str:
    return pictures[key].title


def source_of(page: str, picture: Picture | None = None) -> Source:
    """The source of the page or of a picture of it, with the controls of its link."""
    about = {**page_about(), **(picture.about if picture else {})}
    return Source(page, datetime.date.today().isoformat(), about, dict(st.query_params))


def _button(name: str, picture: Picture, source: Source) -> None:
    suffix = suffix_of(name)
    st.download_button(
        name,
        partial(picture_file, picture, name, source),
        source.file_name(picture.title, suffix),
        MIME[suffix],
        on_click="ignore",
        key=f"export:{st.session_state[CURRENT]}:{name}",
    )
