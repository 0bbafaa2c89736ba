"""The rule of the claim on positions, and what it measures against plain arithmetic."""

import pytest
import torch

from core.attention.positions.absolute import sinusoids
from core.claims.entries.positions import (
    ALIBI,
    BITS,
    LEARNED,
    LENGTHS,
    NONE,
    ORDER,
    POSITIONS,
    POSITIONS_CLAIM,
    ROPE,
    SHIFT,
    SINUSOIDAL,
    YARN,
    measure,
    order_change,
    shift,
)
from core.entries import Choice
from tests.claims.made_up import World, judge


def world(order: float, error: float, **twice_and_four_times: tuple[float, float]) -> World:
    numbers: dict = {(condition, ORDER, None): 0.5 for condition in POSITIONS}
    numbers |= {(NONE, ORDER, None): order, (SINUSOIDAL, SHIFT, None): error}
    for condition, name in (
        (SINUSOIDAL, "sinusoidal"),
        (LEARNED, "learned"),
        (ROPE, "rope"),
        (YARN, "yarn"),
        (ALIBI, "alibi"),
    ):
        for length, bits in zip(LENGTHS, (3.0, *twice_and_four_times[name]), strict=True):
            numbers[condition, BITS, length] = bits
    return numbers


def test_the_rule_confirms_refutes_and_abstains():
    good = world(
        1e-7, 1e-7, sinusoidal=(5, 6), learned=(4, 6), rope=(3.5, 5), yarn=(3.2, 4), alibi=(3, 2.9)
    )
    state, parts = judge(POSITIONS_CLAIM, good, 1e-5)
    assert (state, set(parts)) == ("holds", {"holds"})
    even = dict.fromkeys(("sinusoidal", "learned", "rope", "yarn"), (3.0, 3.0))
    state, parts = judge(
        POSITIONS_CLAIM, world(0.5, 0.5, **even | {"rope": (3.2, 3.0)}, alibi=(4, 5)), 1e-3
    )
    assert parts == ["refuted", "holds", *["refuted"] * 7] and state == "holds in part"
    noisy = world(
        1e-3,
        1e-3,
        sinusoidal=(3.2, 3.3),
        learned=(3, 3.3),
        rope=(3.1, 3.3),
        yarn=(3.1, 3.2),
        alibi=(3, 3),
    )
    told = [
        "cannot be told",
        "holds",
        *["cannot be told"] * 7,
    ]  # sinusoidal positions see the order fifty-fold
    assert judge(POSITIONS_CLAIM, noisy, 1.0) == ("holds in part", told)


def test_a_layer_without_positions_sees_no_order_and_a_rotation_shifts_sinusoids():
    assert order_change(Choice("none"), 0) < 1e-5 < 0.1 < order_change(Choice("rope"), 0)
    assert [number[0] for number in measure(NONE, 0, {}, lambda: False)] == [ORDER]
    assert shift(3) < 1e-5
    table = sinusoids(
        torch.arange(8, dtype=torch.float64), 2
    )  # sin i, cos i: a turn by one radian a position
    turn = torch.tensor([[torch.cos(torch.tensor(3.0)), torch.sin(torch.tensor(3.0))]])
    assert float((turn * table[2]).sum()) == pytest.approx(float(table[5, 0]), abs=1e-6)
