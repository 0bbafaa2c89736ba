"""The page Heads, driven without a browser: every idea, every size, what a link may ask for, and its numbers."""

import json
import re

import numpy as np
import pytest
import torch

from core.attention import AttentionConfig, Choice
from core.interpret.trace import previous_token
from core.pretrained import load_minilm
from core.seeding import pooled_layer, seeded_layer
from core.studies import heads as compute
from core.tokens import SENTENCE, embed, labels, tokenize
from dashboard.draw import heads as draw
from dashboard.draw.formats import SPACE, share_text
from dashboard.ui import bars
from pages import heads
from tests.cases import each
from tests.pages.app import Case, html_text, open_at, page_cases, set_control

TOKENS = ("The", "animal", "was", "too", "tired", ".")
RANDOM = compute.random_qkv(TOKENS, 64, 4, 126)
RANDOM_LAYER = {"weights": "Random"}
SHARED = RANDOM_LAYER | {"idea": heads.IDEAS["shared"]}
test_what_it_says = page_cases(
    "heads",
    {
        "eight heads": Case(
            RANDOM_LAYER, ["or with 8 heads"], do=[("select_slider", "heads:False:64", 8)]
        ),
        "one head": Case(RANDOM_LAYER, ["in L0·H0 ("], do=[("select_slider", "heads:False:64", 1)]),
        "a short cache": Case(
            SHARED,
            ["For 1,024 tokens multi-head attention caches", "524\u00a0kB"],
            do=[("select_slider", "length", 1024)],
        ),
        "a small latent": Case(
            SHARED, [",   16 numbers for each token"], do=[("number_input", "latent:64:4", 8)]
        ),
        "one shared head": Case(
            SHARED,
            ["1 shared KV head 131\u00a0kB"],
            do=[("select_slider", "length", 1024), ("select_slider", "kv:4", 1)],
        ),
        "lambda": Case(
            RANDOM_LAYER | {"idea": heads.IDEAS["subtract"]}, ["0.6·e^(−0.3·3) = 0.56"], ["= 0.20"]
        ),
        "lambda of the first layer": Case(
            RANDOM_LAYER | {"idea": heads.IDEAS["subtract"]},
            ["= 0.20"],
            do=[("slider", "depth", 1)],
        ),
        "two words together": Case(
            RANDOM_LAYER | {"joined": "was"},
            ["averaged: head L0·H", "uniform attention would take 0."],
        ),
        "no words": Case({}, ["Type a sentence"], do=[("text_input", "tokens", "   ")]),
        "wrong links": Case({"idea": "Three", "d_model": "7"}, ["idea = Three", "d_model = 7"]),
        "no parameters before the question about them": Case({}, never=["591,360"]),
        "parameters": Case({}, ["591,360"], do=[("session_state", "differences", True)]),
        "trained alike": Case(
            {},
            [
                f"One head names 54{SPACE}%",
                f"four heads 100{SPACE}%",
                "0.36 from “a” and 0.48 from “g”",
            ],
            do=[("session_state", "trained", True)],
        ),
        "a head that was pressed": Case(
            {"start": "minilm", "layer": "4", "pin": "10.2", "pressed": "4.10"},
            [
                "in L4·H10 (layer 4, head 10); most in L4·H11, 0.21,",
                "Maps: L4·H10, and those of",
            ],
        ),
        "the first layer shows its own head, not the words that were pinned": Case(
            {"start": "minilm", "pin": "10.2"},
            ["in L0·H2 (", "L0·H2, gives the token before 0.9999 of its weight"],
            ["in L0·H6"],
            do=[("button", "try:0", None)],
            query={"heads:pin": None},
        ),
        "a head of another layer": Case(
            {"start": "minilm", "pin": "10.2", "pressed": "4.10"},
            ["0.68</b> in L3·H1 (layer 3, head 1); heads' mean: 0.10"],
        ),
        "two maps": Case(
            {"start": "minilm", "idea": heads.IDEAS["subtract"]}, [">it</span> takes"]
        ),
        # A link of before MiniLM opens the random layer of then
        **{
            f"an earlier link {link}": Case(
                link,
                never=["expected"],
                controls={"weights": weights, "tokens": words},
                query={"heads:start": "random" if link and weights == "random" else None},
            )
            for link, weights, words in (
                ({"heads:False:64": "8"}, "random", SENTENCE),
                ({"seed": "5"}, "random", SENTENCE),
                ({"idea": heads.IDEAS["shared"]}, "random", SENTENCE),
                ({"tokens": "red green"}, "random", "red green"),
                ({}, "minilm", compute.MINILM_TEXT),
            )
        },
        "a link of today": Case(
            {"start": "minilm", "layer": "2"},
            controls={"weights": "minilm", "tokens": compute.MINILM_TEXT},
            query={"heads:start": "minilm"},
        ),
    },
    prefix="heads:",
)


