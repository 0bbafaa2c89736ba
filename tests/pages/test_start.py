"""The pages Start here and Quiz and the tour, without a browser: numbers, links, the path, and what is not loaded."""

import json
import math
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.studies import start as example
from core.studies.questions import PAGES, Drawn, quiz
from core.studies.start import look_up
from dashboard.fields.reset import PENDING
from dashboard.navigation import PATH, STEPS, following
from dashboard.ui import bars
from dashboard.ui.guide import SHOW
from dashboard.ui.runs import EXAMPLE_RUN
from pages import start
from tests.cases import each
from tests.pages.app import (
    Case,
    assert_case,
    assert_says,
    open_at,
    page_cases,
    page_text,
    query_value,
    set_state,
    visit_cases,
)

open_page = partial(open_at, "start")


test_what_it_says = page_cases(
    "start",
    {
        "a key that equals the query": Case(
            says=["Soft look-up: 20.00"],
            do=[("button", "start:try:2", None)],
            controls={"start:q1": 0},
        ),
        "ten times the query that stands there": Case(
            {"start:q1": "0.5", "start:q2": "-2.0"},
            ["the largest weight was 0.71 and is 0.9999"],
            do=[("button", "start:try:1", None)],
            controls={"start:q1": 5.0, "start:q2": -20.0},
        ),
        "a tenth, where ten times is beyond the box": Case(
            {"start:q1": "20.0"},
            ["the nearer the output comes to the mean of the values"],
            do=[("button", "start:try:1", None)],
            controls={"start:q1": 2.0, "start:q2": 0.2},
        ),
        "ten times nothing": Case(
            {"start:q1": "0.0", "start:q2": "0.0"},
            ["ten times 0: the weights stay equal"],
            do=[("button", "start:try:1", None)],
        ),
        "key C as it stands there": Case(
            {"start:kC1": "3.0"},
            ["Hard look-up: 30.", "the hard look-up finds key C"],
            do=[("button", "start:try:0", None)],
            controls={"start:q1": 3.0, "start:q2": 1.0},
        ),
        "another query and another value": Case(
            says=["Hard look-up: 7."],
            do=[
                ("number_input", "start:q1", 1.0),
                ("number_input", "start:q2", 1.0),
                ("number_input", "start:vC", 7.0),
            ],
        ),
        "an old link of the first page": Case(
            {"why:d_model": "32 numbers"},
            ["# Why attention"],
            controls={"why:d_model": 32},
            query={"why:d_model": "32"},
        ),
        "an old link to runs": Case({"runs": "a.b"}, ["# Why attention"], query={"runs": "a.b"}),
        "the picked output word": Case({"start:word": "3"}, controls={"start:word": 3}),
        "no output word": Case({"start:word": "x"}, query={"start:word": None}),
    },
)
test_a_stop_of_the_tour_is_in_the_link = page_cases(
    "masks",
    {
        "there": Case({"tour": "4"}, [f"Tour, 5 of {len(bars.STOPS)}"]),
        "left": Case(
            {"tour": "4"},
            never=["Tour, 5"],
            do=[("button", "tour:skip", None)],
            query={"tour": None},
        ),
    },
)


@each(
    ("door", "typed", "button", "says", "query"),
    [
        (
            "model",
            "numbers",
            "See its heads",
            "# Pretrained models",
            {"inside:model": "numbers · English to German"},
        ),
        ("model", "", "See its heads", "Type its name first", {}),
        ("formula", "", "Compare it", "Type a formula first", {}),
        ("formula", "score - (", "Compare it", "the bracket of character 9 is not closed", {}),
        (
            "formula",
            "score - abs(i-j)",
            "Compare it",
            "# Side by side",
            {"m": ["", "position=formula(formula='score - abs(i-j)')"]},
        ),
    ],
)
def test_a_door_leads_on_with_what_was_typed(door, typed, button, says, query):
    app = set_state(open_page(), "start:doors", True)
    app.text_input(key=f"start:door:{door}:text").set_value(typed)
    next(one for one in app.button if one.label == button).click().run()
    assert (
        says in page_text(app).replace("\\", "") and query.items() <= {**app.query_params}.items()
    )


def test_both_look_ups_by_hand():
    shares = np.exp(np.array([1, 2, 3]) / 2**0.5)
    result = look_up((1.0, 2.0), example.KEYS, (10.0, 20.0, 30.0))
    assert result.output == pytest.approx(shares @ [10, 20, 30] / shares.sum())
    assert (result.equal, look_up((1.0, 1.0), example.KEYS, example.VALUES).equal) == (None, 2)


test_visited_pages_have_a_tick = visit_cases(
    {
        "here": [
            ("start", Case(says=["0 of 7 pages"])),
            ("positions", Case()),
            ("start", Case(says=["1 of 7 pages"])),
            ("masks", Case()),
            ("start", Case(says=["2 of 7 pages"])),
        ],
        "of an older link": [
            (
                "start",
                Case(
                    {"start:visited": "positions.masks.why.nothing"},
                    ["3 of 7 pages"],
                ),
            )
        ],
    }
)


