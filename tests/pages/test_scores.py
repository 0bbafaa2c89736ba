"""The pages Scores, Normalizers and All mechanisms: their numbers are those of the modules, and follow every control."""

import math
import re
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from core.attention import AXES, AttentionConfig, Choice, entry
from core.attention.properties import score_properties
from core.studies import mechanisms, normalizers, scores as study
from dashboard.draw.formats import duration, number
from pages import mechanisms as mechanisms_page, normalizers as shown_page, scores
from tests.cases import each
from tests.pages.app import Case, html_text, open_at, page_cases, page_text, set_control

TOKENS = ("a", "long", "day", "ends", "a")
NAMES = [item.key for item in AXES["score"]]

COSINE = {"equation": "Cosine", "dims": "128"}
test_what_scores_says = page_cases(
    "scores",
    {
        "the additive score at this size": Case(COSINE, [f"{2 * 128 * 128 + 128:,}", "10.00"]),
        "a parameter": Case(COSINE, ["2.00 cdot"], do=[("slider", "params:cosine:tau", 0.5)]),
        "no token": Case({"tokens": "  "}, ["no token"]),
        "a cell": Case({"tokens": "red green blue", "cell": "0.2"}, ["text{red},,text{blue}"]),
        "no cell": Case({"tokens": "red green blue"}, ["text{green},,text{blue}"]),
        "no such cell": Case(
            {"tokens": "red green blue", "cell": "9.9"}, ["text{green},,text{blue}"]
        ),
    },
    prefix="scores:",
)


