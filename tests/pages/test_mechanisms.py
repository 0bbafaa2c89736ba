"""The pages Masks, Positions, Scores, Normalizers and All mechanisms, without a browser."""

import json
import math
import re
import time
from dataclasses import replace
from functools import partial
from html import unescape
from itertools import cycle, product
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
import pytest
import torch

from core.attention import AXES, AttentionConfig, Choice, entry, example_config
from core.attention.masks import COMPOSITIONS, build_mask
from core.attention.properties import Pair, score_properties
from core.seeding import seeded_layer
from core.studies import (
    efficient,
    masks as mask_study,
    mechanisms as beside,
    normalizers as normalizer_study,
    positions as position_study,
    scores as study,
)
from core.tasks import TaskConfig, make_task
from core.tokens import SENTENCE, labels, tokenize
from core.training import recommended
from dashboard.draw import (
    masks as draw_masks,
    mechanisms as draw_mechanisms,
    normalizers as draw_normalizers,
    positions as draw_positions,
    scores as draw_scores,
)
from dashboard.draw.curves import Curve, line_chart
from dashboard.draw.figures import MIN_GAP, Ink, separate
from dashboard.draw.formats import duration, latex_name, listed, number, percent, plain
from dashboard.draw.page_views import MAX_PAIRS, sample_pairs, wavelength_text
from pages import (
    masks as masks_page,
    mechanisms as mechanisms_page,
    normalizers as normalizers_page,
    positions as positions_page,
)
from pages.positions import GUIDE_CONFIG, IDEAS
from tests.cases import each
from tests.pages.app import (
    Case,
    controls_of,
    html_text,
    live,
    open_at,
    page_cases,
    page_text,
    set_control,
    set_state,
    visit_cases,
)

# Masks: every mask, two joined, a typed rule, a drawing, bad links, each in words.


MASKS = [item for item in AXES["mask"] if item.key not in COMPOSITIONS]
open_masks = partial(open_at, "masks", "masks:")
put_masks = partial(set_control, "masks:")


def test_every_mask_can_be_picked_with_its_parameters():
    at = open_masks()
    for mask in MASKS:
        at = put_masks(at, "selectbox", "first", mask.key)
        assert not at.error and not at.warning, mask.key
        assert ("Nothing is masked" in html_text(at)) == (mask.key == "none"), mask.key
        parameters = {f"masks:first:{mask.key}:{param.key}" for param in mask.params}
        assert parameters <= controls_of(at).keys()


def test_what_a_press_sets_is_in_the_link():
    links = put_masks(open_masks(), "selectbox", "first", "drawn").query_params
    assert "12x12:800.c00" in str(links["masks:first:drawn:drawing"])
    tried = open_masks().button(key="masks:try:2").click().run().query_params
    assert masks_page.FORMULA in str(tried["masks:first:formula:text"])


def test_a_rule_that_cannot_be_read_is_pointed_at():
    at = put_masks(
        open_masks(first="Formula"), "text_input", "first:formula:text", "j <= i and k == 0"
    )
    assert at.code[0].value.splitlines()[1].index("^") == 11


RULE = ("text_input", "first:formula:text", "j <= i and j % 3 == 0")
# Causal local is 33 cells of the 78 that causal has.
BY_HAND = ("selectbox", "first", "drawn")
test_what_masks_says = page_cases(
    "masks",
    {
        **{
            f"joined by {join}": Case(
                {"first": "Causal local"}, [f"{cells} of 144"], do=[("selectbox", "join", join)]
            )
            for join, cells in (
                ("and", 33),
                ("or", 78),
                ("not", 111),
                ("and_not", 0),
                ("or_not", 99),
            )
        },
        "a formula is drawn as typed": Case(
            {"first": "Formula"}, ["j bmod 3 = 0", "30 of 144"], do=[RULE]
        ),
        "a bad one keeps the last": Case(
            {"first": "Formula"},
            ["k is not known", "30 of 144", "last rule that could be read"],
            do=[RULE, ("text_input", "first:formula:text", "j <= i and k == 0")],
        ),
        "the stack and the batch": Case(
            says=[
                "<b style='font-weight:600'>2</b> layers connect every token",
                "56 of 192 cells belong to padding",
                "0.00",
            ],
            do=[
                ("session_state", "stacked", True),
                ("session_state", "batched", True),
                ("selectbox", "first", "global_window"),
            ],
        ),
        "a parameter changes the numbers": Case(
            {"first": "Causal local"},
            ["50 of 144"],
            do=[("number_input", "first:causal_local:lookback", 4)],
        ),
        "a rule that cannot be computed": Case(
            {"first": "Formula", "first:formula:text": "i / j > 1"}, ["divides by zero"]
        ),
        "a row without a key": Case(
            {
                "first": "Drawn by hand",
                "tokens": "red green blue",
                "first:drawn:drawing": "3x3:4.0.7",
            },
            ["No key is left for “green”: a share of nothing is 0/0"],
        ),
        "a mask that needs weights": Case(
            {"first": "Luong local-p", "join": "or"}, ["local_p", "take mask"]
        ),
        "names that nobody knows": Case(
            {"first": "Clairvoyant", "join": "xor"},
            ["Clairvoyant; expected one of None", "xor", "78 of 144"],
        ),
        "no token": Case({"tokens": " "}, ["no token here"]),
        "too many tokens": Case({"tokens": "word " * 70}, ["first 64 are used", "of 4096"]),
        "a drawing begins with the mask that was there": Case(
            {"first": "Causal local"},
            ["33 of 144"],
            do=[BY_HAND],
            controls={
                "first:drawn:drawing": "12x12:800.c00.e00.700.380.1c0.0e0.070.038.01c.00e.007"
            },
        ),
        "what was drawn stays": Case(
            {"first": "Causal local"},
            ["33 of 144"],
            do=[BY_HAND, ("selectbox", "first", "causal"), BY_HAND],
        ),
        "the reach of a stack is closed": Case(
            {"first": "Causal local"}, never=["layers connect all pairs"]
        ),
        "a cell of the stack opens it": Case(
            {"first": "Causal local", "reach": "5.0"}, ["layers connect all pairs"]
        ),
        "a cell of three words": Case(
            {"tokens": "red green blue", "cell": "0.2"}, ["text{red},,text{blue}"]
        ),
        "no such cell": Case(
            {"tokens": "red green blue", "cell": "9.9"}, ["text{green},,text{red}"]
        ),
        "a cell": Case({"cell": "9.2"}, [r"text{didn't}"]),
        "padding": Case({"first": "Padding"}, ["120 of 144"], controls={"real": 10}),
        "all is padding": Case(
            {"first": "Padding"}, ["No key is left for"], do=[("number_input", "real", 0)]
        ),
        "a name is text": Case({"tokens": "<b>x</b> $y$ **z**"}, never=["<b>x</b>"]),
    },
    prefix="masks:",
)


# What is in sight says which mask holds: only what the picture does not use is in the closed panel.


