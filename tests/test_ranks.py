"""Rank agreement against counting every pair, and where there is no order to speak of."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from core.ranks import kendall, spearman
from tests.cases import each


def by_counting(first: np.ndarray, second: np.ndarray) -> float:
    """τ-b by its definition: pairs in agreement less pairs in disagreement, over the pairs that are no ties."""
    agree = one = two = 0
    for i, j in combinations(range(len(first)), 2):
        a, b = np.sign(first[i] - first[j]), np.sign(second[i] - second[j])
        agree, one, two = agree + a * b, one + a * a, two + b * b
    return agree / np.sqrt(one * two)


numbers = st.lists(st.integers(0, 5), min_size=3, max_size=9)


@given(numbers, st.integers(0, 2**31))
def test_kendall_counts_pairs(first, seed):
    first = np.array(first, float)
    second = np.random.default_rng(seed).integers(0, 4, len(first)).astype(float)
    assume(np.ptp(first) and np.ptp(second))
    assert kendall(first, second) == pytest.approx(by_counting(first, second), abs=1e-9)


def test_spearman_sees_ranks_alone():
    first = np.array([1.0, 2.0, 3.0, 10.0])
    assert spearman(first, np.exp(first)) == pytest.approx(1.0)
    assert spearman(first, -first) == pytest.approx(-1.0)
    assert spearman(first, np.array([1.0, 2.0, 4.0, 3.0])) == pytest.approx(1 - 6 * 2 / (4 * 15))


@each("measure", [kendall, spearman])
def test_without_an_order_there_is_no_agreement(measure):
    assert measure(np.array([1.0, 2.0]), np.array([1.0, 2.0])) is None
    assert measure(np.ones(4), np.arange(4.0)) is None
