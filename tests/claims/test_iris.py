"""The rule of the claim on Iris, and the count of the tutorials' parameters."""

from core.claims.entries.why_attention import (
    DIFFER,
    EPOCHS,
    HELD_OUT_ACCURACY as ACCURACY,
    IRIS,
    IRIS_PARAMETERS as PARAMETERS,
    LOGISTIC,
    ROW,
    SEPALS,
    TOKENS,
    tutorial_parameters,
)
from tests.claims.made_up import World, judge


def world(
    accuracy: float, logistic: float, parameters: float, differ: float, sepals: float
) -> World:
    return {
        (TOKENS, ACCURACY, None): accuracy,
        (ROW, ACCURACY, None): accuracy,
        (LOGISTIC, ACCURACY, None): logistic,
        (TOKENS, EPOCHS, None): 20.0,
        (ROW, EPOCHS, None): 20.0,
        (TOKENS, PARAMETERS, None): parameters,
        (TOKENS, DIFFER, None): differ,
        (ROW, DIFFER, None): differ,
        (TOKENS, SEPALS, None): sepals,
    }


def test_the_rule_confirms_refutes_and_abstains():
    state, parts = judge(
        IRIS, world(0.96, 0.9, 15_000, 0.1, 0.8), 0.001
    )  # ten seeds of ten may be nine of ten
    assert (state, parts) == ("holds in part", ["holds"] * 5 + ["cannot be told"])
    assert judge(IRIS, world(0.8, 0.9, 102_467, 0.0, 0.2), 0.0)[0] == "does not hold"
    state, parts = judge(IRIS, world(0.96, 0.95, 15_000, 0.01, 0.7), 0.5)
    assert state == "cannot be told here" and set(parts) == {"cannot be told"}


def test_the_tutorials_model_is_counted_by_hand():
    layer = (
        4 * 64 * 64 + 4 * 64 + 2 * 64 * 256 + 256 + 64 + 4 * 64
    )  # attention, feed-forward, two norms
    assert (
        tutorial_parameters()
        == (4 * 64 + 64) + 2 * layer + (64 * 32 + 32) + (32 * 3 + 3)
        == 102_467
    )
