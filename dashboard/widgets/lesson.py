"""A lesson round a page: the teacher's text above, the questions below, and some of the page's controls hidden.

The lesson is in the link (`?lesson=`), and what was answered too (`?lesson-code=`); nothing is stored on the server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from dashboard.draw.formats import plain
from dashboard.lessons import Lesson, LessonError, decode
from dashboard.lessons.lesson import MOST_LINK
from dashboard.navigation import step_of
from dashboard.runtime.drawn_controls import labels_drawn
from dashboard.runtime.lesson_state import note_lesson
from dashboard.runtime.page_reset import forget_page
from dashboard.widgets.lesson_draft import draft_bar, note_controls
from dashboard.widgets.lesson_questions import CODE, TEXT_WIDTH, ask, teacher_markdown, write_short

LINK = "lesson"  # its parameter of the link
ACTIVE = "lesson:active"  # the session's key of the lesson, as in the link


@contextmanager
def lesson_around(page: str) -> Iterator[None]:
    """Draw the page inside, with its lesson round it where it has one."""
    lesson = _current(page)
    note_lesson(None if lesson is None else lesson.hide_guide)
    draft_bar(page)
    with labels_drawn() as labels:
        if lesson is None:
            yield
        else:
            _introduce(lesson)
            body = st.container()
            if lesson.questions:
                with st.container(border=True, gap="small", key="lesson:questions"):
                    ask(lesson)
            with body:
                yield
    note_controls(page, labels)
    if lesson is not None:
        _name_missing(lesson)


def begin_again(page: str) -> Mapping[str, Any]:
    """Forget what was said of answers; returns the parameters with which the page's lesson begins, none without one."""
    text = st.session_state.get(ACTIVE)
    for key in [
        str(key)
        for key in st.session_state
        if str(key).startswith("lesson:") and str(key).endswith(":error")
    ]:
        del st.session_state[key]
    return _query(text) if text is not None and decode(text).page == page else {}


def start_lesson(text: str) -> None:
    """Open the page of a lesson, which is written as in a link, with its controls set."""
    lesson = decode(text)
    st.session_state[ACTIVE] = text
    forget_page(lesson.page, lesson.parameters)
    st.switch_page(step_of(lesson.page).path, query_params=_query(text))


def _query(text: str) -> dict[str, Any]:
    return {**decode(text).parameters, **({LINK: text} if len(text) <= MOST_LINK else {})}


def _current(page: str) -> Lesson | None:
    """The lesson of the link or the session where it is about this page; the link of another one opens its page."""
    text = st.query_params.get(LINK)
    if text is None:
        text = st.session_state.get(ACTIVE)
        if text is None:
            return None
        if decode(text).page != page:
            _way_back(text)
            return None
        write_short(LINK, text)
    try:
        if len(text) > MOST_LINK and LINK in st.query_params:
            raise LessonError(
                f"This link is too long for a lesson: at most {MOST_LINK:,} characters are read."
            )
        lesson = decode(text)
    except LessonError as error:
        st.warning(plain(str(error)), icon=":material/assignment:")
        return None
    if lesson.page != page:
        start_lesson(text)
    st.session_state[ACTIVE] = text
    return lesson


def _way_back(text: str) -> None:
    """On another page: a line that leads back to the lesson, or ends it."""
    lesson = decode(text)
    step = step_of(lesson.page)
    with st.container(
        horizontal=True, vertical_alignment="center", border=True, gap="small", key="lesson:bar"
    ):
        st.markdown(
            f":small[**Lesson: {plain(lesson.title)}.** It is about another page.]", width="stretch"
        )
        st.page_link(
            step.path, label=f"Back to {step.title}", icon=step.icon, query_params=_query(text)
        )
        st.button("End the lesson", key="lesson:end", type="tertiary", on_click=_end)


def _end() -> None:
    st.session_state.pop(ACTIVE, None)
    for name in (LINK, CODE):
        st.query_params.pop(name, None)


def _introduce(lesson: Lesson) -> None:
    """Hide the lesson's controls, also those in popovers, and draw the title and the teacher's text."""
    classes = [re.sub(r"[^a-zA-Z0-9_-]", "-", name) for name in lesson.hide]
    if classes:
        st.html(
            f"<style>{','.join(f'.st-key-{name}' for name in classes)}{{display:none!important}}</style>"
        )
    with st.container(border=True, gap="small", key="lesson:text"):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.markdown(f"**Lesson: {plain(lesson.title)}**", width="stretch")
            st.button(
                "End the lesson",
                key="lesson:end",
                type="tertiary",
                on_click=_end,
                help="The page stays open, with all its controls.",
            )
        st.markdown(teacher_markdown(lesson.text), width=TEXT_WIDTH)
        if lesson.questions:
            st.caption(f"Questions below the page: {len(lesson.questions)}.")


def _name_missing(lesson: Lesson) -> None:
    """Say which of the lesson's hidden controls the page lacks."""
    context = get_script_run_ctx()
    keys = (
        context.shared.widget_user_keys_this_run.snapshot()
        if context is not None
        else frozenset(lesson.hide)
    )
    missing = [name for name in lesson.hide if name not in keys]
    if missing:
        st.caption(
            f"The lesson hides controls that this page does not show now: {plain(', '.join(missing))}."
        )
