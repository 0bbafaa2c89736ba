"""Lessons and codes: round trips as properties, answers by value, broken links and files, the lessons that ship."""

import datetime
import json
import re
import zlib
from base64 import urlsafe_b64encode
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st
from markdown_it import MarkdownIt

from dashboard.ui.lesson_bar import teacher_markdown
from dashboard.ui.lessons import (
    KEYS,
    MAX_FILE,
    MAX_LINK,
    PAGES,
    START,
    Code,
    Lesson,
    LessonError,
    Result,
    clean_name,
    decode,
    encode,
    from_json,
    make_code,
    make_question,
    page_query,
    parse_link,
    read_code as read,
    to_json,
)
from dashboard.ui.lessons.exercises import LESSONS
from tests.cases import each

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=60)
QUESTION = make_question("numbers", "How much?", "0.25", tolerance=0.01, hint="A quarter")
LESSON = Lesson(
    "Weights",
    "Read **one** weight.",
    "masks",
    (("masks:tokens", "a b c"),),
    ("masks:rule",),
    (QUESTION,),
)
HEX = st.text("0123456789abcdef", min_size=6, max_size=6)
RESULTS = st.lists(st.builds(Result, st.booleans(), st.integers(0, 7)), max_size=10).map(tuple)
CODES = st.builds(
    Code, TEXT.map(clean_name), HEX, RESULTS, st.dates(START, datetime.date(2200, 1, 1))
)


@given(
    TEXT,
    TEXT,
    st.sampled_from(PAGES),
    st.lists(st.tuples(TEXT, TEXT), max_size=4),
    st.lists(st.from_regex(r"[a-z_]{1,9}:[a-z:.]{1,9}", fullmatch=True), max_size=4),
)
def test_a_lesson_comes_back_from_its_link_and_its_file(title, text, page, query, hide):
    lesson = Lesson("T" + title, text, page, tuple(query), tuple(hide), (QUESTION,))
    for again in (
        decode(encode(lesson)),
        from_json(to_json(lesson)),
        from_json(to_json(lesson, indent=1)),
    ):
        assert again == lesson and again.id == lesson.id
    bare = replace(lesson, hide_guide=True)
    assert (
        decode(encode(bare)) == bare
        and bare.id != lesson.id
        and "hide_guide" not in to_json(lesson)
    )
    other = Lesson("T" + title, text + "!", page, tuple(query), tuple(hide), (QUESTION,))
    assert other.id != lesson.id and "0.25" not in to_json(lesson)


@given(CODES, st.data())
def test_a_code_comes_back_and_one_changed_sign_is_told(code, data):
    text = make_code(code)
    assert read(f"{code.name} {text}") == code
    assert read(f"  {code.name}:\t{text.lower()} ") == code
    at = data.draw(st.sampled_from([at for at, sign in enumerate(text) if sign != "-"]))
    wrong = text[:at] + ("7" if text[at] != "7" else "8") + text[at + 1 :]
    with pytest.raises(LessonError):
        read(f"{code.name} {wrong}")
    with pytest.raises(LessonError, match="does not belong to this code"):
        read(f"{code.name}x {text}")


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e3), st.floats(-1, 1))
def test_a_number_is_right_exactly_within_its_tolerance(answer, tolerance, share):
    question = make_question("numbers", "How much?", repr(answer), tolerance=tolerance)
    assert question.check(repr(answer + share * tolerance))
    assert not question.check(repr(answer + (1.02 if share > 0 else -1.02) * tolerance))


@each(
    "type_, answer, right, wrong",
    [
        ("text", "L3·H1\n3·1", ["l3 h1", "3.1", "L3H1"], ["L3·H2", "1·3"]),
        ("numbers", "0.25", ["0,25", "0.2500001 ", ".25", "25e-2"], ["0.27", "-0.25"]),
        ("numbers", "16640", ["16,640", "16640.001"], ["16.64"]),
        (
            "numbers",
            "1 2\n3 4",
            ["[[1, 2], [3, 4]]", "tensor([[1., 2.],\n [3., 4.]])"],
            ["1 3 2 4"],
        ),
        ("numbers", "-3", ["−3"], ["3"]),
        (
            "mask",
            "j <= i",
            ["i >= j", "not j > i", "i - j > -1"],
            ["j < i", "j <= i and i - j < 3", "h == 0 and j <= i"],
        ),
        (
            "score",
            "score - 0.5*abs(i-j)",
            ["score - abs(j - i)/2", "score + min(i-j, j-i)*0.5"],
            ["score", "score - i"],
        ),
    ],
)
def test_answers_are_compared_by_value(type_, answer, right, wrong):
    question = make_question(type_, "?", answer, tolerance=0.01)
    assert all(question.check(one) for one in right) and not any(
        question.check(one) for one in wrong
    )


