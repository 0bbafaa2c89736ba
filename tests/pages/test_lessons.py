"""The page Lessons, a lesson round another page, and the codes: what a teacher and a student see and do."""

import datetime
from dataclasses import replace
from functools import partial

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.ui.lessons import (
    KEYS,
    MAX_LINK,
    TYPES,
    Code,
    Lesson,
    Result,
    decode,
    encode,
    make_code,
    make_question,
)
from dashboard.ui.links import PENDING
from tests.pages.app import APP, app_at, html_text, open_at, page_text, query_value

open_page = partial(open_at, "lessons", "lessons:")
LESSON = Lesson(
    "Causal <b>masks</b>",
    "Look at **every** row. <script>alert(1)</script> ![x](https://host/x.png)",
    "masks",
    (("masks:tokens", "one two three"),),
    ("masks:tokens", "masks:no_control"),
    (
        make_question(
            "choice", "Which?", "before", options=("before", "after"), hint="Look at row 1."
        ),
        make_question("mask", "Type it.", "j <= i"),
    ),
)
KEY = f"lesson:{LESSON.id}:answer"


@pytest.fixture
def student() -> AppTest:
    """The app as a student opens it by a link to the lesson."""
    app = open_at("lessons", lesson=encode(LESSON))
    return app.run()  # AppTest opens the page of switch_page one run later


def check(app: AppTest, index: int) -> AppTest:
    return app.button(key=f"{KEY}:{index}:check").click().run()


def handed_in(app: AppTest, name: str = "Ada Lovelace") -> str:
    app.text_input(key="lesson:name").set_value(name).run()
    return next(item.value for item in app.code if item.value.startswith(name))


def test_a_link_opens_its_page_with_the_text_the_controls_and_the_questions(student):
    text = page_text(student)
    assert "# Masks" in text and "Lesson: Causal" in text and "Look at **every** row." in text
    assert student.text_input(key="masks:tokens").value == "one two three"
    styles = "".join(element.proto.body for element in student.get("html"))
    assert ".st-key-masks-tokens,.st-key-masks-no_control{display:none" in styles
    assert "does not show now: masks:no_control" in text.replace("\\", "")
    shown = next(item for item in student.markdown if "every" in item.value)
    assert not shown.allow_html and "![" not in shown.value


def test_answers_are_checked_counted_and_handed_in_as_a_code_that_the_teacher_reads(student):
    student.radio(key=f"{KEY}:0").set_value("after")
    check(student, 0)
    assert "Not yet.**] Look at row 1." in page_text(student)
    student.radio(key=f"{KEY}:0").set_value("before")
    check(student, 0)
    assert "after 2 tries" in page_text(student)
    student.text_input(key=f"{KEY}:1").set_value("j +")
    check(student, 1)
    assert "character" in page_text(student), "an answer that cannot be read is no try"
    reloaded = AppTest.from_file(APP, default_timeout=60)
    for name in ("lesson", "lesson-code"):
        reloaded.query_params[name] = query_value(student, name)
    reloaded.switch_page("../pages/masks.py").run()
    assert "after 2 tries" in page_text(reloaded)
    reloaded.text_input(key=f"{KEY}:1").set_value("i >= j")
    check(reloaded, 1)
    line = handed_in(reloaded)
    teacher = open_page(part="Read codes")
    teacher.text_input(key="lessons:link").set_value(
        f"https://host/lessons?lesson={encode(LESSON)}"
    )
    teacher.text_area(key="lessons:codes").set_value(
        f"{line}\n\n{line[:-1]}\nno code\n{other_code()}"
    ).run()
    assert html_text(teacher).count("<tr") == 2 and "Ada Lovelace" in html_text(teacher)
    assert "2 of 2" in html_text(teacher) and "2, 1" in html_text(teacher)
    sentences = [item.value for item in teacher.warning]
    assert [sentence[:6] for sentence in sentences] == ["Line 3", "Line 4", "Line 5"]
    assert (
        "does not belong to this code" in sentences[0].replace("\\", "")
        and "another lesson" in sentences[2]
    )