def test_next_leads_along_path_and_tour_stops_at_each_page():
    paths = start.PATH_STOPS, [(stop.page, stop) for stop in bars.STOPS]
    assert [[page for page, _ in path] for path in paths] == [[*PATH], [*PATH]]
    assert [following(page).key for page in (STEPS[0].key, *PATH[:-1])] == [*PATH]


def test_the_tour_sets_the_controls_of_each_page_and_ends():
    app = open_page()
    app.button(key="start:tour").click().run()
    assert app.button(key="tour:back").disabled
    for index, stop in enumerate(bars.STOPS):
        assert stop.sentence in "\n".join(element.value for element in app.markdown), stop.page
        assert f"Tour, {index + 1} of {len(bars.STOPS)}" in page_text(app) and not app.warning
        for name, value in stop.query.items():  # the link leaves a default out
            assert app.query_params.get(name, [value]) in (value, [value]), (stop.page, name)
        app.switch_page(f"../pages/{stop.page}.py")  # AppTest has not seen that the tour went there
        app.button(key="tour:next" if index % 2 else "tour:on").click().run()
    assert_says(app, "# Quiz", "The tour is over.", "1 of 8.")
    assert "Tour, " not in page_text(app)


def test_a_stop_of_the_tour_starts_its_page_again():
    app = open_page()
    app.switch_page("../pages/masks.py").run()
    app.selectbox(key="masks:first").set_value("local").run()
    before = app.text_input(key="masks:tokens").value
    app.switch_page("../pages/start.py").run()
    app.button(key="start:tour").click().run()
    for _ in range(4):
        app.button(key="tour:next").click().run()
    assert app.text_input(key="masks:tokens").value == bars.TOUR_SENTENCE
    app.switch_page("../pages/masks.py")  # AppTest has not seen that the tour went there
    app.pills(key="masks:predict").set_value(SHOW).run()
    app.button(key="tour:next").click().run()
    app.switch_page("../pages/transformer.py")
    app.button(key="tour:back").click().run()
    assert app.selectbox(key="masks:first").value == "causal"
    assert app.pills(key="masks:predict").value == SHOW, "a prediction stays"
    app.switch_page("../pages/masks.py")
    app.button(key="tour:skip").click().run()
    app.run()  # as the browser does when the widgets have left it
    assert app.selectbox(key="masks:first").value == "local", "the reader's, before the tour"
    assert app.text_input(key="masks:tokens").value == before and "Tour, " not in page_text(app)
    assert app.pills(key="masks:predict").value == SHOW


def test_reset_returns_to_the_stop_of_the_tour():
    link: dict[str, Any] = {"tour": "4", **bars.STOPS[4].query}
    app = open_at("masks", **link)
    app.text_input(key="masks:tokens").set_value("One two").run()
    app.session_state[PENDING] = "masks", [*app.query_params], {}
    app.run().run()  # as the browser does when the widgets have left it
    assert app.text_input(key="masks:tokens").value == bars.TOUR_SENTENCE
    assert_says(app, f"Tour, 5 of {len(bars.STOPS)}", bars.STOPS[4].sentence)


def test_a_stop_that_asks_says_what_it_showed_once_answered():
    app = open_at("why", tour="0")
    assert_says(app, bars.STOPS[0].sentence)
    app.pills(key="why:predict").set_value(SHOW).run()
    assert_says(app, f"Tour, 1 of {len(bars.STOPS)}.", bars.STOPS[0].showed)


@each(
    ("at", "key", "value"),
    [(2, "heads:pressed:now", (0, 2)), (3, "positions:order", 2), (4, "masks:first", "none")],
)
def test_a_stop_says_what_it_showed_once_it_is_done(at, key, value):
    stop = bars.STOPS[at]
    link: Any = stop.query
    app = open_at(stop.page, tour=str(at), **link)
    assert_says(app, bars.STOPS[at].sentence)
    assert_says(set_state(app, key, value), f"Tour, {at + 1} of {len(bars.STOPS)}.", stop.showed)
    assert app.session_state["tour:awaited"][-1]


def test_the_tour_puts_back_the_controls_that_it_set():
    app = open_page()
    app.switch_page("../pages/heads.py").run()
    set_state(app, "heads:weights", "random")
    app.switch_page("../pages/start.py").run()
    assert_case(app, Case(do=[("button", "start:tour", None), ("button", "tour:next", None)]))
    assert query_value(app, "one:query") == "cat"
    app.session_state[bars.BUILT] = "one", {}
    assert_case(app, Case(do=[("button", "tour:next", None), ("button", "tour:skip", None)]))
    assert bars.BUILT not in app.session_state, "what a stop builds stays there"
    app.switch_page("../pages/one_query.py").run()
    assert "one:query" not in app.query_params and app.session_state["one:stage"] == 1
    app.switch_page("../pages/heads.py").run()
    assert query_value(app, "heads:weights") == "Random"


