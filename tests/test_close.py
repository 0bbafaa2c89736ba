"""The comparison of stored with recomputed numbers: what another processor changes passes, a mistake fails."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from tests.close import assert_close

LARGE = np.array([1000.0, 1e-3, 0.0])


@dataclass(frozen=True)
class Result:
    weights: np.ndarray
    count: int
    name: str


@pytest.mark.parametrize(
    "pair",
    [
        (LARGE + 0.09, LARGE),
        (torch.tensor(LARGE + 0.09), LARGE),
        ([1.0, 2.0001], [1.0, 2.0]),
        ({"a": [1.0], "b": "c"}, {"a": [1.00005], "b": "c"}),
        (9e-6, 0.0),
        (Result(LARGE, 3, "x"), Result(LARGE + 0.01, 3, "x")),
        ([np.nan, np.inf, 1], [np.nan, np.inf, 1]),
        ([[1.0], [1.0, 2.0]], [[1.00005], [1.0, 2.0]]),
        ((None, True, "a"), (None, True, "a")),
    ],
    ids=str,
)
def test_rounding_passes(pair):
    assert_close(*pair)


@pytest.mark.parametrize(
    "pair",
    [
        (LARGE + 0.11, LARGE),
        (LARGE[:2], LARGE),
        (np.float32(1), np.ones((1, 3))),
        (2e-5, 0.0),
        (1.001, 1.0),
        ([1, 2], [1, 3]),
        (np.array([1_000_000]), np.array([1_000_001])),
        ({"a": 1.0}, {"b": 1.0}),
        ("a", "b"),
        (Result(LARGE, 3, "x"), Result(LARGE, 4, "x")),
        ([np.nan], [1.0]),
        ([np.inf], [1.0]),
        ([[1.0], [1.0, 2.0]], [[1.0]]),
        (True, False),
        (None, 0.0),
    ],
    ids=str,
)
def test_mistakes_fail(pair):
    with pytest.raises(AssertionError):
        assert_close(*pair)