def test_what_is_said_of_an_answer_does_not_survive_a_right_one_or_reset(student):
    student.switch_page("../pages/masks.py").run()
    for right in (False, True):
        student.text_input(key=f"{KEY}:1").set_value("j +")
        assert "character" in page_text(check(student, 1))
        if right:
            student.text_input(key=f"{KEY}:1").set_value("j <= i")
            check(student, 1)
        else:
            student.session_state[PENDING] = ("masks", [], {})
            student.run()
            student.run()
        assert "To hand in." in page_text(student) and "character" not in page_text(student)
    assert "after 1 try" in page_text(student)


def labels(app: AppTest) -> str:
    return " ".join(str(element.proto.label) for element in app.get("page_link"))


@pytest.mark.parametrize("hidden", [False, True])
def test_the_next_page_is_left_out_and_the_questions_of_the_page_on_wish(hidden):
    app = open_at("masks", lesson=encode(replace(LESSON, hide_guide=hidden)))
    assert ("Predict first" in page_text(app), "Try this" in page_text(app)) == (
        not hidden,
        not hidden,
    )
    assert "Next:" not in labels(app) and "To hand in." in page_text(app)
    app.button(key="lesson:end").click().run()
    assert "Next:" in labels(app) and "Try this" in page_text(app)


def test_the_right_answer_of_a_choice_is_picked_from_its_options():
    app = open_page(
        part="Make a lesson",
        title="T",
        page_link="http://host/masks",
        q1="Which?",
        **{"q1:options": "before\nafter", "q1:answer": "after", "hide_guide": "true"},
    )
    lesson = decode(app.code[0].value.partition("lesson=")[2])
    assert (
        lesson.questions[0].check("after")
        and not lesson.questions[0].check("before")
        and lesson.hide_guide
    )
    assert app.selectbox(key="lessons:q1:answer").options == ["before", "after"]
    app.text_area(key="lessons:q1:options").set_value("before\nlater").run()
    assert "it has no right answer" in app.info[0].value
    app.selectbox(key="lessons:q1:answer").select("later").run()
    assert decode(app.code[0].value.partition("lesson=")[2]).questions[0].check("later")
    app.selectbox(key="lessons:q1:type").set_value("text").run()
    app.text_area(key="lessons:q1:answer").set_value("Paris").run()
    app.selectbox(key="lessons:q1:type").set_value("choice").run()
    assert app.selectbox(key="lessons:q1:answer").value is None and not app.exception
    helps = " ".join(item.help for item in (*app.selectbox, *app.text_area))
    assert "by value" not in helps and "letter by letter" not in helps


def made(app: AppTest) -> Lesson:
    return decode(app.code[0].value.partition("lesson=")[2])


def test_the_controls_to_hide_are_listed_by_their_labels_and_the_page_leads_back_to_the_draft():
    app = open_page(
        part="Make a lesson",
        title="Mine",
        page_link="http://host/masks",
        q1="Which?",
        **{"q1:type": TYPES["text"], "q1:answer": "a"},
    )
    assert (
        "Open Masks to list its controls" in labels(app)
        and app.multiselect(key="lessons:hide").options == []
    )
    app.switch_page("../pages/masks.py").run()
    assert "Your draft of a lesson" in page_text(app) and "Back to the draft" in labels(app)
    app.switch_page("../pages/lessons.py").run()
    hide = app.multiselect(key="lessons:hide")
    assert {"Sentence", "Mask", "Combine", "Head"} <= set(hide.options)
    assert not [
        name for name in hide.options if name.startswith("masks:")
    ] and "Open Masks" not in labels(app)
    assert app.text_input(key="lessons:title").value == "Mine" and made(app).hide == ()
    hide.select("Sentence").run()
    assert (
        made(app).hide == ("masks:tokens",) and query_value(app, "lessons:hide") == "masks:tokens"
    )
    app.switch_page("../pages/masks.py").run()
    app.button(key="lesson:draft:close").click().run()
    assert "Your draft" not in page_text(app)


