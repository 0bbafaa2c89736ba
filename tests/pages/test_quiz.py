"""The quiz: its questions by arithmetic of the test's own, and the page from the first answer to the result."""

import math
import re
from collections.abc import Callable

import numpy as np
import pytest

from core.studies.questions import PAGES, WORDS, Drawn, quiz
from dashboard.navigation import PATH
from dashboard.ui import bars
from tests.pages.app import (
    Case,
    assert_says,
    open_at,
    page_cases,
    page_text,
    query_value,
    visit_cases,
)


def numbers(text: str) -> list[float]:
    return [float(each) for each in re.findall(r"-?\d+\.?\d*", text.replace("−", "-"))]


def scaled(question: Drawn) -> float:
    q, k = (numbers(each) for each in re.findall(r"\((.*?)\)", question.text))
    return float(np.dot(q, k)) / len(q) ** 0.5


def unmasked(question: Drawn) -> float:
    *weights, last = numbers(question.text)
    key = next(word for word in WORDS if f"does *{word}*" in question.text)
    return weights[WORDS.index(key)] / (1 - last)


ORACLES: tuple[Callable[[Drawn], float], ...] = (
    lambda one: math.prod(numbers(one.text)),
    scaled,
    lambda one: 1 / (1 + math.exp(numbers(one.text)[1] - numbers(one.text)[0])),
    lambda one: numbers(one.text)[0] ** 2 / numbers(one.text)[1],
    lambda one: numbers(one.text)[0] - numbers(one.text)[1],
    unmasked,
    lambda one: 3 * numbers(one.text)[0],
    lambda one: int(np.argmax([head[::-1].trace() for head in one.maps[0]])),  # type: ignore[index]
    lambda one: 2 * math.prod(numbers(one.text)) / 16,  # but for the query heads
)


def value(text: str) -> float:
    """The number of an option; of two positions, their distance."""
    first, *rest = numbers(text.replace(",", ""))
    return first - sum(rest)


@pytest.mark.parametrize("seed", range(4))
def test_one_option_is_right_and_the_others_differ(seed):
    drawn = (*quiz(seed), quiz(seed, 0)[-1])
    assert tuple(each.page for each in drawn) == PAGES and {*PAGES} == {*PATH, "cache"}
    for question, oracle in zip(drawn, ORACLES, strict=True):
        assert len(set(question.options)) == 4
        right = value(question.options[question.answer])
        assert right == pytest.approx(oracle(question), abs=0.02), question


test_the_questions_are_about_the_pages_that_were_seen = visit_cases(
    {
        "but for the cache, then for one of two about One query": [
            ("quiz", Case()),
            *((page, Case()) for page in PATH),
            ("quiz", Case(query={"quiz:without": None})),
            ("cache", Case()),
            ("quiz", Case(query={"quiz:without": "2"})),
        ],
    }
)
test_what_a_link_opens = page_cases(
    "quiz",
    {
        "answers stay with their questions": Case(
            {"quiz:answers": "0", "quiz:without": "2"}, query={"quiz:without": "2"}
        ),
        "a line for each stop": Case(
            {"start:visited": "why.masks"},
            [*(stop.showed for stop in bars.STOPS), "2 of 7 pages opened"],
            do=[("session_state", bars.RECAP, True)],
        ),
    }
    | {
        f"other answers, {answers}, begin again": Case(
            {"quiz:answers": answers, "quiz:at": "3"}, ["1 of 8."]
        )
        for answers in ("9", "0123012301", "x")
    },
)


def test_a_seed_gives_the_same_questions_and_another_other_numbers():
    assert quiz(3)[:-1] == quiz(3)[:-1]
    assert all(one.text != other.text for one, other in zip(quiz(3)[:2], quiz(4)[:2], strict=True))


def test_answers_are_told_why_counted_and_lead_back():
    drawn = quiz(5)
    app = open_at("quiz", "quiz:", seed="5")
    for at, question in enumerate(drawn):
        assert_says(app, f"{at + 1} of 8.")
        picked = question.answer if at else (question.answer + 1) % 4
        app.button_group(key=f"quiz:5:{at}").set_value(picked).run()
        assert_says(app, "Right." if at else "Not right.")
        assert "\\*" not in page_text(app), "an emphasis is drawn"
        assert app.button_group(key=f"quiz:5:{at}").disabled
        app.button(key="quiz:next").click().run()
    assert_says(app, "7 of 8 answers are right", drawn[0].why)
    link = {name: str(query_value(app, f"quiz:{name}")) for name in ("seed", "answers", "at")}
    assert "7 of 8 answers are right" in page_text(open_at("quiz", "quiz:", **link)), (
        "after a reload"
    )
    app.button(key="quiz:again").click().run()
    assert_says(app, "1 of 8.")
    assert query_value(app, "quiz:seed") == "6" and "quiz:answers" not in app.query_params
