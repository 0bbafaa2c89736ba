"""One query: the page in AppTest, and the words, equations and bytes that come from its steps."""

import base64
import json
import math
import re
from contextlib import suppress
from functools import partial
from itertools import product, zip_longest

import numpy as np
import pytest
import torch

from core.attention import AXES, PRESETS, AttentionConfig, Choice, ConfigError
from core.attention.masks import COMPOSITIONS
from core.attention.presets import preset_of
from core.studies import heads as study
from core.tokens import MAX_TOKENS, SENTENCE, embed, tokenize
from dashboard.draw import one_query as draw
from dashboard.draw.formats import latex, number
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
from dashboard.fields.mechanism import D_MODELS
from pages import one_query
from tests.cases import each
from tests.pages.app import (
    Case,
    assert_says,
    assert_script,
    controls_of,
    live,
    open_at,
    page_cases,
    query_value,
    set_control,
)

open_page = partial(open_at, "one_query", "one:")
LAYER = {"stage": "5 Normalize"}  # as links of the first version: six words, four heads
put = partial(set_control, "one:")


def drawn(at):
    parts = (json.loads(one.proto.json) for one in at.get("bidi_component"))
    return next(data for data in parts if "stages" in data)


def test_every_preset_sets_all_axes(monkeypatch):
    monkeypatch.setattr("streamlit.session_state", {"one:start": "layer"})
    for item in PRESETS:
        one_query.Controls.set(preset=item.key)
        one_query.apply_preset()
        values = one_query.read_controls()
        assert preset_of(values.config) == item.key
        changed = item.changed(values.d_model, values.heads)
        assert item.key in draw.PLAIN or changed[0] in draw.preset_words(values.config), item.key


def test_every_choice_is_drawn():
    # The pages Positions and Masks do the same for theirs.
    at, axes = open_page(position="none", mask="none"), ("projection", "score", "normalizer")
    seen, rows = set(), [list(AXES[axis]) for axis in axes]
    rows[0].sort(key=lambda item: item.key != "parallax")  # beside softmax, the one that it takes
    for items in zip_longest(*rows):
        chosen = [(axis, item) for axis, item in zip(axes, items, strict=True) if item]
        for axis, item in chosen:
            at.selectbox(key=f"one:{axis}").set_value(item.key)
        seen.add(live(at.run()))
        assert not at.error and not at.warning, chosen
        assert {
            f"one:{axis}:{item.key}:{param.key}" for axis, item in chosen for param in item.params
        } <= controls_of(at).keys()
    assert len(seen) == max(len(AXES[axis]) for axis in axes)


def test_folded_heads_show_either_map_and_weights_they_make():
    at = open_page(projection="differential(depth=12)", stage="2 Score")
    assert live(at) != live(put(at, "pills", "half", 1))
    at = put(at, "segmented_control", "stage", 5)
    assert r"a_1 = " in live(at) and r"a_2 = " in live(at) and drawn(at)["weights"]["signed"]
    assert min(key["weight"]["value"] for key in drawn(at)["keys"]) < 0


def repaired(says: str, becomes: str, **link: str) -> Case:
    """A choice that does not fit is said, and mended by the one that the button names."""
    axis, _, choice = becomes.partition(":")
    press = [("button", f"repair:{becomes}", None)]
    return Case(link, ["displaystyle"], [says], press, query={f"one:{axis}": choice})


