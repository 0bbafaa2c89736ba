"""The pages Cost and speed, Cache and decoding, and Model cards, and the pattern of layers on Train: numbers by hand."""

import time
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
import torch
from streamlit.dataframe_util import convert_arrow_bytes_to_pandas_df

from core.attention import Attention, AttentionConfig, Choice, ConfigError
from core.attention.cost import Measurement, attention_cost, output_error
from core.models import ModelConfig, cards as sizes
from core.models.cards import CARDS, card
from core.models.decoding import write
from core.pretrained.hf_conversion import SEEDED, TRAINED, load_lab_decoder
from core.runs.runs import list_runs
from core.studies import cache as cache_study, efficient
from core.training.config import card_recipe
from core.training.sweeps import buildable
from dashboard.ui.mechanism import from_text, pattern_from_text, pattern_to_text
from pages import cache as cache_page, cards, efficient as efficient_page
from tests.cases import each
from tests.pages.app import (
    captions,
    html_text,
    open_at,
    page_text,
    query_value,
    set_control,
)

# Cost and speed: a real race, Stop, the kept one, slopes, and implied weights.

QUICK = ("fused", "linear")
open_speed = partial(open_at, "efficient", "efficient:")
put_kernel = partial(set_control, "efficient:")


def until_measured(at):
    end = time.monotonic() + 40
    while "efficient:race" in at.session_state:
        assert time.monotonic() < end
        time.sleep(0.1)
        at.run()
    return at


def test_the_kept_measurement_is_whole():
    """Every kernel there is, each at least to 2,048 tokens, with the closed forms' memory."""
    saved = efficient.load_result()
    assert set(saved.conditions.keys) == set(efficient.ENTRIES), "run make measured"
    for kernel in efficient.ENTRIES:
        points = saved.of(kernel)
        assert points[-1].length >= 2048
        if kernel != "fused":
            closed = attention_cost(
                saved.conditions.config(kernel), points[-1].length, points[-1].length
            ).bytes
            assert points[-1].bytes == pytest.approx(closed, rel=0.2)


def test_a_race_is_measured_here_and_shown():
    at = open_speed()
    at.multiselect(key="efficient:kernels").set_value(list(QUICK))
    put_kernel(at, "selectbox", "longest", 512)
    at.button(key="efficient:measure").click()
    until_measured(at.run())
    result = at.session_state["efficient:result"]
    assert {p.name for p in result.points} == set(QUICK) and {p.length for p in result.points} == {
        128,
        256,
        512,
    }
    assert all(p.seconds > 0 and p.bytes > 0 for p in result.points)
    rows = convert_arrow_bytes_to_pandas_df(at.get("vega_lite_chart")[0].proto.data.data)
    names = list(rows[rows.kind.isin(("label", "early"))].name)
    assert at.caption[0].value.startswith("Measured here")
    assert names == [efficient.ENTRIES[kernel].name for kernel in QUICK]
    assert "were measured before" in captions(put_kernel(at, "selectbox", "backward", True))


def test_a_parameter_goes_into_the_race():
    at = open_speed()
    assert "were measured before" not in captions(at)
    at.multiselect(key="efficient:kernels").set_value(["chunked"])
    at = put_kernel(at, "selectbox", "longest", 512)
    at.number_input(key="efficient:params:chunked:block").set_value(32).run()
    assert any("were measured before" in caption.value for caption in at.caption)
    at.button(key="efficient:measure").click()
    until_measured(at.run())
    result = at.session_state["efficient:result"].conditions
    assert (
        result.kernels == (Choice.of("chunked", block=32),)
        and result.config("chunked").kernel["block"] == 32
    )


