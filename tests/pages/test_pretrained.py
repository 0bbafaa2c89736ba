"""The Pretrained page's logic, without a browser."""

from dataclasses import replace

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from core.interpret.map_transform import MapTransform, token_transform, transform_map
from core.interpret.trace import AttentionMap, AttentionTrace
from core.pretrained import Array, Line, ModelInputs
from core.studies.pretrained import (
    COREFERENCE,
    TraceView,
    default_row,
    even,
    first_head,
    in_order,
    shown_pins,
)
from pages.pretrained import all_heads_fact, called, head_fact, patches_of, pins_fact
from tests.cases import each
from tests.pages.app import app_at, captions, html_text
from tests.tiny_models import save


@pytest.fixture
def app() -> AppTest:
    return app_at("pretrained")


def test_first_sight_measures_something_with_nothing_pressed(app):
    app.run()
    assert "L3·H1" in html_text(app) and "0.68" in html_text(app)
    assert "L0·H2 attends most to the previous token, with 0.9999" in html_text(app)
    assert "Previous token" in html_text(app), "the roles' table stands once they are measured"


def test_a_link_opens_its_head_and_its_cells(app):
    app.query_params["head"] = "0.2"
    app.query_params["pin"] = "6.8_10.9"
    app.run()
    assert "L0·H2</b>" in html_text(app) and "because</b>" in html_text(app)
    assert "cross → street" in captions(app)


@pytest.mark.parametrize(
    ("name", "value"), [("head", "6.0"), ("head", "a.b"), ("pin", "999.0"), ("pin", "<b>")]
)
def test_a_broken_link_is_said_and_nothing_breaks(app, name, value):
    app.query_params[name] = value
    app.run()
    assert "The link says" in app.warning[0].value
    assert "L3·H1" in html_text(app)


@pytest.mark.parametrize("text", ["", "   "])
def test_an_empty_text_asks_for_one(app, text):
    app.run()
    app.text_input(key="inside:text").set_value(text).run()
    assert "write a sentence" in app.info[0].value


@pytest.mark.parametrize(
    "text", ["a", "🙂🙂", "שלום עולם", "<script>alert(1)</script> **x** $y$", "word " * 600]
)
def test_any_text_gives_a_picture_and_a_fact(app, text):
    app.run()
    app.text_input(key="inside:text").set_value(text).run()
    assert "puts" in html_text(app) and "<script>" not in html_text(app)
    assert bool(app.warning) == (len(text) > 2000)


def switch(app: AppTest, name: str, value: bool = True) -> None:
    app.toggle(key=f"pretrained:{name}").set_value(value).run()


def test_special_tokens_can_be_hidden_and_the_page_says_what_that_does(app):
    app.run()
    switch(app, "special")
    assert "Special tokens are hidden" in captions(app) and "divided by what is left" in captions(
        app
    )
    assert "CLS" not in html_text(app)


def test_pieces_are_merged_where_a_word_has_several(app):
    app.run()
    assert "pretrained:words" not in [one.key for one in app.toggle], (
        "this sentence has one piece a word"
    )
    app.text_input(key="inside:text").set_value("Tokenization of unbelievable things.").run()
    app.query_params["pin"] = "1.2"
    switch(app, "words")
    assert "Pieces of a word are merged" in captions(app)
    assert "tokenization" in html_text(app)


def test_the_order_follows_the_weights(app):
    app.query_params["pin"] = "10.2"
    app.run()
    before = html_text(app)
    app.radio(key="pretrained:order").set_value("both").run()
    assert (
        "puts <b style='font-weight:600'>0.68" in before
        and "puts <b style='font-weight:600'>0.68" in html_text(app)
    )
    assert app.session_state["pretrained:head:view"]["pins"][-1][1] == 0, (
        "the key of the pin comes first"
    )


@pytest.mark.parametrize("model", ["numbers", "induction", "only-attention", "digits"])
def test_each_of_the_labs_models_is_read_with_nothing_pressed(app, model):
    app.query_params["inside:model"] = model
    app.run()
    assert not app.warning
    assert "puts" in html_text(app) and model in captions(app)