def test_the_saved_numbers_are_those_of_core():
    saved = example.load()
    for now, then in zip(example.translations(), saved["translations"], strict=True):
        np.testing.assert_allclose(weights := now.pop("weights"), then.pop("weights"), atol=2e-3)
        assert now == then and np.array(weights).round(4).tolist() == weights
    fresh = {
        "why": example.bottleneck(),
        "one_query": example.worked_weights(),
        "order": example.order(),
        "transformer": example.parameters(EXAMPLE_RUN.path),
        "train": example.losses(EXAMPLE_RUN.path),
    }
    assert json.loads(json.dumps(fresh)) == {name: saved["thumbnails"][name] for name in fresh}


def test_start_loads_neither_torch_nor_transformers():
    code = (
        "import sys; import dashboard.navigation, pages.start, dashboard.ui.bars; "
        "print([name for name in ('torch', 'transformers') if name in sys.modules])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parents[2],
            capture_output=True,
            encoding="utf-8",
            check=True,
        ).stdout.strip()
        == "[]"
    )


# The quiz: its questions by arithmetic of the test's own, and the page from the first answer to the result.


def numbers(text: str) -> list[float]:
    return [float(each) for each in re.findall(r"-?\d+\.?\d*", text.replace("−", "-"))]


def scaled(question: Drawn) -> float:
    q, k = (numbers(each) for each in re.findall(r"\((.*?)\)", question.text))
    return float(np.dot(q, k)) / len(q) ** 0.5


def read(question: Drawn) -> float:
    """The weight of a word from those that are shown, without that of the last word where a mask hides it."""
    words = max(re.findall(r"“(.+?)”", question.text), key=len).split()
    weights = dict(zip(words, numbers(question.text), strict=True))
    assert sum(weights.values()) == pytest.approx(1)
    return weights[re.findall(r"word “(.+?)”", question.text)[0]] / (
        1 - (weights["mouse"] if question.page == "masks" else 0)
    )


ORACLES: tuple[Callable[[Drawn], float], ...] = (
    lambda one: math.prod(numbers(one.text)),
    scaled,
    lambda one: 1 / (1 + math.exp(numbers(one.text)[1] - numbers(one.text)[0])),
    lambda one: int(np.argmax([head.trace(-1) for head in one.maps[0]])),  # type: ignore[index]
    read,
    read,
    lambda one: int(np.argmin([numbers(option)[2] for option in one.options])),
    lambda one: int(np.argmax([head[::-1].trace() for head in one.maps[0]])),  # type: ignore[index]
    lambda one: 2 * math.prod(numbers(one.text)) / 16,  # but for the query heads
)


@pytest.mark.parametrize("seed", range(12))
def test_one_option_is_right_and_the_others_differ(seed):
    drawn = (*quiz(seed), quiz(seed, 0)[-1])
    assert tuple(each.page for each in drawn) == PAGES and {*PAGES} == {*PATH, "cache"}
    for question, oracle in zip(drawn, ORACLES, strict=True):
        assert len(set(question.options)) == 4
        right = numbers(re.sub(r",(?=\d)", "", question.options[question.answer]))[0]
        assert right == pytest.approx(oracle(question), abs=0.0051), question
    assert drawn[:3] == quiz(seed)[:3] != quiz(seed + 1)[:3]


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
            {"start:visited": "why.masks", "quiz:answers": "01230123", "quiz:at": "8"},
            [*(stop.showed for stop in bars.STOPS), "2 of 7 pages opened"],
            do=[("session_state", bars.RECAP.key, True)],
        ),
    }
    | {
        f"other answers, {answers}, begin again": Case(
            {"quiz:answers": answers, "quiz:at": "3"}, ["1 of 8."]
        )
        for answers in ("9", "0123012301", "x")
    },
)


def test_answers_are_told_why_counted_and_lead_back():
    drawn, app = quiz(5), open_at("quiz", "quiz:", seed="5")
    assert_says(app, "new numbers each time: not those of its pages")
    assert any(query_value(open_at("quiz", "quiz:"), "quiz:seed") != "5" for _ in range(3)), (
        "a new one"
    )
    for at, question in enumerate(drawn):
        assert_says(app, f"{at + 1} of 8.")
        picked = question.answer if at else (question.answer + 1) % 4
        assert_case(
            app,
            Case(
                do=[("button", f"quiz:5:{at}:{picked}", None)],
                says=["Right." if at else "Not right.", f"{at} of {at + 1} right"],
            ),
        )
        assert "\\*" not in page_text(app), "an emphasis is drawn"
        own = [button for button in app.button if "yours" in button.label]
        assert [(button.disabled, "✓" in button.label) for button in own] == [(True, bool(at))]
        assert_says(app, f"{at + 1} of 8.")  # stays, above the next one
    assert_says(app, "7 of 8 answers are right", drawn[0].why)
    link = {name: str(query_value(app, f"quiz:{name}")) for name in ("seed", "answers")}
    assert "7 of 8 answers are right" in page_text(open_at("quiz", "quiz:", **link)), (
        "after a reload"
    )
    assert_case(app, Case(do=[("button", "quiz:again", None)], says=["1 of 8."]))
    assert "quiz:seed" in app.query_params and "quiz:answers" not in app.query_params
