"""The pages Cost and speed, Cache and decoding, and Model cards, and the pattern of layers on Train: numbers by hand."""

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
from core.attention.text import from_text, pattern_from_text, pattern_to_text
from core.models import ModelConfig, cards as sizes
from core.models.cards import CARDS, card
from core.models.decoding import write
from core.pretrained import PretrainedError
from core.pretrained.cards import card_from_config
from core.pretrained.hf_conversion import SEEDED, TRAINED, load_lab_decoder
from core.runs.runs import list_runs
from core.studies import cache as cache_study, efficient
from core.training.config import card_recipe
from core.training.sweeps import buildable
from dashboard.draw import cards as draw_cards, efficient as efficient_draw
from pages import cache as cache_page, cards
from tests.cards.test_cards import UNKNOWN
from tests.cases import each
from tests.pages.app import (
    Case,
    assert_case,
    assert_script,
    captions,
    open_at,
    page_cases,
    page_text,
    query_value,
    set_control,
    set_state,
)

# Cost and speed: a real race, Stop, the kept one, slopes, and implied weights.

open_speed = partial(open_at, "efficient", "efficient:")
put_kernel = partial(set_control, "efficient:")


def test_the_kept_measurement_is_whole():
    # Every kernel there is, each at least to 2,048 tokens, with the closed forms' memory.
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


def test_a_race_is_measured_here_with_its_parameters(monkeypatch):
    monkeypatch.setattr(efficient, "ROUNDS", 1)
    at = open_speed()
    at.multiselect(key="efficient:kernels").set_value(["fused", "chunked"])
    at = put_kernel(at, "selectbox", "longest", 512)
    at = put_kernel(at, "number_input", "params:chunked:block", 32)
    assert "were measured before" in captions(at)
    at.button(key="efficient:measure").click().run()
    assert at.session_state["efficient:race"] is None
    result = at.session_state["efficient:result"]
    kernels = Choice("fused"), Choice.of("chunked", block=32)
    assert result.conditions.kernels == kernels
    assert result.conditions.config("chunked").kernel == kernels[1]
    assert {(p.name, p.length) for p in result.points if p.seconds > 0 and p.bytes > 0} == {
        (kernel.key, n) for kernel in kernels for n in (128, 256, 512)
    }
    rows = convert_arrow_bytes_to_pandas_df(at.get("vega_lite_chart")[0].proto.data.data)
    assert list(rows[rows.kind.isin(("label", "early"))].name) == [
        efficient.ENTRIES[kernel.key].name for kernel in kernels
    ]
    assert "Measured here" in captions(set_state(at, "efficient:how"))
    assert "were measured before" in captions(put_kernel(at, "selectbox", "backward", True))


test_what_it_says = page_cases(
    "efficient",
    {
        "a kernel that cannot": Case(
            {"causal": "keys before"},
            ["linformer", "take"],
            ["Measure (disabled)"],
            do=[("multiselect", "kernels", ["fused", "linformer"])],
        ),
        "no kernel": Case(
            {}, ["Pick a kernel", "Measure (disabled)"], do=[("multiselect", "kernels", [])]
        ),
        "no word": Case({}, ["no word here"], do=[("text_input", "sentence", "")]),
    },
    prefix="efficient:",
)


