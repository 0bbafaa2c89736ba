"""The page Positions, driven without a browser: every encoding and idea, bad links and bad input, each in words."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from core.attention import AXES, AttentionConfig, Choice
from core.seeding import seeded_layer
from core.studies import positions
from dashboard.draw.curves import Curve, line_chart
from dashboard.draw.formats import listed
from dashboard.draw.page_views import MAX_PAIRS, sample_pairs, wavelength_text
from dashboard.draw.palette import Ink
from dashboard.draw.vega import MIN_GAP, separate
from pages import one_query, positions as page
from pages.positions import GUIDE_CONFIG, IDEAS
from tests.cases import each
from tests.pages.app import live, open_at, query_value

open_page = partial(open_at, "positions", "positions:")


def choose(at, position, idea):
    at.selectbox(key="positions:position").set_value(position)
    at.segmented_control(key="positions:idea").set_value(idea)
    return at.run()


def fact_text(at):
    numbers = [m.value for m in at.markdown if "displaystyle" in m.value]
    return " ".join([*numbers, *(h.proto.body for h in at.get("html"))])


def test_opens_with_words_shuffled_then_the_equation():
    elements: list[Any] = [e for e in open_page().main if e.type in ("html", "markdown")]
    blocks = [e.proto.body if e.type == "html" else e.value for e in elements]
    first, equation = (
        next(index for index, text in enumerate(blocks) if words in text)
        for words in ("Shuffled, without positions", "displaystyle")
    )
    assert blocks[first].count(">same<") == 6, "one for each of the six words"
    assert first < equation


@pytest.mark.parametrize("idea", IDEAS)
def test_every_encoding_is_drawn_or_says_that_there_is_nothing(idea):
    at = open_page()
    for entry in AXES["position"]:
        choose(at, entry.key, idea)
        assert not at.error, entry.key
        nothing = entry.enters == "" and idea != "shuffle"
        assert (
            bool(at.info) is nothing
            and ("displaystyle" in " ".join(m.value for m in at.markdown)) is not nothing
        )


def test_without_positions_every_word_takes_out_what_it_took():
    at = choose(open_page(), "none", "shuffle")
    assert r"words} =" in fact_text(at) and "shuffling changes no output" in fact_text(at)


@pytest.mark.parametrize(
    ("position", "idea", "kind", "name", "value"),
    [
        ("sinusoidal", "encoding", "slider", "places", 40),
        ("sinusoidal", "encoding", "number_input", "position:sinusoidal:base", 50.0),
        ("rope", "encoding", "slider", "position:rope:share", 0.5),
        ("alibi", "shift", "slider", "shift", 9),
        ("rope", "distance", "select_slider", "d_model", 32),
        ("t5", "distance", "number_input", "seed", 5),
        ("shaw", "shift", "text_input", "tokens", "Other words here"),
        ("kerple", "distance", "selectbox", "position:kerple:kernel", "power"),
        ("formula", "encoding", "text_input", "position:formula:formula", "score - 2*abs(i-j)"),
    ],
)
def test_the_numbers_follow_every_control(position, idea, kind, name, value):
    at = choose(open_page(), position, idea)
    before = fact_text(at)
    getattr(at, kind)(key=f"positions:{name}").set_value(value)
    assert fact_text(at.run()) != before


def test_refusals_stand_in_words():
    at = choose(open_page(), "rope", "encoding")
    at.select_slider(key="positions:d_model").set_value(12).run()
    assert "odd size, 3; take an even one" in at.error[0].value.replace("\\", "")
    at = choose(open_page(), "t5", "distance")
    at.number_input(key="positions:position:t5:buckets").set_value(64)
    at.number_input(key="positions:position:t5:max_distance").set_value(10)
    assert "take max_distance ≥ 17" in at.run().error[0].value.replace("\\", "")
    at = choose(open_page(), "learned", "shift")
    at.number_input(key="positions:position:learned:max_len").set_value(16)
    assert "take a longer table" in at.run().error[0].value
    assert "There is no word here" in open_page(tokens="   ").warning[0].value


def test_a_formula_that_cannot_be_read_is_pointed_at():
    at = choose(open_page(), "formula", "encoding")
    at.text_input(key="positions:position:formula:formula").set_value("score - abs(i-").run()
    assert at.code and "^" in at.code[0].value
    assert not [m for m in at.markdown if "displaystyle" in m.value]


def test_a_link_is_taken_or_refused_in_words_and_its_position_can_be_trained_with():
    wrong = open_page(position="Nowhere", idea="By distance")
    assert "Nowhere" in wrong.warning[0].value and "Sinusoidal" in wrong.warning[0].value
    at = open_page(position="ALiBi · 2022", idea="By distance")
    assert at.selectbox(key="positions:position").value == "alibi" and "head" in fact_text(at)
    at.button(key="positions:train").click().run()
    assert not at.error and not at.exception
    assert at.session_state["train:reverse:transformer:attention:now"].position.key == "alibi"


def test_another_shuffle_is_in_the_link():
    at = open_page()
    before = fact_text(at)
    at.button(key="positions:again").click().run()
    assert query_value(at, "positions:order") == "2" and fact_text(at) != before
    assert fact_text(open_page(order="2")) == fact_text(at)
    assert fact_text(open_page(order="many")) == before


def test_the_prediction_is_measured():
    changes = positions.shift_changes(GUIDE_CONFIG, ("a", "long", "day"), 126)
    question = page.question(changes)
    assert (
        question.options[question.answer].startswith("RoPE")
        and changes["rope"] < 1e-4 < changes["learned"]
    )
    assert page.question(changes | {"learned": 0.0}).answer == 1
    _, wrong, right = page.question({"sinusoidal": 0.5, "learned": 0.75, "rope": 0.0}).reasons
    assert "0.75" in wrong and "With RoPE it is 0.00" in wrong and "With RoPE" not in right


def test_an_encoding_that_is_added_shows_the_sum_and_keeps_the_weights_one_click_away():
    for at, drawn in (
        (open_page(), ["positions:sum"]),
        (open_page(cell="0.1"), ["positions:sum", "positions:maps"]),
        (choose(open_page(), "rope", "shuffle"), ["positions:maps"]),
    ):
        keys = {element.key for element in at.get("bidi_component")}
        assert [key for key in ("positions:sum", "positions:maps") if key in keys] == drawn


# The parts of the page Positions that need no page: numbers in words, curves, shuffles and what is measured.


TOKENS = ("the", "cat", "sat", "on", "it")


def test_a_row_of_numbers_ends_in_dots_when_it_is_cut():
    assert listed([1.0, 2.0]) == r"1.00,\ 2.00"
    assert listed(range(9)).endswith(r"3.00,\ \ldots")


def test_names_at_the_ends_keep_apart_and_in_order():
    places = separate([0.5, 0.51, 0.49, 1.0, 0.99])
    ranked = sorted(places)
    assert all(b - a >= MIN_GAP - 1e-9 for a, b in zip(ranked, ranked[1:], strict=False))
    assert [sorted(places).index(p) for p in places] == [2 - 1, 2, 0, 4, 3]
    assert max(places) <= 1.0
    assert sum(places[:3]) == pytest.approx(1.5), "a group stays around the ends of its curves"
    assert separate([0.2, 0.8]) == pytest.approx([0.2, 0.8]) and separate([]) == []


def test_curves_on_a_logarithmic_axis_hold_zero_and_span_whole_powers():
    figure = line_chart(
        "t", "x", [Curve("a", [(1, 0.0), (2, 3e-4)])], Ink.of("light"), log=True, rule=2
    )
    drawn = figure["layer"][0]
    assert drawn["data"]["values"][0]["y"] > 0
    low, high = drawn["encoding"]["y"]["scale"]["domain"]
    powers = np.log10([low, high])
    assert low <= drawn["data"]["values"][0]["y"] and powers == pytest.approx(np.round(powers))
    assert figure["layer"][-1]["mark"]["type"] == "rule"
    figure = line_chart("t", "x", [Curve("a", [(0, 2.0), (1, 2.0)])], Ink.of("dark"))
    low, high = figure["layer"][0]["encoding"]["y"]["scale"]["domain"]
    assert low < 2 < high, "a flat curve still has a height"


@each("count", [2, 3, 6])
def test_a_shuffle_is_never_the_order_itself(count):
    for times in range(1, 40):
        order = positions.shuffle(count, 7, times)
        assert sorted(order.tolist()) == list(range(count)) and order.tolist() != list(range(count))
    assert positions.shuffle(1, 7, 1).tolist() == [0]


def test_shuffling_changes_nothing_without_positions_and_something_with_any():
    """For every encoding that there is: the page's own claim."""
    for entry in AXES["position"]:
        config = AttentionConfig(16, 2, position=Choice(entry.key))
        result = positions.shuffle_effect(config, TOKENS, 126, 1)
        assert result.baseline < 1e-5 and result.baseline_change.max() < 1e-5
        assert (result.largest < 1e-5) is (entry.key == "none"), entry.key
        assert bool(np.abs(result.restored - result.ordered).max() < 1e-5) is (
            entry.key == "none"
        ), entry.key


