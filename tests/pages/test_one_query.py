"""One query: the page in AppTest, and the words, equations and bytes that come from its steps."""

import base64
import json
import math
import re
from functools import partial

import numpy as np
import pytest
import torch

from core.attention import AXES, PRESETS, AttentionConfig, Choice, ConfigError
from core.attention.masks import COMPOSITIONS
from core.studies import one_query as matrices
from core.studies.one_query import Source, measure_scaling, projected, run
from core.tokens import MAX_TOKENS, SENTENCE, embed, labels, tokenize
from dashboard.draw.formats import latex, number, plain
from dashboard.draw.step_view import (
    LIST_KEYS,
    MAP_CELLS,
    payload,
    projection_payload,
    read,
    small_map,
    top_of,
    window,
)
from dashboard.ui.mechanism import D_MODELS
from pages import one_query
from tests.cases import each, instance
from tests.pages.app import live, open_at, query_value, set_control

open_page = partial(open_at, "one_query", "one:")
open_layer = partial(
    open_page, stage="5 Normalize"
)  # as links of the first version: six words, four heads
put = partial(set_control, "one:")


def drawn(at):
    parts = (json.loads(one.proto.json) for one in at.get("bidi_component"))
    return next(data for data in parts if "stages" in data)


def test_every_preset_sets_all_axes_is_recognised_and_said_in_words():
    at = open_layer()
    for item in PRESETS:
        at = put(at, "selectbox", "preset", item.key)
        assert not at.error, (item.key, at.error[0].value)
        assert at.selectbox(key="one:preset").value == item.key
        assert live(at), item.key
        heads = instance(at.select_slider(key="one:heads").value, int)
        assert item.key in one_query.PLAIN or plain(item.changed(16, heads)[0]) in {
            each.value for each in at.caption
        }, item.key


def test_every_entry_of_every_axis_can_be_chosen_and_is_drawn():
    at = open_page(position="none", mask="none")
    for axis in ("projection", "score", "position", "mask", "normalizer"):
        first, seen = at.selectbox(key=f"one:{axis}").value, set()
        for item in AXES[axis]:
            at = put(at, "selectbox", axis, item.key)
            seen.add(live(at))
            assert live(at) and not at.error and not at.warning, (axis, item.key)
            shown = {
                widget.key
                for kind in (at.slider, at.number_input, at.toggle, at.selectbox, at.text_input)
                for widget in kind
            }
            assert {f"one:{axis}:{item.key}:{param.key}" for param in item.params} <= shown
        assert len(seen) > 1, f"{axis} changes no number"
        at = put(at, "selectbox", axis, first)


def test_a_mask_of_masks_is_chosen_part_by_part():
    at = put(open_layer(), "selectbox", "mask", "or")
    at = put(at, "selectbox", "mask:or:part0", "causal_local")
    at = put(at, "number_input", "mask:or:part0:causal_local:lookback", 1)
    at = put(at, "selectbox", "mask:or:part1", "not")
    assert at.query_params["one:mask"] == "or(causal_local(lookback=1),not(causal))"
    assert r"0 \le i - j \le w \vee (\neg(j \le i))" in live(
        put(at, "segmented_control", "stage", 4)
    )


def test_a_link_carries_every_choice_with_its_parameters_and_brings_it_back():
    links = {
        "projection": "grouped_query(bias=false,kv_heads=1)",
        "score": "additive",
        "position": "formula(formula='score - 0.5*(i-j)')",
        "mask": "and(causal,or(local(window=1),drawn))",
        "normalizer": "entmax(alpha=1.75)",
    }
    at = open_page(**links)
    assert not at.warning
    assert {axis: at.query_params[f"one:{axis}"] for axis in links} == links
    assert at.number_input(key="one:mask:and:part1:or:part0:local:window").value == 1
    assert at.slider(key="one:normalizer:entmax:alpha").value == 1.75
    at = put(at, "selectbox", "mask", "causal")
    assert "one:mask" not in at.query_params


