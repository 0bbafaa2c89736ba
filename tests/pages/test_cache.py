"""The page Cache and decoding, driven without a browser: its numbers are those computed, and follow every control."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from core.attention import Attention, AttentionConfig
from core.models import cards as sizes
from core.models.cards import card
from core.models.decoding import write
from core.pretrained.hf_conversion import SEEDED, TRAINED, load_lab_decoder
from core.studies import cache as study
from core.studies.cache import MAX_TOKENS, PROMPT, measure
from pages import cache as cache_page
from tests.cases import each
from tests.pages.app import html_text, open_at, page_text, set_control

put = partial(set_control, "cache:")


def test_no_query_of_an_earlier_token_is_stored():
    assert html_text(open_at("cache")).count('class="not" title="not stored"') == 13


COUNTS = "reads {} stored keys and values; without a cache it would compute {} of each"
FREE = "32 tokens take 2 pages of 16: 0\u00a0% of their places are empty"


@each(
    ("kind", "name", "value", "words"),
    [
        ("slider", "step", 0, "computes 11 queries, keys and values"),
        ("slider", "step", 1, COUNTS.format(11, 12)),
        ("slider", "step", 8, COUNTS.format(18, 19)),
        ("button_group", "predict", "k", "Not quite."),
        ("button_group", "predict", "k", "changes by 0.00 of its size"),
        ("text_input", "prompt", " ", "no word"),
        ("text_input", "prompt", "the zebra", "Not in the vocabulary, read as unknown: zebra"),
        ("slider", "count", 256, "256 of them"),
        ("selectbox", "model", "deepseek_v2", "69,120 bytes"),
        ("selectbox", "bytes", 1, "262,144 bytes"),
        ("multiselect", "curves", [], "Keys as values"),
        ("text_input", "lengths", "16, 16", FREE),
        ("text_input", "lengths", "16, x", "no length"),
    ],
)
def test_each_control_moves_what_is_said(kind, name, value, words):
    assert words in page_text(put(open_at("cache"), kind, name, value))


def test_a_press_measures_here(monkeypatch):
    monkeypatch.setattr(study, "LIMIT", 4.0)
    page = put(put(open_at("cache"), "selectbox", "writer", "trained"), "slider", "count", 8)
    text = page_text(page.button(key="cache:measure").click().run())
    assert "Measured here" in text and "the same tokens, 8 of them" in text
    assert "Measured here" not in page_text(put(page, "slider", "count", 16))


def test_what_bounds_a_step_follows_the_machine_and_the_form():
    page = put(open_at("cache"), "select_slider", "batch", 512)
    assert "Memory bounds decoding" in page_text(put(page, "selectbox", "form", "multi_query"))
    assert "Computing bounds decoding" in page_text(put(page, "number_input", "bandwidth", 50_000))


# The cache: what a step computes and reads, the same tokens with and without it, its sizes, and its pages.


LENGTHS = (1, 4095, 4096, 4097, 131072)


@pytest.fixture(scope="module")
def decoding():
    return study.decode_steps(PROMPT)


def test_prefill_computes_all_and_each_later_step_one(decoding):
    counts = [(one.computed, one.read, one.stored, one.without) for one in decoding.counts]
    later = [(dict.fromkeys("qkv", 1), t, t + 1, t + 1) for t in range(11, 19)]
    assert counts == [(dict.fromkeys("qkv", 11), 0, 11, 11), *later] and len(later) == study.STEPS


def test_the_weights_of_each_step_are_of_all_tokens_so_far_and_sum_to_one(decoding):
    shapes = [weights.shape for weights in decoding.weights]
    assert shapes == [(2, 4, size) for size in range(11, 20)]
    assert all(weights.sum(-1) == pytest.approx(1, abs=1e-5) for weights in decoding.weights)
    assert all(vectors.shape == (2, 4, 19, 16) for vectors in decoding.vectors.values())


def test_earlier_queries_change_nothing_and_the_answer_follows(decoding):
    changes = study.changes(decoding)
    assert changes["q"] == 0 and changes["k"] > 0.1 and changes["v"] > 0.1
    assert cache_page.question(changes).answer == 0  # q
    with pytest.raises(ValueError, match="no word"):
        study.decode_steps("  ")


@each("name", [TRAINED, SEEDED])
def test_both_ways_write_the_same_tokens(name):
    model, task = load_lab_decoder(name)
    prompt = torch.tensor([task.source_vocab.encode(task.tokens(PROMPT))])
    cached, whole = (write(model, prompt, 24, way) for way in (True, False))
    assert cached.tokens == whole.tokens and len(cached.tokens) == 24
    assert cached.computed == (11, *[1] * 23) and whole.computed == tuple(range(11, 35))


def test_the_trained_model_is_the_one_of_its_folder():
    """It continues a passage as it occurred before."""
    model, task = load_lab_decoder(TRAINED)
    ids = task.source_vocab.encode(task.tokens("the cat saw the small bird in the cat"))
    written = write(model, torch.tensor([ids]), 5, True).tokens
    assert list(task.target_vocab.decode(written)) == ["saw", "the", "small", "bird", "in"]


def test_a_measurement_stops_at_its_limit():
    ticks = iter(range(10_000))
    pair = measure(TRAINED, 50, lambda: float(next(ticks)), limit=8.0)
    assert 0 < pair.count < 50 and pair.same(pair.count)


def test_the_saved_measurement_covers_all_counts_with_equal_tokens():
    saved = study.load_measurement()
    for pair in saved.pairs.values():
        assert pair.count == MAX_TOKENS and pair.same(MAX_TOKENS) and pair.ratio(MAX_TOKENS) > 1
    assert saved.date and "thread" in saved.machine


# k and v, layers, heads of keys and values, their size, bytes; a latent and its rotated key for DeepSeek.
@each(
    ("model", "count"),
    [
        ("olmo2", 2 * 32 * 32 * 128 * 2),
        ("llama2", 2 * 32 * 4096 * 2),
        ("llama3", 2 * 32 * 8 * 128 * 2),
        ("qwen3", 2 * 36 * 8 * 128 * 2),
        ("deepseek_v2", 60 * (512 + 64) * 2),
    ],
)
def test_the_bytes_a_token_by_hand(model, count):
    one = sizes.MODELS[model]
    form = sizes.FORMS[one.attention.projection.key]
    assert sizes.cache_bytes(one, form, 1, 2) == count == card(model).token_bytes


@each("name", list(sizes.FORMS))
def test_each_form_grows_as_it_says(name):
    form = sizes.FORMS[name]
    ours = [sizes.cache_bytes(sizes.MODELS["llama2"], form, length, 2) for length in LENGTHS]
    most = 1 if form.state else 4096 if form.window else LENGTHS[-1]
    assert ours == [ours[0] * min(length, most) for length in LENGTHS]


def test_the_forms_at_the_sizes_of_llama_2():
    model = sizes.MODELS["llama2"]
    numbers = {name: sizes.layer_numbers(model, form, 1) for name, form in sizes.FORMS.items()}
    assert numbers == {
        "multi_head": 8192,
        "grouped_query": 2048,
        "multi_query": 256,
        "latent": 576,
        "window": 8192,
        "keys_as_values": 4096,
        "linear": 32 * 128 * 129,
    }


@each("name", ["multi_head", "grouped_query", "multi_query", "latent", "keys_as_values", "linear"])
def test_a_layer_stores_the_numbers_that_the_page_says(name):
    """At a small model's sizes, a linear state of any text too."""
    model: Any = SimpleNamespace(attention=AttentionConfig(64, 16))
    form = sizes.FORMS[name]
    config = form.config(model).with_(mask="causal", kernel="linear" if form.state else "exact")
    for length in (1, 37):
        _, cache = Attention(config).step(torch.randn(1, length, 64))
        assert cache.numbers == sizes.layer_numbers(model, form, length)


