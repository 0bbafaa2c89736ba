"""The page: the lessons that ship, a form that makes one, and a field that reads the codes of students."""

from __future__ import annotations

import streamlit as st

from dashboard.draw.formats import plain
from dashboard.navigation import step_of
from dashboard.runtime.link_values import fragment
from dashboard.ui.lesson_bar import MAKE, start_lesson, teacher_markdown
from dashboard.ui.lessons import KEYS, decode, encode
from dashboard.views.lessons.controls import address, key, uploaded_lesson
from dashboard.views.lessons.make import make
from dashboard.views.lessons.read import read
from dashboard.widgets.panels import details, next_page, paragraph, title
from dashboard.widgets.params import BOUND

PARTS = ("Work through", MAKE, "Read codes")


def page() -> None:
    """Draw the page from top to bottom."""
    title(
        "Lessons",
        "A lesson puts a teacher's text and questions round a page of the lab, and checks the answers.",
        copy_link="Copy draft (with answers)",
    )
    parts()
    next_page("lessons")


@fragment
def parts() -> None:
    """Draw the choice of a part, and the part, which rerun alone."""
    part = st.segmented_control(
        "Part",
        PARTS,
        default=PARTS[0],
        required=True,
        key=key("part"),
        wrap=True,
        label_visibility="collapsed",
        **BOUND,
        help="Open a lesson, make one of your own, or read the codes that students hand in.",
    )
    {PARTS[1]: make, PARTS[2]: read}.get(part or PARTS[0], work)()


def work() -> None:
    """The lessons that ship, as cards, and a field for the file of another one."""
    with st.grid(3, min_column_width=260, gap="medium"):
        for name in KEYS:
            lesson = decode(name)
            with st.container(gap="small"):
                paragraph(
                    f"**{plain(lesson.title)}**\n\n{teacher_markdown(lesson.text.partition(chr(10))[0])}\n\n"
                    f":gray[:small[{len(lesson.questions)} questions on the page {step_of(lesson.page).title}]]"
                )
                st.page_link(
                    step_of("lessons").path,
                    label="Open the lesson",
                    icon=":material/play_arrow:",
                    query_params={"lesson": name},
                )
    details("Links of these lessons", links, key("links"))
    uploaded = uploaded_lesson("Open the file of a lesson", "open")
    if uploaded is not None and st.button(
        f"Open {plain(uploaded.title)}", key=key("start"), icon=":material/play_arrow:"
    ):
        start_lesson(encode(uploaded))


def links() -> None:
    """The addresses of the lessons, to copy."""
    st.code("\n".join(address(name) for name in KEYS), language=None)
    st.caption("With &embed=true at its end, a link shows the lesson inside a page of a course.")
