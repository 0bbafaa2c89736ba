"""Make a lesson: the form, and the link, the frame for a course page and the file that it gives."""

from __future__ import annotations

import streamlit as st

from dashboard.draw.formats import plain
from dashboard.navigation import step_of
from dashboard.ui.lessons import MOST_LINK, LessonError, encode, to_json
from dashboard.views.lessons.controls import address, draw_lesson, draw_questions, key, read_lesson

NO_PROOF = (
    "The answers travel with the lesson as salted hashes: reading the link does not show them. A student who "
    "tries many answers by program can still find one, so neither the link nor a code is proof against "
    "cheating. The link of this page holds your draft with its answers: save it for yourself."
)


def make() -> None:
    """Draw the form and, once it is complete, what it gives."""
    draw_lesson()
    draw_questions()
    try:
        lesson = read_lesson()
    except LessonError as error:
        st.info(plain(str(error)), icon=":material/edit:")
        return
    text = encode(lesson)
    st.subheader("Hand it out")
    if len(text) <= MOST_LINK:
        link = address(text)
        st.code(link, language=None, wrap_lines=True)
        st.caption(
            f"The lesson takes {len(text):,} of at most {MOST_LINK:,} characters of this link."
        )
        st.markdown("In a page of a course:")
        st.code(
            f'<iframe src="{link}&embed=true" width="100%" height="900"></iframe>',
            language="html",
            wrap_lines=True,
        )
    else:
        st.warning(
            f"The lesson takes {len(text):,} characters, and a link at most {MOST_LINK:,}. Shorten it, or hand "
            "out the file."
        )
    with st.container(horizontal=True, vertical_alignment="center"):
        st.download_button(
            "Download the file",
            to_json(lesson, indent=1),
            "lesson.json",
            "application/json",
            key=key("file"),
            icon=":material/download:",
            on_click="ignore",
            help="Students open it on this page, under Work through.",
        )
        if len(text) <= MOST_LINK:
            st.page_link(
                step_of("lessons").path,
                label="Try it as a student",
                icon=":material/play_arrow:",
                query_params={"lesson": text},
            )
    st.caption(NO_PROOF)
