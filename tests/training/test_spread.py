"""Means, deviations, intervals and bands by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from core.training.seed_stats import LEVEL, UNITS, SeedStats, line, mean_interval, seed_stats
from tests.cases import each


def test_a_spread_by_hand():
    spread = seed_stats([2.0, None, 4.0, 9.0])
    assert spread.values == (2.0, 4.0, 9.0) and (spread.low, spread.high) == (2.0, 9.0)
    assert spread.mean == 5.0 and spread.std == pytest.approx(13**0.5)  # (9 + 1 + 16) / 2
    assert seed_stats([0.5, 0.25], "share").in_percent() == SeedStats((50.0, 25.0), "score")


def test_the_interval_of_a_mean_by_the_table_of_students_t():
    assert seed_stats([1.0, 2.0, 3.0]).interval == pytest.approx(
        (2 - 4.303 / 3**0.5, 2 + 4.303 / 3**0.5), rel=1e-3
    )
    assert seed_stats([1.0, 3.0]).interval == pytest.approx((2 - 12.706, 2 + 12.706), rel=1e-3)
    assert seed_stats([3.0]).interval is None and seed_stats([0.5, 1.7], "share").interval is None


@each("unit", sorted(UNITS))
@given(data=st.data())
def test_no_interval_leaves_the_bounds_of_its_unit_or_its_mean(unit, data):
    scale = UNITS[unit]
    numbers = (
        st.sampled_from([0.0, 1.0])
        if unit == "seeds"
        else st.floats(max(scale.low, -1e6), min(scale.high, 1e6))
    )
    values, step = (
        data.draw(st.lists(numbers, min_size=2, max_size=10)),
        data.draw(st.sampled_from([0.0, 0.01])),
    )
    measured = mean_interval(values, unit, data.draw(st.sampled_from([0.05, 0.005])), step)
    if measured is None:
        assert unit == "times" and min(values) == 0  # a ratio of nothing
        return
    mean, low, high = measured
    near = 1e-9 * (1 + abs(mean))
    assert scale.low <= low <= mean + near and mean - near <= high <= scale.high


def test_intervals_by_other_peoples_code():
    values = [0.3, 0.5, 0.1, 0.45, 0.2]
    mean, low, high = mean_interval(values)
    assert (low, high) == pytest.approx(
        stats.t.interval(0.95, 4, np.mean(values), stats.sem(values))
    )
    logs = np.log(values)
    ends = stats.t.interval(0.95, 4, logs.mean(), stats.sem(logs))
    assert mean_interval(values, "times")[1:] == pytest.approx(np.exp(ends))
    for held in range(6):
        theirs = stats.binomtest(held, 5).proportion_ci(0.95, "exact")
        assert mean_interval([1.0] * held + [0.0] * (5 - held), "seeds")[1:] == pytest.approx(
            (theirs.low, theirs.high)
        )


@each(
    ("unit", "draw"),
    [
        ("number", lambda rng: rng.normal(size=5)),
        ("gain", lambda rng: rng.normal(0, 0.2, 5).clip(-1, 1)),
        ("times", lambda rng: np.exp(rng.normal(0, 0.5, 5))),
        ("correlation", lambda rng: np.tanh(rng.normal(0, 0.4, 5))),
    ],
)
def test_an_interval_misses_no_difference_in_five_percent_at_most(unit, draw):
    """Each draw comes from two equal conditions, whose difference is 0 and whose ratio is 1."""
    rng, none, count = np.random.default_rng(7), float(unit == "times"), 2000
    measured = [mean_interval(draw(rng).tolist(), unit) for _ in range(count)]
    missed = sum(not low <= none <= high for _, low, high in measured)
    assert missed / count <= LEVEL + 3 * (LEVEL * (1 - LEVEL) / count) ** 0.5


def test_one_seed_has_no_spread_and_none_is_nothing():
    assert seed_stats([None, None]) is None
    assert seed_stats([3.0]).std is None


def test_lines_over_steps_meet_where_all_have_a_point():
    band = line([[(0, 0.0), (10, 1.0), (20, 4.0)], [(0, 2.0), (10, 5.0)]], shared=True)
    assert band.x == (0, 10) and band.mean == (1.0, 3.0)
    assert band.low == (0.0, 1.0) and band.high == (2.0, 5.0)


def test_lines_over_seconds_are_read_between_points_and_end_with_the_first_run():
    band = line([[(0, 0.0), (4, 8.0)], [(0, 0.0), (1, 1.0), (2, 6.0)]], shared=False)
    assert band.x[0] == 0 and band.x[-1] == 2
    assert band.mean[-1] == pytest.approx((4.0 + 6.0) / 2)  # half way to 8, and the other's end
    assert band.low[-1] == pytest.approx(4.0) and band.high[-1] == pytest.approx(6.0)


def test_no_point_is_no_line():
    assert line([[], []], shared=True) is None
    assert line([[(0, 1.0)], [(5, 1.0)]], shared=True) is None