CHOICES = {
    "projection": "grouped_query(bias=false,kv_heads=1)",
    "score": "additive",
    "position": "formula(formula='score - 0.5*(i-j)')",
    "mask": "and(causal,or(local(window=1),drawn))",
    "normalizer": "entmax(alpha=1.75)",
}
MATRICES = {"source": "Matrices Q, K, V"}
REFUSED = {
    "heads = 7; expected one of 1, 2, 4, 8, 16, 32, 64": {"d_model": "64", "heads": "7"},
    "d_model = 700": {"d_model": "700"},
    "heads = abc": {"heads": "abc"},
    "mask = Foo": {"mask": "Foo"},
    "seed = ": {"seed": "-1"},
    "temperature = 0": {"temperature": "0"},
    "head = 9": {"head": "9"},
    "query = cat": {"query": "cat"},
    "stage = 9": {"stage": "9"},
    "K's rows have 1 and 2 numbers": MATRICES | {"matrices": "1,2|1,0;0|3"},
    "Q row 0, column 1": MATRICES | {"matrices": "1,nan|1,0|3"},
    "Q has 3 columns and K has 2": MATRICES | {"matrices": "1,2,3|1,0|3"},
}
TYPED = (
    "one",
    "😀 👩‍👩‍👧 🇩🇪",
    "שלום עולם مرحبا",
    "word " * 4000,
    "x" * 25_000,
    "<b>*x*</b> $y$ :smile: [l](http://e.x) `c`",
    "\\ { } % # & _ ^ ~",
    "the the the",
    "\u202e\u0000\ufeff",
)
LARGE = {"d_model": "512", "heads": "512"}
test_what_it_says = page_cases(
    "one_query",
    {
        "a layer that would hold gigabytes": Case(
            LARGE | {"projection": "multi_head(head_dim=1024)"},
            ["A layer of these sizes would take about", "Take fewer or smaller heads"],
        ),
        "maps of too many heads and words": Case(
            LARGE | {"tokens": " ".join(f"w{place}" for place in range(512))},
            ["A layer of these sizes would take about", "Take fewer or smaller heads"],
        ),
    }
    | {
        f"a bad link: {words}": Case(link, [words, "displaystyle"])
        for words, link in REFUSED.items()
    }
    | {
        f"until a control changes: {words}": Case(
            REFUSED[words], never=[words], do=[("number_input", "seed", 9)]
        )
        for words in ("heads = abc", "mask = Foo", "query = cat", "Q row 0, column 1")
    }
    | {
        f"typed: {text[:9]!r}": Case(LAYER, ["displaystyle"], do=[("text_input", "tokens", text)])
        for text in TYPED
    }
    | {
        f"no token: {text!r}": Case(LAYER, ["no token"], do=[("text_input", "tokens", text)])
        for text in ("", "   ", "\t")
    }
    | {
        "heads that share": repaired(
            "; take ", "projection:grouped_query", projection="grouped_query(kv_heads=3)"
        ),
        "an odd part": repaired(
            "; take ", "projection:latent(rope=6)", projection="latent(rope=7)"
        ),
        "an odd head is said": Case(
            {"start": "simple", "d_model": "9", "heads": "3", "position": "rope"}, ["odd size, 3"]
        ),
        "an odd head": repaired(
            "odd size, 3", "position:alibi", start="simple", d_model="9", heads="3", position="rope"
        ),
        "vectors of another size than the values": Case(
            MATRICES | {"matrices": "1,2|1,0;0,1|1;2", "position": "shaw"}, ["V has 1 columns"]
        ),
        "and then ALiBi": Case(
            MATRICES | {"matrices": "1,2|1,0;0,1|1;2", "position": "shaw"},
            ["displaystyle"],
            do=[("selectbox", "position", "alibi")],
        ),
        "a row without keys": Case({"mask": "padding", "real": "0"}, ["mathbf{0}"]),
        "the code that ran": Case(
            {},
            ["scores = q @ k.mT", "def exact(inputs"],
            do=[("session_state", "sources", True)],
        ),
        "half a formula": Case(
            LAYER | {"position": "formula"},
            ["^", "displaystyle"],  # where it ends, and the picture of before
            do=[("text_input", "position:formula:formula", "score - 3*(i-")],
        ),
        "a formula without a value": Case(
            LAYER | {"position": "formula"},
            ["zero"],
            do=[("text_input", "position:formula:formula", "score / (i-j)")],
        ),
        "the worked example": Case(
            LAYER, ["frac{8.34}{14.48}"], do=[("selectbox", "preset", "worked")]
        ),
        "the output of the worked example": Case(
            LAYER,
            [" 0.62)"],
            do=[("selectbox", "preset", "worked"), ("segmented_control", "stage", 6)],
        ),
        "a preset and what it changes": Case(
            LAYER,
            ["a_1 = ", "compared with Vaswani 2017"],
            do=[("selectbox", "preset", "differential")],
            controls={"preset": "differential"},
        ),
        "a link of every choice with its parameters": Case(
            CHOICES,
            controls={
                "mask:and:part1:or:part0:local:window": 1,
                "normalizer:entmax:alpha": 1.75,
            },
            query={f"one:{axis}": choice for axis, choice in CHOICES.items()},
        ),
        "two positions": Case(
            {"position": "and(rope,formula(formula='score - 0.25*i'))", "stage": "1 Project"},
            ["q_i = R_i(x_i W_q)"],
        ),
        "two other positions": Case(
            {"position": "and(rope,formula(formula='score - 0.25*i'))", "stage": "3 Scale + bias"},
            ["m_h,|i - j| + s_{ij} - 0.25 cdot i"],
            do=[("selectbox", "position:and:part0", "alibi")],
            query={"one:position": "and(alibi,formula(formula='score - 0.25*i'))"},
        ),
        "what is not chosen leaves the link": Case(
            CHOICES, do=[("selectbox", "mask", "causal")], query={"one:mask": None}
        ),
        "a mask of masks": Case(
            LAYER,
            [r"0 le i - j le w vee (neg(j le i))"],
            do=[
                ("selectbox", "mask", "or"),
                ("selectbox", "mask:or:part0", "causal_local"),
                ("number_input", "mask:or:part0:causal_local:lookback", 1),
                ("selectbox", "mask:or:part1", "not"),
                ("segmented_control", "stage", 4),
            ],
            query={"one:mask": "or(causal_local(lookback=1),not(causal))"},
        ),
        # A link without a query opens with the last word, which it follows until another is picked.
        "the last word": Case(
            do=[("text_input", "tokens", "one two three")], controls={"query": "three"}
        ),
        "a picked word": Case(
            do=[
                ("text_input", "tokens", "one two three"),
                ("button_group", "query", "two"),
                ("text_input", "tokens", "one two three four"),
            ],
            controls={"query": "two"},
        ),
    },
    prefix="one:",
)


