"""The pages Pretrained, Two models and Use a model without a browser, and what they say of maps that are known."""

import json
import re
import shutil
import tempfile
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import streamlit as st
import torch
from safetensors.torch import load as load_tensors
from streamlit.testing.v1 import AppTest

from core.interpret import patching
from core.interpret.activations import read_activations
from core.interpret.evidence import Effect, Question, ablate_heads
from core.interpret.map_transform import (
    MapTransform,
    TraceView,
    even,
    in_order,
    shown_pins,
    token_transform,
    transform_map,
)
from core.interpret.trace import AttentionMap, AttentionTrace
from core.pretrained import (
    LAB_MODELS,
    Array,
    Line,
    ModelInputs,
    PretrainedError,
    load_lab_model,
    load_minilm,
)
from core.pretrained.generate import Candidate
from core.pretrained.reading import answer
from core.studies import use_model as study
from dashboard.draw import use_model as draw_use_model
from dashboard.draw.figures import LIGHT_INK
from dashboard.draw.formats import distinct
from dashboard.draw.grids import bars
from dashboard.draw.pretrained import (
    all_heads_fact,
    called,
    head_fact,
    patches_of,
    pins_fact,
    rivals_text,
)
from dashboard.ui.models import EMBEDDED, ModelRef, folder_name, reading_of, roles_of
from dashboard.ui.runs import EXAMPLE_FOLDER
from pages import use_model
from tests.cases import each
from tests.pages.app import (
    ROOT,
    Case,
    app_at,
    assert_says,
    assert_script,
    everything,
    html_text,
    open_at,
    own_paths,
    page_cases,
    page_text,
    pictures_of,
    query_value,
    script_of,
    set_control,
    set_state,
)
from tests.tiny_models import BERT, build, save

TEXT = "The animal didn't cross the street because it was too tired."
TEXTS = ("a", "🙂🙂", "שלום עולם", "<script>alert(1)</script> **x** $y$")
test_what_pretrained_says = page_cases(
    "pretrained",
    {
        "another model forgets the head and the pins of the last": Case(
            {"head": "0.2", "pin": "6.8_10.9"},
            do=[("selectbox", "inside:model", "induction")],
            query={"head": None, "pin": None},
        ),
        "a long text": Case(
            says=["takes", "602 tokens"], do=[("text_input", "inside:text", "word " * 600)]
        ),
        "no text": Case(says=["write a sentence"], do=[("text_input", "inside:text", "   ")]),
        "the order of the weights": Case(
            {"pin": "10.2"}, ["takes 0.68"], do=[("radio", "pretrained:order", "both")]
        ),
    }
    | {
        text: Case(says=["takes"], never=["<script>"], do=[("text_input", "inside:text", text)])
        for text in TEXTS
    },
)


def test_several_words_are_joined_from_a_link():
    link: Any = {"pretrained:joined": ["it", "was"], "pretrained:how": "Summed"}
    app = open_at("pretrained", **link)
    assert_says(app, "“it”, “was”, summed: head L3·H1 takes most from animal, 0.79")
    assert_script(app)  # with the page's own numbers
    (picture,) = (one for key, one in pictures_of(app).items() if key == "pretrained:joined:map")
    (summed,) = picture.maps
    own = reading_of(EMBEDDED, ModelInputs(TEXT)).trace.map(3).weights
    np.testing.assert_allclose(summed.values, own[:, [10, 11]].sum(1), rtol=1e-4, atol=1e-5)
    app.segmented_control(key="pretrained:how").set_value("mean").run()
    assert_says(app, "“it”, “was”, averaged: head L3·H1 takes most from animal")