def test_a_typed_formula_that_cannot_be_read_or_computed_is_said_in_words():
    at, name = put(open_layer(), "selectbox", "position", "formula"), "position:formula:formula"
    before = live(put(at, "text_input", name, "score - 3*(i-j)"))
    at = put(at, "text_input", name, "score - 3*(i-")
    assert "^" in at.code[0].value and live(at) == before, "the picture stays"
    assert "zero" in put(at, "text_input", name, "score / (i-j)").error[0].value


def test_folded_heads_show_either_map_and_the_weights_they_make():
    at = open_page(projection="differential(depth=12)", stage="2 Score")
    first = live(at)
    assert live(put(at, "pills", "half", 1)) != first
    at = put(at, "segmented_control", "stage", 5)
    assert r"a_1 = " in live(at) and r"a_2 = " in live(at) and drawn(at)["weights"]["signed"]
    assert min(key["weight"]["value"] for key in drawn(at)["keys"]) < 0


@pytest.mark.parametrize(
    ("link", "says", "becomes"),
    [
        (
            {"projection": "grouped_query(kv_heads=3)", "position": "none"},
            "take ",
            "projection:grouped_query",
        ),
        (
            {"projection": "latent(rope=7)", "position": "none"},
            "take ",
            "projection:latent(rope=6)",
        ),
        (
            {"start": "simple", "d_model": "9", "heads": "3", "position": "rope"},
            "odd size, 3",
            "position:alibi",
        ),
    ],
)
def test_a_choice_that_does_not_fit_is_mended_by_the_one_that_is_named(link, says, becomes):
    at = open_page(**link)
    assert says in at.error[0].value
    at = at.button(key=f"one:repair:{becomes}").click().run()
    axis, _, choice = becomes.partition(":")
    assert not at.error and at.query_params[f"one:{axis}"] == choice


def test_what_a_page_of_other_choices_shows():
    at = open_page(kernel="linear", position="none", mask="none")
    assert not at.error, "another kernel is said, and the steps stay exact"
    assert live(at) == live(open_page(position="none", mask="none"))
    at = open_page(source="Matrices Q, K, V", matrices="1,2|1,0;0,1|1;2", position="shaw")
    assert "V has 1 columns" in at.error[0].value, "shaw adds vectors of another size to the values"
    assert live(put(at, "selectbox", "position", "alibi"))
    at = open_page(projection="grouped_query(kv_heads=2)", stage="1 Project", head="3")
    assert "Head 3 shares key and value head 1 of 2 with head 2." in drawn(at)["fact"]
    assert r"\mathbf{0}" in live(open_page(mask="padding", real="0")), "a row without keys"
    for text in ("", "   ", "\t"):
        assert "no token" in put(open_layer(), "text_input", "tokens", text).warning[0].value


def test_the_worked_example():
    at = put(open_layer(), "selectbox", "preset", "worked")
    assert r"\frac{8.34}{14.48}" in live(at)
    assert re.search(r"\(0\.3[56],\\ 0\.62\)", live(put(at, "segmented_control", "stage", 6)))


def test_next_and_back_walk_the_six_stages_also_when_a_press_brings_an_older_one_with_it():
    # As a browser sends a second press that has not yet heard of the first one.
    at = put(open_layer(), "segmented_control", "stage", 1)
    seen = [live(at)]
    for _ in range(5):
        at = at.button(key="one:next").click().run()
        seen.append(live(at))
    assert len(set(seen)) == 6 and at.button(key="one:next").disabled
    at = at.button(key="one:back").click().run()
    assert live(at) == seen[4]
    at.segmented_control(key="one:stage").set_value(6)
    at = at.button(key="one:back").click().run()
    assert at.segmented_control(key="one:stage").value == 4