def test_another_model_forgets_the_head_and_the_pins_of_the_last(app):
    app.query_params["head"] = "5.11"
    app.query_params["pin"] = "15.15"
    app.run()
    app.selectbox(key="inside:model").set_value("induction").run()
    assert not app.warning
    assert "head" not in app.query_params and "pin" not in app.query_params


def test_what_must_be_known_of_the_maps_is_said_once(app, tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    (folder := tmp_path / "diffllama").mkdir()
    app.query_params["inside:model"] = str(save("diffllama", folder))
    app.run()
    assert captions(app).count("the model subtracts a learned share") == 1


def test_the_numbers_of_a_patch_are_explained(app):
    app.query_params["inside:model"] = "digits"
    app.run()
    assert "2,1 is in row 2, column 1" in captions(app)


# From settings to what the page of pretrained models draws and says, on maps whose numbers are known.


# [CLS] the un ##kind [SEP] it rains [SEP]
LINE = Line(
    (0,) * 8,
    ("[CLS]", "the", "un", "##kind", "[SEP]", "it", "rains", "[SEP]"),
    (True, False, False, False, True, False, False, True),
    (None, 0, 1, 1, None, 2, 3, None),
    (0, 0, 0, 0, 0, 1, 1, 0),
)


def a_trace(line=LINE, heads=2, layers=2, seed=86, sunk=()) -> AttentionTrace:
    rng = np.random.default_rng(seed)
    weights = rng.random((layers, heads, len(line), len(line))).astype(np.float32)
    for place in sunk:
        weights[..., place] += 20
    weights /= weights.sum(-1, keepdims=True)
    return AttentionTrace(
        tuple(
            AttentionMap("self", k, one, line.tokens, line.tokens) for k, one in enumerate(weights)
        ),
        "test",
    )


def seen_by(settings: dict, trace=None, line=LINE) -> TraceView:
    trace = trace or a_trace()
    transform = token_transform(trace, line, line, **settings)
    maps = tuple(transform_map(item, transform) for item in trace.maps)
    return TraceView(AttentionTrace(maps, "test"), transform, line, line)


@each(
    ("settings", "rows", "columns"),
    [
        (
            {},
            "[CLS] the un ##kind [SEP] it rains [SEP]",
            "[CLS] the un ##kind [SEP] it rains [SEP]",
        ),
        (dict(words=True, special=True), "the unkind it rains", "the unkind it rains"),
        (dict(sentences="ab"), "the un ##kind", "it rains"),
        (dict(sentences="ba", words=True), "it rains", "the unkind"),
        (dict(sentences="bb"), "it rains", "it rains"),
    ],
)
def test_the_settings_say_which_tokens_are_drawn(settings, rows, columns):
    item = seen_by(settings).trace.map(0)
    assert (" ".join(item.queries), " ".join(item.keys)) == (rows, columns)


def test_a_sink_leaves_the_columns_and_keeps_its_row():
    seen = seen_by(dict(sinks=True), a_trace(sunk=(4,)))
    assert "[SEP]" in seen.trace.map(0).queries[4] and len(seen.trace.map(0).keys) == 7
    assert seen.hides
    np.testing.assert_allclose(seen.trace.map(0).weights.sum(-1), 1, rtol=1e-5)


def test_what_would_hide_everything_is_not_done():
    alone = Line((0, 0), ("[CLS]", "[SEP]"), (True, True), (None, None), (0, 0))
    assert token_transform(a_trace(alone), alone, alone, special=True) == MapTransform.plain(2, 2)


@each("pin", [None, (3, 5)])
def test_an_order_sorts_what_is_drawn_and_the_pin_stays_on_its_cell(pin):
    seen = seen_by({})
    ranked = in_order(seen, 1, 0, "both", pin)
    weights, before = ranked.trace.map(1).weights[0], seen.trace.map(1).weights[0]
    by_key, by_query = (before[3], before[:, 5]) if pin else (before.mean(0), before.max(-1))
    np.testing.assert_allclose(
        weights, before[np.ix_(np.argsort(-by_query), np.argsort(-by_key))], atol=1e-6
    )
    assert ranked.trace.map(0) is seen.trace.map(0), "other layers stay as they are"
    (cell,) = shown_pins(ranked, [(3, 5)])
    assert weights[cell] == pytest.approx(before[3, 5])
    assert ranked.transform.source_cell(cell) == (3, 5)


def test_the_row_to_read_first_looks_far_and_at_a_word():
    trace = a_trace(heads=1, layers=1)
    weights = np.zeros((1, 8, 8), np.float32)
    weights[0, :, 0] = 1.0  # everyone rests on [CLS]
    weights[0, 5] = [0.1, 0, 0, 0, 0, 0.9, 0, 0]  # on itself: no news
    weights[0, 6] = [0.4, 0.6, 0, 0, 0, 0, 0, 0]
    trace = AttentionTrace((replace(trace.maps[0], weights=weights),), "test")
    assert default_row(seen_by({}, trace), 0, 0) == (6, pytest.approx(0.6))


def test_the_head_to_begin_with_is_the_most_telling_or_the_preferred():
    trace = a_trace()
    weights = trace.maps[1].weights.copy()
    weights[1, 6] = [0, 0.99, 0, 0, 0, 0.01, 0, 0]
    seen = seen_by(
        {}, AttentionTrace((trace.maps[0], replace(trace.maps[1], weights=weights)), "test")
    )
    assert first_head(seen, None) == (1, 1)
    assert first_head(seen, (0, 1)) == (0, 1)
    assert first_head(seen, COREFERENCE) == (1, 1), "a head that is not there is not preferred"


def test_a_picture_is_shown_while_all_its_patches_are_in_order():
    line = Line(
        (0,) * 5,
        ("[class]", "0,0", "0,1", "1,0", "1,1"),
        (True, *[False] * 4),
        (None, 0, 1, 2, 3),
        (0,) * 5,
        (2, 2),
    )
    given = ModelInputs(picture=Array.of(np.zeros((4, 4), np.float32)))
    trace = a_trace(line)
    assert patches_of(seen_by({}, trace, line), given).first == 1
    assert patches_of(seen_by(dict(special=True), trace, line), given).first == 0
    assert patches_of(in_order(seen_by({}, trace, line), 0, 0, "keys", None), given) is None
    assert patches_of(seen_by({}, trace, line), ModelInputs()) is None


def test_even_attention_lies_on_what_a_row_sees():
    item = AttentionMap(
        "causal", 0, np.tri(4, dtype=np.float32)[None], tuple("abcd"), tuple("abcd"), np.tri(4) > 0
    )
    assert even(item, 2) == pytest.approx(1 / 3)
    assert even(replace(item, mask=None), 2) == pytest.approx(1 / 4)


def test_the_fact_tells_the_weight_its_rivals_and_its_baseline():
    weights = np.full((2, 3, 4), 0.1, np.float32)
    weights[0, 1] = [0.7, 0.2, 0.1, 0.0]
    weights[1, 1] = [0.8, 0.1, 0.1, 0.0]
    trace = AttentionTrace(
        (AttentionMap("cross", 0, weights, tuple("xyz"), tuple("abca")),), "test"
    )
    fact = head_fact(trace, 0, 0, 1)
    assert (
        "**a \\(0\\)** and 0.20 on b; uniform attention would give each key 0.25" in fact
        and "puts **0.70**" in fact
    )
    assert "1 of 1 other head puts at least as much there; the largest is L0·H1 with 0.80." in fact
    assert "**0.20** of its weight on **b**" in head_fact(trace, 0, 0, 1, 1)
    assert pins_fact(trace.map(0), 0, ((1, 1), (1, 0))) == "Also pinned: y → b **0.20**."
    assert pins_fact(trace.map(0), 0, ((1, 1),)) == ""
    assert called(("a", "b", "a"), 2) == "a \\(2\\)"
    assert "is the most focused" in all_heads_fact(
        TraceView(trace, MapTransform.plain(3, 4), LINE, LINE)
    )