@each("idea", heads.IDEAS)
def test_random_weights_name_the_largest(idea):
    at = open_at("heads", "heads:", start="minilm", pin="10.2", idea=heads.IDEAS[idea])
    next(one for one in at.button if one.label == "Random weights").click().run()
    assert at.session_state["heads:pin:now"] is None
    words = labels(tokenize(compute.MINILM_TEXT).tokens)
    weights = compute.split(compute.random_qkv(words, 64, 4, 126), 4).weights
    row, column = compute.largest_word_cell(weights, words)
    largest = share_text(weights[:, row, column].max())
    assert idea != "split" or f"“{words[column]}” in L0·H" in html_text(at)
    assert idea != "split" or f"{largest}</" in html_text(at)


def test_the_tour_shows_two_relations():
    """The second head of the tour is the one that takes most from the word before."""
    previous = {
        (layer, head): float(one)
        for layer in range(compute.MINILM_LAYERS)
        for head, one in enumerate(
            previous_token(compute.split(compute.saved_qkv(layer), 12).weights)
        )
    }
    layer, head = max(previous, key=previous.__getitem__)
    stop = next(one for one in bars.STOPS if one.page == "heads")
    assert f"**H{head}** of **layer {layer}**" in stop.sentence and previous[layer, head] > 0.9
    assert f"L{layer}·H{head} the word before" in stop.showed


@each("layer", range(6))
def test_the_head_in_words_is_the_first_of_the_maps(layer):
    links = [{}, {"pin": "10.2"}, {"pin": "8.3"}, {"pin": "10.2", "pressed": f"{layer}.5"}]
    for link in links:
        at = open_at("heads", "heads:", start="minilm", layer=str(layer), **link)
        maps = next(
            json.loads(one.proto.json)
            for one in at.get("bidi_component")
            if one.key == "heads:chosen"
        )
        first = maps["tiles"][maps["first"]]["name"]
        named = re.findall(r"L\d·H\d+", html_text(at))
        assert named[0] == first and first.startswith(f"L{layer}·"), (link, named, first)


@pytest.mark.parametrize("d_model", [4, 5, 9, 16, 96])
@pytest.mark.parametrize("idea", heads.IDEAS)
def test_every_size_is_drawn_or_refused_in_words(idea, d_model):
    at = open_at("heads", "heads:", **RANDOM_LAYER, idea=heads.IDEAS[idea])
    set_control("heads:", at, "select_slider", "d_model", d_model)
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
def test_projections_have_the_maps_of_their_layers(count, kv_heads, latent):
    # The multi-head layer is shared between sessions: making fewer key heads of it must not change it.
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
        assert config.sizes.cache == numbers and cache.bytes == 4 * numbers * 128
        np.testing.assert_allclose(
            cache.weights, pooled_layer(config, 126)(embed(TOKENS, 64, 126)).weights[0], atol=1e-5
        )
    assert all(torch.equal(weight, before[name]) for name, weight in many.named_parameters())


def test_the_difference_is_what_the_layer_uses():
    layer = seeded_layer(AttentionConfig(64, 4, Choice.of("differential", depth=4)), 126)
    weights = layer(embed(TOKENS, 64, 126)).weights[0, 2]
    np.testing.assert_allclose(compute.two_maps(RANDOM, 2, 4, 126).difference, weights, atol=1e-6)