@pytest.mark.parametrize(
    "text",
    [
        "one",
        "😀 👩‍👩‍👧 🇩🇪",
        "שלום עולם مرحبا",
        "word " * 4000,
        "x" * 25_000,
        "<b>*x*</b> $y$ :smile: [l](http://e.x) `c`",
        "\\ { } % # & _ ^ ~",
        "the the the",
        "\u202e\u0000\ufeff",
    ],
)
def test_any_text_gives_a_picture(text):
    assert live(put(open_layer(), "text_input", "tokens", text))


@pytest.mark.parametrize(
    ("link", "says"),
    [
        (
            {"d_model": "64", "heads": "7"},
            "heads = 7; expected one of 1, 2, 4, 8, 16, 32, 64",
        ),
        ({"d_model": "700"}, "d_model = 700"),
        ({"heads": "abc"}, "heads = abc"),
        ({"mask": "Foo"}, "mask = Foo"),
        ({"seed": "-1"}, "seed = "),
        ({"temperature": "0"}, "temperature = 0"),
        ({"head": "9"}, "head = 9"),
        ({"query": "cat"}, "query = cat"),
        ({"stage": "9"}, "stage = 9"),
        (
            {"source": "Matrices Q, K, V", "matrices": "1,2|1,0;0|3"},
            "K's rows have 1 and 2 numbers",
        ),
        ({"source": "Matrices Q, K, V", "matrices": "1,nan|1,0|3"}, "NaN"),
        ({"source": "Matrices Q, K, V", "matrices": "1,2,3|1,0|3"}, "Q has 3 columns and K has 2"),
    ],
)
def test_a_bad_link_is_refused_in_words_until_a_control_changes(link, says):
    at = open_page(**link)
    assert any(says in warning.value for warning in at.warning)
    assert live(at)
    if "temperature" not in link:  # which stays in the link
        assert not put(at.run(), "number_input", "seed", 9).warning


def test_the_query_follows_the_last_word_until_another_is_picked():
    at = put(open_page(), "text_input", "tokens", "one two three")
    assert at.button_group(key="one:query").value == "three", (
        "a link without a query opens with the last word"
    )
    at.button_group(key="one:query").set_value("two").run()
    assert (
        put(at, "text_input", "tokens", "one two three four").button_group(key="one:query").value
        == "two"
    )


# What One query opens on: a projection, its question and its moves; earlier links; every control in the link.


def test_opens_on_three_words_one_head_and_the_projection():
    at = open_page()
    made = drawn(at)["projection"]
    assert [(part["sign"], len(part["w"])) for part in made["parts"]] == [
        ("q", 4),
        ("k", 4),
        ("v", 4),
    ]
    assert "one:start" not in at.query_params
    assert sum(
        float(x["text"].replace("−", "-")) * float(row[0]["text"].replace("−", "-"))
        for x, row in zip(made["x"], made["parts"][0]["w"], strict=True)
    ) == pytest.approx(0.61, abs=0.02)
    assert r"= \mathbf{0.61}" in live(at)
    at.session_state["one:sources"] = True
    code = "\n".join(block.value for block in at.run().code)
    assert "scores = q @ k.mT" in code and "def exact(inputs" in code


@each(
    ("link", "named"),
    [
        ({"stage": "5 Normalize"}, {}),
        ({"stage": "6 Weigh values", "head": "2"}, {}),
        ({"mask": "none"}, {}),
        ({"d_model": "9"}, {"heads": "3"}),
        ({"tokens": "red green blue", "query": "green"}, {}),
        ({"source": "Matrices Q, K, V"}, {"position": "none", "mask": "none"}),
    ],
)
def test_a_link_of_before_the_simple_start_shows_the_numbers_of_then(link, named):
    """It is the link that names every value with which the page opened then."""
    then = {
        "tokens": SENTENCE,
        "d_model": "16",
        "heads": "4",
        "position": "alibi",
        "mask": "causal",
        "stage": "5 Normalize",
    }
    at, full = open_page(**link), open_page(**(then | named | link), start="simple")
    assert drawn(at) == drawn(full) and live(at) == live(full)
    assert query_value(at, "one:start") == "layer"
    again = open_page(
        **(
            {"start": "layer"}
            | {name: text for name, text in link.items() if then.get(name) != text}
        )
    )
    assert drawn(again) == drawn(
        at
    )  # as after a reload: the browser leaves out what the page opened with then


