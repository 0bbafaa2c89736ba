"""Means, deviations, intervals and bands by hand."""

import pytest

from core.training.seed_stats import line, seed_stats


def test_a_spread_by_hand():
    stats = seed_stats([2.0, None, 4.0, 9.0])
    assert stats.values == (2.0, 4.0, 9.0) and (stats.low, stats.high) == (2.0, 9.0)
    assert stats.mean == 5.0 and stats.std == pytest.approx(13**0.5)  # (9 + 1 + 16) / 2
    assert stats.times(100).mean == 500.0


def test_the_interval_of_a_mean_by_the_table_of_students_t():
    assert seed_stats([1.0, 2.0, 3.0]).half_width == pytest.approx(4.303 / 3**0.5, rel=1e-3)
    assert seed_stats([1.0, 3.0]).half_width == pytest.approx(12.706, rel=1e-3)
    assert seed_stats([3.0]).half_width is None


def test_one_seed_has_no_spread_and_none_is_nothing():
    assert seed_stats([None, None]) is None
    assert seed_stats([3.0]).std is None


def test_lines_over_steps_meet_where_all_have_a_point():
    stats = line([[(0, 0.0), (10, 1.0), (20, 4.0)], [(0, 2.0), (10, 5.0)]], shared=True)
    assert stats.x == (0, 10) and stats.mean == (1.0, 3.0)
    assert stats.low == (0.0, 1.0) and stats.high == (2.0, 5.0)


def test_lines_over_seconds_are_read_between_points_and_end_with_the_first_run():
    stats = line([[(0, 0.0), (4, 8.0)], [(0, 0.0), (1, 1.0), (2, 6.0)]], shared=False)
    assert stats.x[0] == 0 and stats.x[-1] == 2
    assert stats.mean[-1] == pytest.approx((4.0 + 6.0) / 2)  # half way to 8, and the other's end
    assert stats.low[-1] == pytest.approx(4.0) and stats.high[-1] == pytest.approx(6.0)


def test_no_point_is_no_line():
    assert line([[], []], shared=True) is None
    assert line([[(0, 1.0)], [(5, 1.0)]], shared=True) is None
