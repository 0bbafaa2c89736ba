"""The page Positions, driven without a browser: every encoding and idea, bad links and bad input, each in words."""

from functools import partial
from typing import Any

import pytest

from core.attention import AXES
from core.studies import positions
from pages import positions as page
from pages.positions import GUIDE_CONFIG, IDEAS
from tests.pages.app import open_at, page_text, query_value

open_page = partial(open_at, "positions", "positions:")


def choose(at, position, idea):
    at.selectbox(key="positions:position").set_value(position)
    at.segmented_control(key="positions:idea").set_value(idea)
    return at.run()


def fact_text(at):
    """The equation with its numbers, and the measured sentence."""
    numbers = [m.value for m in at.markdown if "displaystyle" in m.value]
    return " ".join([*numbers, *(h.proto.body for h in at.get("html"))])


def test_opens_with_words_shuffled_and_nothing_pressed():
    at = open_page()
    assert "P_{3} = (0.14," in fact_text(at) and "position 3 looks like position 9" in fact_text(at)
    assert not at.warning and not at.error


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


def test_shuffle_again_makes_another_order():
    at = open_page()
    before = fact_text(at)
    at.button(key="positions:again").click()
    assert fact_text(at.run()) != before


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


def test_a_link_is_taken_or_refused_in_words():
    at = open_page(position="ALiBi · 2022", idea="By distance")
    assert at.selectbox(key="positions:position").value == "alibi" and "head" in fact_text(at)
    wrong = open_page(position="Nowhere", idea="By distance")
    assert "Nowhere" in wrong.warning[0].value and "Sinusoidal" in wrong.warning[0].value


def test_a_position_of_a_link_can_be_trained_with():
    at = open_page(position="ALiBi · 2022")
    at.button(key="positions:train").click().run()
    assert not at.error and not at.exception
    assert at.session_state["train:reverse:transformer:attention:now"].position.key == "alibi"


def test_the_shuffled_sentence_stands_before_the_equation():
    at = open_page()
    elements: list[Any] = [e for e in at.main if e.type in ("html", "markdown")]
    blocks = [e.proto.body if e.type == "html" else e.value for e in elements]
    first = next(
        index for index, text in enumerate(blocks) if "Shuffled, without positions" in text
    )
    assert blocks[first].count(">same<") == 6, "one for each of the six words"
    assert first < next(index for index, text in enumerate(blocks) if "displaystyle" in text)


def test_a_link_opens_the_same_shuffle_and_the_same_pinned_cell():
    at = open_page()
    at.button(key="positions:again").click().run()
    assert query_value(at, "positions:order") == "2"
    assert fact_text(open_page(order="2")) == fact_text(at)
    assert fact_text(open_page(order="many")) == fact_text(open_page())


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


def test_each_move_sets_controls_and_says_what_to_notice():
    at = open_page()
    for index, move in enumerate(page.MOVES):
        at.button(key=f"positions:try:{index}").click().run()
        assert not at.error and not at.exception
        assert at.selectbox(key="positions:position").value == move.values["positions:position"]
        assert move.notice in page_text(at)


def test_an_encoding_that_is_added_shows_the_sum_and_keeps_the_weights_one_click_away():
    drawn = [element.key for element in open_page().get("bidi_component")]
    assert "positions:sum" in drawn and "positions:maps" not in drawn
    assert "positions:maps" in [
        element.key for element in open_page(cell="0.1").get("bidi_component")
    ]
    drawn = [
        element.key for element in choose(open_page(), "rope", "shuffle").get("bidi_component")
    ]
    assert "positions:sum" not in drawn and "positions:maps" in drawn


def test_two_equal_maps_have_no_map_of_their_difference():
    at = choose(open_page(), "rope", "shift")
    assert "Both maps are the same" in page_text(at)
    assert "Both maps are the same" not in page_text(choose(at, "sinusoidal", "shuffle"))


def test_the_letters_of_an_equation_and_the_names_of_pairs_are_explained():
    assert "## What it means" in page_text(open_page()) and "b the base" in page_text(open_page())
    text = page_text(open_page(position="RoPE · 2021", idea="The encoding"))
    assert (
        "“0, 8” are the numbers 0 and 8" in text and "first half and one of the second half" in text
    )
