"""The page Normalizers, driven without a browser: typed scores, every control, and numbers that the modules made."""

import math
import re
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from core.attention import AXES, AttentionConfig, Choice, entry
from core.studies import normalizers
from pages import normalizers as page
from tests.pages.app import html_text, live, open_at, set_control

KEYS = [item.key for item in AXES["normalizer"]]
open_page = partial(open_at, "normalizers", "normalizers:")
put = partial(set_control, "normalizers:")


def test_opens_with_a_figure_for_every_normalizer_and_nothing_pressed():
    at = open_page()
    assert not at.error
    assert html_text(at).count('class="figure"') == 1 + len(KEYS)
    assert all(f'aria-label="{item.name}: ' in html_text(at) for item in AXES["normalizer"])


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("text_input", "scores", "1, 2, 3"),
        ("select_slider", "spread", 4.0),
        ("select_slider", "temperature", 0.5),
        ("slider", "sink", 3.0),
        ("number_input", "params:softcap:cap", 1.0),
        ("number_input", "params:top_k:k", 1),
        ("slider", "params:entmax:alpha", 2.0),
    ],
)
def test_the_picture_follows_every_control(kind, name, value):
    at = open_page()
    before = html_text(at)
    assert html_text(put(at, kind, name, value)) != before


def test_a_link_brings_typed_scores_back():
    at = open_page(scores="3, x, -1.5", temperature="0.5")
    assert "key 1: masked" in html_text(at)
    assert "You typed these scores" in at.caption[0].value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no score"),
        ("1, two, 3", "Score 1, “two”"),
        ("1,,3", "Score 1, empty"),
        ("nan", "Score 0"),
        ("1, inf", "Score 1"),
        ("1e9", "Score 0"),
        (", ".join("1" for _ in range(33)), "33 scores"),
        ("<b>, 1", "Score 0, “<b>”"),
    ],
)
def test_bad_scores_are_refused_in_words(text, says):
    at = put(open_page(), "text_input", "scores", text)
    assert says in re.sub(r"\\(.)", r"\1", at.error[0].value)
    with pytest.raises(page.ScoresError, match=re.escape(says)):
        page.parse(text)


@pytest.mark.parametrize(
    "text",
    ["5", "x, x", "0, 0, 0", "-1, −2,", "1e4, -1e4", "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13"],
)
def test_any_scores_give_a_picture(text):
    at = put(open_page(), "text_input", "scores", text)
    assert not at.error and live(at)
    assert ("every normalizer gives weights of 0" in html_text(at)) == (text == "x, x")


@pytest.mark.parametrize("key", KEYS)
def test_what_is_drawn_is_what_the_module_computes(key):
    row = normalizers.normalize_row(Choice(key), (1.0, None, -0.5, 3.0), 2.0)
    own = entry("normalizer", key).build(AttentionConfig(2, 1, normalizer=key))
    scores = torch.tensor([[[[2.0, 9.0, -1.0, 6.0]]]])
    weights = own(scores, torch.tensor([True, False, True, True])).detach()[0, 0, 0]
    np.testing.assert_allclose(row.weights, weights.numpy(), rtol=1e-5, atol=1e-7)
    assert row.total + row.unassigned >= 1 - 1e-9
    assert row.zeros == int((row.weights[[0, 2, 3]] == 0).sum())


def test_only_what_gets_weight_learns():
    scores = (3.0, 1.0, 2.5)
    learn = {key: normalizers.normalize_row(Choice(key), scores, 1.0).learning for key in KEYS}
    assert (learn["softmax"], learn["sparsemax"], learn["hard"]) == (3, 2, 3)
    assert normalizers.normalize_row(Choice.of("hard", gradient="none"), scores, 1.0).learning == 0
    assert normalizers.normalize_row(Choice.of("top_k", k=2), scores, 1.0).learning == 2


def evaluated(latex):
    """The value of the middle of an equation, read back from its LaTeX."""
    text = re.sub(r"\\frac\{(.*)\}\{(.*)\}$", r"(\1)/(\2)", latex)
    text = re.sub(
        r"\\max\((.*),\\ 0\)(?:\^\{(.*)\})?", lambda m: f"max({m[1]}, 0)**({m[2] or 1})", text
    )
    text = re.sub(r"\\sigma\((.*)\)", r"1/(1+math.exp(-(\1)))", text)
    return eval(re.sub(r"e\^\{(.*?)\}", r"math.exp(\1)", text), {"math": math, "max": max})  # noqa: S307


@pytest.mark.parametrize("key", [key for key in KEYS if key != "hard"])
def test_the_numbers_in_the_equation_make_the_weight(key):
    row = normalizers.normalize_row(Choice(key), (1.0, 0.25, 1.5), 1.0)
    for j in map(int, np.flatnonzero(row.weights)):
        line = page.numbers(row, j)
        if isinstance(
            row.normalizer, page.WRITTEN
        ):  # another one shows its equation and its result
            assert evaluated(line) == pytest.approx(row.weights[j], abs=0.02), line


@pytest.mark.parametrize("key", KEYS)
def test_a_curve_passes_through_the_weight_it_follows(key):
    scores = (1.0, None, 0.5)
    at = dict(normalizers.sweep(Choice(key), scores, 2.0, 0))
    assert at[2.0] == pytest.approx(
        float(normalizers.normalize_row(Choice(key), scores, 2.0).weights[0])
    )


def test_names_are_escaped_and_weights_are_the_height_of_bars():
    tile = page.weights_tile("a<b", "n", (0.25, None), ("<i>", "y"), 0, 0.25, "f")
    assert "<i>:" not in tile and "a&lt;b" in tile
    assert "height:25.0%" in tile and "masked" in tile and page.NO_KEY in tile


def test_the_example_is_a_real_row():
    names, query, scores = normalizers.example()
    assert query in names and len(scores) == len(names) and page.parse(page.write(scores)) == scores


@pytest.mark.parametrize("key", KEYS)
def test_the_snippet_runs_and_makes_the_same_weights(key):
    scores, space = (1.0, None, -0.5), dict[str, Any]()
    exec(page.snippet(Choice(key), scores), space)  # noqa: S102
    row = normalizers.normalize_row(Choice(key), scores, 1.0)
    np.testing.assert_allclose(
        space["weights"].detach()[0, 0, 0].numpy(), row.weights, rtol=1e-5, atol=1e-7
    )


def test_hard_has_one_gradient_which_the_caption_and_the_table_tell():
    at = open_page()
    assert "Hard trains with the" in at.caption[0].value and not at.code
    put(at, "selectbox", "params:hard:gradient", "none")
    assert "Hard trains" not in at.caption[0].value
    assert re.search(r"Hard</th>(<td>[^<]*</td>){5}<td>0</td>", html_text(at)), (
        "no score has a gradient"
    )
    at.session_state["normalizers:sources"] = True
    assert at.run().code, "the code that ran"
