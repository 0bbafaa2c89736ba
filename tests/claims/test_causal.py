"""The rule of the claim on the causal mask, and what padding changes."""

import pytest

from core.claims.entries.training import (
    CAUSAL,
    GENERATION,
    MASKED,
    OPEN,
    PADDING,
    TEACHER,
    padding_change,
)
from tests.claims.made_up import World, judge


def world(
    open_loss: float, open_last: float, masked_last: float, changes: tuple[float, float]
) -> World:
    return {
        (MASKED, TEACHER, None): 2.0,
        (OPEN, TEACHER, None): open_loss,
        (MASKED, GENERATION, None): masked_last,
        (OPEN, GENERATION, None): open_last,
        (MASKED, PADDING, None): changes[0],
        (OPEN, PADDING, None): changes[1],
    }


def test_the_rule_confirms_refutes_and_abstains():
    assert judge(CAUSAL, world(0.1, 6.0, 2.0, (1e-7, 0.1)), 0.01) == ("holds", ["holds"] * 5)
    assert judge(CAUSAL, world(2.0, 2.0, 4.0, (1e-2, 1e-6)), 0.001) == (
        "does not hold",
        ["refuted"] * 5,
    )
    state, parts = judge(CAUSAL, world(1.0, 2.1, 2.2, (1e-5, 1e-3)), 0.5)
    assert state == "cannot be told here" and set(parts) == {"cannot be told"}


def test_padding_changes_only_what_no_mask_hides():
    assert (
        padding_change(0, masked=True) == pytest.approx(0, abs=1e-6)
        and padding_change(0, masked=False) > 1e-3
    )