def test_the_change_of_scores_is_alibis_bias():
    result = positions.score_changes(AttentionConfig(16, 2, position="alibi"), 126, 9)
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
def test_places_later_the_same_words_score_the_same_where_distance_decides(key, same):
    result = positions.shift_effect(AttentionConfig(16, 2, position=Choice(key)), TOKENS, 126, 4)
    assert (result.largest < 1e-4) is same and result.sinusoidal > 0.05


def test_a_table_too_short_to_look_ahead_says_so():
    config = AttentionConfig(16, 2, position=Choice.of("learned", max_len=16))
    assert positions.table_of(config, 126, 24).shape == (16, 16)
    with pytest.raises(
        ValueError, match="16 positions, of which 2 are held out: too few for a shift of 5; take"
    ):
        positions.linear_maps(config, 126, 5)


def test_the_linear_map_misses_least_in_closed_form():
    result = positions.linear_maps(AttentionConfig(16, 2, position="sinusoidal"), 126, 5)
    _, closed, fitted, unseen, still = next(row for row in result.rows if row[0] == 5)
    assert closed < fitted < unseen < still and result.closed.shape == result.fitted.shape == (
        16,
        16,
    )


def test_dials_show_the_fastest_and_the_slowest_pair():
    from core.attention.properties import Pair

    pairs = [Pair(m, m + 20, 2.0**-m) for m in range(20)]
    sample = sample_pairs(pairs)
    assert len(sample) == MAX_PAIRS and (sample[0], sample[-1]) == (pairs[0], pairs[-1])
    assert [wavelength_text(length) for length in (6.283, 19869.2, float("inf"))] == [
        "6.3",
        "19,869",
        "∞",
    ]
    assert torch.tensor([p.first for p in sample]).diff().gt(0).all()