def test_the_steps_stay_exact_under_another_kernel():
    plain = open_page(position="none", mask="none")
    assert live(open_page(kernel="linear", position="none", mask="none")) == live(plain)


def test_next_walks_the_six_stages():
    # As a browser sends a second press that has not yet heard of the first one.
    at = open_page(stage="1 Project")
    seen = {live(at), *(live(at.button(key="one:next").click().run()) for _ in range(5))}
    assert len(seen) == 6 and at.button(key="one:next").disabled
    assert [one_query.following(stage, True) for stage in range(1, 6)] == [2, 3, 5, 5, 6]
    put(at, "segmented_control", "stage", 3)
    at.segmented_control(key="one:stage").set_value(1)
    at.button(key="one:next").click().run()
    assert at.segmented_control(key="one:stage").value == 4


# What One query opens on: a projection, its question and its moves; earlier links; every control in the link.


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
def test_link_of_before_simple_start_shows_numbers_of_then(link, named):
    # It is the link that names every value with which the page opened then.
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
    # As after a reload: the browser leaves out what the page opened with then.
    shorter = {name: text for name, text in link.items() if then.get(name) != text}
    assert drawn(open_page(start="layer", **shorter)) == drawn(at)


# Text and matrices in, Steps through, and the words, equations and bytes that come out.


CONFIG = AttentionConfig(16, 4, position=Choice("alibi"), mask=Choice("causal"))


