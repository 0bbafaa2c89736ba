"""The rule of the claim on n² and what avoids it."""

import pytest

from core.attention import AttentionConfig
from core.claims.base import SeedValues
from core.claims.entries.cost import (
    COST,
    FULL,
    FUSED,
    INDUCTION,
    LENGTHS,
    LINEAR,
    LOCAL,
    RECALL,
    SECONDS,
    _exponent,
    choices,
)
from tests.claims.made_up import World, judge


def world(
    powers: tuple[float, float, float], linear_at_128: float, lost: float, fused: float = 0.1
) -> World:
    """Seconds that grow with these powers of the length (full and fused, linear, local)."""
    full, linear, local = powers
    starts = {
        FULL: (1.0, full),
        FUSED: (fused, full),
        LINEAR: (linear_at_128, linear),
        LOCAL: (0.5, local),
    }
    numbers: dict = {
        (condition, SECONDS, length): start * (length / LENGTHS[0]) ** power
        for condition, (start, power) in starts.items()
        for length in LENGTHS
    }
    for condition in (FULL, LINEAR, LOCAL):
        for measure in (RECALL, INDUCTION):
            numbers[condition, measure, None] = 0.9 if condition == FULL else 0.9 - lost
    return numbers


def test_the_rule_confirms_refutes_and_abstains():
    assert judge(COST, world((2.0, 1.0, 1.0), 0.5, 0.3), 0.002) == ("holds", ["holds"] * 9)
    assert judge(COST, world((1.0, 2.0, 2.0), 0.5, 0.0), 0.001) == (
        "does not hold",
        ["refuted"] * 9,
    )
    assert judge(COST, world((1.8, 1.2, 1.2), 2.6, 0.05, 0.5), 0.3) == (
        "cannot be told here",
        ["cannot be told"] * 9,
    )


def test_the_exponent_is_that_of_the_curve_and_each_condition_fits_the_layer():
    assert _exponent(LOCAL, SeedValues(dict(world((2.0, 1.0, 1.5), 0.5, 0.0)))) == pytest.approx(
        1.5
    )
    kernels = [
        AttentionConfig(128, 4, **choices(condition)).kernel.key
        for condition in COST.conditions({})
    ]
    assert kernels == ["exact", "fused", "linear", "local"]