def test_operations_a_byte_of_cache_are_the_query_heads_that_share_a_key():
    model = sizes.MODELS["deepseek_v2"]
    expected: dict[str, Any] = {
        "multi_head": 1,
        "grouped_query": 16,
        "multi_query": 128,
        "keys_as_values": 2,
    }
    expected["latent"] = pytest.approx(2 * 128 * (576 + 512) / (576 * 2))
    assert {
        name: sizes.intensity(model, sizes.FORMS[name], 8192, 2) for name in expected
    } == expected


def test_a_step_by_hand():
    model, machine = sizes.MODELS["llama2"], (2, 3350e9, 989e12)
    step = sizes.decoding_step(model, sizes.FORMS["multi_head"], 8192, 8, *machine)
    assert step.flops == pytest.approx(8 * (2 * 6_738_415_616 + 32 * 4 * 4096 * 8192))
    assert step.weight_bytes == 2 * 6_738_415_616 and step.cache_bytes == 8 * 8192 * 524_288
    assert step.reading == pytest.approx(0.01428, rel=1e-3) and step.bound == "memory"
    many = sizes.decoding_step(model, sizes.FORMS["multi_query"], 1024, 512, *machine)
    assert many.bound == "computing"


def test_pages_are_taken_in_turn_and_hold_every_token():
    ours = study.paging((20, 5, 33), 16)
    pages = [(page.sequence, page.filled) for page in ours.pages]
    assert pages == [(0, 16), (1, 5), (2, 16), (0, 4), (2, 16), (2, 1)]
    assert (ours.used, ours.paged, ours.reserved) == (58, 96, 99)
    assert ours.wasted(ours.paged) == pytest.approx(38 / 96)


@each("text", ["", "0", "3, x", "1, 257", "1,2,3,4,5,6,7,8,9", "−3", "²"])
def test_lengths_that_cannot_be_read_are_refused(text):
    assert study.parse_lengths(" 3, 40 ,5,") == (3, 40, 5)
    with pytest.raises(ValueError, match=r"type"):
        study.parse_lengths(text)