def test_what_a_mask_hides_is_no_key_of_joined_words():
    link = {"inside:model": "induction", "inside:text": "the king saw the river"}
    app = open_at("pretrained", **link, **{"pretrained:joined": ["king", "saw"]})
    assert_says(app, "uniform attention would take 0.")  # of two or three keys, not of all
    (picture,) = (one for key, one in pictures_of(app).items() if key == "pretrained:joined:map")
    (joined,) = picture.maps
    hidden = [not one for one in np.broadcast_to(joined.mask, joined.values.shape)[0]]
    assert hidden == [False] * (len(hidden) - 2) + [True] * 2


def test_a_similar_head_opens_by_a_press():
    app = open_at("pretrained")
    names = [one.label for one in app.button if one.key and "similar" in one.key]
    assert len(names) == 5 and names[0] == "L4·H3: 0.70"
    assert_says(app, "Most like L3·H1 on this text is L4·H3")
    next(one for one in app.button if one.label == names[0]).click().run()
    assert app.query_params["head"] in ("4.3", ["4.3"])
    assert_says(app, "In head L4·H3", "Most like L4·H3")


def test_activations_of_a_link_are_a_file(monkeypatch):
    files = dict[str, Any]()

    def button(label: str, data: Any, name: str, **_: Any) -> None:
        files[name] = label, data

    monkeypatch.setattr(st, "download_button", button)
    link: dict[str, Any] = {
        "pretrained:parts": ["Queries (q)"],
        "pretrained:layers": "L3",
        "pretrained:heads": "H1",
    }
    app = open_at("pretrained", **link)
    ((name, (label, data)),) = files.items()
    assert (name, label) == (
        "all-MiniLM-L6-v2.safetensors",
        "safetensors, about 2.05\N{NO-BREAK SPACE}kB",
    )
    expected = read_activations(load_minilm(), TEXT, ["q"], [3], [1]).tensors["self_3_q"]
    assert torch.equal(load_tensors(data())["self_3_q"], expected)
    (code,) = (one.value for one in app.code if "activations_file" in one.value)
    names = {"model": load_minilm(), "inputs": ModelInputs(TEXT)}
    monkeypatch.chdir(tempfile.mkdtemp())
    exec(code, names)
    app.multiselect(key="pretrained:parts").set_value([]).run()
    assert_says(app, "take some of resid")


def test_activations_have_their_controls_in_an_open_panel():
    app = set_state(open_at("pretrained"), "pretrained:activations")
    assert [one.label for one in app.multiselect][-3:] == [
        "Activations",
        "Of these layers",
        "Of these heads",
    ]
    assert not app.exception


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
    weights = (
        np.random.default_rng(86).random((layers, heads, len(line), len(line))).astype(np.float32)
    )
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
    assert (
        "[SEP]" in item.queries[4] and len(item.keys) == 7 and seen.hides and not seen_by({}).hides
    )
    np.testing.assert_allclose(item.weights.sum(-1), 1, rtol=1e-5)
    # What would hide every key is not done
    alone = Line((0, 0), ("[CLS]", "[SEP]"), (True, True), (None, None), (0, 0))
    assert token_transform(a_trace(), LINE, alone, special=True) == MapTransform.plain(8, 2)


@each("pin", [None, (3, 5)])
def test_an_order_keeps_the_pin_on_its_cell(pin):
    seen = seen_by({})
    ranked = in_order(seen, 1, 0, "both", pin)
    weights, before = (view.trace.map(1).weights[0] for view in (ranked, seen))
    by_key, by_query = (before[3], before[:, 5]) if pin else (before.mean(0), before.max(-1))
    np.testing.assert_allclose(
        weights, before[np.ix_(np.argsort(-by_query), np.argsort(-by_key))], atol=1e-6
    )
    assert ranked.trace.map(0) is seen.trace.map(0), "other layers stay as they are"
    (cell,) = shown_pins(ranked, [(3, 5)])
    assert weights[cell] == pytest.approx(before[3, 5])
    assert ranked.transform.source_cell(cell) == (3, 5)