def in_settings(at):
    (panel,) = [each for each in at.expander if each.label == "All settings"]
    return {each.key.removeprefix("masks:") for each in (*panel.selectbox, *panel.number_input)}


@pytest.mark.parametrize("join", [*masks_page.JOINS])
def test_joined_masks_have_their_controls_in_sight(join):
    at = open_masks(join=join, second="Causal local")
    shown = {"join", "second", "second:causal_local:lookback"} & {
        key.removeprefix("masks:") for key in controls_of(at)
    }
    assert ("second" in shown) == (join not in ("alone", "not"))
    assert shown & in_settings(at) == ({"join"} if join == "alone" else set())


@pytest.mark.parametrize("number", range(3))
def test_a_move_shows_what_it_set(number):
    """From a state in which every control is another than at first."""
    at = open_masks(first="Local window", join="or", second="Padding", real="12", head="2")
    at = at.button(key=f"masks:try:{number}").click().run()
    assert any("Head 2 of a random layer" in each.value for each in at.caption)
    values = {key.removeprefix("masks:"): value for key, value in controls_of(at).items()}
    assert values["first"] == ("causal_local", "causal", "formula")[number]
    inverted = number == 1
    assert values["join"] == ("not" if inverted else "alone")
    assert ("join" in in_settings(at)) != inverted
    assert "real" not in values


@each("mask", [mask.key for mask in MASKS])
def test_board_maps_and_words_speak_of_one_row(mask):
    at = open_masks(cell="3.2")
    set_state(at, "masks:first", mask)
    for press in (None, *range(3)):
        at = at if press is None else at.button(key=f"masks:try:{press}").click().run()
        board, maps = (
            next(json.loads(e.proto.json) for e in at.get("bidi_component") if e.key == key)
            for key in (masks_page.BOARD, masks_page.MAPS)
        )
        row, column = maps["pin"] or (maps["query"], maps["column"])
        assert row == board["query"] and (press is None) == (maps["pin"] is not None)
        named = re.findall(r"<span style='color:[^>]*>(.*?)</span>", unescape(html_text(at)))
        assert named in ([], [board["names"][row]]), (mask, press)
        equation = live(at)
        assert (
            f"{latex_name(board['names'][row], row)},\\,{latex_name(maps['keys'][column], column)}"
            in equation
        )


def test_a_notice_ends_with_its_sentence():
    at = open_masks().button(key="masks:try:1").click().run()
    assert "from later words only" in page_text(at)
    assert "from later words only" not in page_text(put_masks(at, "selectbox", "first", "local"))


# Why the future is hidden: a model that sees the next word learns to copy it, and cannot write.


def test_a_model_without_a_mask_copies_the_next_word():
    ends = [mask_study.compare_masks(seed, 6) for seed in (7, 8)]
    for models in ends:
        masked, unmasked = (models[mask][-1] for mask in ("causal", "none"))
        assert masked.step == unmasked.step == 100
        assert unmasked.loss < 0.6 and 1.3 < masked.loss < 2  # nats
        assert unmasked.writing > masked.writing + 0.6
        assert masked.writing == pytest.approx(masked.loss, rel=1e-3)
    assert ends[0]["causal"][0] != ends[1]["causal"][0]  # another seed


def test_the_mask_makes_training_and_writing_one_task():
    words = torch.arange(12).reshape(2, 6)
    for mask, same in (("causal", True), ("none", False)):
        model = mask_study.NextWord(30, mask).eval()
        at_once, before = model(words)[:, 3], model(words[:, :4])[:, -1]
        assert torch.allclose(at_once, before, rtol=1e-4, atol=1e-5) is same


def test_saved_models_are_drawn_at_the_picked_step():
    for seed in range(mask_study.SEEDS):
        models = mask_study.load_models(seed)
        assert [*models] == ["causal", "none"]
        for model in models.values():
            assert [each.step for each in model] == [*mask_study.RECORDED]
            assert all(each.text.startswith(mask_study.START) for each in model)
    app = open_masks(step="50")
    shown = page_text(app) + html_text(app)
    masked, unmasked = (model[4] for model in mask_study.load_models(0).values())
    assert "at step 50 its loss" in shown and masked.step == 50
    for loss in (masked.loss, unmasked.loss, unmasked.writing):
        assert f">{number(loss)}</b>" in shown
    for name, one in zip(draw_masks.MODELS, (masked, unmasked), strict=True):
        written = draw_masks.written_text(name, one).removesuffix(" …")
        assert written.removeprefix(f"**{name}** it writes: ") in one.text and written in shown


def test_both_models_train_again_on_the_page(monkeypatch):
    monkeypatch.setattr(mask_study, "RECORDED", (0, 2))
    app = set_state(open_masks(), "masks:again").button(key="masks:train_both").click().run()
    trained = mask_study.compare_masks(mask_study.SEEDS, 2)
    assert f"(seed {mask_study.SEEDS})" in page_text(app)
    assert draw_masks.written_text("Without the mask", trained["none"][1]) in page_text(app)
    assert "Train both with seed 4" in app.button(key="masks:train_both").label


def test_a_stopped_training_offers_its_steps_alone():
    app = open_masks(step="150")
    models = {mask: model[:3] for mask, model in mask_study.load_models(1).items()}
    app.session_state["masks:trained"] = (1, models)
    app.run()
    slider = app.select_slider(key="masks:step")
    assert [*slider.options] == ["0", "10", "20"] and slider.value == 20
    assert "at step 20 its loss" in page_text(app) + html_text(app) and not app.exception


def test_the_rule_that_ran_is_shown():
    at = open_masks()
    set_state(at, "masks:sources")
    assert any("def causal(" in c.value for c in at.code)
    known: dict[str, Any] = {}
    exec(at.code[-1].value, known)
    assert known["layer"].config.mask == Choice.of("causal")


def test_pytorch_means_the_opposite_and_was_run_to_say_so():
    at = open_masks(tokens="red green blue", cell="1.2")
    shown = page_text(set_state(at, "masks:pytorch"))
    assert "NaN" not in shown
    check = mask_study.torch_check(Choice.of("causal"), ("red", "green", "blue"), None)
    assert check.difference < 1e-6 and check.forbidden == pytest.approx(1) and check.nan_rows == 0
    blind, nothing, plain = (
        mask_study.torch_check(each, tuple("abcd"), None)
        for each in (
            Choice.of("not", Choice("causal")),
            Choice.of("not", Choice("none")),
            Choice("none"),
        )
    )
    assert (blind.nan_rows, nothing.nan_rows, nothing.difference, plain.forbidden) == (
        1,
        4,
        0.0,
        0.0,
    ) and blind.difference < 1e-6
    assert f"**{percent(check.forbidden)}** of the weight" in shown
    rows = re.findall(r"<td>(True|False)</td>", html_text(at))
    assert rows[:6] == ["True", "True", "False", "False", "False", "True"]