def test_the_question_is_answered_by_the_weights_on_the_page():
    at = open_page()
    weights = {key["label"]: key["weight"]["value"] for key in drawn(at)["keys"]}
    right = "the word itself" if max(weights, key=weights.get) == "slept" else "another word"
    for option in ("the word itself", "another word"):
        at = put(at, "pills", "predict", option)
        assert any(m.value.startswith(":green[Right.]") for m in at.markdown) == (option == right)


def test_six_words_have_a_query_for_which_each_head_attends_to_another_word():
    at = open_page().button(key="one:try:1").click().run().button(key="one:try:3").click().run()
    best = [
        max(
            drawn(put(at, "button_group", "head", head))["keys"],
            key=lambda key: key["weight"]["value"],
        )["label"]
        for head in range(4)
    ]
    assert len(set(best)) > 1


def test_leaving_out_the_division_keeps_the_word_and_says_both_weights():
    at = open_page(query="animal", start="simple", stage="5 Normalize")
    with_division = max(key["weight"]["value"] for key in drawn(at)["keys"])
    at = open_page(query="animal", start="simple").button(key="one:try:2").click().run()
    without = max(key["weight"]["value"] for key in drawn(at)["keys"])
    notice = next(m.value for m in at.markdown if m.value.startswith("**Notice:**"))
    assert (
        drawn(at)["query"] == "animal"
        and f"gives {number(without)} to" in notice
        and without > with_division
    )
    assert f"divided by √4 it would give {number(with_division)}." in notice
    at = at.button(key="one:try:1").click().run()
    assert at.session_state["one:score"] == "scaled_dot", (
        "each move sets all that its notice relies on"
    )


# Text and matrices in, Steps through, and the words, equations and bytes that come out.


CONFIG = AttentionConfig(16, 4, position=Choice("alibi"), mask=Choice("causal"))
BOTH = Choice.of("and", Choice("causal"), Choice.of("local", window=0))


def reading(config=CONFIG, text=SENTENCE, query=4, head=0, seed=1044, real=None, half=0):
    source = Source.sentence(tokenize(text).tokens)
    return read(
        run(config, source, seed, real),
        source.queries,
        source.keys,
        query,
        head,
        half=half,
        adjusts=config.has("position", "adjusts"),
    )


def shown(config=CONFIG, stage=5, real=None, **more):
    r = reading(config, real=real, **more)
    whys = one_query.reasons_text(r, real)
    sentence = one_query.facts_fact(r, config, stage, whys)
    return payload(
        r, one_query.stage_words(config, r, real, False), stage, r.best, whys, sentence, ""
    )


def sentence_of(r, config, stage=5, real=None, head=0):
    whys = one_query.reasons_text(r, real)
    return "".join(text for text, _ in one_query.facts_fact(r, config, stage, whys, head))


def equation_of(r, config, stage, key=1):
    return one_query.equation(r, config, stage, key, "#B8430F")


def check_stage(r, config, stage, key, real=None, head=0):
    """The equation has braces that close, and the sentence ends."""
    latex, sentence = (
        "".join(equation_of(r, config, stage, key)),
        sentence_of(r, config, stage, real, head),
    )
    assert latex.count("{") == latex.count("}") and sentence.endswith((".", "…")), config
    assert "−" not in latex and "NaN" not in latex, "LaTeX sets its own minus"


# text


