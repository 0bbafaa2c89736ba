"""Every figure of a head, against maps whose answer is known by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.interpret import trace as analysis
from core.interpret.trace import AttentionMap, AttentionTrace

SCORES = (analysis.previous_token, analysis.breadth)


def shifted(size: int, by: int) -> np.ndarray:
    """All weight `by` places on, as far as there is one, else on itself."""
    target = np.clip(np.arange(size) + by, 0, size - 1)
    return np.eye(size, dtype=np.float32)[target]


def test_entropy_and_distance_by_hand():
    weights = np.array([[[0.5, 0.5, 0.0], [0.0, 1.0, 0.0]]], np.float32)
    np.testing.assert_allclose(analysis.entropy(weights), [[np.log(2), 0.0]], rtol=1e-6)
    np.testing.assert_allclose(
        analysis.mean_distance(weights), [0.25]
    )  # row 0: half of it one away


def test_overlap_by_hand():
    """Two heads agree in half of the first row and in all of the second; the third looks elsewhere."""
    weights = np.array(
        [[[0.5, 0.5, 0], [0, 1, 0]], [[0, 0.5, 0.5], [0, 1, 0]], [[0, 0, 1], [1, 0, 0]]], np.float32
    )
    np.testing.assert_allclose(
        analysis.overlap(weights), [[1, 0.75, 0], [0.75, 1, 0.25], [0, 0.25, 1]]
    )


def test_one_token_breaks_nothing():
    one = np.ones((2, 1, 1), np.float32)
    for score in SCORES:
        assert np.isfinite(score(one)).all()


@given(st.integers(2, 9), st.integers(1, 4), st.integers(0, 2**31))
def test_bounds_hold_for_any_weights(size, heads, seed):
    scores = np.random.default_rng(seed).normal(0, 3, (heads, size, size))
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    for score in SCORES:
        value = score(weights)
        assert value.shape == (heads,)
        assert (value >= -1e-9).all() and (value <= 1 + 1e-9).all()


def test_strongest_names_layer_and_head():
    def item(layer, *heads):
        return AttentionMap("self", layer, np.stack(heads), tuple("abcd"), tuple("abcd"))

    trace = AttentionTrace(
        (item(0, shifted(4, 1), shifted(4, 0)), item(1, shifted(4, 0), shifted(4, -1))), "test"
    )
    assert analysis.strongest(trace, analysis.previous_token) == (1, 1, pytest.approx(1.0))
