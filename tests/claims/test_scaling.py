"""The rule of the claim on √d_k, and its measures against plain arithmetic."""

import pytest
import torch

from core.claims.entries.scores import (
    ACCURACY,
    DIVIDED as SCALED,
    GRADIENT,
    KEY_SIZES as SIZES,
    SCALING,
    TRAINED,
    UNSCALED,
    VARIANCE,
    jacobian_norm,
)
from tests.claims.made_up import World, judge


def world(
    unscaled_gradient: float, unscaled_accuracy: float, scaled_variance: float = 1.0
) -> World:
    numbers: dict = {}
    for size in SIZES:
        numbers[SCALED, VARIANCE, size], numbers[UNSCALED, VARIANCE, size] = (
            scaled_variance,
            float(size),
        )
        numbers[SCALED, GRADIENT, size] = 0.2
        numbers[UNSCALED, GRADIENT, size] = 0.2 if size == SIZES[0] else unscaled_gradient
    for size in TRAINED:
        numbers[SCALED, ACCURACY, size], numbers[UNSCALED, ACCURACY, size] = 0.99, unscaled_accuracy
    return numbers


def test_the_rule_confirms_refutes_and_abstains():
    assert judge(SCALING, world(0.02, 0.5), 0.01) == ("holds", ["holds"] * 5)
    state, parts = judge(SCALING, world(0.2, 0.99, scaled_variance=3.0), 0.01)
    assert state == "holds in part" and parts == ["refuted", "holds", "refuted", "holds", "refuted"]
    assert judge(SCALING, world(0.1, 0.97), 0.6) == ("cannot be told here", ["cannot be told"] * 5)


def test_the_jacobian_is_autograds():
    scores = torch.randn(3, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    rows = [torch.autograd.functional.jacobian(lambda row: row.softmax(-1), row) for row in scores]
    assert jacobian_norm(scores.softmax(-1)) == pytest.approx(
        float(torch.stack([row.norm() for row in rows]).mean())
    )