@each("mask", MASKS)
def test_every_mask_is_converted_or_multiplies(mask):
    real = 4 if mask.key == "padding" else None
    check = mask_study.torch_check(Choice.of(mask.key), tuple("abcdef"), real)
    assert "reweighs" in mask.traits if check is None else check.difference < 1e-5


def test_the_prediction_is_counted():
    question = masks_page.question(12)
    assert question.options[question.answer] == "Their columns"
    assert "24 of 144" in question.reasons[0]


def test_a_mask_that_reads_content_says_what_it_chose():
    assert "keys a query by their content" in html_text(
        put_masks(open_masks(), "selectbox", "first", "moba")
    )
    effect, full = (
        mask_study.mask_effect(choice, tuple("abcdef"), None, 0)
        for choice in (Choice.of("moba", size=2, blocks=1), Choice("causal"))
    )
    chosen = effect.selection
    assert chosen.keys == pytest.approx(effect.allowed.sum(1).mean()) and 0 < chosen.recall <= 1
    assert full.selection is None and chosen.weight == pytest.approx(
        ((full.after * effect.allowed).sum(1) / full.after.sum(1)).mean(), abs=1e-6
    )


def test_sentences_of_a_batch_see_their_own_words():
    for one in mask_study.batch(Choice("causal"), 2):
        real = np.arange(8) < one.real
        plain = mask_study.steps_of(Choice("none"), one.names).weights[0, 2, : one.real]
        assert (
            [name != mask_study.PAD for name in one.names] == real.tolist()
            and (one.allowed == np.tril(np.ones((8, 8), bool)) & real).all()
            and ((one.weights > 0) == one.allowed).all()
            and one.leak == pytest.approx(float(plain[:, one.real :].sum(1).mean()), abs=1e-6)
        )


def test_patterns_are_those_of_positions_alone():
    rows = mask_study.patterns(6)
    assert (
        [cells for _, _, cells, _, _ in rows] == sorted(cells for _, _, cells, _, _ in rows)
        and ("Causal local", "0 ≤ i − j ≤ 2", 15, 3, 15) in rows
        and rows[-1] == ("None", "all keys", 36, 1, 0)
        and not {"Padding", "Drawn by hand", "And"} & {name for name, *_ in rows}
    )


def test_the_rule_to_try_differs_from_the_causal_mask():
    rule = build_mask(Choice.of("formula", text=masks_page.FORMULA), 5, 5)
    removed = torch.ones(5, 5, dtype=torch.bool).tril() & ~rule.reshape(5, 5)
    assert removed.nonzero().tolist() == [[3, 1], [4, 1], [4, 2]]


# Positions: every encoding and idea, bad links and bad input, each in words.


open_positions = partial(open_at, "positions", "positions:")


def choose(at, position, idea):
    at.selectbox(key="positions:position").set_value(position)
    at.segmented_control(key="positions:idea").set_value(idea)
    return at.run()


def numbers(at):
    return live(at) + html_text(at)


def test_opens_with_words_shuffled_then_the_equation():
    elements: list[Any] = [e for e in open_positions().main if e.type in ("html", "markdown")]
    blocks = [e.proto.body if e.type == "html" else e.value for e in elements]
    first, equation = (
        next(index for index, text in enumerate(blocks) if words in text)
        for words in ("Shuffled, without positions<", "displaystyle")
    )
    assert blocks[first].count(">same<") == 3, "one for each of the three words"
    assert first < equation


def test_every_encoding_is_drawn():
    # Each in one of the pictures that depend on it; how it enters decides which is drawn.
    at = open_positions()
    for item, idea in zip(AXES["position"], cycle(("encoding", "distance", "shift"))):
        choose(at, item.key, idea)
        assert not at.error and not at.warning, item.key
        assert bool(at.info) is (item.enters == "") is not live(at), item.key
        assert {
            f"positions:position:{item.key}:{param.key}" for param in item.params
        } <= controls_of(at).keys()


def named(position: str, idea: str) -> dict[str, str]:
    entry = next(entry for entry in AXES["position"] if entry.key == position)
    return {"position": f"{entry.name} · {entry.year}", "idea": IDEAS[idea]}


test_what_positions_says = page_cases(
    "positions",
    {
        "without positions": Case(
            named("none", "shuffle"), ["words} =", "shuffling changes no output"]
        ),
        "an odd head": Case(
            named("rope", "encoding"),
            ["odd size, 3; take an even one"],
            do=[("select_slider", "d_model", 12)],
        ),
        "more buckets than distances": Case(
            named("t5", "distance"),
            ["take max_distance ≥ 17"],
            do=[
                ("number_input", "position:t5:buckets", 64),
                ("number_input", "position:t5:max_distance", 10),
            ],
        ),
        "a short table": Case(
            named("learned", "shift"),
            ["take a longer table"],
            do=[("number_input", "position:learned:max_len", 16)],
        ),
        "no word": Case({"tokens": "   "}, ["There is no word here"]),
        "a formula that cannot be read": Case(
            named("formula", "encoding"),
            never=["displaystyle"],
            do=[("text_input", "position:formula:formula", "score - abs(i-")],
        ),
        "a name that nobody knows": Case(
            {"position": "Nowhere", "idea": "By distance"}, ["Nowhere", "expected one of None"]
        ),
        "hands of a query and a key": Case(
            named("rope", "encoding") | {"query": "20", "apart": "3"},
            [
                "20</span> and the key at 17 turn",
                "172°",
                "0.69</b>, depend on the distance 3 alone",
            ],
        ),
        "hands at another distance": Case(
            named("rope", "encoding") | {"query": "20", "apart": "0"}, ["0°", "1.00</b>, depend"]
        ),
        "a grid has two distances": Case(
            named("grid_rope", "encoding"), never=["Position of the query", "alone"]
        ),
        "a link": Case(named("alibi", "distance"), ["head"], controls={"position": "alibi"}),
        "another order, the next that differs": Case(
            do=[("button", "again", None)], query={"positions:order": "3"}
        ),
        "an older link": Case(named("rope", "shuffle"), ["animal"], controls={"tokens": SENTENCE}),
    },
    prefix="positions:",
)


@pytest.mark.parametrize(
    ("position", "idea", "kind", "name", "value"),
    [
        ("sinusoidal", "encoding", "slider", "places", 40),
        ("sinusoidal", "encoding", "number_input", "position:sinusoidal:base", 50.0),
        ("rope", "encoding", "slider", "position:rope:share", 0.5),
        ("alibi", "shift", "slider", "shift", 9),
        ("kerple", "distance", "selectbox", "position:kerple:kernel", "power"),
        ("formula", "encoding", "text_input", "position:formula:formula", "score - 2*abs(i-j)"),
    ],
)
def test_the_numbers_follow_every_control(position, idea, kind, name, value):
    at = open_positions(**named(position, idea))
    before = numbers(at)
    assert numbers(set_control("positions:", at, kind, name, value)) != before