@each(
    ("text", "tokens"),
    [
        ("The end.", ("The", "end", ".")),
        ('"Why?"', ('"', "Why", "?", '"')),
        ("don't stop", ("don't", "stop")),
        ("...", (".", ".", ".")),
        ("", ()),
        (" \t\n ", ()),
        ("👩‍👩‍👧 ok", ("👩‍👩‍👧", "ok")),
        ("שלום, עולם", ("שלום", ",", "עולם")),
    ],
)
def test_tokens(text, tokens):
    assert tokenize(text).tokens == tokens


def test_a_long_text_is_cut_each_place_has_a_name_and_a_word_one_vector():
    cut = tokenize("ab " * 10_000)
    assert len(cut.tokens) == MAX_TOKENS
    assert any("30,000 characters; the first 20,000" in note for note in cut.notes)
    assert any(f"the first {MAX_TOKENS} are used" in note for note in cut.notes)
    assert labels(("the", "cat", "the", "x" * 60)) == ("the", "cat", "the (2)", "x" * 23 + "…")
    state = torch.random.get_rng_state()
    first, second = embed(("a", "b", "a"), 7, 3), embed(("b",), 7, 3)
    assert torch.equal(first[0, 0], first[0, 2]) and torch.equal(first[0, 1], second[0, 0])
    assert not torch.equal(embed(("b",), 7, 4), second)
    assert torch.equal(torch.random.get_rng_state(), state)


# matrices


def test_the_worked_example_by_hand():
    source = Source.of_matrices(matrices.check(matrices.parse(matrices.WORKED)))
    steps = run(AttentionConfig(2, 1, Choice("identity")), source, 0)
    r = read(steps, source.queries, source.keys, 0, 0)
    np.testing.assert_allclose(r.raw[0], [1, 2, 3])
    np.testing.assert_allclose(r.weights[0], [0.140, 0.284, 0.576], atol=5e-4)
    np.testing.assert_allclose(r.out[0], [0.355, 0.617], atol=5e-4)
    parts = matrices.parse("1,−2.5|0.125,1e-3|3")
    assert parts == [[[1.0, -2.5]], [[0.125, 0.001]], [[3.0]]]
    assert matrices.parse(matrices.write(parts)) == parts


@each(
    ("text", "says"),
    [
        ("1,2|1;0,1|3;4", "K's rows have 1 and 2"),
        ("1,nan|1,0|3", "Q row 0, column 1 is empty or not a number"),
        ("1,2|1,inf|3", "K row 0, column 1 is infinite"),
        ("1,2,3|1,0|3", "Q has 3 columns and K has 2"),
        ("1|1;2|3", "K has 2 rows and V has 1"),
        ("|1|1", "Q has no rows"),
        ("1|2", "three matrices"),
        ("a|1|1", "'a'"),
        ("1e9|1|1", "between"),
        (";".join("1" * 40) + "|1|1", "larger than 32 × 16"),
    ],
)
def test_matrices_that_do_not_fit_are_refused_in_words(text, says):
    with pytest.raises(matrices.MatrixError, match=says.replace("(", r"\(").replace(")", r"\)")):
        matrices.check(matrices.parse(text))


def test_given_matrices_may_have_more_keys_than_queries_under_each_choice():
    source = Source.of_matrices(matrices.check(matrices.parse("1,2;0,1|1,0;0,1;1,1|1;2;3")))
    for score in ("dot", "general", "concat", "additive"):
        for position in (Choice("rope"), Choice.of("rope", layout="interleaved"), Choice("alibi")):
            config = AttentionConfig(2, 1, Choice("identity"), Choice(score), position)
            config = config.with_(mask=Choice("causal"))
            assert run(config, source, 1).weights.sum(-1).allclose(torch.ones(1, 1, 2))


# numbers, payload