def test_an_older_link_of_a_draft_keeps_its_hidden_controls():
    app = app_at(
        "lessons",
        "lessons:",
        part="Make a lesson",
        title="T",
        page_link="http://host/masks",
        count="0",
    )
    app.query_params["lessons:hide"] = ["masks:tokens", "masks:join"]
    assert made(app.run()).hide == ("masks:tokens", "masks:join")


def other_code() -> str:
    return f"Eve {make_code(Code('Eve', '123456', (Result(True, 1),), datetime.date(2026, 1, 2)))}"


def test_another_page_leads_back_and_the_lesson_ends(student):
    student.switch_page("../pages/glossary.py")
    student.query_params.clear()
    student.run()
    assert "It is about another page" in page_text(student)
    student.button(key="lesson:end").click().run()
    assert "Lesson:" not in page_text(student)


@pytest.mark.parametrize(
    ("lesson", "sentence"),
    [
        ("broken", "holds no whole lesson"),
        ("A" * (MAX_LINK + 1), "too long"),
        (encode(LESSON).replace("-", "A")[:50], "holds no whole lesson"),
    ],
)
def test_a_broken_link_gets_a_sentence_and_the_page_opens(lesson, sentence):
    app = open_at("masks", lesson=lesson)
    assert sentence in app.warning[0].value and "# Masks" in page_text(app)


def test_the_lessons_that_ship_are_listed_with_their_links():
    app = open_page()
    text = page_text(app)
    assert all(decode(name).title in text and decode(name).questions for name in KEYS)
    assert len(app.get("page_link")) == len(KEYS) + 1


@pytest.mark.parametrize("name", KEYS)
def test_a_lesson_that_ships_hides_controls_that_its_page_has(name):
    app = open_at("lessons", lesson=name)
    app.run()
    text = page_text(app)
    assert f"Lesson: {decode(name).title}" in text and "does not show now" not in text
    assert all(key in app.query_params or key.endswith(":idea") for key, _ in decode(name).query), (
        app.query_params
    )


def test_a_teacher_makes_a_lesson_and_its_draft_is_in_the_link():
    app = open_page(part="Make a lesson")
    assert "Give the lesson a title" in app.info[0].value
    app.text_input(key="lessons:title").set_value("My lesson")
    app.text_input(key="lessons:page_link").set_value("http://host/masks?masks:tokens=a+b").run()
    app.text_area(key="lessons:q1").set_value("How many?")
    app.selectbox(key="lessons:q1:type").set_value("numbers").run()
    assert "it has no right answer" in app.info[0].value
    app.text_area(key="lessons:q1:answer").set_value("7")
    app.multiselect(key="lessons:hide").set_value(["masks:tokens"]).run()
    link = app.code[0].value
    lesson = decode(link.partition("lesson=")[2])
    assert (lesson.title, lesson.page, lesson.query) == (
        "My lesson",
        "masks",
        (("masks:tokens", "a b"),),
    )
    assert lesson.hide == ("masks:tokens",) and lesson.questions[0].check("7.005")
    assert (
        f"{len(encode(lesson)):,} of at most" in page_text(app)
        and "embed=true" in app.code[1].value
    )
    draft = {
        "title": "My lesson",
        "page_link": "http://host/masks?masks:tokens=a+b",
        "q1": "How many?",
        "q1:answer": "7",
        "q1:type": TYPES["numbers"],
        "hide": "masks:tokens",
        "part": "Make a lesson",
    }
    assert open_page(**draft).code[0].value == link
    app.text_input(key="lessons:page_link").set_value("http://host/nothing").run()
    assert "no page of the lab" in app.info[0].value.replace("\\", "")
