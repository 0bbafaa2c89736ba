"""The questions of a lesson, below its page: the fields, the verdicts, and the code to hand in."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from contextlib import suppress
from html import unescape
from typing import Any

import streamlit as st

from dashboard.draw.formats import plain
from dashboard.lessons import Code, Lesson, LessonError, Question, Result, make_code, read_code
from dashboard.lessons.codes import MOST_NAME, clean_name
from dashboard.lessons.lesson import MOST_LINK
from dashboard.lessons.questions import HELP, MOST_ANSWER
from dashboard.runtime.link_values import BOUND, KEEP, write_link

CODE = "lesson-code"  # the link's parameter of what was answered
NAME = "lesson:name"
TEXT_WIDTH = 860  # px
FENCE = re.compile(r"(`{3,}|~{3,})([^\n\r]*)")


def teacher_markdown(text: str) -> str:
    """A teacher's Markdown, of which nothing is fetched from another host. HTML is not run.

    An image begins with `![`, which stands nowhere in the result; a diagram, which may hold images, is shown as its
    source; a `:help[…]`, whose words would be read as Markdown once more, is no directive.
    """
    text = FENCE.sub(
        lambda fence: fence[1] + ("" if "mermaid" in _decoded(fence[2]) else fence[2]), text
    )
    return re.sub(r":+(?=help\[)", "", re.sub(r"!+(?=\[)", "", text))


def _decoded(info: str) -> str:
    """What follows a fence, as Markdown reads it."""
    return unescape(info.replace("\\", "")).lower()


def ask(lesson: Lesson) -> None:
    """Draw the questions, each with its verdict, and the code to hand in."""
    results = _results(lesson)
    for index, question in enumerate(lesson.questions):
        st.markdown(
            f"**Question {index + 1}.** {teacher_markdown(question.text)}", width=TEXT_WIDTH
        )
        key = f"lesson:{lesson.id}:answer:{index}"
        with (
            st.form(f"lesson:{lesson.id}:form:{index}", border=False),
            st.container(horizontal=True, vertical_alignment="bottom", gap="small"),
        ):
            _answer_field(question, key)
            st.form_submit_button(
                "Check", key=f"{key}:check", on_click=_check, args=(lesson, index, key)
            )
        _verdict(question, results[index], st.session_state.get(f"{key}:error", ""))
    _hand_in(lesson, results)


def _answer_field(question: Question, key: str) -> None:
    shared: dict[str, Any] = {"key": key, "help": HELP[question.type] or None, **KEEP}
    if question.type == "choice":
        st.radio("Your choice", question.options, index=None, format_func=plain, **shared)
    elif len(question.offsets) > 1:
        st.text_area("Your numbers", max_chars=MOST_ANSWER, height=90, width=420, **shared)
    else:
        label = {"numbers": "Your number", "text": "Your answer"}.get(question.type, "Your formula")
        st.text_input(label, max_chars=MOST_ANSWER, width=420, **shared)


def _check(lesson: Lesson, index: int, key: str) -> None:
    """Check an answer and note the try; one that cannot be read, or comes after the right one, is no try."""
    results = _results(lesson)
    st.session_state.pop(f"{key}:error", None)
    try:
        right = lesson.questions[index].check(str(st.session_state.get(key) or ""))
    except LessonError as error:
        st.session_state[f"{key}:error"] = str(error)
        return
    before = results[index]
    if before.right:
        if not right:
            st.session_state[f"{key}:error"] = "This answer is not right; your right one counts."
        return
    results[index] = Result(right, before.tries + 1)
    st.session_state[f"lesson:{lesson.id}:results"] = results


def _results(lesson: Lesson) -> list[Result]:
    """What was answered, from the session or else from the link."""
    key = f"lesson:{lesson.id}:results"
    if key not in st.session_state:
        results = [Result(False, 0)] * len(lesson.questions)
        with suppress(LessonError):
            code = read_code(st.query_params.get(CODE, ""))
            if code.lesson == lesson.id and not code.name and len(code.results) == len(results):
                results = list(code.results)
        st.session_state[key] = results
    elif any(result.tries for result in st.session_state[key]):
        write_short(CODE, _code(lesson, st.session_state[key]))
    return list(st.session_state[key])


def _code(lesson: Lesson, results: Sequence[Result], name: str = "") -> str:
    return make_code(Code(name, lesson.id, tuple(results), datetime.date.today()))


def _verdict(question: Question, result: Result, error: str) -> None:
    if error:
        st.markdown(f":orange[{plain(error)}]")
    elif result.right:
        st.markdown(
            f":green[**Right**], after {result.tries} {'try' if result.tries == 1 else 'tries'}."
        )
    elif result.tries:
        st.markdown(f":orange[**Not yet.**] {teacher_markdown(question.hint)}")


def _hand_in(lesson: Lesson, results: list[Result]) -> None:
    """Draw the name and the line to hand in."""
    st.markdown(
        f"**To hand in.** Right answers: {sum(result.right for result in results)} of {len(results)}."
    )
    name = clean_name(
        st.text_input(
            "Your name",
            key=NAME,
            max_chars=MOST_NAME,
            width=420,
            **BOUND,
            help="It goes into the line below and the address of this page.",
        )
        or ""
    )
    if name:
        st.code(f"{name} {_code(lesson, results, name)}", language=None, wrap_lines=True)
        st.caption(
            "Copy this line and give it to your teacher. Nothing is stored on the server; the address of this "
            "page holds your progress."
        )


def write_short(name: str, text: str) -> None:
    """Write a text into the link, unless it is too long for one."""
    if len(text) <= MOST_LINK:
        write_link(name, text)