def test_scales_keep_zero_in_the_middle_and_end_on_a_plain_number():
    for values, top, allowed, scale, expected in (
        ([-2.0, 0.0, 2.0], 2.0, np.array([[True, True, False]]), "signed", [0, 127, 255]),
        ([0.0, 1.0], 1.0, None, "weight", [0, 254]),
    ):
        data = small_map(np.array([values]), top, allowed, scale=scale)
        assert list(base64.b64decode(data["data"])) == expected
    tops = [top_of(np.array(values)) for values in ([2.87, -1.0], [0.0], [np.nan, 41.0])]
    assert tops == [3, 1, 50]


def test_what_is_sent_is_bounded_holds_the_query_and_the_keys_with_most_weight():
    for query in (0, 150, 511):
        sent = shown(text="word " * 512, query=query)
        assert len(sent["keys"]) == LIST_KEYS
        assert all(m["rows"] <= MAP_CELLS >= m["columns"] for m in sent["maps"])
        assert sent["rows"][sent["band"]] == sent["query"]
    assert window(3, 1) == slice(0, 3)
    text = " ".join(f"w{n}" for n in range(40))
    listed = {line["index"]: line["weight"]["value"] for line in shown(text=text, query=39)["keys"]}
    weights = reading(text=text, query=39).weights[39]
    assert min(listed.values()) >= max(weights[j] for j in range(40) if j not in listed)


def test_a_masked_key_says_why():
    first = shown()["keys"][5]
    assert (first["masked"], first["why"]) == (None, "comes later")
    assert shown(CONFIG.with_(mask=Choice.of("local", window=1)))["keys"][0]["why"] == "too far"
    assert shown(CONFIG.with_(mask=Choice("padding")), real=3)["keys"][4]["why"] == "padding"


# words, facts, equations


def test_the_opening_sentence_says_what_the_numbers_say():
    r = reading()
    assert sentence_of(r, CONFIG) == (
        "tired gives 0.60 to animal. The full stop has the highest score, 3.67, but comes later, "
        "so the mask removes it."
    )
    assert r.raw[4].argmax() == 5
    assert round(float(r.weights[4, 1]), 2) == 0.60


def test_a_row_that_sees_nothing_is_named_in_every_stage():
    config = CONFIG.with_(mask=Choice("padding"))
    r = reading(config, real=0)
    assert {sentence_of(r, config, stage, 0) for stage in range(1, 7)} == {
        "tired may attend to no key: every weight is 0 and its output is 0."
    }
    assert np.array_equal(r.out, np.zeros_like(r.out))


@each("stage", range(1, 7))
@each("sentence", ["one", "a a", "{ } \\ %", "😀 👍", "x " * 80])
@each("mask", ["none", "causal", "padding", "local", "both"])
def test_every_stage_has_an_equation_a_sentence_and_braces_that_close(stage, sentence, mask):
    real = 1 if mask == "padding" else None
    config = CONFIG.with_(mask=BOTH if mask == "both" else Choice(mask))
    r = reading(config, sentence, query=0, real=real)
    check_stage(r, config, stage, len(r.keys) - 1, real)


def test_the_equation_holds_the_live_numbers():
    r = reading()
    line = "".join(equation_of(r, CONFIG, 5))
    assert rf"\mathbf{{{number(r.weights[4, 1])}}}" in line
    assert r"\text{tired},\,\text{animal}" in line
    assert number(sum(math.exp(r.scores[4, m]) for m in range(5))) in line
    assert r"\frac{3.46}{\sqrt{4}} - 0.75" in "".join(equation_of(r, CONFIG, 3))


@each("d_model", D_MODELS)
@each("heads", [1, 4])
def test_the_products_that_are_shown_add_up_to_the_score(d_model, heads):
    """To the rounding of two factors a product."""
    config = AttentionConfig(d_model, heads if d_model % heads == 0 else 1, position="alibi")
    r = reading(config)
    line = re.sub("[()]", "", "".join(equation_of(r, config, 2)[1:]))
    rest = re.findall(r"\\underbrace\{(-?[\d.]+)\}", line)
    pairs = re.findall(r"(-?[\d.]+) \\cdot (-?[\d.]+)", line)
    total = sum(float(a) * float(b) for a, b in pairs) + sum(map(float, rest))
    assert len(pairs) == min(r.q.shape[1], 4) and len(rest) == (r.q.shape[1] > 4)
    slack = 0.006 * (1 + sum(abs(float(a)) + abs(float(b)) for a, b in pairs))
    assert abs(total - r.raw[r.query, 1]) < slack


