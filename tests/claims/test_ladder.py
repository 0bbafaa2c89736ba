"""The rule of the claim on the size ladder."""

from core.claims.base import Pick
from core.claims.entries.cost import ACCURACY, BITS, LADDER, LATENCY, PARAMETERS, SIZES
from tests.cases import instance
from tests.claims.made_up import World, judge, results


def world(bits: tuple[float, float, float], parameters: float, latency: float) -> World:
    numbers: dict = {}
    for step, (condition, value) in enumerate(zip(SIZES, bits, strict=True)):
        numbers[condition, BITS, None], numbers[condition, ACCURACY, None] = value, 0.5
        numbers[condition, PARAMETERS, None], numbers[condition, LATENCY, None] = (
            parameters**step,
            latency**step,
        )
    return numbers


def test_the_rule_confirms_refutes_and_abstains():
    assert judge(LADDER, world((3.5, 3.2, 3.0), 5.0, 1.5), 0.001) == ("holds", ["holds"] * 4)
    assert judge(LADDER, world((3.0, 3.2, 3.5), 2.0, 4.0), 0.001) == (
        "does not hold",
        ["refuted"] * 4,
    )
    assert judge(LADDER, world((3.2, 3.1, 3.0), 3.2, 2.0), 0.5) == (
        "cannot be told here",
        ["cannot be told"] * 4,
    )
    assert instance(LADDER.guess, Pick).answer(results(world((3.5, 3.2, 3.4), 5.0, 1.5), 0.0)) == 1