def test_the_parts_of_the_heads_add_up_to_the_layers_output():
    layer = seeded_layer(AttentionConfig(64, 4), 126)
    steps, output = layer(embed(TOKENS, 64, 126)), layer.projection.output
    parts = compute.head_parts(steps.out[0], output.weight)
    torch.testing.assert_close(parts.sum(0) + output.bias, steps.merged[0], atol=1e-5, rtol=1e-5)
    assert RANDOM.lengths[2, 5] == pytest.approx(
        float((steps.out[0, 2, 5] @ output.weight[:, 32:48].T).norm()), rel=1e-5
    )


def test_a_head_s_main_target_is_named_by_its_weights():
    for layer, target in ((0, ("the token before", 0.9999)), (3, ("[CLS]", 0.52))):
        tokens, many = compute.saved_qkv(layer).tokens, compute.split(compute.saved_qkv(layer), 12)
        name, share = compute.main_target(many.weights[2], tokens)
        assert (name, share) == (target[0], pytest.approx(target[1], abs=0.005))
        first = sum(int(weights.mean(0).argmax() == 0) for weights in many.weights)
        assert f"In {first} of the 12 heads" in draw.jobs(many, tokens)


def test_the_heads_that_stand_large_look_at_other_words():
    weights = np.zeros((4, 6, 6), np.float32)
    weights[0, :, 5], weights[1, 1, 2], weights[2, 3, 3], weights[3, 0, 4] = 1, 0.4, 1, 0.6
    assert compute.word_heads(weights, TOKENS, 2) == [1, 3]  # not the full stop's, not its own
    assert compute.word_heads(weights[:1, :1, :1], TOKENS[:1]) == [0]
    assert compute.largest_word_cell(weights, TOKENS) == (0, 4)
    assert compute.word_targets(weights, TOKENS, [1, 3], 0, None) == [(3, 4), (1, 1)]
    assert compute.word_targets(weights, TOKENS, [0, 1], 1, 2) == [(1, 2), (0, 2)]


def test_the_square_holds_every_pair_once_each_way():
    html = draw.overlap_square(np.array([[1.0, 0.25], [0.25, 1.0]]), "light")
    assert html.count(">.25</td>") == 2 and html.count("></td>") == 2
    assert "head 0 and head 1: 0.25" in html


@each("heads", (1, 4))
def test_the_model_of_neighbours_has_the_saved_size(heads):
    short = compute.train_heads(heads, False, 1e-2, seeds=2, steps=60)
    saved = next(each for each in compute.load_trained().measured if each.heads == heads)
    assert short.parameters == saved.parameters and len(saved.accuracies) == compute.SEEDS
    np.testing.assert_allclose(np.sum(saved.weights, 1), 1, atol=1e-3)
    assert np.shape(short.weights) == np.shape(saved.weights) == (heads, len(compute.EXAMPLE))
    assert 1 / 26 < short.accuracy.mean < saved.accuracy.mean, "it learns, and is not done"


@each("layer", range(6))
def test_the_saved_queries_keys_and_values_are_the_model_s(layer):
    saved, own = (
        compute.saved_qkv(layer),
        compute.read_qkv(load_minilm(), compute.MINILM_TEXT, layer),
    )
    assert saved.tokens == own.tokens
    for name in ("q", "k", "v", "lengths"):
        torch.testing.assert_close(
            *(torch.as_tensor(getattr(one, name)) for one in (saved, own)), atol=1e-4, rtol=1e-4
        )


def test_twelve_heads_are_those_that_model_was_trained_with():
    qkv = compute.saved_qkv(3)
    many = compute.split(qkv, 12)
    row, column = qkv.tokens.index("it"), qkv.tokens.index("animal")
    assert many.weights[1, row, column] == pytest.approx(0.677, abs=0.002)
    one = compute.split(qkv, 1)
    scores = sum(qkv.q[0, head] @ qkv.k[0, head].T for head in range(12)) / 384**0.5
    np.testing.assert_allclose(one.weights[0], scores.softmax(-1).numpy(), atol=1e-5)
