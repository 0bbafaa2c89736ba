"""The page One query, driven without a browser: presets, sizes, bad links and bad input, each in words."""

import json
import re
from functools import partial

import pytest

from core.attention import AXES, PRESETS
from core.tokens import SENTENCE
from dashboard.draw.formats import number, plain
from pages import one_query
from tests.cases import each, instance
from tests.pages.app import live, open_at, query_value, set_control

open_page = partial(open_at, "one_query", "one:")
open_layer = partial(
    open_page, stage="5 Normalize"
)  # as links of the first version: six words, four heads
put = partial(set_control, "one:")


def drawn(at):
    """What the picture was given."""
    return next(
        data
        for data in (json.loads(one.proto.json) for one in at.get("bidi_component"))
        if "stages" in data
    )


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("selectbox", "score", "additive"),
        ("selectbox", "position", "rope"),
        ("selectbox", "mask", "none"),
        ("select_slider", "d_model", 512),
        ("select_slider", "heads", 2),
        ("selectbox", "normalizer", "sparsemax"),
        ("number_input", "normalizer:softmax:temperature", 0.5),
        ("selectbox", "projection", "latent"),
        ("number_input", "seed", 5),
        ("text_input", "tokens", "Other words here"),
    ],
)
def test_the_numbers_follow_every_control(kind, name, value):
    at = open_layer()
    before = live(at)
    assert live(put(at, kind, name, value)) != before


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
        first = at.selectbox(key=f"one:{axis}").value
        for item in AXES[axis]:
            at = put(at, "selectbox", axis, item.key)
            assert live(at) and not at.error and not at.warning, (axis, item.key)
            shown = {
                widget.key
                for kind in (at.slider, at.number_input, at.toggle, at.selectbox, at.text_input)
                for widget in kind
            }
            assert {f"one:{axis}:{item.key}:{param.key}" for param in item.params} <= shown
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
    ("projection", "becomes"),
    [("grouped_query(kv_heads=3)", "grouped_query"), ("latent(rope=7)", "latent(rope=6)")],
)
def test_a_number_that_does_not_fit_is_mended_by_the_one_that_is_named(projection, becomes):
    at = open_page(projection=projection, position="none")
    assert "take " in at.error[0].value
    at = at.button(key=f"one:repair:projection:{becomes}").click().run()
    assert not at.error
    assert at.query_params["one:projection"] == becomes


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
    """As a browser sends a second press that has not yet heard of the first one."""
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


def test_an_odd_head_cannot_turn_and_the_button_does_what_it_says():
    at = put(open_layer(), "select_slider", "d_model", 9)
    assert 9 % instance(at.select_slider(key="one:heads").value, int) == 0
    at = put(at, "selectbox", "position", "rope")
    assert "odd size, 3" in at.error[0].value
    at = at.button(key="one:repair:position:alibi").click().run()
    assert not at.error
    assert at.selectbox(key="one:position").value == "alibi"


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
    assert (drawn(at)["stage"], made["rows"]) == (1, ["The", "animal", "slept"])
    assert [(part["sign"], len(part["w"])) for part in made["parts"]] == [
        ("q", 4),
        ("k", 4),
        ("v", 4),
    ]
    assert [at.selectbox(key=f"one:{axis}").value for axis in ("mask", "position")] == ["none"] * 2
    assert not at.warning and not at.error and "one:start" not in at.query_params
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


def test_every_control_is_in_the_link():
    at = open_page()
    changes = [
        ("text_input", "tokens", "red green blue"),
        ("select_slider", "d_model", 8),
        ("select_slider", "heads", 2),
        ("pills", "head", 1),
        ("pills", "query", "green"),
        ("selectbox", "score", "additive"),
        ("selectbox", "position", "alibi"),
        ("selectbox", "mask", "padding"),
        ("number_input", "real", 2),
        ("selectbox", "normalizer", "sparsemax"),
        ("number_input", "seed", 5),
        ("segmented_control", "stage", 3),
        ("pills", "predict", "another word"),
    ]
    for change in changes:
        at = put(at, *change)
    bound = {
        "tokens": "red green blue",
        "d_model": "8",
        "heads": "2",
        "head": "1",
        "query": "green",
        "real": "2",
        "seed": "5",
        "stage": "3 Scale + bias",
        "predict": "another word",
    }  # a browser writes these
    written = {name.removeprefix("one:"): query_value(at, name) for name in at.query_params}
    assert written.pop("start") == "simple"
    again = open_page(**(written | bound), start="simple")
    assert not again.warning
    for kind, name, value in changes:
        assert getattr(again, kind)(key=f"one:{name}").value == value, name
    assert live(again) == live(at)


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