def reading(config=CONFIG, text=SENTENCE, query=4, head=0, seed=1044, real=None, half=0):
    source = study.Source.sentence(tokenize(text).tokens)
    return read(
        study.run(config, source, seed, real),
        source.queries,
        source.keys,
        query,
        head,
        half=half,
        adjusts=config.has("position", "adjusts"),
    )


def shown(r, config=CONFIG, stage=5, real=None):
    whys = draw.reasons_text(r, real)
    sentence = draw.facts_fact(r, config, stage, whys)
    words = draw.stage_words(config, r, real, False)
    assert len(words) == 6
    return payload(r, words, stage, r.best, whys, sentence, "")


def sentence_of(r, config, stage=5, real=None, head=0):
    whys = draw.reasons_text(r, real)
    return "".join(text for text, _ in draw.facts_fact(r, config, stage, whys, head))


def equation_of(r, config, stage, key=1):
    return draw.equation(r, config, stage, key, "#B8430F")


def check_stages(r, config, key, real, head=0):
    """In each stage the equation has braces that close, and the sentence ends."""
    for stage in range(1, 7):
        line = "".join(equation_of(r, config, stage, key))
        assert line.count("{") == line.count("}"), config
        assert sentence_of(r, config, stage, real, head).endswith((".", "…")), config
        assert "−" not in line and "NaN" not in line, "LaTeX sets its own minus"


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


def test_a_long_text_is_cut_and_a_word_has_one_vector():
    cut = tokenize("ab " * 10_000)
    assert len(cut.tokens) == MAX_TOKENS
    assert any("30,000 characters; the first 20,000" in note for note in cut.notes)
    assert any(f"the first {MAX_TOKENS} are used" in note for note in cut.notes)
    state = torch.random.get_rng_state()
    first, second = embed(("a", "b", "a"), 7, 3), embed(("b",), 7, 3)
    assert torch.equal(first[0, 0], first[0, 2]) and torch.equal(first[0, 1], second[0, 0])
    assert not torch.equal(embed(("b",), 7, 4), second)
    assert torch.equal(torch.random.get_rng_state(), state)


# matrices


def test_the_worked_example_by_hand():
    source = study.Source.of_matrices(study.check(study.parse(study.WORKED)))
    steps = study.run(AttentionConfig(2, 1, Choice("identity")), source, 0)
    r = read(steps, source.queries, source.keys, 0, 0)
    np.testing.assert_allclose(r.raw[0], [1, 2, 3])
    np.testing.assert_allclose(r.weights[0], [0.140, 0.284, 0.576], atol=5e-4)
    np.testing.assert_allclose(r.out[0], [0.355, 0.617], atol=5e-4)
    parts = study.parse("1,−2.5|0.125,1e-3|3")
    assert parts == [[[1.0, -2.5]], [[0.125, 0.001]], [[3.0]]]
    assert study.parse(study.write(parts)) == parts
    assert study.check([[[1e6] * 16] * 32] * 3)[0] == [[1e6] * 16] * 32


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
        (";".join("1" * 33) + "|1|1", "larger than 32 × 16"),
        (",".join("1" * 17) + "|1|1", "larger than 32 × 16"),
    ],
)
def test_matrices_that_do_not_fit_are_refused_in_words(text, says):
    with pytest.raises(ConfigError, match=says.replace("(", r"\(").replace(")", r"\)")):
        study.check(study.parse(text))


@each("score", ["dot", "general", "concat", "additive"])
@each("position", [Choice("rope"), Choice.of("rope", layout="interleaved"), Choice("alibi")])
def test_given_matrices_may_have_more_keys(score, position):
    source = study.Source.of_matrices(study.check(study.parse("1,2;0,1|1,0;0,1;1,1|1;2;3")))
    config = AttentionConfig(2, 1, Choice("identity"), Choice(score), position, Choice("causal"))
    assert study.run(config, source, 1).weights.sum(-1).allclose(torch.ones(1, 1, 2))


# numbers, payload