def test_another_shuffle_is_in_the_link():
    at = open_positions()
    before = numbers(at)
    assert numbers(at.button(key="positions:again").click().run()) != before
    assert numbers(open_positions(order="3", start="dog")) == numbers(at)
    assert numbers(open_positions(order="many", start="dog")) == before


def test_the_prediction_is_measured():
    changes = position_study.shift_changes(GUIDE_CONFIG, ("a", "long", "day"), 126)
    question = positions_page.question(changes)
    assert question.options[question.answer].startswith("No")
    assert changes["rope"] < 1e-4 < changes["learned"]
    other = positions_page.question({"sinusoidal": 0.0, "learned": 0.75, "rope": 0.5})
    assert other.answer == 0 and "learned vectors it is 0.75" in other.reasons[0]


def test_the_sum_of_an_encoding_is_one_click_away():
    for at, drawn in (
        (open_positions(), []),
        (open_positions(cell="0.1"), ["positions:sum", "positions:maps"]),
        (choose(open_positions(cell="0.1"), "rope", "shuffle"), ["positions:maps"]),
    ):
        keys = {element.key for element in at.get("bidi_component")}
        assert [key for key in ("positions:sum", "positions:maps") if key in keys] == drawn


# The parts of the page Positions that need no page: numbers in words, curves, shuffles and what is measured.


WORDS = ("the", "cat", "sat", "on", "it")


def test_a_row_of_numbers_ends_in_dots_when_it_is_cut():
    assert listed([1.0, 2.0]) == r"1.00,\ 2.00"
    assert listed(range(9)).endswith(r"3.00,\ \ldots\ 5\text{ more}")


def test_names_at_the_ends_keep_apart_and_in_order():
    places = separate([0.5, 0.51, 0.49, 1.0, 0.99])
    ranked = sorted(places)
    assert all(b - a >= MIN_GAP - 1e-9 for a, b in zip(ranked, ranked[1:], strict=False))
    assert [ranked.index(p) for p in places] == [1, 2, 0, 4, 3] and ranked[-1] <= 1.0
    assert sum(places[:3]) == pytest.approx(1.5), "a group stays around the ends of its curves"
    assert separate([0.2, 0.8]) == pytest.approx([0.2, 0.8]) and separate([]) == []


def test_curves_on_a_logarithmic_axis_hold_zero():
    figure = line_chart(
        "t", "x", [Curve("a", [(1, 0.0), (2, 3e-4)])], Ink.of("light"), log=True, rule=2
    )
    drawn = figure["layer"][0]
    low, high = drawn["encoding"]["y"]["scale"]["domain"]
    powers = np.log10([low, high])
    assert 0 < low <= drawn["data"]["values"][0]["y"] and powers == pytest.approx(powers.round())
    assert figure["layer"][-1]["mark"]["type"] == "rule"
    figure = line_chart("t", "x", [Curve("a", [(0, 2.0), (1, 2.0)])], Ink.of("dark"))
    low, high = figure["layer"][0]["encoding"]["y"]["scale"]["domain"]
    assert low < 2 < high, "a flat curve still has a height"


@each("count", [2, 3, 6])
def test_a_shuffle_is_never_the_order_itself(count):
    for times in range(1, 40):
        order = position_study.shuffle(count, 7, times)
        assert sorted(order.tolist()) == list(range(count)) and order.tolist() != list(range(count))
    assert position_study.shuffle(1, 7, 1).tolist() == [0]


def test_shuffling_changes_nothing_without_positions():
    # For every encoding that there is: the page's own claim.
    for item in AXES["position"]:
        result = position_study.shuffle_effect(
            AttentionConfig(16, 2, position=Choice(item.key)), WORDS, 126, 1
        )
        changes = result.largest, np.abs(result.restored - result.ordered).max()
        assert result.baseline < 1e-5 and result.baseline_change.max() < 1e-5
        assert [change < 1e-5 for change in changes] == [item.key == "none"] * 2, item.key


SENTENCES = [" ".join("the cat the dog the cat".split()[:n]) for n in range(1, 7)]


@each("key", ("none", "sinusoidal", "alibi", "rope", "learned"))
def test_a_shuffle_says_what_moved(key):
    for sentence, times in product(SENTENCES, range(1, 9)):
        names = labels(tokenize(sentence).tokens)
        effect = position_study.shuffle_effect(
            AttentionConfig(16, 2, position=Choice(key)), names, 126, times
        )
        text = draw_positions.shuffle_fact(effect)
        assert ("changes by" in text) == (effect.change.max() >= 1e-4 and len(names) > 1), text
        for name in re.findall(r":primary\[(.*?)\]", text):
            place = [*map(plain, names)].index(name)
            moved = effect.order.index(place) != place
            assert ("it moved" in text) is moved is not ("it stayed, others moved" in text), text
        assert (" stayed and " in text) is ("each word takes from all" in text), text


@each(
    ("key", "exact"), [("alibi", True), ("cope", False), ("learned", False), ("sinusoidal", True)]
)
def test_a_mean_over_places_says_so(key, exact):
    config = AttentionConfig(16, 2, position=Choice(key))
    if key in ("alibi", "cope"):
        scores = position_study.score_changes(config, 126, 12)
        words = (
            draw_positions.change_words(scores, "")[0],
            draw_positions.distance_words(scores, "")[0],
        )
    else:
        added = position_study.added_table(config, 126, 12)
        words = draw_positions.table_fact(added), draw_positions.similarity_words(added)[0]
    assert ["on average" in text for text in words] == [not exact] * 2, words
    assert ("depends only on the distance" in words[1]) is exact


@each("heads", (4, 16))
def test_words_on_heads_name_those_that_are_drawn(heads):
    config = AttentionConfig(64, heads, position=Choice("t5"))
    text = draw_positions.change_words(position_study.score_changes(config, 126, 9), "")[0]
    assert all(int(head) < draw_positions.MAX_HEADS for head in re.findall(r"head (\d+)", text)), (
        text
    )


@each("key", ("grid_rope", "path", "multi_token", "rope"))
def test_the_score_that_changes_most_is_in_the_map(key):
    effect = position_study.shift_effect(
        AttentionConfig(64, 4, position=Choice(key)), WORDS, 126, 5
    )
    text = draw_positions.moved_words(effect, 5)[0]
    drawn = float(np.abs(effect.difference[effect.head]).max())
    assert ("**the same**" in text) is (drawn == 0)
    assert drawn == 0 or f"by up to **{number(drawn)}**, in head {effect.head}" in text, text


@each("key", ("rope", "p_rope", "linear_rope", "ntk_rope", "yarn", "longrope", "llama3_rope"))
def test_hands_and_score_follow_from_the_distance_alone(key):
    rotations = position_study.rotations_of(AttentionConfig(64, 4, position=Choice(key)), 126, 33)
    for apart in (0, 3, 8):
        said = {
            tuple(re.findall(r"\*\*(.*?)\*\*", draw_positions.turned_fact(rotations, query, apart)))
            for query in range(8, 33)
        }
        assert len(said) == 1, said
    if key == "rope":
        angles = 10_000.0 ** -(np.arange(8) / 8)
        assert rotations.scores[20, 17] == pytest.approx(np.cos(3 * angles).mean(), rel=1e-4)