def test_the_rule_of_the_third_stage_names_scale_and_slope():
    assert one_query.stage_words(CONFIG, reading(), None, False)[2].head == "÷2 − ¼·distance"
    plain = CONFIG.with_(score=Choice("dot"), position=Choice("none"))
    assert one_query.stage_words(plain, reading(plain), None, False)[2].rule == "unchanged"


def test_step_1_is_a_matrix_times_the_word_where_it_is_nothing_else():
    source = Source.sentence(tokenize(SENTENCE).tokens)
    plain = AttentionConfig(16, 4)
    steps = run(plain, source, 1044)
    made = projected(plain, source, 1044, 2, steps)
    for w, rows in zip(made.w, (steps.q, steps.k, steps.v), strict=True):
        np.testing.assert_allclose(made.x @ w, rows[0, 2].numpy(), atol=1e-5)
    sent = projection_payload(read(steps, source.queries, source.keys, 4, 2), made.x, made.w)
    assert sent["rows"][sent["picked"]] == "tired"
    assert [len(sent["x"]), sent["size"], sent["dims"]] == [8, 16, 4]
    for config in (
        CONFIG.with_(position=Choice("rope")),
        CONFIG.with_(projection=Choice("identity")),
    ):
        assert projected(config, source, 1044, 0, run(config, source, 1044)) is None


# √D


def test_root_d_keeps_variance_and_entropy_where_they_are():
    points = measure_scaling(86)
    assert points == measure_scaling(86)
    last = points[-1]
    assert last.variance == pytest.approx(512, rel=0.1)
    assert last.scaled_variance == pytest.approx(1, rel=0.1)
    assert last.entropy < 0.2 * last.scaled_entropy
    assert str(round(last.variance)) in one_query.scaling_fact(points)
    assert (
        last.largest > 0.9 > 0.2 > last.scaled_largest
        and f"{last.largest:.2f}" in one_query.largest_fact(points)
    )


# One query with every mechanism: what each entry makes of the six stages, in numbers, words and equations.


def every_choice():
    """Each entry of each axis alone, beside an otherwise plain layer or the page's own."""
    for base in (AttentionConfig(16, 4), CONFIG):
        for axis in ("projection", "score", "position", "mask", "normalizer"):
            for item in AXES[axis]:
                if item.key not in COMPOSITIONS:
                    try:
                        yield base.with_(**{axis: Choice(item.key)})
                    except ConfigError:
                        continue  # refused in words beside the control