def test_scales_keep_zero_in_middle_and_end_on_plain_number():
    for values, top, allowed, scale, expected in (
        ([-2.0, 0.0, 2.0], 2.0, np.array([[True, True, False]]), "signed", [0, 127, 255]),
        ([0.0, 1.0], 1.0, None, "weight", [0, 254]),
    ):
        data = small_map(np.array([values]), top, allowed, scale=scale)
        assert list(base64.b64decode(data["data"])) == expected
    tops = [top_of(np.array(values)) for values in ([2.87, -1.0], [0.0], [np.nan, 41.0])]
    assert tops == [3, 1, 50]


def test_what_is_sent_is_bounded_holds_the_query():
    for query in (0, 150, 511):
        sent = shown(reading(text="word " * 512, query=query))
        assert len(sent["keys"]) == LIST_KEYS
        assert all(m["rows"] <= MAP_CELLS >= m["columns"] for m in sent["maps"])
        assert sent["rows"][sent["band"]] == sent["query"]
    assert window(3, 1) == slice(0, 3)
    r = reading(text=" ".join(f"w{n}" for n in range(40)), query=39)
    listed = {line["index"]: line["weight"]["value"] for line in shown(r)["keys"]}
    assert min(listed.values()) >= max(r.weights[39, j] for j in range(40) if j not in listed)


# words, facts, equations


def test_the_opening_sentence_says_what_the_numbers_say():
    r = reading()
    assert sentence_of(r, CONFIG) == (
        "tired takes 0.60 from animal. The full stop has the highest score, 3.67, but comes later, "
        "so the mask removes it."
    )
    assert r.raw[4].argmax() == 5 and round(float(r.weights[4, 1]), 2) == 0.60


def test_a_sum_of_rounded_numbers_says_so():
    vectors = np.array([1.004, 2.0]), np.array([1.0, 3.004])
    assert draw.products(*vectors, 2, 7.0)[1] == "="
    assert draw.products(*vectors, 2, 7.012)[1] == r"\approx"


def test_a_row_that_sees_nothing_is_named_in_every_stage():
    config = CONFIG.with_(mask=Choice("padding"))
    r = reading(config, real=0)
    assert {sentence_of(r, config, stage, 0) for stage in range(1, 7)} == {
        "tired may attend to no key: every weight is 0 and its output is 0."
    }
    assert np.array_equal(r.out, np.zeros_like(r.out))


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
    # To the rounding of two factors a product.
    config = AttentionConfig(d_model, heads if d_model % heads == 0 else 1, position="alibi")
    r = reading(config)
    line = re.sub("[()]", "", "".join(equation_of(r, config, 2)[1:]))
    rest = re.findall(r"\\underbrace\{(-?[\d.]+)\}", line)
    pairs = re.findall(r"(-?[\d.]+) \\cdot (-?[\d.]+)", line)
    total = sum(float(a) * float(b) for a, b in pairs) + sum(map(float, rest))
    assert len(pairs) == min(r.q.shape[1], 4) and len(rest) == (r.q.shape[1] > 4)
    slack = 0.006 * (1 + sum(abs(float(a)) + abs(float(b)) for a, b in pairs))
    assert abs(total - r.raw[r.query, 1]) < slack


def test_what_a_move_promises_is_so():
    r, undivided = (
        reading(AttentionConfig(16, 4, score=score), query=1) for score in ("scaled_dot", "dot")
    )
    config = AttentionConfig(16, 4, score="dot")
    best, moves = undivided.weights[1].argmax(), one_query.moves(undivided, config)
    assert undivided.weights[1, best] > r.weights[1, best]
    assert f"takes {number(undivided.weights[1, best])} from {r.keys[best]}" in moves[1].notice
    assert f"by √4 it would take {number(r.weights[1, best])}." in moves[1].notice
    bias = config.with_(position=Choice("alibi"))
    assert "√4 times as large" in one_query.moves(reading(bias, query=1), bias)[1].notice
    layer = [reading(AttentionConfig(16, 4), head=head).weights[4] for head in range(4)]
    assert len({row.argmax() for row in layer}) > 1, "each head attends to another word"


