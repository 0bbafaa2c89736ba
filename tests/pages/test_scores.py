"""The page Scores, driven without a browser: its numbers are those of the modules, and follow every control."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from core.attention import AXES, Choice
from core.attention.properties import score_properties
from core.studies import scores as study
from dashboard.draw.formats import duration, number
from pages import scores
from tests.pages.app import app_at, html_text, live, page_text, set_control

TOKENS = ("a", "long", "day", "ends", "a")
NAMES = [item.key for item in AXES["score"]]
put = partial(set_control, "scores:")


@pytest.fixture(scope="module")
def timings():
    torch.set_num_threads(1)
    return study.timings(tuple(Choice(item.key) for item in AXES["score"]), 0)


@pytest.fixture
def page():
    return app_at("scores").run()


def test_every_score_stands_in_the_table(page):
    assert not page.warning and not page.error
    table = " ".join(e.proto.body for e in page.get("html"))
    assert all(f"</span>{item.name}</th>" in table for item in AXES["score"])


def test_a_parameter_follows_from_its_entry_and_the_table_counts_at_the_size_of_the_slider(page):
    page = put(page, "selectbox", "equation", "cosine")
    before = live(page)
    additive = 2 * 128 * 128 + 128
    assert f"{additive:,}" not in html_text(page)
    assert f"{additive:,}" in html_text(put(page, "select_slider", "dims", 128))
    assert "10.00" in before and "2.00" in live(put(page, "slider", "params:cosine:tau", 0.5))


@pytest.mark.parametrize("text", ["", "  "])
def test_no_token_is_answered_in_words(page, text):
    assert "no token" in put(page, "text_input", "tokens", text).warning[0].value


@pytest.mark.parametrize("key", NAMES)
def test_the_equation_adds_up_to_the_score_that_is_drawn(key):
    result = study.score_maps(Choice(key), TOKENS, 8, 3, 2.0)
    if result.factors is not None:  # a score that is no sum of products shows its result alone
        first, second = result.factors
        np.testing.assert_allclose(
            (first * second).sum(-1) * result.scale, result.scores, rtol=1e-4, atol=1e-5
        )
    np.testing.assert_allclose(result.weights.sum(-1), 1, rtol=1e-5)


def test_all_scores_meet_the_same_queries_and_keys():
    """But for QK-norm, which changes them before they meet; and the same word twice is the same key."""
    result = [study.score_maps(Choice(key), TOKENS, 8, 3, 1.0) for key in NAMES if key != "qk_norm"]
    for each in result:
        np.testing.assert_array_equal(each.q, result[0].q)
        np.testing.assert_allclose(each.weights[:, 0], each.weights[:, 4], rtol=1e-5)
    assert 0 <= scores.most_different_query(result) < len(TOKENS)


CHARACTER = {  # rank at D = 8, symmetric, what a query twice as long does, whether turning both alike changes it
    "dot": (8, True, 2.0, False),
    "scaled_dot": (8, True, 2.0, False),
    "general": (8, False, 2.0, True),
    "cosine": (8, True, 1.0, False),
    "qk_norm": (8, True, 1.0, True),
}


@pytest.mark.parametrize("key", [*CHARACTER, "additive", "concat"])
def test_the_character_of_a_product_is_known_and_a_network_is_none_of_that(key):
    result = score_properties(Choice(key), 5)
    if key not in CHARACTER:
        assert result.rank > 8 and not result.symmetric
        assert result.rotation > 0.1 and 0.5 < result.doubling < 1.9
        return
    rank, symmetric, doubling, rotated = CHARACTER[key]
    assert (result.rank, result.symmetric, result.rotation > 0.01) == (rank, symmetric, rotated)
    assert result.doubling == pytest.approx(doubling, rel=1e-4)


def test_what_is_learned_is_counted_from_the_module():
    known = {
        "additive": 2 * 64 + 8,
        "dot": 0,
        "general": 64,
        "concat": 2 * 64 + 8,
        "scaled_dot": 0,
        "cosine": 1,
        "qk_norm": 16,
    }
    assert {
        key: study.score_maps(Choice(key), TOKENS, 8, 3, 1.0).parameters for key in known
    } == known


def test_the_network_takes_more_memory_than_the_product(timings):
    times = dict(zip(NAMES, timings, strict=True))
    assert all(time.seconds > 0 for time in timings)
    assert times["additive"].bytes > 5 * times["scaled_dot"].bytes
    rows = scores.rows(
        [study.score_maps(Choice(key), TOKENS, 8, 3, 1.0) for key in NAMES],
        [score_properties(Choice(key), 5) for key in NAMES],
        timings,
    )
    assert {len(row) for row in rows} == {len(scores.HEAD)}


def test_the_headline_comes_from_the_saved_measurement_whatever_this_machine_does(
    page, monkeypatch
):
    saved = study.load_measurement()
    assert set(saved.times) == set(NAMES), "run make scores"
    slow = tuple(study.Timing(1.0 + place, 1000) for place in range(len(NAMES)))
    monkeypatch.setattr(study, "timings", lambda choices, repetition: slow)
    assert saved.date in page_text(page) and duration(7.0) not in page_text(page)
    page.button(key="scores:measure").click()
    page = page.run()
    headline = next(e.proto.body for e in page.get("html") if "as long as" in e.proto.body)
    slowest = max(saved.times.values(), key=lambda time: time.seconds).seconds
    assert f"{number(slowest / saved.times['scaled_dot'].seconds)} ×" in headline
    assert f"<td>{duration(7.0)}</td>" in html_text(page), "the table has the times of this machine"


def test_a_pinned_cell_of_the_link_is_the_cell_of_the_equation():
    def numbers(**link):
        page = app_at("scores", "scores:", tokens="red green blue", **link).run()
        return live(page)

    assert numbers(cell="0.2") != numbers(cell="2.0")
    assert numbers(cell="9.9") == numbers(), "a cell that is not there pins nothing"


def test_the_fact_counts_who_agrees():
    maps = [study.score_maps(Choice(key), TOKENS, 8, 3, 1.0) for key in NAMES]
    column = scores.favourite(maps, 1)
    agree = sum(int(each.weights[1].argmax()) == column for each in maps)
    assert f"{agree} of {len(maps)} scores put most weight on {TOKENS[column]}" in scores.fact_text(
        maps, TOKENS, 1, 1.0
    )


@pytest.mark.parametrize("key", NAMES)
def test_the_snippet_runs(key):
    space: dict[str, Any] = {}
    exec(scores.snippet(Choice.of(key), 8), space)  # noqa: S102
    assert space["steps"].weights.shape == (1, 1, 6, 6)
