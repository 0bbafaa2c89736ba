from dataclasses import replace

import numpy as np
import pytest

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
from tests.pages.app import Case, open_at, page_cases

TEXTS = ("a", "🙂🙂", "שלום עולם", "<script>alert(1)</script> **x** $y$")
test_what_it_says = page_cases(
    "pretrained",
    {
        "another model forgets the head and the pins of the last": Case(
            {"head": "0.2", "pin": "6.8_10.9"},
            do=[("selectbox", "inside:model", "induction")],
            query={"head": None, "pin": None},
        ),
        "a long text": Case(
            says=["puts", "602 tokens"], do=[("text_input", "inside:text", "word " * 600)]
        ),
        "no text": Case(says=["write a sentence"], do=[("text_input", "inside:text", "   ")]),
        "the order of the weights": Case(
            {"pin": "10.2"}, ["puts 0.68"], do=[("radio", "pretrained:order", "both")]
        ),
    }
    | {
        text: Case(says=["puts"], never=["<script>"], do=[("text_input", "inside:text", text)])
        for text in TEXTS
    },
)


def test_the_key_of_the_pin_comes_first():
    app = open_at("pretrained", pin="10.2").radio(key="pretrained:order").set_value("both").run()
    assert app.session_state["pretrained:head:view"]["pins"][-1][1] == 0


# From settings to what the page of pretrained models draws and says, on maps whose numbers are known.


# [CLS] the un ##kind [SEP] it rains [SEP]
LINE = Line(
    (0,) * 8,
    ("[CLS]", "the", "un", "##kind", "[SEP]", "it", "rains", "[SEP]"),
    (True, False, False, False, True, False, False, True),
    (None, 0, 1, 1, None, 2, 3, None),
    (0, 0, 0, 0, 0, 1, 1, 0),
)


def a_trace(line=LINE, heads=2, layers=2, sunk=()) -> AttentionTrace:
    rng = np.random.default_rng(86)
    weights = rng.random((layers, heads, len(line), len(line))).astype(np.float32)
    weights[..., list(sunk)] += 20
    return traced(weights / weights.sum(-1, keepdims=True), line)


def traced(weights: np.ndarray, line=LINE) -> AttentionTrace:
    tokens = line.tokens
    maps = (AttentionMap("self", layer, one, tokens, tokens) for layer, one in enumerate(weights))
    return AttentionTrace(tuple(maps), "test")


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
    item = seen.trace.map(0)
    assert "[SEP]" in item.queries[4] and len(item.keys) == 7 and seen.hides
    np.testing.assert_allclose(item.weights.sum(-1), 1, rtol=1e-5)
    # What would hide everything is not done
    alone = Line((0, 0), ("[CLS]", "[SEP]"), (True, True), (None, None), (0, 0))
    assert token_transform(a_trace(alone), alone, alone, special=True) == MapTransform.plain(2, 2)


@each("pin", [None, (3, 5)])
def test_an_order_sorts_what_is_drawn_and_the_pin_stays_on_its_cell(pin):
    seen = seen_by({})
    ranked = in_order(seen, 1, 0, "both", pin)
    weights, before = (view.trace.map(1).weights[0] for view in (ranked, seen))
    by_key, by_query = (before[3], before[:, 5]) if pin else (before.mean(0), before.max(-1))
    expected = before[np.ix_(np.argsort(-by_query), np.argsort(-by_key))]
    np.testing.assert_allclose(weights, expected, atol=1e-6)
    assert ranked.trace.map(0) is seen.trace.map(0), "other layers stay as they are"
    (cell,) = shown_pins(ranked, [(3, 5)])
    assert weights[cell] == pytest.approx(before[3, 5])
    assert ranked.transform.source_cell(cell) == (3, 5)


def test_the_row_to_read_first_looks_far_and_at_a_word():
    weights = np.zeros((1, 1, 8, 8), np.float32)
    weights[..., 0] = 1.0  # everyone rests on [CLS]
    weights[0, 0, 5] = [0.1, 0, 0, 0, 0, 0.9, 0, 0]  # on itself: no news
    weights[0, 0, 6] = [0.4, 0.6, 0, 0, 0, 0, 0, 0]
    assert default_row(seen_by({}, traced(weights)), 0, 0) == (6, pytest.approx(0.6))


def test_the_head_to_begin_with_is_the_most_telling_or_the_preferred():
    weights = np.stack([item.weights for item in a_trace().maps])
    weights[1, 1, 6] = [0, 0.99, 0, 0, 0, 0.01, 0, 0]
    seen = seen_by({}, traced(weights))
    first = [first_head(seen, prefer) for prefer in (None, (0, 1), COREFERENCE)]
    assert first == [(1, 1), (0, 1), (1, 1)]


def test_a_picture_is_shown_while_all_its_patches_are_in_order():
    tokens, words = ("[class]", "0,0", "0,1", "1,0", "1,1"), (None, 0, 1, 2, 3)
    line = Line((0,) * 5, tokens, (True, *[False] * 4), words, (0,) * 5, (2, 2))
    given = ModelInputs(picture=Array.of(np.zeros((4, 4), np.float32)))
    all_of, patches = (seen_by(one, a_trace(line), line) for one in ({}, dict(special=True)))
    assert (patches_of(all_of, given).first, patches_of(patches, given).first) == (1, 0)
    assert patches_of(in_order(all_of, 0, 0, "keys", None), given) is None
    assert patches_of(all_of, ModelInputs()) is None


def test_even_attention_lies_on_what_a_row_sees():
    weights, names = np.tri(4, dtype=np.float32)[None], tuple("abcd")
    item = AttentionMap("causal", 0, weights, names, names, np.tri(4) > 0)
    evens = [even(one, 2) for one in (item, replace(item, mask=None))]
    assert evens == pytest.approx([1 / 3, 1 / 4])


def test_the_fact_tells_the_weight_its_rivals_and_its_baseline():
    weights = np.full((2, 3, 4), 0.1, np.float32)
    weights[:, 1] = [[0.7, 0.2, 0.1, 0.0], [0.8, 0.1, 0.1, 0.0]]
    item = AttentionMap("cross", 0, weights, tuple("xyz"), tuple("abca"))
    trace = AttentionTrace((item,), "test")
    words = (
        "puts **0.70**",
        "**a \\(0\\)** and 0.20 on b; uniform attention would give each key 0.25",
        "1 of 1 other head puts at least as much there; the largest is L0·H1 with 0.80.",
    )
    assert [part for part in words if part not in head_fact(trace, 0, 0, 1)] == []
    assert "**0.20** of its weight on **b**" in head_fact(trace, 0, 0, 1, 1)
    facts = [pins_fact(item, 0, pins) for pins in (((1, 1), (1, 0)), ((1, 1),))]
    assert facts == ["Also pinned: y → b **0.20**.", ""]
    assert called(("a", "b", "a"), 2) == "a \\(2\\)"
    view = TraceView(trace, MapTransform.plain(3, 4), LINE, LINE)
    assert "is the most focused" in all_heads_fact(view)
