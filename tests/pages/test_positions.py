"""The page Positions, driven without a browser: every encoding and idea, bad links and bad input, each in words."""

from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
import pytest
import torch

from core.attention import AXES, AttentionConfig, Choice
from core.attention.properties import Pair
from core.seeding import seeded_layer
from core.studies import positions
from dashboard.draw.curves import Curve, line_chart
from dashboard.draw.formats import listed
from dashboard.draw.page_views import MAX_PAIRS, sample_pairs, wavelength_text
from dashboard.draw.palette import Ink
from dashboard.draw.vega import MIN_GAP, separate
from pages import positions as page
from pages.positions import GUIDE_CONFIG, IDEAS
from tests.cases import each
from tests.pages.app import Case, controls_of, html_text, live, open_at, page_cases, set_control

open_page = partial(open_at, "positions", "positions:")


def choose(at, position, idea):
    at.selectbox(key="positions:position").set_value(position)
    at.segmented_control(key="positions:idea").set_value(idea)
    return at.run()


def numbers(at):
    return live(at) + html_text(at)


def test_opens_with_words_shuffled_then_the_equation():
    elements: list[Any] = [e for e in open_page().main if e.type in ("html", "markdown")]
    blocks = [e.proto.body if e.type == "html" else e.value for e in elements]
    first, equation = (
        next(index for index, text in enumerate(blocks) if words in text)
        for words in ("Shuffled, without positions", "displaystyle")
    )
    assert blocks[first].count(">same<") == 6, "one for each of the six words"
    assert first < equation


def test_every_encoding_is_drawn_with_its_parameters_or_says_that_there_is_nothing():
    """Each in one of the pictures that depend on it; how it enters decides which is drawn."""
    at = open_page()
    for entry, idea in zip(AXES["position"], cycle(("encoding", "distance", "shift"))):
        choose(at, entry.key, idea)
        assert not at.error and not at.warning, entry.key
        assert bool(at.info) is (entry.enters == "") is not live(at), entry.key
        parameters = {f"positions:position:{entry.key}:{param.key}" for param in entry.params}
        assert parameters <= controls_of(at).keys()


def named(position: str, idea: str) -> dict[str, str]:
    """The link of an encoding and a picture."""
    entry = next(entry for entry in AXES["position"] if entry.key == position)
    return {"position": f"{entry.name} · {entry.year}", "idea": IDEAS[idea]}


test_what_it_says = page_cases(
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
        "a link": Case(named("alibi", "distance"), ["head"], controls={"position": "alibi"}),
        "another order": Case(do=[("button", "again", None)], query={"positions:order": "2"}),
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
    at = open_page(**named(position, idea))
    before = numbers(at)
    assert numbers(set_control("positions:", at, kind, name, value)) != before


def test_the_position_of_the_page_can_be_trained_with():
    at = open_page(**named("alibi", "distance")).button(key="positions:train").click().run()
    assert not at.error
    assert at.session_state["train:reverse:transformer:attention:now"].position.key == "alibi"


def test_another_shuffle_is_in_the_link():
    at = open_page()
    before = numbers(at)
    assert numbers(at.button(key="positions:again").click().run()) != before
    assert numbers(open_page(order="2")) == numbers(at)
    assert numbers(open_page(order="many")) == before


def test_the_prediction_is_measured():
    changes = positions.shift_changes(GUIDE_CONFIG, ("a", "long", "day"), 126)
    question = page.question(changes)
    assert question.options[question.answer].startswith("RoPE")
    assert changes["rope"] < 1e-4 < changes["learned"]
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
    assert [ranked.index(p) for p in places] == [1, 2, 0, 4, 3] and ranked[-1] <= 1.0
    assert sum(places[:3]) == pytest.approx(1.5), "a group stays around the ends of its curves"
    assert separate([0.2, 0.8]) == pytest.approx([0.2, 0.8]) and separate([]) == []


def test_curves_on_a_logarithmic_axis_hold_zero_and_span_whole_powers():
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
        order = positions.shuffle(count, 7, times)
        assert sorted(order.tolist()) == list(range(count)) and order.tolist() != list(range(count))
    assert positions.shuffle(1, 7, 1).tolist() == [0]


def test_shuffling_changes_nothing_without_positions_and_something_with_any():
    """For every encoding that there is: the page's own claim."""
    for entry in AXES["position"]:
        config = AttentionConfig(16, 2, position=Choice(entry.key))
        result = positions.shuffle_effect(config, TOKENS, 126, 1)
        changes = result.largest, np.abs(result.restored - result.ordered).max()
        assert result.baseline < 1e-5 and result.baseline_change.max() < 1e-5
        assert [change < 1e-5 for change in changes] == [entry.key == "none"] * 2, entry.key


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
    assert closed < fitted < unseen < still
    assert result.closed.shape == result.fitted.shape == (16, 16)


def test_dials_show_the_fastest_and_the_slowest_pair():
    pairs = [Pair(m, m + 20, 2.0**-m) for m in range(20)]
    sample = sample_pairs(pairs)
    assert len(sample) == MAX_PAIRS and (sample[0], sample[-1]) == (pairs[0], pairs[-1])
    firsts = [pair.first for pair in sample]
    assert firsts == sorted({*firsts})
    texts = [wavelength_text(length) for length in (6.283, 19869.2, float("inf"))]
    assert texts == ["6.3", "19,869", "∞"]


@each("key", ["sinusoidal", "learned"])
def test_what_attention_reads_is_the_sum_of_word_and_position(key):
    config = AttentionConfig(16, 2, position=Choice(key))
    words, places = positions.added_vectors(config, TOKENS, 126)
    x = torch.from_numpy(words)[None]
    added = seeded_layer(config, 126).position.add(x)[0].detach().numpy()
    assert np.allclose(added, words + places, atol=1e-6) and np.abs(places).max() > 0


def test_positions_measures_the_two_that_are_chosen():
    at = open_page(**named("and", "distance"))
    at = set_control("positions:", at, "selectbox", "position:and:part1", "alibi")
    parts = at.session_state["positions:controls"].config.position.parts
    assert not at.error and [part.key for part in parts] == ["rope", "alibi"]
