"""The parts of the page Positions that need no page: numbers in words, curves, shuffles and what is measured."""

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
from tests.cases import each

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


def test_a_flat_curve_still_has_a_height():
    figure = line_chart("t", "x", [Curve("a", [(0, 2.0), (1, 2.0)])], Ink.of("dark"))
    low, high = figure["layer"][0]["encoding"]["y"]["scale"]["domain"]
    assert low < 2 < high


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