@each("key", ["sinusoidal", "learned"])
def test_what_attention_reads_is_the_sum_of_word_and_position(key):
    config = AttentionConfig(16, 2, position=Choice(key))
    words, places = positions.added_vectors(config, TOKENS, 126)
    x = torch.from_numpy(words)[None]
    assert np.allclose(
        seeded_layer(config, 126).position.add(x)[0].detach().numpy(), words + places, atol=1e-6
    )
    assert np.abs(places).max() > 0


# Two positions at once on the pages: each part is a choice with its own parameters, kept in the link.


def test_one_query_draws_both_writes_both_equations_and_names_both():
    open_query = partial(open_at, "one_query", "one:")
    joined = "and(rope,formula(formula='score - 0.25*i'))"
    app = open_query(position=joined, stage="1 Project")
    assert not app.exception and not app.error and not app.warning
    assert "q_i = R_i(x_i W_q)" in live(app)
    app.selectbox(key="one:position:and:part0").set_value("alibi").run()
    app = open_query(position=query_value(app, "one:position"), stage="3 Scale + bias")
    assert "alibi" in query_value(app, "one:position")
    assert r"m_h\,|i - j| + s_{ij} - 0.25 \cdot i" in live(app)
    assert "sinusoidal" not in app.selectbox(key="one:position:and:part1").options
    assert one_query.position(AttentionConfig(position="and")) == "RoPE and Formula"


def test_positions_measures_the_parts_that_are_chosen():
    app = open_page(position="Two positions · 2024", idea="By distance")
    assert not app.exception and not app.error
    app.selectbox(key="positions:position:and:part1").set_value("alibi").run()
    assert not app.exception and not app.error
    config = app.session_state["positions:controls"].config
    assert [part.key for part in config.position.parts] == ["rope", "alibi"]