@each("link", [("sinusoidal", "shuffle"), ("rope", "encoding"), ("yarn", "encoding")])
def test_a_hand_has_one_name_and_one_period(link):
    at = set_state(open_positions(**named(*link)), "positions:all")
    pictures = [
        {row["name"]: row["circle"] for row in json.loads(e.proto.json)["rows"]}
        for e in at.get("bidi_component")
        if e.key in ("positions:hands", "positions:dials")
    ]
    drawn, every = pictures[0], pictures[-1]
    assert all(every.get(name, period) == period for name, period in drawn.items())
    said = re.findall(r"pair (\d+, \d+)", page_text(at))
    assert said and {*said} <= {*drawn} and f"{len(drawn)} of " in page_text(at)


def test_one_pair_is_no_fastest_and_slowest():
    config = AttentionConfig(4, 2, position=Choice("rope"))
    pairs = position_study.rotations_of(config, 126, 8).pairs
    assert (
        draw_positions.rotation_fact(pairs, (), config)
        == "The pair completes a circle in **6.3** positions."
    )


def test_the_change_of_scores_is_alibis_bias():
    result = position_study.score_changes(AttentionConfig(16, 2, position="alibi"), 126, 9).changes
    distance = np.abs(np.subtract.outer(np.arange(9), np.arange(9)))
    np.testing.assert_allclose(result, -np.stack((distance / 16, distance / 256)), atol=1e-5)


@each(
    ("key", "same"),
    [
        ("rope", True),
        ("alibi", True),
        ("shaw", True),
        ("forgetting", True),
        ("sinusoidal", False),
        ("learned", False),
    ],
)
def test_moved_words_score_the_same_by_distance(key, same):
    result = position_study.shift_effect(
        AttentionConfig(16, 2, position=Choice(key)), WORDS, 126, 4
    )
    assert (
        (result.largest < 1e-4) is same
        and result.sinusoidal > 0.05
        and (key != "sinusoidal" or result.sinusoidal == pytest.approx(result.largest))
    )


def test_a_table_too_short_to_look_ahead_says_so():
    config = AttentionConfig(16, 2, position=Choice.of("learned", max_len=16))
    assert position_study.table_of(config, 126, 24).shape == (16, 16)
    pytest.raises(ValueError, position_study.linear_maps, config, 126, 2).match(
        "16 positions, of which 2 are held out: too few for a shift of 2; take"
    )
    assert [row[0] for row in position_study.linear_maps(config, 126, 1).rows] == [1]


def test_the_linear_map_misses_least_in_closed_form():
    result = position_study.linear_maps(AttentionConfig(16, 2, position="sinusoidal"), 126, 5)
    _, closed, fitted, unseen, still = next(row for row in result.rows if row[0] == 5)
    assert closed < fitted < unseen < still
    for turn, is_rotation in ((result.closed, True), (result.fitted, False)):
        assert np.allclose(turn @ turn.T, np.eye(16), atol=1e-4) is is_rotation


def test_rows_by_distance_and_a_factor_of_one():
    plain = position_study.unscaled(
        AttentionConfig(16, 2, position=Choice.of("linear_rope", factor=4.0))
    )
    assert (
        position_study.by_distance(np.arange(9.0).reshape(3, 3), 1).tolist()
        == [[3, 1, 5], [2, 2, 2]]
        and dict(plain.position.params)["factor"] == 1.0
        and position_study.unscaled(plain) is None
    )


def test_dials_show_the_fastest_and_the_slowest_pair():
    pairs = [Pair(m, m + 20, 2.0**-m) for m in range(20)]
    sample = sample_pairs(pairs)
    assert len(sample) == MAX_PAIRS and (sample[0], sample[-1]) == (pairs[0], pairs[-1])
    firsts = [pair.first for pair in sample]
    assert firsts == sorted({*firsts})
    texts = [wavelength_text(length) for length in (6.283, 19869.2, float("inf"))]
    assert texts == ["6.3", "19,869", "∞"]


@each("key", ["sinusoidal", "learned"])
def test_what_attention_reads_is_sum_of_word_and_position(key):
    config = AttentionConfig(16, 2, position=Choice(key))
    read = position_study.added_vectors(config, WORDS, 126)
    x = torch.from_numpy(read.words)[None]
    added = seeded_layer(config, 126).position.add(x)[0].detach().numpy()
    assert np.allclose(added, read.total, atol=1e-6) and np.abs(read.places).max() > 0


def test_positions_measures_the_two_that_are_chosen():
    at = open_positions(**named("and", "distance"))
    at = set_control("positions:", at, "selectbox", "position:and:part1", "alibi")
    drawn = position_study.latex_of(
        AttentionConfig(64, 4, position=Choice.of("and", Choice("rope"), Choice("alibi"))), 126
    )
    assert not at.error and any(drawn in each.value for each in at.markdown)


# Scores, Normalizers and All mechanisms: their numbers are those of the modules, and follow every control.


TOKENS = ("a", "long", "day", "ends", "a")
SCORES = [item.key for item in AXES["score"]]

COSINE = {"equation": "Cosine", "dims": "128"}
test_what_scores_says = page_cases(
    "scores",
    {
        "the additive score at this size": Case(COSINE, [f"{2 * 128 * 128 + 128:,}", "10.00"]),
        "a parameter": Case(COSINE, ["2.00 cdot"], do=[("slider", "params:cosine:tau", 0.5)]),
        "no token": Case({"tokens": "  "}, ["no token"]),
        "a cell": Case({"tokens": "red green blue", "cell": "0.2"}, ["text{red},,text{blue}"]),
        "no cell": Case({"tokens": "red green blue"}, ["text{green},,text{blue}"]),
        "no such cell": Case(
            {"tokens": "red green blue", "cell": "9.9"}, ["text{green},,text{blue}"]
        ),
    },
    prefix="scores:",
)


@each("key", SCORES)
def test_the_equation_adds_up_to_the_score_that_is_drawn(key):
    result = study.score_maps(Choice(key), TOKENS, 8, 3, 2.0)
    if result.factors is not None:  # a score that is no sum of products shows its result alone
        first, second = result.factors
        np.testing.assert_allclose(
            (first * second).sum(-1) * result.scale, result.scores, rtol=1e-4, atol=1e-5
        )
    np.testing.assert_allclose(result.weights.sum(-1), 1, rtol=1e-5)
    space: dict[str, Any] = {}
    exec(draw_scores.snippet(Choice.of(key), 8), space)  # noqa: S102
    assert space["steps"].weights.shape == (1, 1, 6, 6)