@each("model", ["induction", "writer"])
def test_one_cell_is_the_usual_on_all_pages(model):
    given = {"inside:model": model, "inside:text": "the dark river . we saw the dark river"}
    app = open_at("inside_weight", **given)
    head, query, key = (
        app.selectbox(key=f"inside_weight:{name}").value for name in ("head", "query", "key")
    )
    inputs = ModelInputs(given["inside:text"])
    item = reading_of(ModelRef("lab", model), inputs).trace.map(int(head[1]))
    said = re.search(
        r"In head (\S+), (.+) takes \S+ from (.+?)( and |;)",
        everything(open_at("pretrained", **given)),
    )
    tokens = called(item.queries, query), called(item.keys, key)
    assert said is not None
    assert said.group(1, 2, 3) == (head, *(token.replace("\\", "") for token in tokens))


def test_a_picture_is_shown():
    tokens, words = ("[class]", "0,0", "0,1", "1,0", "1,1"), (None, 0, 1, 2, 3)
    line = Line((0,) * 5, tokens, (True, *[False] * 4), words, (0,) * 5, (2, 2))
    given = ModelInputs(picture=Array.of(np.zeros((4, 4), np.float32)))
    all_of, patches = (seen_by(one, a_trace(line), line) for one in ({}, dict(special=True)))
    assert (patches_of(all_of, given).first, patches_of(patches, given).first) == (1, 0)
    assert patches_of(in_order(all_of, 0, 0, "keys", None), given) is None
    assert patches_of(all_of, ModelInputs()) is None


@each(("rows", "columns", "queries"), [(8, 5, False), (5, 8, True), (8, 8, None)])
def test_patches_lie_over_the_picture_on_one_side_of_a_map(rows, columns, queries):
    patches = Line(
        (0,) * 5, tuple("xabcd"), (True, *[False] * 4), (None, 0, 1, 2, 3), (0,) * 5, (2, 2)
    )
    lines = [patches if count == 5 else LINE for count in (rows, columns)]
    given = ModelInputs(picture=Array.of(np.zeros((4, 4), np.float32)))
    seen = TraceView(traced(np.zeros((1, 1, 8, 8))), MapTransform.plain(rows, columns), *lines)
    drawn = patches_of(seen, given)
    assert (drawn and (drawn.first, drawn.queries)) == (None if queries is None else (1, queries))
    turned = replace(seen, transform=replace(seen.transform, rows=seen.transform.rows[::-1]))
    assert (patches_of(turned, given) is None) == (queries is not False)


def test_even_attention_lies_on_what_a_row_sees():
    weights, names = np.tri(4, dtype=np.float32)[None], tuple("abcd")
    item = AttentionMap("causal", 0, weights, names, names, np.tri(4) > 0)
    evens = [even(one, 2) for one in (item, replace(item, mask=None))]
    assert evens == pytest.approx([1 / 3, 1 / 4])


def test_fact_tells_weight_its_rivals_and_its_baseline():
    weights = np.full((2, 3, 4), 0.1, np.float32)
    weights[:, 1] = [[0.7, 0.2, 0.1, 0.0], [0.8, 0.1, 0.1, 0.0]]
    item = AttentionMap("cross", 0, weights, tuple("xyz"), tuple("abca"))
    trace = AttentionTrace((item,), "test")
    words = (
        "takes **0.70**",
        "**a \\(0\\)** and 0.20 from b; uniform attention would take 0.25 from each key",
        "1 of 1 other head takes at least as much from it; the largest is L0·H1 with 0.80.",
    )
    says = f"{head_fact(trace, 0, 0, 1)} {rivals_text(trace, 0, 0, 1)}"
    assert [part for part in words if part not in says] == []
    assert "**0.20** from **b**" in head_fact(trace, 0, 0, 1, 1)
    facts = [pins_fact(item, 0, pins) for pins in (((1, 1), (1, 0)), ((1, 1),))]
    assert facts == ["Also pinned: y → b **0.20**.", ""]
    assert called(("a", "b", "a"), 2) == "a \\(2\\)"
    assert "is the most focused" in all_heads_fact(
        TraceView(trace, MapTransform.plain(3, 4), LINE, LINE)
    )