def test_a_kernel_that_cannot_and_none_at_all_are_said():
    at = put_kernel(open_speed(), "multiselect", "kernels", ["fused", "linformer"])
    at = put_kernel(at, "selectbox", "causal", True)
    assert (
        len(at.info) == 1
        and "linformer" in at.info[0].value
        and "take" in at.info[0].value.replace("\\", "")
    )
    assert not at.button(key="efficient:measure").disabled
    at = put_kernel(at, "multiselect", "kernels", [])
    assert "Pick a kernel" in at.info[0].value and at.button(key="efficient:measure").disabled


def test_a_device_is_chosen_only_where_there_are_two(monkeypatch):
    assert not [box for box in open_speed().selectbox if box.label == "Device"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A card")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (8e9, 16e9))
    at = open_speed()
    box = next(box for box in at.selectbox if box.label == "Device")
    assert box.options == ["A card", "CPU"] and box.value == "cuda"
    assert "4\u00a0GB" in at.selectbox(key="efficient:longest").help
    assert any(
        "were measured before" in caption.value for caption in at.caption
    )  # the kept curves are a CPU's
    at = put_kernel(at, "selectbox", "device", "cpu")
    assert not any("were measured before" in caption.value for caption in at.caption)


def test_implied_weights_need_a_word():
    assert "no word here" in put_kernel(open_speed(), "text_input", "sentence", "").warning[0].value


@pytest.mark.parametrize("stopped", [True, False])
def test_a_race_ends_when_told_or_when_nobody_looks(monkeypatch, stopped):
    monkeypatch.setattr(efficient, "LEFT", 20.0 if stopped else 0.0)
    race = efficient.start_race(efficient.Conditions.of(["exact"], 8192))
    if stopped:
        race.stop()
    race.wait(20)
    assert not race.alive and not race.error and race.fraction < 1


def test_one_race_at_a_time_and_the_other_waits():
    with efficient.ONE_AT_A_TIME:
        race = efficient.start_race(efficient.Conditions.of(QUICK, 512))
        race.wait(0.3)
        assert race.alive and race.waiting and not race.points
    race.wait(30)
    assert not race.alive and len(race.points) == 6


def test_an_error_in_a_race_is_stored_to_be_said(monkeypatch):
    monkeypatch.setattr(
        efficient,
        "race",
        lambda *how, **limits: map(Mock(side_effect=RuntimeError("no memory")), [1]),
    )
    race = efficient.start_race(efficient.Conditions.of(QUICK, 512))
    race.wait(10)
    assert race.error == "no memory" and not race.alive


def test_a_result_survives_json():
    points = Measurement("fused", 128, 1e-3, 5), Measurement("fused", 256, skipped="too long")
    result = efficient.Result(efficient.Conditions.of(["fused"], 512, True), points, "here")
    assert msgspec.json.decode(msgspec.json.encode(result), type=efficient.Result) == result
    assert [p.length for p in result.of("fused")] == [128] and result.skipped()[0].length == 256


def square(kernel, seconds, held):
    return [Measurement(kernel, n, seconds(n), int(held(n))) for n in (128, 256, 512)]


def test_slopes_and_the_sentence_come_from_the_points():
    points = square("exact", lambda n: n * n * 1e-6, lambda n: n * n)
    points += square("linear", lambda n: n * 1e-6, lambda n: n)
    result = efficient.Result(
        efficient.Conditions.of(["exact", "linear"], 512), tuple(points), "here"
    )
    exact, linear = (efficient_page.scaling(result, kernel) for kernel in ("exact", "linear"))
    assert (exact.time, exact.memory, exact.flops) == pytest.approx((2, 2, 2), abs=0.01)
    assert (linear.time, linear.memory, linear.flops) == pytest.approx((1, 1, 1), abs=0.01)
    sentence = efficient_page.fact_text(result, ["exact", "linear"])
    assert (
        "At 512 tokens, linear takes **512\u00a0µs**" in sentence
        and "exact takes **262\u00a0ms**" in sentence
    )
    assert "linear takes 2.00 times as long, exact 4.00 times" in sentence
    assert efficient_page.power(1.98) == "T¹·⁹⁸"


def test_distances_are_those_of_the_outputs():
    """Zero but for rounding where the weights are the same; not where they are others."""
    defaults = efficient.Conditions()
    assert all(
        output_error(defaults.config(kernel), efficient.SEED) < 1e-5
        for kernel in ("fused", "chunked", "local")
    )
    assert output_error(defaults.config("linear"), efficient.SEED) > 0.1


def test_implied_weights_are_those_of_the_layer():
    tokens = ("a", "b", "c", "d")
    same = efficient.implied(Choice.of("nystrom", landmarks=8), tokens, False)
    assert (
        same.mean_error < 1e-6 and abs(same.weights.sum(-1) - 1).max() < 1e-6
    )  # a landmark per token: the softmax
    few = efficient.implied(Choice.of("nystrom", landmarks=2), tokens, False)
    weights = efficient.weights_of(AttentionConfig(64, 4, kernel="exact"), tokens)
    assert few.mean_error == pytest.approx(
        float((torch.tensor(few.weights) - weights).abs().mean())
    )


# Cache and decoding.


put_cache = partial(set_control, "cache:")


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
    assert words in page_text(put_cache(open_at("cache"), kind, name, value))


def test_a_press_measures_here(monkeypatch):
    monkeypatch.setattr(cache_study, "LIMIT", 4.0)
    page = put_cache(
        put_cache(open_at("cache"), "selectbox", "writer", "trained"), "slider", "count", 8
    )
    text = page_text(page.button(key="cache:measure").click().run())
    assert "Measured here" in text and "the same tokens, 8 of them" in text
    assert "Measured here" not in page_text(put_cache(page, "slider", "count", 16))


def test_what_bounds_a_step_follows_the_machine_and_the_form():
    page = put_cache(open_at("cache"), "select_slider", "batch", 512)
    assert "Memory bounds decoding" in page_text(
        put_cache(page, "selectbox", "form", "multi_query")
    )
    assert "Computing bounds decoding" in page_text(
        put_cache(page, "number_input", "bandwidth", 50_000)
    )


# The cache: what a step computes and reads, the same tokens with and without it, its sizes, and its pages.


LENGTHS = (1, 4095, 4096, 4097, 131072)


@pytest.fixture(scope="module")
def decoding():
    return cache_study.decode_steps(cache_study.PROMPT)


def test_prefill_computes_all_and_each_later_step_one(decoding):
    counts = [(one.computed, one.read, one.stored, one.without) for one in decoding.counts]
    later = [(dict.fromkeys("qkv", 1), t, t + 1, t + 1) for t in range(11, 19)]
    assert (
        counts == [(dict.fromkeys("qkv", 11), 0, 11, 11), *later]
        and len(later) == cache_study.STEPS
    )


def test_the_weights_of_each_step_are_of_all_tokens_so_far_and_sum_to_one(decoding):
    shapes = [weights.shape for weights in decoding.weights]
    assert shapes == [(2, 4, size) for size in range(11, 20)]
    assert all(weights.sum(-1) == pytest.approx(1, abs=1e-5) for weights in decoding.weights)
    assert all(vectors.shape == (2, 4, 19, 16) for vectors in decoding.vectors.values())


def test_earlier_queries_change_nothing_and_the_answer_follows(decoding):
    changes = cache_study.changes(decoding)
    assert changes["q"] == 0 and changes["k"] > 0.1 and changes["v"] > 0.1
    assert cache_page.question(changes).answer == 0  # q
    with pytest.raises(ValueError, match="no word"):
        cache_study.decode_steps("  ")


@each("name", [TRAINED, SEEDED])
def test_both_ways_write_the_same_tokens(name):
    model, task = load_lab_decoder(name)
    prompt = torch.tensor([task.source_vocab.encode(task.tokens(cache_study.PROMPT))])
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
    pair = cache_study.measure(TRAINED, 50, lambda: float(next(ticks)), limit=8.0)
    assert 0 < pair.count < 50 and pair.same(pair.count)


def test_the_saved_measurement_covers_all_counts_with_equal_tokens():
    saved = cache_study.load_measurement()
    for pair in saved.pairs.values():
        assert pair.count == cache_study.MAX_TOKENS
        assert pair.same(pair.count) and pair.ratio(pair.count) > 1
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
    ours = cache_study.paging((20, 5, 33), 16)
    pages = [(page.sequence, page.filled) for page in ours.pages]
    assert pages == [(0, 16), (1, 5), (2, 16), (0, 4), (2, 16), (2, 1)]
    assert (ours.used, ours.paged, ours.reserved) == (58, 96, 99)
    assert ours.wasted(ours.paged) == pytest.approx(38 / 96)


@each("text", ["", "0", "3, x", "1, 257", "1,2,3,4,5,6,7,8,9", "−3", "²"])
def test_lengths_that_cannot_be_read_are_refused(text):
    assert cache_study.parse_lengths(" 1, 256 ,5,2,2,2,2,2,") == (1, 256, 5, 2, 2, 2, 2, 2)
    with pytest.raises(ValueError, match=r"type"):
        cache_study.parse_lengths(text)


# Model cards.


put_card = partial(set_control, "cards:")


def words_of(app):
    """The page's sentences, with plain spaces."""
    return page_text(app).replace("\u00a0", " ")


@pytest.fixture
def page():
    return open_at("cards")


def test_a_strip_has_a_cell_for_each_layer(page):
    html, layers = html_text(page), sum(len(one.layers) for one in CARDS)
    assert html.count('<i title="layer ') == layers + 48, "the chosen one twice"
    assert "48 layers: 5 window of 1,024, 1 full, 5 window of 1,024" in html


def test_every_card_opens_with_its_numbers(page):
    for one in CARDS:
        page = put_card(page, "selectbox", "model", one.key)
        words = words_of(page)
        assert f"## {one.name}" in words and f"{one.parameters:,}" in words
        assert f"Sizes of {one.checkpoint}, from" in words and ("from memory" in one.source) == (
            "from memory" in words
        )
        assert ("nothing is stored" in words) == (not one.stores)
        assert all(f"{count} layers" in words or count == 1 for count in one.distinct.values())


def test_the_parts_add_up_and_a_cache_beyond_the_positions_is_not_shown(page):
    page.session_state["cards:parts"] = True
    assert "1,006,878,720" in html_text(page.run())
    for one in CARDS:
        rows = cards.part_rows(one)
        assert sum(int(row[1].replace(",", "")) for row in rows) == one.parameters
    words = words_of(put_card(page, "selectbox", "model", "gpt2"))
    assert "GPT-2 stores 37.7 MB at 1,024 tokens" in words
    assert "It has positions for 1,024 tokens only" in words
    assert cards.figures(card("gpt2"))[3:5] == ["–", "–"]
    assert cards.figures(card("llama2"))[4] == "68.7\u00a0GB"


def test_the_curves_are_those_of_the_chosen_models(page):
    spec = page.get("vega_lite_chart")[0].proto.spec
    assert (
        all(card(key).name in spec for key in (*cards.COMPARED, "gemma3")) and "GPT-2" not in spec
    )
    page = put_card(put_card(page, "multiselect", "compared", []), "selectbox", "model", "bert")
    assert not page.get("vega_lite_chart")


@each("key", ["gemma3", "llama4", "kimi_linear", "deepseek_v32", "t5"])
def test_the_attentions_open_side_by_side(key):
    app = open_at("compare", "", **cards.link(card(key)))
    assert not app.warning and not app.error


def test_a_card_is_trained_small_with_its_pattern(page):
    put_card(page, "selectbox", "model", "qwen3_next").button(key="cards:train").click().run()
    assert page.session_state["train:task"] == "recall"
    following = page.session_state["train:recall:decoder:following"]
    kernels = [page.session_state["train:recall:decoder:attention:now"], *following]
    assert [one.kernel.key for one in kernels] == ["gated_delta"] * 3 + ["exact"]
    assert "gated delta rule; gated delta rule; gated delta rule; exact" in page_text(page)


# The pattern of layers on Train: attentions of later layers, shared keys and values, and all of it in the link.


NAME, TRANSFORMER = "train:recall:decoder", "train:reverse:transformer"


def open_train(**query):
    return open_at("train", **{"train:task": "recall", "train:recall:kind": "decoder", **query})


def model_of(app) -> ModelConfig:
    """The model of a run that is started with the controls of the page."""
    app.button(key="train:train").click().run()
    return list_runs()[-1].config().model


def test_a_link_brings_a_pattern_with_shared_keys_to_the_run():
    text = "position=none;mask=causal_local(lookback=3)"
    app = open_train(
        **{f"{NAME}:layers": "6", f"{NAME}:following": text, f"{NAME}:kv_shared_layers": "3"}
    )
    assert "a pattern of 3 layers" in page_text(
        app
    ) and "3 layers with shared keys and values" in page_text(app)
    model = model_of(app)
    assert [one.position.key for one in model.pattern][1:] == ["none", "none"]
    assert model.pattern[2].mask.key == "causal_local" and model.kv_shared_layers == 3
    assert [model.kv_source(layer) for layer in range(6)] == [None, None, None, 0, 1, 2]


def test_the_popover_makes_and_changes_a_pattern():
    app = open_train(**{f"{NAME}:layers": "4"})
    app.session_state[f"{NAME}:pattern"] = True
    app.run()
    app.number_input(key=f"{NAME}:pattern:count").set_value(2).run()
    app.selectbox(key=f"{NAME}:pattern:0:position").set_value("alibi").run()
    assert query_value(app, f"{NAME}:following") == "position=alibi"
    assert "alibi" in page_text(app).lower()
    model = model_of(app)
    assert [one.position.key for one in model.pattern] == [model.attention.position.key, "alibi"]


def test_what_cannot_stand_in_one_stack_is_said_and_not_trained():
    app = open_train(**{f"{NAME}:layers": "4", f"{NAME}:following": "position=learned"})
    assert any("added to the embedding" in error.value for error in app.error)
    assert app.button(key="train:train").disabled


def test_the_decoder_of_a_transformer_gets_attentions_of_its_own():
    model = model_of(open_at("train", **{f"{TRANSFORMER}:cross_attention": "score=cosine"}))
    assert model.cross_attention.score.key == "cosine" and model.decoder_attention is None


def test_a_pattern_as_text_comes_back_with_any_formula():
    first = AttentionConfig(16, 2, position=Choice.of("formula", formula="score - abs(i - j)"))
    second = AttentionConfig(16, 2, mask=Choice.of("formula", text="i - j < 3"))
    for pattern in [(first, AttentionConfig(16, 2), second), (AttentionConfig(16, 2),)]:
        assert pattern_from_text(pattern_to_text(pattern), (16, 2)) == pattern
    with pytest.raises(ConfigError, match="expected an axis or the end"):
        from_text("position=rope;position=none")


def test_the_pattern_of_a_published_model_sets_all_attentions():
    app = open_train(**{f"{NAME}:layers": "2"})
    app.session_state[f"{NAME}:pattern"] = True
    app.run()
    app.selectbox(key=f"{NAME}:pattern:published").set_value("gemma3").run()
    assert app.selectbox(key=f"{NAME}:pattern:published").value == "gemma3"
    model = model_of(app)
    assert model.layers == 6 and model.layer_names == ("causal local",) * 5 + ("causal",)


def test_every_card_can_be_trained_small():
    for one in CARDS:
        config = card_recipe(one)
        assert len(config.model.layer_names) >= one.pattern and config.model.num_heads == 4
        buildable(config)