def test_all_scores_meet_the_same_queries_and_keys():
    # But for QK-norm, which changes them before they meet; and the same word twice is the same key.
    result = [
        study.score_maps(Choice(key), TOKENS, 8, 3, 1.0) for key in SCORES if key != "qk_norm"
    ]
    for one in result:
        np.testing.assert_array_equal(one.q, result[0].q)
        np.testing.assert_allclose(one.weights[:, 0], one.weights[:, 4], rtol=1e-5)
    assert 0 <= study.most_different_query(result) < len(TOKENS)


@each(
    ("key", "parameters", "rank", "symmetric", "doubling", "rotated"),
    [  # at D = 8; what a query twice as long does, and whether turning both alike changes it
        ("dot", 0, 8, True, 2.0, False),
        ("scaled_dot", 0, 8, True, 2.0, False),
        ("general", 64, 8, False, 2.0, True),
        ("cosine", 1, 8, True, 1.0, False),
        ("qk_norm", 16, 8, True, 1.0, True),
    ],
)
def test_the_character_of_a_product_is_known(key, parameters, rank, symmetric, doubling, rotated):
    assert study.score_maps(Choice(key), TOKENS, 8, 3, 1.0).parameters == parameters
    result = score_properties(Choice(key), 5)
    assert (result.rank, result.symmetric, result.rotation > 0.01) == (rank, symmetric, rotated)
    assert result.doubling == pytest.approx(doubling, rel=1e-4)


@each("key", ["additive", "concat"])
def test_a_network_is_none_of_that(key):
    assert study.score_maps(Choice(key), TOKENS, 8, 3, 1.0).parameters == 2 * 64 + 8
    result = score_properties(Choice(key), 5)
    assert result.rank > 8 and not result.symmetric
    assert result.rotation > 0.1 and 0.5 < result.doubling < 1.9


def test_the_network_takes_more_memory_than_the_product():
    torch.set_num_threads(1)
    additive, product = study.timings((Choice("additive"), Choice("scaled_dot")), 0)
    assert (
        0 < min(additive.seconds, product.seconds) < time.thread_time()
        and additive.bytes > 5 * product.bytes
        and product.bytes
        > 1.3
        * study.peak_bytes(
            study.workload(
                AttentionConfig(study.TIMED_WIDTH, study.TIMED_HEADS),
                study.TIMED_TOKENS,
                backward=False,
            )
        )
    )


def test_only_a_score_without_a_time_is_timed(monkeypatch, tmp_path):
    saved, slow = study.load_measurement(), study.Timing(7.0, 8)
    monkeypatch.setattr(study, "SAVED", tmp_path / "scores.json")
    monkeypatch.setattr(study, "timings", lambda choices, *_: (slow,) * len(choices))
    others = {key: time for key, time in saved.measured.items() if key != "general"}
    for before, machine in (
        (replace(saved, measured=others), saved.machine),
        (saved, saved.machine),
        (replace(saved, measured=others, machine="old"), "old; general: "),
    ):
        study.save(study.SAVED, before)
        study.main()
        now = study.load_measurement()
        assert now.measured == before.measured | {"general": now.measured["general"]}
        assert list(now.measured) == SCORES and now.machine.startswith(machine)
        assert (now.measured["general"] == slow) == ("general" not in before.measured)
        assert saved.date in now.date
    study.SAVED.unlink()
    study.main()
    assert set(study.load_measurement().measured.values()) == {slow}


def test_the_headline_comes_from_the_saved_measurement(monkeypatch):
    page, saved = open_at("scores"), study.load_measurement()
    assert set(saved.measured) == set(SCORES), "run make generated"
    slow = tuple(study.Timing(1.0 + place, 1000) for place in range(len(SCORES)))
    monkeypatch.setattr(study, "timings", lambda choices, repetition: slow)
    assert saved.date in page_text(page) and duration(7.0) not in page_text(page)
    page.button(key="scores:measure").click().run()
    headline = next(e.proto.body for e in page.get("html") if "as long as" in e.proto.body)
    slowest = max(saved.measured.values(), key=lambda time: time.seconds).seconds
    assert f"{number(slowest / saved.measured['scaled_dot'].seconds)} ×" in headline
    assert f"<td>{duration(7.0)}</td>" in html_text(page), "the table has the times of this machine"


def test_the_fact_counts_who_agrees():
    maps = [study.score_maps(Choice(key), TOKENS, 8, 3, 1.0) for key in SCORES]
    column = study.favourite(maps, 1)
    agree = sum(int(one.weights[1].argmax()) == column for one in maps)
    words = f"By {agree} of {len(maps)} scores :primary[long] takes most from {TOKENS[column]}"
    assert words in draw_scores.fact_text(maps, TOKENS, 1, 1.0)


def test_one_query_by_every_rule_comes_first():
    page = open_at("scores")
    row, first, *_ = [
        one for one in page.get("bidi_component") if one.key in ("scores:row", "scores:maps0")
    ]
    rules = json.loads(row.proto.json)["queries"]
    assert (row.key, first.key) == ("scores:row", "scores:maps0") and len(rules) == len(
        set(rules)
    ) > 5
    maps = [study.score_maps(Choice(key), TOKENS, 16, 126, 1.0) for key in SCORES]
    (tile,) = draw_scores.query_tile(maps, 1, "animal")
    np.testing.assert_allclose(tile.weights, [each.weights[1] for each in maps], rtol=1e-6)


# The page Normalizers, driven without a browser: typed scores, every control, and numbers that the modules made.


NORMALIZERS = [item.key for item in AXES["normalizer"]]
open_normalizers = partial(open_at, "normalizers", "normalizers:")
put_normalizers = partial(set_control, "normalizers:")


def with_all(at, kind=None, name=None, value=None):
    at.session_state["normalizers:all"] = True
    return put_normalizers(at, kind, f"params:{name}", value) if kind else at.run()


def figures(at):
    return re.findall('aria-label="([^:"]*): ', html_text(at))


def test_the_picked_normalizers_are_drawn():
    first = ["Scores", "Softmax", "Sink", "Sigmoid", "Sparsemax"]
    at = open_normalizers()
    assert figures(at) == first
    at = put_normalizers(at, "multiselect", "curves", ["top_k"])
    assert figures(at) == ["Scores", "Top-k"]
    assert "Top-k gives" in html_text(at), "the sentence is of what is drawn"
    assert figures(put_normalizers(at, "multiselect", "curves", [])) == ["Scores"]
    at = with_all(open_normalizers())
    assert figures(at) == [*first, "Scores", *(item.name for item in AXES["normalizer"])]
    for kind, name, value in (
        ("number_input", "softcap:cap", 1.0),
        ("number_input", "top_k:k", 1),
        ("slider", "entmax:alpha", 2.0),
    ):
        before = html_text(at)
        assert html_text(with_all(at, kind, name, value)) != before


