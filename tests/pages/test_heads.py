"""The page Heads, driven without a browser: every idea, every size, what a link may ask for, and its numbers."""

from functools import partial

import numpy as np
import pytest
import torch

from core.attention import AttentionConfig, Choice
from core.interpret.trace import entropy
from core.pretrained import layer_qkv, load_minilm
from core.seeding import pooled_layer, seeded_layer
from core.studies import heads as compute
from core.tokens import SENTENCE, embed
from dashboard.draw.formats import byte_size, number
from dashboard.ui.fields import Values
from pages import heads
from pages.heads import IDEAS, overlap_square
from tests.cases import each
from tests.pages.app import html_text, open_at, page_text, set_control

TOKENS = ("The", "animal", "was", "too", "tired", ".")
RANDOM = compute.random_qkv(TOKENS, 64, 4, 126)
open_page = partial(open_at, "heads", "heads:")
open_random = partial(open_page, weights="Random")
put = partial(set_control, "heads:")


def test_the_numbers_follow_the_heads():
    at = open_random()
    for count, says in ((8, "or with 8 heads"), (1, "One head has one map")):
        assert says in page_text(put(at, "select_slider", "heads:False:64", count))


def test_the_cache_follows_its_sizes():
    at = open_random(idea=IDEAS["shared"])
    at = put(at, "select_slider", "length", 1024)
    assert "For 1,024 tokens multi-head attention caches" in page_text(
        at
    ) and "524\u00a0kB" in page_text(at)
    at = put(at, "number_input", "latent:64:4", 8)
    assert ",   16 numbers for each token" in page_text(at)
    at = put(at, "select_slider", "kv:4", 1)
    assert "1 shared KV head 131\u00a0kB" in page_text(at)


def test_the_layer_moves_lambda():
    at = open_random(idea=IDEAS["subtract"])
    assert "0.6·e^(−0.3·3) = 0.56" in page_text(at)
    assert "= 0.20" in page_text(put(at, "slider", "depth", 1))


def test_no_words_and_wrong_links_are_answered_in_words():
    assert "Type a sentence" in put(open_page(), "text_input", "tokens", "   ").warning[0].value
    at = open_page(idea="Three", d_model="7")
    assert "idea = Three" in at.warning[0].value and "d_model = 7" in at.warning[1].value


@pytest.mark.parametrize("d_model", [4, 5, 9, 16, 96])
@pytest.mark.parametrize("idea", IDEAS)
def test_every_size_is_drawn_or_refused_in_words(idea, d_model):
    at = put(open_random(idea=IDEAS[idea]), "select_slider", "d_model", d_model)
    assert not at.error or "take" in at.error[0].value


# What is measured, against arithmetic of its own, and against layers that do the same in one piece.


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_a_split_is_the_layer_of_so_many_heads(count):
    one = compute.split(RANDOM, count)
    layer = seeded_layer(AttentionConfig(64, count), 126)
    np.testing.assert_allclose(one.weights, layer(embed(TOKENS, 64, 126)).weights[0], atol=1e-6)
    assert one.parameters == sum(weight.numel() for weight in layer.parameters())
    pairs = [
        np.minimum(one.weights[i], one.weights[j]).sum() / 6 for i in range(count) for j in range(i)
    ]
    assert one.overlap == (pytest.approx(np.mean(pairs), rel=1e-5) if pairs else None)