# The page Two models.


def overlap(app: AppTest) -> float:
    return float(next(item.value for item in app.metric if item.label == "Overlap"))


def test_one_word_moves_a_few_heads():
    app = open_at("two_models", "inside:")
    assert 0.85 < overlap(app) < 0.99
    first = page_text(app.segmented_control(key="two_models:mode").set_value("untrained").run())
    assert overlap(app) < 0.75 and "Untrained weights are drawn" in first
    assert page_text(app.number_input(key="two_models:seed").set_value(1).run()) != first


def test_pictures_are_not_called_texts():
    assert (
        "Two pictures" in open_at("two_models", "inside:", model="digits").button_group[0].options
    )
    kinds = open_at("two_models", "inside:", model="numbers").button_group[1]
    assert kinds.options == ["Encoder", "Decoder", "Cross"] and kinds.value == "cross"
    link = {"inside:model": "numbers", "two_models:kind:3": "Decoder"}
    assert open_at("two_models", **link).button_group[1].value == "causal"


def test_roles_are_measured_once_where_no_cache_has_room(monkeypatch):
    measured = list[tuple]()

    def measure(*request):
        assert len(measured) < 2, "the page runs again and again"
        measured.append(request)
        return roles_of(*request)

    monkeypatch.setattr("dashboard.page.roles_are_cached", lambda *_: False)
    monkeypatch.setattr("dashboard.page.roles_of", measure)
    app = open_at("pretrained")
    app.run()
    assert len(measured) == 1 and not page_text(app).count("Measuring the roles")


def test_patching_finds_the_induction_circuit(monkeypatch):
    app = open_at("two_models", "inside:", model="induction")
    app.button(key="two_models:try:1").click().run()
    whole = "all heads of L1 together 100"
    assert_says(
        app,
        "The logit of king minus that of the",
        whole,
        "attention of layer 0 brings the answer back",
    )
    with monkeypatch.context() as without:
        for name in ("pair_of", "patch_source", "estimate_heads"):
            without.setattr(patching, name, None)  # a rerun runs neither text again
        assert_says(app.run(), whole)
    assert_says(
        app.segmented_control(key="two_models:direction").set_value("noise").run(), "From B into A"
    )


MOVES = {
    0: "The logit of king minus that of queen",
    2: "head L0·H2 brings back 50",
    3: "head L1·H0 brings back 100",
    4: "head L0·H1 brings back 88",
    5: "The logit of drei minus that of vier",
    6: "The cosine with the embedding of text A is +1.00",
}
test_each_pair_to_begin_with_is_patched = page_cases(
    "two_models",
    {
        words: Case(
            {"inside:model": "induction"},
            [words, "effects by "],
            do=[("button", f"two_models:try:{move}", None)],
        )
        for move, words in MOVES.items()
    },
)


# The page Use a model.


def test_a_pair_is_one_input_among_the_sentences():
    app = open_at("use_model", "inside:")
    text = html_text(app)
    assert html_text(set_control("inside:", app, "text_input", "second", "Rates rose.")) != text


FIRST = ("button_group", "use_model:word:nine thousand three hundred and twelve ; forty-seven:", 0)
test_another_answer_has_other_words = page_cases(
    "use_model",
    {
        "picked": Case(
            {"inside:model": "numbers"},
            ["neun</b></span>, head", "from <b style='font-weight:600'>nine"],
            do=[FIRST],
            query={"use_model:word": "0"},
        ),
        "and left by another text": Case(
            {"inside:model": "numbers"},
            do=[
                FIRST,
                ("text_input", "inside:text", "seven hundred"),
            ],
            query={"use_model:word": None},
        ),
    },
)