@each(
    "type_, answer",
    [
        ("numbers", "1 2"),
        ("numbers", "no number"),
        ("mask", "score > 0"),
        ("score", "j <="),
        ("text", "  "),
        ("numbers", "1" * 3000),
    ],
)
def test_an_answer_that_cannot_be_read_gets_a_sentence(type_, answer):
    question = make_question(type_, "?", {"mask": "j <= i", "score": "score"}.get(type_, "7"))
    with pytest.raises(LessonError):
        question.check(answer)


def test_an_answer_of_too_many_numbers_is_told_how_many_to_type():
    for answer in ("5/2+0.5", "many"):
        with pytest.raises(LessonError, match=r"^Type one number, such as 2\.5\.$"):
            QUESTION.check(answer)
    with pytest.raises(LessonError, match="Type 4 numbers, row by row; here are 3"):
        make_question("numbers", "?", "1 2 3 4").check("1 2 3")


def test_a_question_about_less_says_which_sign_is_meant():
    question = decode("positions").questions[0]
    assert question.check("2.5") and "without a minus sign" in question.text


@each(
    "values",
    [{"text": ""}, {"answer": " "}, {"options": ("a",)}, {"options": ("a", "a")}, {"answer": "d"}],
)
def test_a_question_that_does_not_fit_gets_a_sentence(values):
    with pytest.raises(LessonError):
        make_question("choice", **{"text": "?", "answer": "a", "options": ("a", "b"), **values})


def packed(data: bytes) -> str:
    return urlsafe_b64encode(zlib.compress(data)).decode().rstrip("=")


def changed(**values) -> str:
    return json.dumps({**json.loads(to_json(LESSON)), **values})


@each(
    "text",
    [
        "",
        "attention2",
        "%%%",
        "é",
        packed(b"{}"),
        packed(b"[1]"),
        packed(b"\xff"),
        encode(LESSON)[:-9],
        packed(b" " * 10 * MAX_FILE),
        packed(changed(page="no_page").encode()),
        *(
            packed(changed(**values).encode())
            for values in list[dict[str, Any]](
                (
                    {"format": "2"},
                    {"questions": 3},
                    {"questions": [{}]},
                    {"query": [["a"]]},
                    {"hide": ["</style>"]},
                    {"query": [["embed", "true"]]},
                    {"title": ""},
                    {"text": "x" * 4000},
                    {"questions": [{"type": "text", "text": "?", "right": ["0"]}]},
                    {
                        "questions": [
                            {
                                "type": "numbers",
                                "text": "?",
                                "right": ["0" * 16],
                                "offsets": [1e400],
                                "width": 1,
                            }
                        ]
                    },
                )
            )
        ),
    ],
)
def test_a_broken_lesson_gets_a_sentence(text):
    with pytest.raises(LessonError, match=r"[a-z]\.$"):
        decode(text)


def test_the_link_of_a_page_gives_the_page_and_its_controls():
    page, parameters = parse_link(
        "https://host/lab/masks?masks:tokens=a+b&m=1&m=2&lesson=x&embed=true"
    )
    assert page == "masks" and page_query(parameters) == (
        ("masks:tokens", "a b"),
        ("m", "1"),
        ("m", "2"),
    )
    assert parse_link("http://host:8501/") == ("start", {})
    for link in ("https://host/other?x=1", "http://[", "-"):
        with pytest.raises(LessonError):
            parse_link(link)