@each(
    ("text", "says"),
    [
        ("", "no score"),
        ("1, two, 3", "Score 1, “two”"),
        ("1,,3", "Score 1, empty"),
        ("nan", "Score 0"),
        ("1, inf", "Score 1"),
        ("1e9", "Score 0"),
        (", ".join("1" for _ in range(33)), "33 scores"),
        ("<b>, 1", "Score 0, “<b>”"),
    ],
)
def test_bad_scores_are_refused_in_words(text, says):
    pytest.raises(ValueError, normalizers_page.parse, text).match(re.escape(says))


NO_WEIGHT = "every normalizer gives weights of 0"
TYPED = ("5", "0, 0, 0", "-1, −2,", "1e4, -1e4", "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13")
test_what_normalizers_says = page_cases(
    "normalizers",
    {
        text: Case(says=["displaystyle"], never=[NO_WEIGHT], do=[("text_input", "scores", text)])
        for text in TYPED
    }
    | {
        "no keys": Case(says=["displaystyle", NO_WEIGHT], do=[("text_input", "scores", "x, x")]),
        "a bad score": Case(says=["Score 1, “two”"], do=[("text_input", "scores", "1, two, 3")]),
        "typed scores": Case(
            {"scores": "3, x, -1.5", "temperature": "0.5"},
            ["key 1: masked", "You typed these scores"],
            do=[("session_state", "all", True)],
        ),
    },
    prefix="normalizers:",
)


@each("key", NORMALIZERS)
def test_what_is_drawn_is_what_module_and_snippet_compute(key):
    row = normalizer_study.normalize_row(Choice(key), (1.0, None, -0.5, 3.0), 2.0)
    own = entry("normalizer", key).build(AttentionConfig(2, 1, normalizer=key))
    weights = own(
        torch.tensor([[[[2.0, 9.0, -1.0, 6.0]]]]), torch.tensor([True, False, True, True])
    ).detach()[0, 0, 0]
    np.testing.assert_allclose(row.weights, weights.numpy(), rtol=1e-5, atol=1e-7)
    assert row.unassigned == pytest.approx(max(0.0, 1 - row.weights.sum()), abs=1e-9)
    assert row.zeros == int((row.weights[[0, 2, 3]] == 0).sum())
    space = dict[str, Any]()
    exec(draw_normalizers.snippet(Choice(key), (2.0, None, -1.0, 6.0)), space)  # noqa: S102
    weights = space["weights"].detach()[0, 0, 0].numpy()
    np.testing.assert_allclose(weights, row.weights, rtol=1e-5, atol=1e-7)


@each(
    ("choice", "learning"),
    [
        (Choice("softmax"), 3),
        (Choice("sparsemax"), 2),
        (Choice("hard"), 3),
        (Choice.of("hard", gradient="none"), 0),
        (Choice.of("top_k", k=2), 2),
    ],
)
def test_only_what_gets_weight_learns(choice, learning):
    assert normalizer_study.normalize_row(choice, (3.0, 1.0, 2.5), 1.0).learning == learning


def evaluated(latex):
    """The value of the middle of an equation, read back from its LaTeX."""
    text = re.sub(r"\\frac\{(.*)\}\{(.*)\}$", r"(\1)/(\2)", latex)
    text = re.sub(
        r"\\max\((.*),\\ 0\)(?:\^\{(.*)\})?", lambda m: f"max({m[1]}, 0)**({m[2] or 1})", text
    )
    text = re.sub(r"\\sigma\((.*)\)", r"1/(1+math.exp(-(\1)))", text)
    return eval(re.sub(r"e\^\{(.*?)\}", r"math.exp(\1)", text), {"math": math, "max": max})  # noqa: S307


@each("key", NORMALIZERS)
def test_the_numbers_in_the_equation_make_the_weight(key):
    scores = (1.0, 0.25, 1.5)
    row = normalizer_study.normalize_row(Choice(key), scores, 1.0)
    assert dict(normalizer_study.sweep(Choice(key), scores, 1.0, 0))[1.0] == pytest.approx(
        row.weights[0]
    )
    # Another one than these shows its equation and its result.
    if isinstance(row.normalizer, draw_normalizers.WRITTEN) and key != "hard":
        for j in map(int, np.flatnonzero(row.weights)):
            line = draw_normalizers.numbers(row, j)
            assert evaluated(line) == pytest.approx(row.weights[j], abs=0.02), line


def drawn(scores, names, picked, key="softmax"):
    row = normalizer_study.normalize_row(Choice.of(key), scores, 1.0)
    return draw_normalizers.weights_tile(row, scores, names, picked, rules=False)


def test_of_equal_weights_picked_and_first_have_numbers():
    assert drawn((0.0,) * 4, tuple("abcd"), 2).count("<b") == 2


def test_names_are_escaped_and_weights_are_height_of_bars():
    tile = drawn((0.0, None), ("<i>", "y"), 0, "softmax_one")
    assert "<i>:" not in tile and "&lt;i&gt;" in tile
    assert "height:50.0%" in tile and "masked" in tile and draw_normalizers.NO_KEY in tile


def test_the_example_is_a_real_row():
    names, query, scores = normalizer_study.example()
    assert query in names and len(scores) == len(names)
    assert normalizers_page.parse(normalizers_page.write(scores)) == scores


def test_hard_has_one_gradient_which_caption_and_table_tell():
    at = with_all(open_normalizers())
    assert "Hard trains with the" in at.caption[0].value and not at.code
    with_all(at, "selectbox", "hard:gradient", "none")
    assert "Hard trains" not in at.caption[0].value
    assert re.search(r"Hard</th>(<td>[^<]*</td>){5}<td>0</td>", html_text(at)), (
        "no score has a gradient"
    )
    assert set_state(at, "normalizers:sources").code, "the code that ran"


# All mechanisms: every choice of every axis is drawn, said and explained by the page, with nothing told of it.


@each(("axis", "item"), [(axis, item) for axis, entries in AXES.items() for item in entries])
def test_every_choice_can_be_drawn_and_said(axis, item):
    effect = beside.beside_baseline(example_config(axis, item.key, 16, 4))
    after, mask = effect.result.weights, effect.result.mask
    assert after.shape == effect.baseline.weights.shape and np.isfinite(after).all()
    assert mask is None or not after[~mask].any()
    row, column = effect.telling_cell
    sentence = draw_mechanisms.fact_text(item, effect, row, column)
    assert f"**{number(after[row, column])}**" in sentence
    assert item.name in sentence.replace("\\", "")


def test_a_drawn_mask_opens_on_masks_as_it_is():
    drawn = {"drawing": "3x3:4.2.7", "beyond": "the drawing repeats"}
    link = {f"mechanisms:mask:drawn:{name}": text for name, text in drawn.items()}
    app = open_at(
        "mechanisms",
        **{"mechanisms:axis": "Masks", "mechanisms:mask": "Drawn by hand · 2026", **link},
    )
    (to,) = [each for each in app.get("page_link") if each.proto.page == "masks"]
    query = dict(parse_qsl(to.proto.query_string))
    values = controls_of(open_at("masks", **query))
    assert values["masks:first"] == "drawn"
    assert values["masks:first:drawn:drawing"] == "3x3:4.2.7"
    assert values["masks:first:drawn:beyond"] == "repeat"


