"""The page Cache and decoding, driven without a browser: its numbers are those computed, and follow every control."""

from functools import partial

import pytest

from core.studies import cache as study
from tests.pages.app import app_at, html_text, page_text, set_control

put = partial(set_control, "cache:")


@pytest.fixture
def page():
    return app_at("cache").run()


def test_the_first_sight_has_all_parts_with_nothing_pressed(page):
    assert not page.warning and not page.error and not page.exception
    text = page_text(page)
    assert "1 query, 1 key and 1 value" in text and "reads 13 stored keys and values" in text
    assert "Both ways write the same tokens, 48 of them" in text
    assert "Llama 2 7B stores 524,288 bytes for each token" in text
    assert "Memory bounds decoding at 8,192 tokens and 8 sequences" in text
    assert "225 tokens take 16 pages of 16" in text
    assert (
        html_text(page).count('class="not" title="not stored"') == 13
    )  # the queries of the earlier tokens


@pytest.mark.parametrize("step", [0, 1, 8])
def test_the_counts_follow_the_step(page, step):
    text = page_text(put(page, "slider", "step", step))
    if step == 0:
        assert "computes 11 queries, keys and values" in text
    else:
        assert (
            f"reads {10 + step} stored keys and values; without a cache it would compute {11 + step} of each"
            in text
        )


def test_the_question_is_answered_by_numbers(page):
    wrong = page_text(set_control("cache:", page, "button_group", "predict", "k"))
    assert "Not quite." in wrong and "changes by 0.00 of its size" in wrong


def test_a_prompt_without_a_word_or_with_unknown_ones_is_answered_in_words(page):
    assert "no word" in put(page, "text_input", "prompt", " ").warning[0].value
    assert "Not in the vocabulary, read as unknown: zebra" in page_text(
        put(page, "text_input", "prompt", "the zebra")
    )


def test_the_saved_times_are_stated_and_follow_the_count(page):
    saved = study.load_measurement()
    assert saved.date in page_text(page) and "processor time" in page_text(page)
    assert "256 of them" in page_text(put(page, "slider", "count", 256))


def test_a_press_measures_here(page, monkeypatch):
    monkeypatch.setattr(study, "LIMIT", 4.0)
    page = put(put(page, "selectbox", "writer", "trained"), "slider", "count", 8)
    page.button(key="cache:measure").click()
    text = page_text(page.run())
    assert "Measured here" in text and "the same tokens, 8 of them" in text
    assert "Measured here" not in page_text(put(page, "slider", "count", 16))


def test_the_size_follows_the_model_and_the_bytes_of_a_number(page):
    assert "69,120 bytes" in page_text(put(page, "selectbox", "model", "deepseek_v2"))
    assert "34,560 bytes" in page_text(put(page, "selectbox", "bytes", 1))


def test_no_curve_draws_no_figure_and_the_table_stays(page):
    page = put(page, "multiselect", "curves", [])
    assert not page.exception and "Keys as values" in html_text(page)


def test_what_bounds_a_step_follows_the_machine_and_the_form(page):
    page = put(put(page, "select_slider", "batch", 512), "selectbox", "form", "multi_query")
    assert "Memory bounds decoding" in page_text(page)
    assert "Computing bounds decoding" in page_text(put(page, "number_input", "bandwidth", 50_000))


def test_pages_follow_the_lengths(page):
    text = page_text(put(page, "text_input", "lengths", "16, 16"))
    assert "32 tokens take 2 pages of 16: 0\u00a0% of their places are empty" in text
    assert "no length" in put(page, "text_input", "lengths", "16, x").warning[0].value