def test_a_device_is_chosen_only_where_there_are_two(monkeypatch):
    assert not [box for box in open_speed().selectbox if box.label == "Device"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A card")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (8e9, 16e9))
    at = open_speed()
    box = at.selectbox(key="efficient:device")
    assert box.options == ["A card", "CPU"] and box.value == "cuda"
    assert "4\u00a0GB" in at.selectbox(key="efficient:longest").help
    assert "were measured before" in captions(at), "the kept curves are a CPU's"
    assert "were measured before" not in captions(put_kernel(at, "selectbox", "device", "cpu"))


def test_an_error_in_a_race_is_said_and_ends_it(monkeypatch):
    fails = map(Mock(side_effect=RuntimeError("no memory")), [1])
    monkeypatch.setattr(efficient, "race", lambda *how, **limits: fails)
    at = open_speed().button(key="efficient:measure").click().run()
    assert at.error[0].value == "no memory" and at.session_state["efficient:race"] is None


def test_a_result_survives_json():
    points = Measurement("fused", 128, 1e-3, 5), Measurement("fused", 256, skipped="too long")
    result = efficient.Result(efficient.Conditions.of(["fused"], 512, True), points, "here")
    assert msgspec.json.decode(msgspec.json.encode(result), type=efficient.Result) == result
    assert [p.length for p in result.of("fused")] == [128] and result.skipped()[0].length == 256


def square(kernel, seconds, held):
    return [Measurement(kernel, n, seconds(n), int(held(n))) for n in (128, 256, 512)]


@each(("seconds", "length", "text"), [
    ((1, 1, 9), 128, "from 128 tokens"),
    ((3, 1, 9), 256, "from 256 tokens"),
    ((1, 5, 9), 512, "from 512 tokens"),  # not from 128, as 256 takes longer
    ((1, 1, 16), None, "not up to 512"),
    ((3, 5, 17), None, "not up to 512"),
    ((1, 1), 128, "from 128 tokens"),
])  # fmt: skip
def test_from_which_length_a_kernel_is_faster_than_fused(seconds, length, text):
    points = [Measurement("fused", n, t, 1) for n, t in ((128, 2), (256, 4), (512, 16))]
    points += [Measurement("linear", 128 << at, t, 1) for at, t in enumerate(seconds)]
    points.append(Measurement("linear", 1024, skipped="too long"))
    conditions = efficient.Conditions.of(["fused", "linear"], 1024)
    result = efficient.Result(conditions, tuple(points), "here")
    assert result.faster_from("linear") == length
    assert efficient_draw.faster_text(result, "linear") == text
    alone = efficient.Result(conditions, tuple(points[3:]), "here")
    assert (
        alone.faster_from("linear") is None and efficient_draw.faster_text(alone, "linear") == "–"
    )
    assert efficient_draw.faster_text(result, "fused") == "–"


def test_slopes_and_the_sentence_come_from_the_points():
    points = square("exact", lambda n: n * n * 1e-6, lambda n: n * n)
    points += square("linear", lambda n: n * 1e-6, lambda n: n)
    result = efficient.Result(
        efficient.Conditions.of(["exact", "linear"], 512), tuple(points), "here"
    )
    growths = [efficient.growth_of(result, kernel) for kernel in ("exact", "linear")]
    powers = [
        [one.power(values) for values in (one.seconds, one.bytes, one.closed_flops)]
        for one in growths
    ]
    assert powers == [pytest.approx([2] * 3, abs=0.01), pytest.approx([1] * 3, abs=0.01)]
    sentence = efficient_draw.fact_text(growths)
    assert (
        sentence
        == "At 512 tokens, linear takes **512\u00a0µs**, exact **262\u00a0ms**. Twice the text has "
        "four times the pairs: exact takes 4.00 times as long, linear 2.00."
    )
    assert efficient_draw.power(1.98) == "T¹·⁹⁸"


def test_the_table_compares_kernels_at_one_length():
    points = square("linear", lambda n: n * 1e-6, lambda n: n)
    points += square("exact", lambda n: n * n * 1e-6, lambda n: n * n)[:2]  # to 256
    conditions = efficient.Conditions.of(["exact", "linear"], 512)
    result = efficient.Result(conditions, tuple(points), "here")
    growths = [efficient.growth_of(result, kernel) for kernel in ("exact", "linear")]
    rows = efficient_draw.table_rows(result, growths)
    assert [(row[1], row[2], row[9]) for row in rows] == [
        ("256", "65.5\u00a0ms", "256"),
        ("256", "256\u00a0µs", "512"),
    ]
    assert "At 256 tokens" in efficient_draw.fact_text(growths)
    assert efficient_draw.table_rows(result, []) == []


def test_distances_are_those_of_the_outputs():
    # Zero but for rounding where the weights are the same; not where they are others.
    defaults = efficient.Conditions()
    assert all(
        output_error(defaults.config(kernel), efficient.SEED) < 1e-5
        for kernel in ("fused", "chunked", "local")
    )
    assert output_error(defaults.config("linear"), efficient.SEED) > 0.1


def test_implied_weights_are_those_of_the_layer():
    tokens = ("a", "b", "c", "d")
    same = efficient.implied(Choice.of("nystrom", landmarks=8), tokens, False)
    # a landmark per token: the softmax
    assert same.mean_error < 1e-6 and abs(same.weights.sum(-1) - 1).max() < 1e-6
    few = efficient.implied(Choice.of("nystrom", landmarks=2), tokens, False)
    assert few.weights.max() < 1
    weights = efficient.weights_of(AttentionConfig(64, 4, kernel="exact"), tokens)
    assert few.mean_error == pytest.approx(
        float((torch.tensor(few.weights) - weights).abs().mean())
    )


# Cache and decoding.


put_cache = partial(set_control, "cache:")


COUNTS = "reads {} stored k and v; without a cache it would compute {} of each"


test_what_the_cache_says = page_cases(
    "cache",
    {
        f"{name} {value}": Case({}, [words], do=[(kind, name, value)])
        for kind, name, value, words in (
            ("slider", "step", 0, "computes 11 queries, keys and values"),
            ("slider", "step", 1, COUNTS.format(11, 12)),
            ("slider", "step", 8, COUNTS.format(18, 19)),
            ("text_input", "prompt", " ", "no word"),
            ("text_input", "prompt", "the zebra", "Not in the vocabulary, read as unknown: zebra"),
            ("slider", "count", 256, "256 of them"),
            ("selectbox", "model", "deepseek_v2", "69,120 bytes"),
            ("selectbox", "bytes", 1, "262,144 bytes"),
            ("multiselect", "curves", [], "Keys as values"),
            (
                "text_input",
                "lengths",
                "16, 16",
                "32 tokens take 2 pages of 16: 0\u00a0% of their places are empty",
            ),
            ("text_input", "lengths", "16, x", "no length"),
        )
    }
    | {
        "a wrong prediction": Case(
            {},
            ["Not quite.", "changes by 0.00 of its size"],
            do=[("button_group", "predict", "k")],
        )
    }
    | {
        bound: Case(
            {},
            [f"{bound} bounds decoding"],
            do=[
                ("select_slider", "batch", 512),
                ("selectbox", "form", form),
                ("number_input", "bandwidth", speed),
            ],
        )
        for bound, form, speed in (
            ("Memory", "multi_query", 3350),
            ("Computing", "multi_query", 50_000),
        )
    },
    prefix="cache:",
)


def test_a_press_measures_here(monkeypatch):
    monkeypatch.setattr(cache_study, "LIMIT", 4.0)
    page = put_cache(
        put_cache(open_at("cache"), "selectbox", "writer", "trained"), "slider", "count", 8
    )
    text = page_text(page.button(key="cache:measure").click().run())
    assert "Measured here" in text and "the same tokens, 8 of them" in text
    assert "Measured here" not in page_text(put_cache(page, "slider", "count", 16))


# The cache: what a step computes and reads, the same tokens with and without it, its sizes, and its pages.


LENGTHS = (1, 4095, 4096, 4097, 131072)


def test_prefill_computes_all_and_each_later_step_one():
    decoding = cache_study.decode_steps(cache_study.PROMPT)
    counts = [(one.computed, one.read, one.stored, one.without) for one in decoding.counts]
    later = [(dict.fromkeys("qkv", 1), t, t + 1, t + 1) for t in range(11, 19)]
    assert counts == [(dict.fromkeys("qkv", 11), 0, 11, 11), *later]
    assert len(later) == cache_study.STEPS == len(decoding.tokens) - 11
    assert cache_study.decode_steps("the").prompt == 2
    # The weights of each step are of all tokens so far and sum to one
    assert [weights.shape for weights in decoding.weights] == [(2, 4, n) for n in range(11, 20)]
    assert all(weights.sum(-1) == pytest.approx(1, abs=1e-5) for weights in decoding.weights)
    assert all(vectors.shape == (2, 4, 19, 16) for vectors in decoding.vectors.values())
    # Earlier queries change nothing, and the answer follows
    changes = cache_study.changes(cache_study.PROMPT)
    assert changes["q"] == 0 and changes["k"] > 0.1 and changes["v"] > 0.1
    assert cache_page.question(changes).answer == 0  # q


@each("name", [TRAINED, SEEDED])
def test_both_ways_write_the_same_tokens(name):
    model, task = load_lab_decoder(name)
    prompt = torch.tensor([task.source_vocab.encode(task.tokens(cache_study.PROMPT))])
    cached, whole = (write(model, prompt, 24, way) for way in (True, False))
    assert cached.tokens == whole.tokens and len(cached.tokens) == 24
    assert cached.computed == (11, *[1] * 23) and whole.computed == tuple(range(11, 35))


def test_the_trained_model_is_the_one_of_its_folder():
    # It continues a passage as it occurred before.
    model, task = load_lab_decoder(TRAINED)
    ids = task.source_vocab.encode(task.tokens("the cat saw the small bird in the cat"))
    written = write(model, torch.tensor([ids]), 5, True).tokens
    assert list(task.target_vocab.decode(written)) == ["saw", "the", "small", "bird", "in"]


def test_a_measurement_stops_at_its_limit():
    ticks = iter(range(10_000))
    pair = cache_study.measure(TRAINED, 50, lambda: float(next(ticks)), limit=8.0)
    assert 0 < pair.count < 50 and pair.same(pair.count)
    assert (pair.cached.computed[:2], pair.whole.computed[:2]) == ((11, 1), (11, 12))


def test_the_saved_measurement_covers_all_counts():
    saved = cache_study.load_measurement()
    for pair in saved.measured.values():
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
    # At a small model's sizes, a linear state of any text too.
    model: Any = SimpleNamespace(attention=AttentionConfig(64, 16))
    form = sizes.FORMS[name]
    config = form.config(model).with_(mask="causal", kernel="linear" if form.state else "exact")
    for length in (1, 37):
        _, cache = Attention(config).step(torch.randn(1, length, 64))
        assert cache.numbers == sizes.layer_numbers(model, form, length)


def test_operations_a_byte_are_the_heads_that_share_a_key():
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


@each(
    "text",
    ["", "0", "3, x", "1, 257", "1,2,3,4,5,6,7,8,9", "−3", "²", "0000000019999", "1" * 5_000],
)
def test_lengths_that_cannot_be_read_are_refused(text):
    assert cache_study.parse_lengths(" 1, 256 ,5,2,2,2,2,2,") == (1, 256, 5, 2, 2, 2, 2, 2)
    pytest.raises(ValueError, cache_study.parse_lengths, text).match(r"type")


# Model cards.


test_what_a_card_says = page_cases(
    "cards",
    {
        "a cell for each layer": Case(
            {}, ["48 layers: 5 window of 1,024, 1 full, 5 window of 1,024"]
        ),
        "parts": Case({}, ["1,006,878,720"], do=[("session_state", "parts", True)]),
        "a cache to the last position": Case(
            {"model": "GPT-2 · 2019"},
            [
                "Of a text of 1,024 tokens, GPT-2 stores 37.7\u00a0MB",
                "It has positions for 1,024 tokens only",
            ],
            do=[("session_state", "note", True)],
        ),
    },
    prefix="cards:",
)


def test_every_card_opens_with_its_numbers_and_parts_add_up():
    page = open_at("cards")
    page.session_state["cards:note"] = True
    for one in CARDS:
        words = page_text(set_control("cards:", page, "selectbox", "model", one.key))
        words = words.replace("\u00a0", " ")
        assert f"**{one.name}.**" in words and f"{one.parameters:,}" in words
        assert f"Sizes of {one.checkpoint}, from" in words
        assert ("from memory" in one.source) == ("from memory" in words)
        assert ("nothing is stored" in words) == (not one.stores)
        assert all(f"{count} layers" in words or count == 1 for count in one.distinct.values())
        rows = draw_cards.part_rows(one)
        assert sum(int(row[1].replace(",", "")) for row in rows) == one.parameters


def test_a_config_is_pasted_and_another_model_chosen_again():
    page = set_control("cards:", open_at("cards"), "selectbox", "beside", "gemma2")
    page.text_area(key="cards:pasted:0").set_value(
        '{"model_type": "qwen3", "num_hidden_layers": 2, "vocab_size": 100}'
    ).run()
    words = page_text(page)
    assert "**The pasted config.**" in words and "Read from the config that you gave" in words
    assert "What differs from Gemma 2 2B" in words and not page.error
    assert_script(page)
    words = page_text(set_control("cards:", page, "selectbox", "model", "llama2"))
    assert "**Llama 2 7B.**" in words and "**The pasted config.**" not in words


def unescaped(page):
    return page.error[0].value.replace("\\", "")


def test_a_config_that_is_none_is_refused_in_a_sentence(monkeypatch):
    def closed(*_, **__):
        raise PretrainedError("The hub cannot be reached: there is no network, or it is blocked.")

    page = open_at("cards")
    page.text_area(key="cards:pasted:0").set_value('{"model_type": "llama9"}').run()
    assert "has no code for. Read: nothing. Not read: how its layers are built" in unescaped(page)
    monkeypatch.setattr("core.pretrained.hub.config_bytes", closed)
    page.text_input(key="cards:hub:1").set_value("owner/model").run()
    assert "The hub cannot be reached" in unescaped(page)
    assert "**Gemma 3 12B.**" in page_text(page)


def test_what_differs_between_two_models():
    one, other = card("olmo2"), card("olmo3")
    rows = {name: (mine, theirs) for name, mine, theirs in draw_cards.differences(one, other)}
    assert rows["attentions"] == ("32 × full", "24 × window of 4,096; 8 × full")
    assert "width" not in rows and "layers" not in rows and draw_cards.differences(one, one) == []
    assert draw_cards.figures(card_from_config(UNKNOWN, "mine"))[2:] == ["–"] * 4


def test_a_cache_beyond_the_positions_is_not_shown():
    assert draw_cards.figures(card("gpt2"))[3:5] == ["–", "–"]
    assert draw_cards.figures(card("llama2"))[4] == "68.7\u00a0GB"


@each("key", ["gemma3", "llama4", "kimi_linear", "deepseek_v32", "t5"])
def test_the_attentions_open_side_by_side(key):
    app = open_at("compare", "", **cards.link(card(key)))
    assert not app.warning and not app.error


def test_a_card_is_trained_small_with_its_pattern():
    page = set_control("cards:", open_at("cards"), "selectbox", "model", "qwen3_next")
    page.button(key="cards:train").click().run()
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
    app.button(key="train:train").click().run()
    return list_runs()[-1].config().model


def test_link_brings_pattern_with_shared_keys_to_run():
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
    assert_case(
        app,
        Case(
            do=[
                ("session_state", f"{NAME}:pattern", True),
                ("number_input", f"{NAME}:pattern:count", 2),
                ("selectbox", f"{NAME}:pattern:0:position", "alibi"),
            ]
        ),
    )
    assert query_value(app, f"{NAME}:following") == "position=alibi"
    assert "alibi" in page_text(app).lower()
    model = model_of(app)
    assert [one.position.key for one in model.pattern] == [model.attention.position.key, "alibi"]


test_what_cannot_stand_in_one_stack_is_said_and_not_trained = page_cases(
    "train",
    {
        "a position of the embedding": Case(
            {
                "train:task": "recall",
                "train:recall:kind": "decoder",
                f"{NAME}:layers": "4",
                f"{NAME}:following": "position=learned",
            },
            ["added to the embedding", "Train (disabled)"],
        )
    },
)


def test_decoder_of_transformer_gets_attentions_of_its_own():
    model = model_of(open_at("train", **{f"{TRANSFORMER}:cross_attention": "score=cosine"}))
    assert model.cross_attention.score.key == "cosine" and model.decoder_attention is None


def test_a_pattern_as_text_comes_back_with_any_formula():
    first = AttentionConfig(16, 2, position=Choice.of("formula", formula="score - abs(i - j)"))
    second = AttentionConfig(16, 2, mask=Choice.of("formula", text="i - j < 3"))
    for pattern in [(first, AttentionConfig(16, 2), second), (AttentionConfig(16, 2),)]:
        assert pattern_from_text(pattern_to_text(pattern), (16, 2)) == pattern
    pytest.raises(ConfigError, from_text, "position=rope;position=none").match(
        "expected an axis or the end"
    )


def test_pattern_of_published_model_sets_all_attentions():
    app = open_train(**{f"{NAME}:layers": "2"})
    assert_case(
        app,
        Case(
            do=[
                ("session_state", f"{NAME}:pattern", True),
                ("selectbox", f"{NAME}:pattern:published", "gemma3"),
            ]
        ),
    )
    assert app.selectbox(key=f"{NAME}:pattern:published").value == "gemma3"
    model = model_of(app)
    assert model.layers == 6 and model.layer_names == ("causal local",) * 5 + ("causal",)


def test_every_card_can_be_trained_small():
    for one in CARDS:
        if one.untrained:
            continue
        config = card_recipe(one)
        assert len(config.model.layer_names) >= one.pattern and config.model.num_heads == 4
        buildable(config)
