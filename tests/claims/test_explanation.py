"""The rule of the claim on attention as explanation, and its measures against plain arithmetic."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from core.claims.entries.meaning import (
    ACCURACY,
    ALONE,
    BY_ABLATION,
    BY_GRADIENT,
    CONTEXT,
    EXPLANATION,
    GUIDED,
    OTHER,
    UNIFORM,
    Reader,
    agreement,
    by_ablation,
    by_gradient,
    by_permutation,
    distance,
    divergence,
    other_weights,
)
from core.models.base import Shape
from core.tasks import Batch
from tests.claims.made_up import World, judge

TASK: Any = SimpleNamespace(shape=Shape(9, 3, 8, output="label"))


def world(context: float, other: float, alone: float, guided: float) -> World:
    """τ with context and alone, the divergence of other weights, the accuracy by the GRU's weights."""
    return {
        (CONTEXT, BY_GRADIENT, None): context,
        (CONTEXT, BY_ABLATION, None): context,
        (CONTEXT, OTHER, None): other,
        (ALONE, BY_ABLATION, None): alone,
        (GUIDED, ACCURACY, None): guided,
        (UNIFORM, ACCURACY, None): 0.7,
    }


def test_the_rule_confirms_refutes_and_abstains():
    assert judge(EXPLANATION, world(0.3, 0.6, 0.8, 0.8), 0.01) == ("holds", ["holds"] * 5)
    assert judge(EXPLANATION, world(0.7, 0.1, 0.7, 0.6), 0.01) == ("does not hold", ["refuted"] * 5)
    assert judge(EXPLANATION, world(0.5, 0.35, 0.6, 0.72), 0.4) == (
        "cannot be told here",
        ["cannot be told"] * 5,
    )


@pytest.fixture
def batch():
    torch.manual_seed(3)
    source = torch.randint(4, 9, (5, 8))
    source[1, 6:] = 0
    return Batch(source, source > 0, None, torch.zeros(5, dtype=torch.long))


def reader(context=False):
    torch.manual_seed(1)
    return Reader(TASK, context).eval().requires_grad_(False)


def test_distances_by_hand():
    same, first, second = (
        torch.tensor([[0.5, 0.5]]),
        torch.tensor([[1.0, 0.0]]),
        torch.tensor([[0.0, 1.0]]),
    )
    assert float(distance(first, second)) == 1 and float(distance(same, first)) == 0.5
    assert float(divergence(same, same)) == pytest.approx(0) and float(
        divergence(first, second)
    ) == pytest.approx(math.log(2))


def test_ablation_without_context_renormalizes_the_weights(batch):
    model = reader()
    states = model.letters(batch.source)
    weights = model.weights(states, batch.source_mask)
    left = weights.clone()
    left[:, 2] = 0
    expected = distance(
        model.classify(states, left / left.sum(-1, keepdim=True)).softmax(-1),
        model.classify(states, weights).softmax(-1),
    )
    assert torch.allclose(by_ablation(model, batch)[:, 2], expected, atol=1e-6)
    assert not by_ablation(model, batch)[1, 6:].any()


def test_the_gradient_holds_the_weights_fixed(batch):
    model = reader()
    states = model.letters(batch.source)
    weights = model.weights(states, batch.source_mask)
    grown = states.clone()
    grown[0, 3] *= 1.001
    p, q = (model.classify(each, weights).softmax(-1)[0] for each in (states, grown))
    slope = float((q - p)[int(p.argmax())]) / 0.001
    assert float(by_gradient(model, batch)[0, 3]) == pytest.approx(abs(slope), rel=0.05)


@pytest.mark.parametrize("context", [False, True])
def test_weights_agree_with_themselves_and_do_not_matter_to_a_constant(context, batch):
    model = reader(context)
    weights = model.weights(
        model.states(model.letters(batch.source), batch.source_mask), batch.source_mask
    )
    assert agreement(model, batch, weights) == pytest.approx(1)
    assert agreement(model, batch, -weights) == pytest.approx(-1)
    assert by_permutation(model, batch, 0) > 0
    model.output.weight.zero_()
    assert by_permutation(model, batch, 0) == 0
    assert (
        other_weights(model, batch) > 0.45
    )  # one letter of eight, against even weights, is 0.5 away
