"""The page Heads, driven without a browser: every idea, every size, what a link may ask for, and its numbers."""

from functools import partial

import numpy as np
import pytest
import torch

from core.attention import Attention, AttentionConfig
from dashboard.charts.numbers import byte_size, number
from dashboard.views.heads import compute, page, text
from dashboard.views.heads.charts import overlap_square
from dashboard.views.heads.controls import IDEAS, Controls
from tests.pages.app import html_text, open_at, set_control

TOKENS = ("The", "animal", "was", "too", "tired", ".")
open_page = partial(open_at, "heads", "heads:")
put = partial(set_control, "heads:")


def page_text(at):
    """Facts, tables and captions: everything that is written on the page."""
    return " ".join([*(part.value for part in at.markdown), *(part.value for part in at.caption),
                     html_text(at)])


@pytest.mark.parametrize("idea", IDEAS)
def test_each_idea_opens_with_a_picture_and_no_complaint(idea):
    at = open_page(idea=IDEAS[idea])
    assert not at.warning and not at.error
    sentences = {"split": "share 0.", "shared": "as many as the formula says", "subtract": "fall below zero"}
    assert sentences[idea] in page_text(at)


def test_numbers_follow_the_controls():
    at = open_page()
    before = page_text(at)
    at = put(at, "select_slider", "heads:False:64", 8)
    assert "eight heads look in eight ways" in page_text(at)
    assert page_text(put(at, "text_input", "tokens", "Other words here")) not in (before, page_text(open_page()))
    assert "seed 5" in page_text(put(at, "number_input", "seed", 5))


def test_one_head_is_said_as_one():
    at = put(open_page(), "select_slider", "heads:False:64", 1)
    assert "One head has one map" in page_text(at)


def test_the_cache_follows_its_sizes():
    at = open_page(idea=IDEAS["shared"])
    at = put(at, "select_slider", "length", 1024)
    assert "1,024 tokens multi-head attention holds" in page_text(at) and "524\u00a0kB" in page_text(at)
    at = put(at, "number_input", "latent:64:4", 8)
    assert ",   16 numbers a token" in page_text(at)
    at = put(at, "select_slider", "kv:4", 1)
    assert "1 shared key head 131\u00a0kB" in page_text(at)


def test_the_layer_moves_lambda():
    at = open_page(idea=IDEAS["subtract"])
    assert "0.6·e^(−0.3·3) = 0.56" in page_text(at)
    assert "= 0.20" in page_text(put(at, "slider", "depth", 1))


def test_no_words_and_wrong_links_are_answered_in_words():
    at = put(open_page(), "text_input", "tokens", "   ")
    assert "Type a sentence" in at.warning[0].value
    at = open_page(idea="Three", d_model="7")
    assert "idea = Three" in at.warning[0].value and "d\\_model" in at.warning[1].value


@pytest.mark.parametrize("d_model", [4, 5, 9, 16, 96])
@pytest.mark.parametrize("idea", IDEAS)
def test_every_size_is_drawn_or_refused_in_words(idea, d_model):
    at = put(open_page(idea=IDEAS[idea]), "select_slider", "d_model", d_model)
    assert not at.error or "take" in at.error[0].value


# What is measured, against arithmetic of its own.

def test_all_splits_have_the_same_numbers_in_them():
    splits = [compute.split(TOKENS, 64, heads, 126) for heads in (1, 2, 4, 8)]
    assert {each.parameters for each in splits} == {4 * (64 * 64 + 64)}
    assert [each.weights.shape for each in splits] == [(heads, 6, 6) for heads in (1, 2, 4, 8)]
    assert splits[0].overlap is None
    pair = splits[1].weights
    assert splits[1].overlap == pytest.approx(np.minimum(pair[0], pair[1]).sum() / 6, rel=1e-5)


@pytest.mark.parametrize(("heads", "kv_heads", "latent"), [(4, 2, 32), (8, 2, 24), (1, 1, 5)])
def test_bytes_held_are_the_closed_form(heads, kv_heads, latent):
    configs = compute.projections(64, heads, kv_heads, latent)
    for config, numbers in zip(configs, (128, 2 * 64 // heads * kv_heads, 2 * 64 // heads,
                                      latent + 64 // heads // 2), strict=True):
        cache = compute.cache_size(config, TOKENS, 126, 128)
        assert cache.numbers == numbers and cache.bytes == 4 * numbers * 128


def test_pooled_keys_leave_the_seeded_layer_alone():
    """The multi-head layer is shared between sessions, so making fewer key heads of it must not change it."""
    config = AttentionConfig(64, 4)
    before = {name: weight.clone() for name, weight in compute.layer_of(config, 126).named_parameters()}
    compute.cache_size(compute.projections(64, 4, 2, 32)[1], TOKENS, 126, 128)
    assert all(torch.equal(weight, before[name]) for name, weight in compute.layer_of(config, 126).named_parameters())


def test_the_difference_is_what_the_layer_uses():
    maps = compute.two_maps(TOKENS, 64, 4, 126, 2, 4)
    config = AttentionConfig(64, 4, compute.Choice.of("differential", depth=4))
    layer = compute.seeded_layer(config, 126)
    assert isinstance(layer, Attention)
    weights = compute.attend(layer, TOKENS, 126).weights[0, 2].numpy()
    np.testing.assert_allclose(maps.difference, weights, atol=1e-6)


def test_the_sentences_hold_the_numbers_of_their_pictures():
    controls = Controls("split", TOKENS, (), 64, 4, 126, kv_heads=2, latent=32, length=128)
    many = compute.split(TOKENS, 64, 4, 126)
    one = compute.split(TOKENS, 64, 1, 126)
    row, column = page.largest_word_cell(one, TOKENS)
    assert row != column and "." not in (TOKENS[row], TOKENS[column])
    sentence = text.split_fact(controls, one, many, (row, column))
    assert f"**{many.weights[:, row, column].max():.2f}**" in sentence
    assert f"{number(many.overlap)} of their weight" in sentence
    caches = [compute.cache_size(config, TOKENS, 126, 128) for config in compute.projections(64, 4, 2, 32)]
    assert all(byte_size(each.bytes) in text.shared_fact(controls, caches) for each in caches)
    pair = compute.two_maps(TOKENS, 64, 4, 126, 0, 4)
    cell = divmod(int(pair.difference.argmax()), pair.difference.shape[1])
    assert f"**{number(pair.difference[cell])}**" in text.subtract_fact(controls, pair, cell)


def test_the_square_holds_every_pair_once_each_way():
    html = overlap_square(np.array([[1.0, 0.25], [0.25, 1.0]]), "light")
    assert html.count(">.25</td>") == 2 and html.count("></td>") == 2
    assert "head 0 and head 1: 0.25" in html