@each(
    ("label", "named"),
    [
        ("Hide later words from was", {"mask": "causal", "stage": 4}),
        ("Do not divide by √D", {"score": "dot", "stage": 5}),
    ],
)
def test_a_move_changes_only_what_it_names(label, named):
    at = open_page(
        start="simple", tokens="it was so tired", query="was", position="rope", stage="2 Score"
    )
    before = controls_of(at)
    next(one for one in at.button if one.label == label).click().run()
    after = controls_of(at)
    changed = {name for name in before if after.get(name) != before[name]} - {
        "one:preset"
    }  # which follows
    assert {name: after[f"one:{name}"] for name in named} == named
    assert changed == {f"one:{name}" for name in named} and label in {
        one.label for one in at.button
    }
    assert_says(at, "**Notice:**")


def press(at, label):
    return next(one for one in at.button if one.label.startswith(label)).click().run()


MOVES = ("Hide later words", "Do not divide", "Six words")


@each("second", MOVES)
@each("first", MOVES)
def test_a_move_after_another_names_what_stays_out_of_sight(first, second):
    alone, both = (open_page(start="simple", tokens="it was so tired", query="was") for _ in "12")
    alone, both = press(alone, second), press(press(both, first), second)
    then, now = controls_of(alone), controls_of(both)
    (notice,) = [
        re.sub("<[^>]+>", "", one.value) for one in both.markdown if "**Notice:**" in one.value
    ]
    in_sight = {"one:tokens", "one:query", "one:head", "one:heads", "one:d_model"}  # in the picture
    for name in {name for name in then if now.get(name) != then[name]} - in_sight - {"one:preset"}:
        axis = name.removeprefix("one:").partition(":")[0]
        chosen = next(item.name for item in AXES[axis] if item.key == now[f"one:{axis}"])
        assert f"{axis} {chosen}" in notice.partition("Unchanged: ")[2], (name, notice)


def test_hiding_from_the_last_word_says_that_the_query_moves():
    at = press(open_page(start="simple", stage="2 Score"), "Hide later words from The")
    assert at.button_group(key="one:query").value == "The"
    assert_says(at, "The query is The.")


def test_root_d_is_asked_at_its_step_and_answered_with_and_without():
    assert "What √D does" not in live(open_page(start="simple"))
    at = open_page(start="simple", stage="3 Scale", **{"root:predict": "Show me"})
    large = next(one for one in study.measure_scaling() if one.dims == draw.LARGE)
    without, with_root = map(number, large.largest)
    assert_says(
        at,
        "What √D does",
        f"the largest of {study.KEYS} weights is {without}; divided by √{draw.LARGE}, {with_root}.",
    )


def test_temperature_is_a_dial_at_step_five_alone():
    at = open_page(start="simple", stage="4 Mask")
    assert "one:temperature" not in controls_of(at)
    put(at, "segmented_control", "stage", 5)
    first = max(key["weight"]["value"] for key in drawn(at)["keys"])
    assert controls_of(at)["one:temperature"] == 1.0 and "tau" not in live(at)
    put(at, "select_slider", "temperature", 0.25)
    assert max(key["weight"]["value"] for key in drawn(at)["keys"]) > first
    assert query_value(at, "one:normalizer") == "softmax(temperature=0.25)"
    assert r"tau = 0.25" in live(at) and "At temperature 1 it would take" in drawn(at)["fact"]
    assert_script(at)
    again = open_page(start="simple", stage="5 Normalize", normalizer="softmax(temperature=0.37)")
    assert controls_of(again)["one:temperature"] == 0.37  # which the dial has beside its own


def test_the_rule_of_the_third_stage_names_scale_and_slope():
    assert draw.stage_words(CONFIG, reading(), None, False)[2][3] == "÷2 − ¼·distance"
    plain = CONFIG.with_(score=Choice("dot"), position=Choice("none"))
    assert draw.stage_words(plain, reading(plain), None, False)[2][2] == "unchanged"
    assert draw.position(AttentionConfig(position="and")) == "RoPE and Formula"
    assert "sinusoidal" not in open_page(position="and").selectbox("one:position:and:part1").options