@each("key", NAMES)
def test_the_equation_adds_up_to_the_score_that_is_drawn_and_the_snippet_runs(key):
    result = study.score_maps(Choice(key), TOKENS, 8, 3, 2.0)
    if result.factors is not None:  # a score that is no sum of products shows its result alone
        first, second = result.factors
        total = (first * second).sum(-1) * result.scale
        np.testing.assert_allclose(total, result.scores, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(result.weights.sum(-1), 1, rtol=1e-5)
    space: dict[str, Any] = {}
    exec(scores.snippet(Choice.of(key), 8), space)  # noqa: S102
    assert space["steps"].weights.shape == (1, 1, 6, 6)


def test_all_scores_meet_the_same_queries_and_keys():
    """But for QK-norm, which changes them before they meet; and the same word twice is the same key."""
    result = [study.score_maps(Choice(key), TOKENS, 8, 3, 1.0) for key in NAMES if key != "qk_norm"]
    for one in result:
        np.testing.assert_array_equal(one.q, result[0].q)
        np.testing.assert_allclose(one.weights[:, 0], one.weights[:, 4], rtol=1e-5)
    assert 0 <= scores.most_different_query(result) < len(TOKENS)


@each(
    ("key", "parameters", "rank", "symmetric", "doubling", "rotated"),
    [  # at D = 8; what a query twice as long does, and whether turning both alike changes it
        ("dot", 0, 8, True, 2.0, False),
        ("scaled_dot", 0, 8, True, 2.0, False),
        ("general", 64, 8, False, 2.0, True),
        ("cosine", 1, 8, True, 1.0, False),
        ("qk_norm", 16, 8, True, 1.0, True),
    ],
)
def test_the_character_of_a_product_is_known(key, parameters, rank, symmetric, doubling, rotated):
    assert study.score_maps(Choice(key), TOKENS, 8, 3, 1.0).parameters == parameters
    result = score_properties(Choice(key), 5)
    assert (result.rank, result.symmetric, result.rotation > 0.01) == (rank, symmetric, rotated)
    assert result.doubling == pytest.approx(doubling, rel=1e-4)


@each("key", ["additive", "concat"])
def test_a_network_is_none_of_that(key):
    assert study.score_maps(Choice(key), TOKENS, 8, 3, 1.0).parameters == 2 * 64 + 8
    result = score_properties(Choice(key), 5)
    assert result.rank > 8 and not result.symmetric
    assert result.rotation > 0.1 and 0.5 < result.doubling < 1.9


def test_the_network_takes_more_memory_than_the_product():
    torch.set_num_threads(1)
    additive, product = study.timings((Choice("additive"), Choice("scaled_dot")), 0)
    assert min(additive.seconds, product.seconds) > 0 and additive.bytes > 5 * product.bytes


def test_the_headline_comes_from_the_saved_measurement_whatever_this_machine_does(monkeypatch):
    page = open_at("scores")
    saved = study.load_measurement()
    assert set(saved.times) == set(NAMES), "run make scores"
    slow = tuple(study.Timing(1.0 + place, 1000) for place in range(len(NAMES)))
    monkeypatch.setattr(study, "timings", lambda choices, repetition: slow)
    assert saved.date in page_text(page) and duration(7.0) not in page_text(page)
    page.button(key="scores:measure").click().run()
    headline = next(e.proto.body for e in page.get("html") if "as long as" in e.proto.body)
    slowest = max(saved.times.values(), key=lambda time: time.seconds).seconds
    assert f"{number(slowest / saved.times['scaled_dot'].seconds)} ×" in headline
    assert f"<td>{duration(7.0)}</td>" in html_text(page), "the table has the times of this machine"


def test_the_fact_counts_who_agrees():
    maps = [study.score_maps(Choice(key), TOKENS, 8, 3, 1.0) for key in NAMES]
    column = scores.favourite(maps, 1)
    agree = sum(int(one.weights[1].argmax()) == column for one in maps)
    words = f"{agree} of {len(maps)} scores put most weight on {TOKENS[column]}"
    assert words in scores.fact_text(maps, TOKENS, 1, 1.0)


# The page Normalizers, driven without a browser: typed scores, every control, and numbers that the modules made.


NORMALIZERS = [item.key for item in AXES["normalizer"]]
open_normalizers = partial(open_at, "normalizers", "normalizers:")
put_normalizers = partial(set_control, "normalizers:")


def test_a_figure_for_every_normalizer_follows_the_parameters_in_the_popover():
    at = open_normalizers()
    assert all(f'aria-label="{item.name}: ' in html_text(at) for item in AXES["normalizer"])
    for kind, name, value in (
        ("number_input", "softcap:cap", 1.0),
        ("number_input", "top_k:k", 1),
        ("slider", "entmax:alpha", 2.0),
    ):
        before = html_text(at)
        assert html_text(put_normalizers(at, kind, f"params:{name}", value)) != before


@each(
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
    with pytest.raises(ValueError, match=re.escape(says)):
        shown_page.parse(text)


NO_WEIGHT = "every normalizer gives weights of 0"
DRAWN = ("5", "0, 0, 0", "-1, −2,", "1e4, -1e4", "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13")
test_what_normalizers_says = page_cases(
    "normalizers",
    {
        text: Case(says=["displaystyle"], never=[NO_WEIGHT], do=[("text_input", "scores", text)])
        for text in DRAWN
    }
    | {
        "no keys": Case(says=["displaystyle", NO_WEIGHT], do=[("text_input", "scores", "x, x")]),
        "a bad score": Case(says=["Score 1, “two”"], do=[("text_input", "scores", "1, two, 3")]),
        "typed scores": Case(
            {"scores": "3, x, -1.5", "temperature": "0.5"},
            ["key 1: masked", "You typed these scores"],
        ),
    },
    prefix="normalizers:",
)


@each("key", NORMALIZERS)
def test_what_is_drawn_is_what_the_module_and_the_snippet_compute(key):
    row = normalizers.normalize_row(Choice(key), (1.0, None, -0.5, 3.0), 2.0)
    own = entry("normalizer", key).build(AttentionConfig(2, 1, normalizer=key))
    scores = torch.tensor([[[[2.0, 9.0, -1.0, 6.0]]]])
    weights = own(scores, torch.tensor([True, False, True, True])).detach()[0, 0, 0]
    np.testing.assert_allclose(row.weights, weights.numpy(), rtol=1e-5, atol=1e-7)
    assert row.total + row.unassigned >= 1 - 1e-9
    assert row.zeros == int((row.weights[[0, 2, 3]] == 0).sum())
    space = dict[str, Any]()
    exec(shown_page.snippet(Choice(key), (2.0, None, -1.0, 6.0)), space)  # noqa: S102
    weights = space["weights"].detach()[0, 0, 0].numpy()
    np.testing.assert_allclose(weights, row.weights, rtol=1e-5, atol=1e-7)


@each(
    ("choice", "learning"),
    [
        (Choice("softmax"), 3),
        (Choice("sparsemax"), 2),
        (Choice("hard"), 3),
        (Choice.of("hard", gradient="none"), 0),
        (Choice.of("top_k", k=2), 2),
    ],
)
def test_only_what_gets_weight_learns(choice, learning):
    assert normalizers.normalize_row(choice, (3.0, 1.0, 2.5), 1.0).learning == learning


def evaluated(latex):
    """The value of the middle of an equation, read back from its LaTeX."""
    text = re.sub(r"\\frac\{(.*)\}\{(.*)\}$", r"(\1)/(\2)", latex)
    text = re.sub(
        r"\\max\((.*),\\ 0\)(?:\^\{(.*)\})?", lambda m: f"max({m[1]}, 0)**({m[2] or 1})", text
    )
    text = re.sub(r"\\sigma\((.*)\)", r"1/(1+math.exp(-(\1)))", text)
    return eval(re.sub(r"e\^\{(.*?)\}", r"math.exp(\1)", text), {"math": math, "max": max})  # noqa: S307


@each("key", NORMALIZERS)
def test_the_numbers_in_the_equation_make_the_weight_and_the_curve_passes_through_it(key):
    scores = (1.0, 0.25, 1.5)
    row = normalizers.normalize_row(Choice(key), scores, 1.0)
    assert dict(normalizers.sweep(Choice(key), scores, 1.0, 0))[1.0] == pytest.approx(
        row.weights[0]
    )
    # Another one than these shows its equation and its result.
    if isinstance(row.normalizer, shown_page.WRITTEN) and key != "hard":
        for j in map(int, np.flatnonzero(row.weights)):
            line = shown_page.numbers(row, j)
            assert evaluated(line) == pytest.approx(row.weights[j], abs=0.02), line


def test_of_equal_weights_the_picked_and_the_first_have_numbers():
    tile = shown_page.weights_tile("even", "n", (0.25,) * 4, tuple("abcd"), 2, 0.0, "f")
    assert tile.count("<b") == 2


def test_names_are_escaped_and_weights_are_the_height_of_bars():
    tile = shown_page.weights_tile("a<b", "n", (0.25, None), ("<i>", "y"), 0, 0.25, "f")
    assert "<i>:" not in tile and "a&lt;b" in tile
    assert "height:25.0%" in tile and "masked" in tile and shown_page.NO_KEY in tile


def test_the_example_is_a_real_row():
    names, query, scores = normalizers.example()
    assert query in names and len(scores) == len(names)
    assert shown_page.parse(shown_page.write(scores)) == scores


def test_hard_has_one_gradient_which_the_caption_and_the_table_tell():
    at = open_normalizers()
    assert "Hard trains with the" in at.caption[0].value and not at.code
    put_normalizers(at, "selectbox", "params:hard:gradient", "none")
    assert "Hard trains" not in at.caption[0].value
    assert re.search(r"Hard</th>(<td>[^<]*</td>){5}<td>0</td>", html_text(at)), (
        "no score has a gradient"
    )
    at.session_state["normalizers:sources"] = True
    assert at.run().code, "the code that ran"


# All mechanisms: every choice of every axis is drawn, said and explained by the page, with nothing told of it.


open_mechanisms = partial(open_at, "mechanisms", "mechanisms:")


@each(("axis", "item"), [(axis, item) for axis, entries in AXES.items() for item in entries])
def test_every_choice_can_be_drawn_and_said(axis, item):
    comparison = mechanisms.compare(mechanisms_page.config_of(axis, item.key, {}))
    before, after, mask = comparison.before, comparison.after, comparison.mask
    assert after.shape == before.shape and np.isfinite(after).all()
    assert mask is None or not after[~mask].any()
    row, column = mechanisms.most_changed(before, after)
    sentence = mechanisms_page.entry_sentence(item, before, after, row, column)
    assert f"**{number(after[row, column])}**" in sentence
    assert item.name in sentence.replace("\\", "")


@pytest.mark.parametrize("axis", list(AXES))
def test_each_axis_opens_with_its_table(axis):
    at = open_mechanisms(axis=mechanisms_page.NAMES[axis])
    assert not at.warning and len(at.dataframe[0].value) == len(AXES[axis])
    names = [f"{item.name} · {item.year}" for item in AXES[axis]]
    assert at.selectbox(key=f"mechanisms:{axis}").options == names


test_what_mechanisms_says = page_cases(
    "mechanisms",
    {
        "what is not there": Case(
            {"axis": "Flavours", "score": "Bilinear · 1999"}, ["Flavours", "Bilinear"]
        ),
        "what it goes with": Case(
            {"axis": "Kernels", "kernel": "Fused · 2022"},
            ["and not with these", "take"],
            do=[("session_state", "fits", True)],
        ),
    },
    prefix="mechanisms:",
)