@pytest.mark.parametrize("name", KEYS)
def test_the_answers_of_a_lesson_that_ships_are_those_of_core(name, monkeypatch):
    """Each answer that core gives now is right in the file; the tolerances are wider than what machines differ by."""
    saved, answers = decode(name), []

    def note(type_, text, answer, **values):
        answers.append(answer.splitlines() if type_ == "text" else [answer])
        return make_question(type_, text, answer, **values)

    monkeypatch.setattr("dashboard.ui.lessons.exercises.make_question", note)
    fresh = LESSONS[name]()
    assert (fresh.title, fresh.text, fresh.page, fresh.query, fresh.hide) == (
        saved.title,
        saved.text,
        saved.page,
        saved.query,
        saved.hide,
    ) and len(encode(saved)) < MAX_LINK
    for question, lines, now in zip(saved.questions, answers, fresh.questions, strict=True):
        assert (question.text, question.options, question.hint) == (now.text, now.options, now.hint)
        assert lines and all(question.check(line) for line in lines), question.text


HOST = "http://images.example/i.png"
PIECES = st.lists(
    st.sampled_from(
        [
            "!",
            "!!",
            "[",
            "]",
            "(",
            ")",
            "![",
            "![x]",
            f"({HOST})",
            f"[y]: {HOST}\n",
            "[y]",
            "\\",
            "\n",
            "\n\n",
            " ",
            "`",
            "```",
            "~~~",
            "````",
            "mermaid",
            "Mermaid",
            "&#109;ermaid",
            "mer\\maid",
            "&#33;",
            "&#91;",
            ":",
            ":help",
            ":help[",
            "*",
            "> ",
            "- ",
            "<",
            ">",
            f"<img src={HOST}>",
            "x",
            HOST,
            "\r",
            "\t",
            "$",
            "\\includegraphics",
            "{",
            "}",
            "\u200b",
            "\0",
        ]
    ),
    max_size=14,
).map("".join)
FORMS = [
    f"![x]({HOST})",
    f"!![x]({HOST})",
    f"\\![x]({HOST})",
    f"!!!![x]({HOST})",
    f"![x][y]\n\n[y]: {HOST}",
    f"![y]\n\n[y]: {HOST}",
    f"![y][]\n\n[y]: <{HOST}>",
    f"[![x]({HOST})]({HOST})",
    f"> !![x][y]\n\n> [y]: {HOST}",
    f"![x](<{HOST}> 'title')",
    f"!&#91;x]({HOST})",
    f"- a\n\n      ![x]({HOST})\n  ![x]({HOST})",
    f":help[\\!\\[x\\]({HOST})]",
    f"::help[&#33;&#91;x]({HOST})]",
    f"!:help[![x]({HOST})]",
    f'```mermaid\nflowchart TD\n A@{{ img: "{HOST}" }}\n```',
    "~~~ MERMAID `x`\nA\n~~~",
    "> ```&#109;erm\\aid\n> A\n> ```",
    f"<img src={HOST}>",
    f"!\\[x]({HOST})",
]


@given(PIECES | st.sampled_from(FORMS) | st.builds(str.__add__, PIECES, st.sampled_from(FORMS)))
def test_nothing_of_a_teachers_text_is_fetched_from_another_host(text):
    """As CommonMark reads it, in which the page writes it; a diagram's language is what the page looks for."""
    for written in (teacher_markdown(text), f"**Question 1.** {teacher_markdown(text)}"):
        tokens = MarkdownIt("commonmark", {"html": False}).parse(written)
        whole = [*tokens, *(child for token in tokens for child in token.children or ())]
        assert not [
            token for token in whole if token.type in ("image", "html_block", "html_inline")
        ]
        assert not [
            token
            for token in whole
            if token.type == "fence" and re.match(r"mermaid", token.info.strip(), re.IGNORECASE)
        ]
        assert "![" not in written and ":help[" not in written
    assert teacher_markdown(teacher_markdown(text)) == teacher_markdown(text)


@pytest.mark.parametrize(
    "text",
    [
        "Read **this**!",
        "a [link](https://a.example)",
        "```python\nx = 1\n```",
        "`a` ``` b ```",
        "What is $3!$ of [these]?",
        ":blue[colour] :material/home:",
        "1. one\n2. two",
    ],
)
def test_other_markdown_of_a_teacher_stays_as_it_is(text):
    assert teacher_markdown(text) == text
