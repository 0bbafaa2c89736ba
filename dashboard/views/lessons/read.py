"""Read codes: the lines that students handed in, as a table; a line that cannot be read gets a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import streamlit as st

from dashboard.draw.formats import plain
from dashboard.ui.lessons import (
    KEYS,
    MOST_TRIES,
    Code,
    Lesson,
    LessonError,
    decode,
    parse_link,
    read_code,
)
from dashboard.ui.tables import table
from dashboard.views.lessons.controls import key, read_lesson, uploaded_lesson
from dashboard.widgets.params import KEEP

MOST_LINES = 500
HEAD = ("name", "lesson", "right", "questions", "tries", "date")


def read() -> None:
    """Draw the field and the table. Names stay in the session: they are in no link."""
    lessons = known_lessons()
    typed = st.text_area(
        "Codes, one on each line",
        key=key("codes"),
        height=200,
        max_chars=100 * MOST_LINES,
        **KEEP,
        placeholder="Ada Lovelace 2E7C-…",
        help="The lines that students handed in: name, then code.",
    )
    rows, errors = read_lines(typed or "", lessons)
    if rows:
        table(HEAD, rows, caption="What students solved", left={0, 1, 3, 4}, markers=False)
    for sentence in errors:
        st.warning(plain(sentence))
    st.caption(
        "The column tries has a number for each question: how many answers the student checked, up to the right "
        f"one. {MOST_TRIES} means {MOST_TRIES} or more; – means that no answer was checked. A line is refused "
        "when its code was mistyped, belongs to another name, or to another lesson. A code is no proof "
        "against cheating. Nothing is stored on the server."
    )


def known_lessons() -> dict[str, Lesson]:
    """The lessons by their ids: those that ship, the one of the form, and that of a link or a file."""
    lessons = [decode(name) for name in KEYS]
    link = st.text_input(
        "Link of your lesson",
        key=key("link"),
        **KEEP,
        help="Needed for a lesson of your own. The five lessons of the lab are known.",
    )
    try:
        if link:
            lessons.append(decode(parse_link(link)[1].get("lesson", [""])[0]))
    except LessonError as error:
        st.warning(plain(str(error)))
    if (lesson := uploaded_lesson("Or its file", "known")) is not None:
        lessons.append(lesson)
    with suppress(LessonError):  # the form is not complete
        lessons.append(read_lesson())
    return {lesson.id: lesson for lesson in lessons}


def read_lines(typed: str, lessons: Mapping[str, Lesson]) -> tuple[list[list[str]], list[str]]:
    """A row for each code of a known lesson, and a sentence for every other line."""
    rows, errors = [], []
    lines = [(number, line) for number, line in enumerate(typed.splitlines(), 1) if line.strip()]
    for number, line in lines[:MOST_LINES]:
        try:
            code = read_code(line)
            rows.append(row(code, lessons.get(code.lesson)))
        except LessonError as error:
            errors.append(f"Line {number}: {error}")
    if len(lines) > MOST_LINES:
        errors.append(f"The first {MOST_LINES} of {len(lines)} codes are read.")
    return rows, errors


def row(code: Code, lesson: Lesson | None) -> list[str]:
    """One line of the table; LessonError for the code of an unknown lesson."""
    if lesson is None or len(lesson.questions) != len(code.results):
        raise LessonError(
            f"The code of {code.name or 'no name'} belongs to another lesson, or to one that was "
            "changed since. Give its link above."
        )
    right = [str(index) for index, result in enumerate(code.results, 1) if result.right]
    return [
        code.name or "–",
        lesson.title,
        f"{len(right)} of {len(code.results)}",
        ", ".join(right) or "–",
        ", ".join(str(result.tries or "–") for result in code.results),
        code.day.isoformat(),
    ]