def test_step_1_is_a_matrix_times_the_word():
    source = study.Source.sentence(tokenize(SENTENCE).tokens)
    plain = AttentionConfig(16, 4)
    steps = study.run(plain, source, 1044)
    x, maps = study.projected(plain, source, 1044, 2, steps)
    for w, rows in zip(maps, (steps.q, steps.k, steps.v), strict=True):
        np.testing.assert_allclose(x @ w, rows[0, 2].numpy(), atol=1e-5)
    sent = projection_payload(read(steps, source.queries, source.keys, 4, 2), x, maps)
    assert sent["rows"][sent["picked"]] == "tired"
    assert [len(sent["x"]), sent["size"], sent["dims"]] == [8, 16, 4]
    for config in (
        CONFIG.with_(position=Choice("rope")),
        CONFIG.with_(projection=Choice("identity")),
    ):
        assert study.projected(config, source, 1044, 0, study.run(config, source, 1044)) is None


# √D


def test_root_d_keeps_variance_and_entropy_where_they_are():
    points = study.measure_scaling(86)
    assert points == study.measure_scaling(86)
    last = points[-1]
    assert (last.variance[0] / 512, last.variance[1]) == pytest.approx((1, 1), rel=0.1)
    plain, scaled = last.entropy
    assert 5 * plain < scaled == pytest.approx(math.log(64) - 0.5, rel=0.03)
    assert last.largest[0] > 0.9 > 0.2 > last.largest[1]
    assert str(round(last.variance[0])) in draw.scaling_fact(points)
    assert f"{last.largest[0]:.2f}" in draw.largest_fact(points)


# One query with every mechanism: what each entry makes of the six stages, in numbers, words and equations.


def every_choice():
    """Each preset, and each entry of each axis alone, beside an otherwise plain layer or the page's own."""
    for preset in PRESETS:
        with suppress(ConfigError):
            yield preset.config(16, 4).with_(kernel=Choice("exact"))
    for base in (AttentionConfig(16, 4), CONFIG):
        for axis in ("projection", "score", "position", "mask", "normalizer"):
            for item in AXES[axis]:
                if item.key not in COMPOSITIONS:
                    with suppress(ConfigError):  # refused in words beside the control
                        yield base.with_(**{axis: Choice(item.key)})


