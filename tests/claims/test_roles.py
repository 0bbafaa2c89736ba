"""The rule of the claim on head roles, and its measures against plain arithmetic."""

import numpy as np
import pytest

from core.claims.entries.heads import (
    EFFECT,
    MESSAGES,
    RANKS,
    ROLES_CLAIM,
    SCORE_LEFT,
    SENTENCES_OF,
    mean_agreement,
    score_left,
)
from tests.claims.made_up import World, judge


def world(ranks: float, left: float, effect: float) -> World:
    values = {RANKS: ranks, SCORE_LEFT: left, EFFECT: effect}
    return {
        (condition, name, None): value
        for condition in (SENTENCES_OF, MESSAGES)
        for name, value in values.items()
    }


def test_the_rule_confirms_refutes_and_abstains():
    assert judge(ROLES_CLAIM, world(0.95, 0.9, 0.6), 0.01) == ("holds", ["holds"] * 3)
    assert judge(ROLES_CLAIM, world(0.4, 0.5, -0.1), 0.01) == ("does not hold", ["refuted"] * 3)
    assert judge(ROLES_CLAIM, world(0.8, 0.8, 0.3), 0.4) == (
        "cannot be told here",
        ["cannot be told"] * 3,
    )


def test_agreement_and_the_score_that_is_left():
    first = np.array(
        [[[0.1, 0.2], [0.3, 0.8]], [[0.6, 0.1], [0.2, 0.3]]]
    )  # two roles, two layers of two heads
    assert mean_agreement(first, first**2) == pytest.approx(1) and score_left(
        first, first / 2
    ) == pytest.approx(0.5)
    second = first.copy()
    second[0] = second[0].max() - second[0]
    assert mean_agreement(first, second) == pytest.approx(0)
    assert score_left(first, second) == pytest.approx((0.0 / 0.8 + 0.6 / 0.6) / 2)