@pytest.mark.parametrize(("count", "kv_heads", "latent"), [(4, 2, 32), (8, 2, 24), (1, 1, 5)])
def test_projections_have_the_maps_of_their_layers_and_bytes_in_closed_form(
    count, kv_heads, latent
):
    """The multi-head layer is shared between sessions: making fewer key heads of it must not change it."""
    qkv, many = (
        compute.random_qkv(TOKENS, 64, count, 126),
        seeded_layer(AttentionConfig(64, count), 126),
    )
    before = {name: weight.clone() for name, weight in many.named_parameters()}
    size = 64 // count
    for config, numbers in zip(
        compute.projections(64, count, kv_heads, latent),
        (128, 2 * size * kv_heads, 2 * size, latent + size // 2),
        strict=True,
    ):
        cache = compute.share(qkv, config, 126, 128)
        assert cache.numbers == numbers and cache.bytes == 4 * numbers * 128
        weights = pooled_layer(config, 126)(embed(TOKENS, 64, 126)).weights[0]
        np.testing.assert_allclose(cache.weights, weights, atol=1e-5)
    assert all(torch.equal(weight, before[name]) for name, weight in many.named_parameters())


def test_the_difference_is_what_the_layer_uses():
    layer = seeded_layer(AttentionConfig(64, 4, Choice.of("differential", depth=4)), 126)
    weights = layer(embed(TOKENS, 64, 126)).weights[0, 2]
    np.testing.assert_allclose(compute.two_maps(RANDOM, 2, 4, 126).difference, weights, atol=1e-6)


def test_the_sentences_hold_the_numbers_of_their_pictures():
    values = Values(tokens=TOKENS, layer=None, kv_heads=2, length=128)
    one, many = compute.split(RANDOM, 1), compute.split(RANDOM, 4)
    row, column = heads.largest_word_cell(one.weights, TOKENS)
    assert row != column and "." not in (TOKENS[row], TOKENS[column])
    sentence = heads.split_fact(values, one, many, (row, column))
    assert f"**{many.weights[:, row, column].max():.2f}**" in sentence
    assert [row[-1] for row in heads.split_rows([one, many], 64)] == ["–", number(many.overlap)]
    assert [row[1] for row in heads.head_rows(many)] == [
        number(each) for each in entropy(many.weights).mean(1)
    ]
    configs = compute.projections(64, 4, 2, 32)
    caches = [compute.share(RANDOM, config, 126, 128) for config in configs]
    assert all(byte_size(each.bytes) in heads.shared_fact(values, caches) for each in caches[:3])
    pair = compute.two_maps(RANDOM, 0, 4, 126)
    cell = divmod(int(pair.difference.argmax()), pair.difference.shape[1])
    assert f"**{number(pair.difference[cell])}**" in heads.subtract_fact(TOKENS, pair, cell)


def test_the_parts_of_the_heads_add_up_to_the_layers_output():
    layer = seeded_layer(AttentionConfig(64, 4), 126)
    steps, output = layer(embed(TOKENS, 64, 126)), layer.projection.output
    parts = compute.head_parts(steps.out[0], output.weight)
    torch.testing.assert_close(parts.sum(0) + output.bias, steps.merged[0], atol=1e-5, rtol=1e-5)
    by_hand = steps.out[0, 2, 5] @ output.weight[:, 32:48].T
    assert RANDOM.lengths[2, 5] == pytest.approx(float(by_hand.norm()), rel=1e-5)


def test_the_bars_are_those_of_the_word_in_the_sentence_and_of_minilms_own_matrix():
    at = open_page(start="minilm")
    saved = compute.saved_qkv(3).lengths
    word = compute.saved_qkv(3).tokens.index("it")
    computed = compute.read_qkv(load_minilm(), compute.MINILM_TEXT, 3).lengths
    np.testing.assert_allclose(saved, computed, rtol=1e-4)
    assert "adds to “it”" in html_text(at)
    assert f"Head {saved[:, word].argmax()} adds most, {number(saved[:, word].max())}" in page_text(
        at
    )


def test_the_heads_with_another_task_are_named_by_their_weights():
    for layer, named in (
        (0, "Head 2 attends to the token before (0.9999)"),
        (3, "The first column is [CLS]"),
    ):
        many = compute.split(compute.saved_qkv(layer), 12)
        sentence = heads.jobs(many, compute.saved_qkv(layer).tokens).replace("\\", "")
        assert named in sentence
        first = sum(int(weights.mean(0).argmax() == 0) for weights in many.weights)
        assert f"In {first} of the 12 heads" in sentence


def test_the_square_holds_every_pair_once_each_way():
    html = overlap_square(np.array([[1.0, 0.25], [0.25, 1.0]]), "light")
    assert html.count(">.25</td>") == 2 and html.count("></td>") == 2
    assert "head 0 and head 1: 0.25" in html


# MiniLM


@pytest.fixture(scope="module")
def model():
    return load_minilm()


@each("layer", range(6))
def test_the_saved_queries_keys_and_values_are_the_model_s(model, layer):
    saved, own = compute.saved_qkv(layer), layer_qkv(model, compute.MINILM_TEXT, layer)
    assert saved.tokens == own.tokens
    for name in "qkv":
        torch.testing.assert_close(getattr(saved, name), getattr(own, name), atol=1e-4, rtol=1e-4)


def test_twelve_heads_are_those_that_the_model_was_trained_with():
    qkv = compute.saved_qkv(3)
    many = compute.split(qkv, 12)
    row, column = qkv.tokens.index("it"), qkv.tokens.index("animal")
    assert many.weights[1, row, column] == pytest.approx(0.677, abs=0.002)
    one = compute.split(qkv, 1)
    scores = sum(qkv.q[0, head] @ qkv.k[0, head].T for head in range(12)) / 384**0.5
    np.testing.assert_allclose(one.weights[0], scores.softmax(-1).numpy(), atol=1e-5)


def test_the_parameters_are_one_click_away_and_it_attends_to_animal_in_two_maps():
    at = open_page()
    assert "591,360" not in page_text(at), "one click away from the question about them"
    at.session_state["heads:differences"] = True
    assert page_text(at.run()).count("591,360") == 2
    at = open_page(start="minilm", idea=IDEAS["subtract"])
    assert ">it</span> gives “animal”" in html_text(at)


@each(
    ("link", "weights", "words"),
    [
        ({"heads:False:64": "8"}, "random", SENTENCE),
        ({"seed": "5"}, "random", SENTENCE),
        ({"idea": IDEAS["shared"]}, "random", SENTENCE),
        ({"tokens": "red green"}, "random", "red green"),
        ({"start": "minilm", "layer": "2"}, "minilm", compute.MINILM_TEXT),
        ({}, "minilm", compute.MINILM_TEXT),
    ],
)
def test_a_link_of_before_minilm_opens_the_random_layer_of_then(link, weights, words):
    at = open_page(**link)
    assert at.segmented_control(key="heads:weights").value == weights
    assert at.text_input(key="heads:tokens").value == words
    assert not at.warning and not at.error
    assert ("heads:start" in at.query_params) == bool(link)
