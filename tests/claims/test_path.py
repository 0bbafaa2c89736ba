"""The rule of the claim on path length and parallelism, and its measures against plain arithmetic."""

import pytest
import torch

from core.attention import AttentionConfig
from core.attention.cost import attention_cost, parameters
from core.claims.base import SeedValues
from core.claims.entries.positions import (
    ATTENTION,
    DISTANCES,
    GRADIENT,
    PATH,
    PATH_LENGTHS as LENGTHS,
    RECURRENT,
    SECONDS,
    SIZE,
    WAITING,
    crossing,
    flops,
    gradients,
)
from tests.claims.made_up import World, judge


def world(decay: float, attention_decay: float, crosses_at: float, waiting: float) -> World:
    """Seconds as n · crosses_at for a recurrent layer and n² for attention."""
    numbers: dict = {(RECURRENT, WAITING, None): waiting, (ATTENTION, WAITING, None): 1.0}
    for distance in DISTANCES:
        numbers[RECURRENT, GRADIENT, distance] = decay ** (distance - 1)
        numbers[ATTENTION, GRADIENT, distance] = attention_decay ** (distance - 1)
    for length in LENGTHS:
        numbers[RECURRENT, SECONDS, length], numbers[ATTENTION, SECONDS, length] = (
            length * crosses_at,
            length**2,
        )
    return numbers


def test_the_rule_confirms_refutes_and_abstains():
    state, parts = judge(PATH, world(0.5, 1.0, 1.1 * SIZE, 10.0), 0.001)
    assert (state, parts) == ("holds", ["holds"] * 7)
    _, parts = judge(PATH, world(1.0, 0.5, 40.0 * SIZE, 1.0), 0.001)
    assert parts == ["refuted", "refuted", "refuted", "holds", "holds", "holds", "refuted"]
    _, parts = judge(PATH, world(0.93, 0.965, 1.5 * SIZE, 2.0), 0.7)
    assert set(parts) == {"cannot be told"}


@pytest.mark.parametrize(("at", "expected"), [(96.0, 96.0), (1.0, LENGTHS[0]), (1e9, LENGTHS[-1])])
def test_the_crossing_of_a_line_and_a_square(at, expected):
    assert crossing(SeedValues(dict(world(1.0, 1.0, at, 1.0))), SECONDS) == pytest.approx(expected)


def test_flops_are_those_of_the_layer_and_cross_at_the_width():
    assert flops(ATTENTION, 64, 64) == flops(RECURRENT, 64, 64)
    config = AttentionConfig(SIZE, 4, mask="causal")
    products = (
        2 * 16 * sum(parameters(config).values()) - 2 * 16 * 4 * SIZE
    )  # each weight once a token, no biases
    assert flops(ATTENTION, 16, SIZE) == attention_cost(config, 16, 16).flops + products
    weights = sum(weight.numel() for weight in torch.nn.GRU(SIZE, SIZE, bias=False).parameters())
    assert flops(RECURRENT, 16, SIZE) == 2 * 16 * weights


def test_a_running_mean_passes_the_same_gradient_from_everywhere():
    norms = gradients(lambda x: x.cumsum(1), 0)
    assert list(norms) == list(DISTANCES) and all(
        norm == pytest.approx(1.0) for norm in norms.values()
    )