def test_the_masked_word_can_be_picked(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    app = open_at("use_model", "inside:", model=str(save("bert", tmp_path)))
    first = next(one.value for one in app.markdown if "cross the street" in one.value)
    assert first.startswith("The animal") and "tired" not in first, "the last long word is masked"
    app.button_group[0].set_value(0).run()
    filled = next(one.value for one in app.markdown if "cross the street" in one.value)
    assert filled.startswith("**") and "tired" in filled
    write = partial(set_control, "inside:", app, "text_input")
    assert_says(write("text", "The [MASK] was tired."), "The masked word is")
    assert not app.button_group
    write("text", "The animal was tired and " * 10)
    assert not app.button_group, "a long text has a list of words"
    box = next(box for box in app.selectbox if box.label == "Masked word")
    assert len(box.options) == 50 == len(set(box.options))
    alone = html_text(write("text", "The animal was tired."))
    both = html_text(write("second", "Nine green boats wait."))
    words = next(one for one in app.button_group if one.label == "Masked word")
    assert "boats" not in words.options and both != alone, "the model reads both"


def test_other_jobs_lead_to_models_that_do_them():
    app = app_at("use_model")
    set_state(app, "use_model:others")
    names = [button.label for button in app.button]
    assert {"numbers", "induction", "digits"} <= {*names}
    assert any(name.startswith("bert-base-uncased, ") for name in names)
    assert "all-MiniLM-L6-v2" not in names, "its own job is no other job"
    assert_says(app.button(key="use_model:use:translate").click().run(), "The model writes")


def test_ten_thousand_words_are_cut_and_told_shortly(monkeypatch):
    monkeypatch.setattr("dashboard.ui.progress.AT_ONCE", 0)
    app = open_at("use_model", "inside:", text="word " * 10_000)
    assert "512 tokens" in app.warning[0].value and len(html_text(app)) < 2000


def test_pictures_are_compared_by_their_embedding(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    build(
        "ViTModel", {**BERT, "image_size": 12, "patch_size": 4, "num_channels": 1}
    ).save_pretrained(tmp_path)
    options = {"size": {"height": 12, "width": 12}, "image_mean": [0.4], "image_std": [0.2]}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(options), "utf-8")
    assert_says(
        open_at("use_model", "inside:", model=str(tmp_path)),
        "This picture",
        "is most similar to",
        "cosine of its vector with the original one",
    )


# The parts of Use a model: its sentences, its figures, and the head that an answer hangs on.


INDUCTION = ModelRef("lab", "induction")
QUESTION = Question(
    ModelInputs("the old king walked to the red house . the old king walked to the red")
)


def test_the_head_that_the_answer_hangs_on_is_found():
    result = use_model.answer_question(INDUCTION, QUESTION)
    known = {one: ablate_heads(result.baseline, frozenset({one})) for one in result.heads}
    result = replace(result, effects=known)
    head = study.default_head(result)
    assert head.effect == min(known.values(), key=lambda effect: effect.value)
    off = frozenset({("causal", head.index, head.head)})
    alone = answer(load_lab_model("induction"), QUESTION.inputs, off=off).probabilities
    assert head.effect.value == pytest.approx(float(alone[result.baseline.id]), abs=1e-6)
    assert head.row == len(result.baseline.source) - 1
    fact = draw_use_model.answer_fact(
        result, [Candidate(1, "house", 0.9), Candidate(2, "a", 0.05)], head
    )
    assert f"**{head.name}** takes most from **house**" in fact
    assert "none of 8 heads changes it more" in fact
    # another head that is taken has its own effect and rank
    heads = [study.head_at(result, place, head) for place in (0, 1) for head in range(4)]
    assert sorted(head.before for head in heads) == list(range(len(known))) == list(range(8))
    last = max(heads, key=lambda head: head.before)
    assert last.effect == min(known.values(), key=lambda effect: abs(effect.drop))
    assert "7 of 8 heads change it more" in draw_use_model.head_fact(result, last, "house")


def test_without_measuring_it_is_the_sharpest_look():
    result = use_model.answer_question(INDUCTION, QUESTION)
    head = study.default_head(result)
    special = np.asarray(result.baseline.source.special)
    rows = np.stack([item.weights[:, -1] for item in result.trace.maps])  # (L, H, S)
    rows[..., special] = 0
    assert rows[head.index, head.head].max() == rows.max()
    assert "not measured yet" in draw_use_model.head_fact(result, head, "mat")
    assert "No head was switched off" in draw_use_model.conditions(result, head)


def test_a_head_that_changes_nothing_is_not_praised():
    result = use_model.answer_question(INDUCTION, QUESTION)
    effect = Effect(result.baseline.value + 1e-5, -1e-5, 3)
    head, other = (study.Head(1, "L1·H0", 0, 3, effect, before) for before in (0, 1))
    assert "without any one of the 8 heads" in draw_use_model.head_fact(result, head, "mat")
    fact = draw_use_model.head_fact(result, other, "mat")
    assert "stays at" in fact and "1 of 8 heads changes it more" in fact


def test_the_first_word_of_another_order_is_shown_first():
    reading = reading_of(ModelRef("lab", "numbers"), ModelInputs("forty-seven"))
    spoken = [place for place, special in enumerate(reading.produced.special) if not special]
    assert [reading.produced.tokens[i] for i in spoken] == ["sieben", "und", "vier", "zig"]
    single = reading_of(ModelRef("lab", "numbers"), ModelInputs("seven"))
    assert study.first_crossing(reading, spoken) in (1, 2)
    assert study.first_crossing(single, [0]) == 0


def test_sentences_are_lines_once_each():
    assert study.sentences(" One. ", "Two.\n\nOne.\n Three. ") == ("One.", "Two.", "Three.")
    pytest.raises(PretrainedError, study.sentences, "0", "\n".join(map(str, range(1, 15)))).match(
        "Take 3 out"
    )


def test_tokens_that_read_alike_get_bars():
    names = distinct(["a", "b", "a", "a"])
    assert len(set(names)) == 4 and [name.strip("\u200b") for name in names] == ["a", "b", "a", "a"]
    spec = bars({"model": torch.tensor([0.6, 0.3])}, ["a", "a"], 0, LIGHT_INK)
    rows = spec["layer"][0]["data"]["values"]
    assert [(row["picked"], row["text"]) for row in rows] == [(True, "0.60"), (False, "0.30")]
    assert len({row["token"] for row in rows}) == 2


@each("theme", ["light", "dark"])
def test_matrix_shows_every_pair_and_outlines_picked_one(theme):
    table = np.array([[1.0, 0.7, -0.2], [0.7, 1.0, 0.1], [-0.2, 0.1, 1.0]])
    spec = draw_use_model.similarity_chart(
        table, ["It's one", "two", "a \\ very long sentence that goes on and on"], (0, 1), theme
    )
    cells, pair, _, words = (layer["data"]["values"] for layer in spec["layer"])
    assert len(cells) == 9 and [cell["value"] for cell in pair] == [0.7, 0.7]
    first, second, third = (word["name"] for word in words)
    assert (first, second) == ("0  It's one", "1  two")
    assert third.startswith("2  a \\ very") and third.endswith("…")
    assert spec["layer"][0]["encoding"]["color"]["scale"]["domain"] == [-1, 1]


def test_folders_of_models_are_named_without_this_machine(monkeypatch, tmp_path):
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    own = shutil.copytree(LAB_MODELS / "induction", tmp_path / "home" / "models" / "mine")
    shipped = EXAMPLE_FOLDER / "fine_tune" / "numbers" / "numbers-tuned"
    for folder, name in ((own, "~/models/mine"), (shipped, f"./{shipped.relative_to(ROOT)}")):
        for link in (str(folder), folder_name(folder)):
            app = open_at("pretrained", **{"inside:model": link})
            assert script_of(app).results and query_value(app, "inside:model") in (link, name)
        assert folder_name(folder) == name and own_paths(app) == []
        assert_script(app)