def test_every_entry_has_words_numbers_and_equations_in_every_stage():
    for config in every_choice():
        real = 4 if config.mask.key == "padding" else None
        for half in range(config.score_heads // config.num_heads):
            r = reading(config, head=1, real=real, half=half)
            assert len(one_query.stage_words(config, r, real, False)) == 6, config
            for stage in range(1, 7):
                check_stage(r, config, stage, r.best, real, 1)
            shown(config, real=real, head=1)


def test_a_scale_of_each_head_is_read_for_the_head_that_is_shown():
    config = AttentionConfig(16, 4, score=Choice("cosine"))
    for head in range(4):
        r = reading(config, head=head)
        np.testing.assert_allclose(r.raw * r.scale, r.scores, atol=1e-5)
        assert np.abs(r.raw).max() <= 1 + 1e-5


def test_a_rule_that_adjusts_is_shown_from_before_to_after():
    config = AttentionConfig(16, 4, position=Choice.of("formula", formula="2*score - 1"))
    r = reading(config)
    assert r.adjusted
    np.testing.assert_allclose(2 * r.before - 1, r.scores, atol=1e-5)
    symbols, live = equation_of(r, config, 3)
    assert "s_{ij}" in symbols
    assert rf"\frac{{{latex(r.raw[4, 1])}}}{{\sqrt{{4}}}} \;\to\;" in live
    assert latex(r.scores[4, 1]) in live


def test_folded_heads_weigh_by_their_difference():
    config = AttentionConfig(16, 4, Choice.of("differential", depth=12))
    r = reading(config, head=2)
    first, second = r.normalized
    rate = (first - r.weights) / second  # the layer's own λ, one number everywhere
    np.testing.assert_allclose(rate, rate[0, 0], rtol=1e-3)
    assert r.signed
    other = reading(config, head=2, half=1)
    assert not np.allclose(other.raw, r.raw)
    np.testing.assert_array_equal(other.weights, r.weights)
    sent = shown(config, head=2)
    assert sent["weights"]["ends"] == ["−1", "0", "1"]
    assert sent["maps"][4]["scale"] == "signed"


def test_a_gaussian_after_the_softmax_is_shown_as_a_factor_and_its_row_sum_said():
    config = AttentionConfig(16, 4, mask=Choice.of("local_m", window=2, gaussian=True))
    r = reading(config)
    assert r.reweighed
    np.testing.assert_allclose(r.normalized[0].sum(-1), 1, atol=1e-6)
    np.testing.assert_allclose(
        r.weights[4, 3] / r.normalized[0][4, 3], math.exp(-0.5), rtol=1e-5
    )  # σ = D/2 = 1
    assert rf"0.61 \cdot {latex(r.normalized[0][4, 3])}" in "".join(equation_of(r, config, 5, 3))
    ends = f"Its row sums to {number(r.sum)}; before the mask’s factor it was 1.00."
    assert ends in sentence_of(r, config)


def test_what_shaw_adds_to_the_values_is_in_the_output():
    config = AttentionConfig(16, 4, position=Choice("shaw"))
    r = reading(config)
    np.testing.assert_allclose(r.weights @ r.v + r.position_values, r.out, atol=1e-5)
    assert r"+ p_i" in equation_of(r, config, 6)[0]


def test_a_row_that_does_not_sum_to_one_says_what_it_sums_to():
    config = CONFIG.with_(normalizer=Choice("sink"))
    r = reading(config)
    assert r.sum < 0.99
    assert f"Its row sums to {number(r.sum)}." in sentence_of(r, config)
    assert rf"\sum_m w_{{im}} = {number(r.sum)}" in "".join(equation_of(r, config, 5))


def test_heads_that_share_keys_are_named():
    config = AttentionConfig(16, 4, Choice.of("grouped_query", kv_heads=2))
    np.testing.assert_array_equal(reading(config, head=2).k, reading(config, head=3).k)
    assert not np.allclose(reading(config, head=1).k, reading(config, head=2).k)
    assert one_query.sharing(config, 3) == " Head 3 shares key and value head 1 of 2 with head 2."
    assert one_query.sharing(config.with_(projection=Choice("multi_query")), 0).endswith(
        "0 of 1 with heads 1, 2 and 3."
    )
    assert one_query.sharing(CONFIG, 0) == ""


@each(
    ("mask", "why"),
    [
        (Choice("causal"), {5: "comes later"}),
        (Choice.of("local", window=1), {0: "too far", 1: "too far", 2: "too far"}),
        (Choice.of("block", size=3), {0: "too far", 1: "too far", 2: "too far"}),
        (Choice.of("not", Choice.of("local", window=0)), {4: "masked"}),
    ],
)
def test_why_a_key_is_masked_follows_from_the_row_itself(mask, why):
    assert one_query.reasons_text(reading(CONFIG.with_(mask=mask)), None) == why
