"""The rule of the claim on differential attention, and what counts as answer and noise."""

import pytest
import torch

from core.claims.entries.scores import (
    ANSWER,
    DIFFERENCE,
    DIFFERENTIAL,
    NOISE,
    PAIRS,
    RECALL_ACCURACY as ACCURACY,
    SOFTMAX,
    answer_and_noise,
    model_of,
)
from core.models import build_model
from core.models.base import Shape
from tests.claims.made_up import World, judge


def world(accuracy: float, answer: float, noise: float) -> World:
    """Softmax is right in 0.8, with 0.6 of the weight on the answer and 0.3 on other pairs."""
    numbers = {SOFTMAX: (0.8, 0.6, 0.3), DIFFERENTIAL: (accuracy, answer, noise)}
    return {
        (condition, name, None): value
        for condition, values in numbers.items()
        for name, value in zip((ACCURACY, ANSWER, NOISE), values, strict=True)
    }


def test_the_rule_confirms_refutes_and_abstains():
    assert judge(DIFFERENCE, world(0.95, 0.9, 0.05), 0.01) == ("holds", ["holds"] * 3)
    assert judge(DIFFERENCE, world(0.7, 0.5, 0.4), 0.01) == ("does not hold", ["refuted"] * 3)
    assert judge(DIFFERENCE, world(0.82, 0.62, 0.15), 0.3) == (
        "cannot be told here",
        ["cannot be told"] * 3,
    )


def test_answer_and_noise_are_shares_of_a_row():
    weights = torch.zeros(1, 2 * PAIRS + 3)
    weights[0, 3], weights[0, 2] = 0.5, 0.1  # the answer, and the key of its pair
    weights[0, 6], weights[0, 9] = -0.2, 0.1  # other pairs
    weights[0, -1] = 0.1
    assert answer_and_noise(weights, torch.tensor([3])) == pytest.approx((0.5, 0.3))


def test_both_models_have_as_many_weights():
    """Differential attention has four more vectors a layer, which make λ."""
    shape = Shape(40, 40, 20, one_vocabulary=True)
    plain, differential = (
        sum(weight.numel() for weight in build_model(model_of(condition), shape).parameters())
        for condition in (SOFTMAX, DIFFERENTIAL)
    )
    assert differential - plain == 2 * 4 * 32