def test_every_choice_has_words_and_numbers():
    for config in every_choice():
        real = 4 if config.mask.key == "padding" else None
        for half in range(config.score_heads // config.num_heads):
            r = reading(config, head=1, real=real, half=half)
            check_stages(r, config, r.best, real, 1)
            shown(r, config, real=real)
    masks = (
        *map(Choice, ("none", "causal", "padding", "local")),
        Choice.of("and", Choice("causal"), Choice.of("local", window=0)),
    )
    for text, mask in product(("one", "a a", "{ } \\ %", "😀 👍", "x " * 80), masks):
        config, real = CONFIG.with_(mask=mask), 1 if mask.key == "padding" else None
        r = reading(config, text, query=0, real=real)
        check_stages(r, config, len(r.keys) - 1, real)


@each("head", range(4))
def test_scale_of_each_head_is_read_for_head_that_is_shown(head):
    r = reading(AttentionConfig(16, 4, score=Choice("cosine")), head=head)
    np.testing.assert_allclose(r.raw * r.scale, r.scores, atol=1e-5)
    assert np.abs(r.raw).max() <= 1 + 1e-5


def test_a_rule_that_adjusts_is_shown_from_before_to_after():
    config = AttentionConfig(16, 4, position=Choice.of("formula", formula="2*score - 1"))
    r = reading(config)
    np.testing.assert_allclose(2 * r.before - 1, r.scores, atol=1e-5)
    symbols, line = equation_of(r, config, 3)
    before = rf"\frac{{{latex(r.raw[4, 1])}}}{{\sqrt{{4}}}} \;\to\;"
    assert "s_{ij}" in symbols and before in line and latex(r.scores[4, 1]) in line


def test_folded_heads_weigh_by_their_difference():
    config = AttentionConfig(16, 4, Choice.of("differential", depth=12))
    r = reading(config, head=2)
    first, second = r.normalized
    rate = (first - r.weights) / second  # the layer's own λ, one number everywhere
    np.testing.assert_allclose(rate, rate[0, 0], rtol=1e-3)
    other = reading(config, head=2, half=1)
    assert not np.allclose(other.raw, r.raw)
    np.testing.assert_array_equal(other.weights, r.weights)
    sent = shown(r, config)
    assert (sent["weights"]["ends"], sent["maps"][4]["scale"]) == (["−1", "0", "1"], "signed")


def test_a_gaussian_after_the_softmax_is_shown_as_a_factor():
    config = AttentionConfig(16, 4, mask=Choice.of("local_m", window=2, gaussian=True))
    r = reading(config)
    np.testing.assert_allclose(r.normalized[0].sum(-1), 1, atol=1e-6)
    # σ = D/2 = 1
    np.testing.assert_allclose(r.weights[4, 3] / r.normalized[0][4, 3], math.exp(-0.5), rtol=1e-5)
    assert rf"0.61 \cdot {latex(r.normalized[0][4, 3])}" in "".join(equation_of(r, config, 5, 3))
    ends = f"Its row sums to {number(r.sum)}; before the mask’s factor it was 1.00."
    assert ends in sentence_of(r, config)


def test_what_shaw_adds_to_the_values_is_in_the_output():
    config = AttentionConfig(16, 4, position=Choice("shaw"))
    r = reading(config)
    np.testing.assert_allclose(r.weights @ r.v + r.position_values, r.out, atol=1e-5)
    assert r"+ p_i" in equation_of(r, config, 6)[0]


def test_row_that_does_not_sum_to_one_says_what_it_sums_to():
    config = CONFIG.with_(normalizer=Choice("sink"))
    r = reading(config)
    assert r.sum < 0.99 and f"Its row sums to {number(r.sum)}." in sentence_of(r, config)
    assert rf"\sum_m w_{{im}} = {number(r.sum)}" in "".join(equation_of(r, config, 5))


def test_heads_that_share_keys_are_named():
    config = AttentionConfig(16, 4, Choice.of("grouped_query", kv_heads=2))
    k = [reading(config, head=head).k for head in range(4)]
    assert np.array_equal(k[2], k[3]) and not np.allclose(k[1], k[2])
    assert " Head 3 shares key and value head 1 of 2 with head 2." in sentence_of(
        reading(config, head=3), config, 1, head=3
    )
    assert draw.sharing(CONFIG.with_(projection=Choice("multi_query")), 0).endswith(
        "0 of 1 with heads 1, 2 and 3."
    )
    assert draw.sharing(CONFIG, 0) == ""


@each(
    ("mask", "real", "why"),
    [
        (Choice("causal"), None, {5: "comes later"}),
        (Choice.of("local", window=1), None, dict.fromkeys((0, 1, 2), "too far")),
        (Choice.of("block", size=3), None, dict.fromkeys((0, 1, 2), "too far")),
        (Choice.of("not", Choice.of("local", window=0)), None, {4: "masked"}),
        (Choice("padding"), 3, dict.fromkeys((3, 4, 5), "padding")),
    ],
)
def test_why_a_key_is_masked_follows_from_the_row_itself(mask, real, why):
    r = reading(CONFIG.with_(mask=mask), real=real)
    assert draw.reasons_text(r, real) == why
    hidden = [line for line in shown(r, real=real)["keys"] if line["masked"] is None]
    assert {line["index"]: line["why"] for line in hidden} == why