@pytest.mark.parametrize(("axis", "key", "hidden"), [("mask", "padding", 3), ("score", "dot", 0)])
def test_head_and_cell_are_those_of_largest_change(axis, key, hidden):
    config = example_config(axis, key, 16, 4)
    plain, steps = map(beside.steps_of, (beside.BASELINE, config))
    effect = beside.beside_baseline(config)
    assert np.abs(effect.difference)[effect.telling_cell] == float(
        (steps.weights - plain.weights).abs().max()
    )
    assert int((steps.weights[0, 0].sum(0) == 0).sum()) == hidden


@pytest.mark.parametrize("axis", list(AXES))
def test_each_axis_opens_with_its_table(axis):
    at = open_at("mechanisms", "mechanisms:", axis=mechanisms_page.NAMES[axis])
    assert not at.warning and len(at.dataframe[0].value) == len(AXES[axis])
    names = [f"{item.name} · {item.year}" for item in AXES[axis]]
    assert at.selectbox(key=f"mechanisms:{axis}").options == names


test_what_mechanisms_says = page_cases(
    "mechanisms",
    {
        "what is not there": Case(
            {"axis": "Scores", "score": "Bilinear · 1999"}, ["score = Bilinear"]
        ),
        "an axis that is not there": Case({"axis": "Flavours"}, ["axis = Flavours"]),
        "what it goes with": Case(
            {"axis": "Kernels", "kernel": "Fused · 2022"},
            ["and not with these", "take"],
            do=[("session_state", "fits", True)],
        ),
    },
    prefix="mechanisms:",
)


# One mechanism: what was built on a page is what the next one opens with, until it is put back.


BUILT, YOURS = "From another page", "From another page: **{}**"
TRAINED = "train:reverse:transformer"
ATTENTION = recommended(make_task(TaskConfig.of("reverse")), "transformer").model.attention


def picks(axis: str, key: str) -> list[tuple[str, str, str]]:
    return [
        ("segmented_control", "mechanisms:axis", axis),
        ("selectbox", f"mechanisms:{axis}", key),
    ]


def of_normalizer(key: str) -> tuple[str, Case]:
    return "normalizers", Case(do=[("selectbox", "normalizers:equation", key)])


def trained(**choices: str | Choice) -> dict[str, AttentionConfig]:
    return {f"{TRAINED}:attention:now": ATTENTION.with_(**choices)}


def put_back(key: str) -> list[tuple[str, str, None]]:
    return [("button", f"{key}:put_back", None)]


test_what_is_built_on_a_page_opens_the_next = visit_cases(
    {
        "a score": [
            ("mechanisms", Case()),
            ("scores", Case(never=[BUILT])),
            ("mechanisms", Case(do=picks("score", "cosine"), never=[BUILT])),
            ("scores", Case(says=[YOURS.format("Cosine")], controls={"scores:equation": "cosine"})),
            ("normalizers", Case(never=[BUILT])),
            ("compare", Case(says=[YOURS.format("Cosine")], controls={"compare:minuend": 1})),
            ("", Case(do=put_back("compare"), says=["Linear"], never=[BUILT, "Cosine"])),
            ("scores", Case(never=[BUILT], controls={"scores:equation": "scaled_dot"})),
        ],
        "a normalizer and a kernel with their parameters": [
            ("normalizers", Case(do=[("number_input", "normalizers:params:top_k:k", 2)])),
            of_normalizer("top_k"),
            (
                "mechanisms",
                Case(
                    says=[YOURS.format("Top-k")],
                    controls={"mechanisms:normalizer": "top_k", "mechanisms:normalizer:top_k:k": 2},
                ),
            ),
            (
                "",
                Case(
                    do=[
                        *picks("kernel", "nystrom"),
                        ("number_input", "mechanisms:kernel:nystrom:landmarks", 3),
                    ]
                ),
            ),
            (
                "efficient",
                Case(
                    says=[YOURS.format("Nyström")],
                    controls={
                        "efficient:kernels": ["exact", "nystrom", *efficient.USUAL[1:5]],
                        "efficient:params:nystrom:landmarks": 3,
                    },
                ),
            ),
            (
                "",
                Case(
                    do=put_back("efficient"), controls={"efficient:kernels": list(efficient.USUAL)}
                ),
            ),
        ],
        "a mechanism of One query": [
            of_normalizer("hard"),
            ("one_query", Case(says=[YOURS.format("Hard")], controls={"one:normalizer": "hard"})),
            ("", Case(do=put_back("one"), controls={"one:normalizer": "softmax"})),
            ("", Case(do=[("selectbox", "one:score", "cosine")], never=[BUILT])),
            ("scores", Case(says=[YOURS.format("Cosine")])),
        ],
        "a projection of the cache": [
            ("mechanisms", Case(do=picks("projection", "multi_query"))),
            (
                "cache",
                Case(says=[YOURS.format("Multi-query")], controls={"cache:form": "multi_query"}),
            ),
            ("", Case(do=put_back("cache"), controls={"cache:form": "own"})),
            ("", Case(do=[("selectbox", "cache:form", "latent")], never=[BUILT])),
            ("mechanisms", Case(controls={"mechanisms:projection": "latent"})),
        ],
        "a mechanism to train with": [
            of_normalizer("sparsemax"),
            (
                "train",
                Case(says=[YOURS.format("Sparsemax")], controls=trained(normalizer="sparsemax")),
            ),
            ("", Case(do=put_back(TRAINED), never=[BUILT], controls=trained(normalizer="softmax"))),
            ("", Case(do=[("selectbox", f"{TRAINED}:mechanism", "alibi")], never=[BUILT])),
            ("one_query", Case(says=[YOURS.format("ALiBi + Causal")])),
            of_normalizer("hard"),
            ("train", Case(says=[YOURS.format("Hard")])),  # the newer one
        ],
        # From a link, whose parameters are bound to the page's controls when the page is left.
        "a typed mask to train with": [
            (
                "masks",
                Case(
                    {"masks:first": "Formula"},
                    do=[("button", "masks:train", None)],
                    controls=trained(
                        mask=Choice.of("formula", text="j <= i and i - j < 4 or j == 0")
                    ),
                ),
            )
        ],
        "an encoding to train with": [
            (
                "positions",
                Case(
                    {"positions:position": named("alibi", "distance")["position"]},
                    do=[("button", "positions:train", None)],
                    controls=trained(position="alibi"),
                ),
            )
        ],
    },
)


def test_the_link_of_a_page_wins_over_what_was_built():
    at = put_normalizers(open_normalizers(), "selectbox", "equation", "hard")
    for name in list(at.query_params):
        del at.query_params[name]
    at.query_params["mechanisms:axis"] = "Masks"
    at = at.switch_page("../pages/mechanisms.py").run()
    assert at.segmented_control(key="mechanisms:axis").value == "mask"
    assert BUILT not in page_text(at)
