"""The rule of the claim on heads, and a model without some of them."""

from typing import Any

import torch

from core.claims.entries.heads import ACCURACY, BITS, EIGHT, FOUR, HEADS, ONE, PRUNED, without
from core.models import ModelConfig, build_model
from core.models.base import Shape
from tests.claims.made_up import World, judge


def world(one: float, eight: float, reversed_by_eight: float, cost_of_a_head: float) -> World:
    numbers: dict = {
        (EIGHT, PRUNED, count / 16): eight + cost_of_a_head * count for count in range(17)
    }
    numbers |= {
        (ONE, BITS, None): one,
        (FOUR, BITS, None): eight,
        (EIGHT, BITS, None): eight,
        (ONE, ACCURACY, None): 0.9,
        (FOUR, ACCURACY, None): 0.9,
        (EIGHT, ACCURACY, None): reversed_by_eight,
    }
    return numbers


def test_the_rule_confirms_refutes_and_abstains():
    assert judge(HEADS, world(3.2, 3.0, 0.9, 0.004), 1e-4) == ("holds", ["holds"] * 3)
    assert judge(HEADS, world(3.0, 3.0, 0.99, 0.02), 1e-4) == ("does not hold", ["refuted"] * 3)
    state, parts = judge(HEADS, world(3.05, 3.0, 0.92, 0.004), 0.01)
    assert state == "cannot be told here" and set(parts) == {"cannot be told"}


def test_a_head_without_its_columns_adds_nothing():
    torch.manual_seed(0)
    config = ModelConfig.transformer(8, 2, 1, kind="decoder", norm="pre")
    model: Any = build_model(config, Shape(9, 9, 6, one_vocabulary=True)).eval()
    tokens = torch.randint(4, 9, (2, 5))
    full = model(tokens, tokens > 0, record=True)
    projection = model.layers[0].causal.projection
    copy: Any = without(model, [(0, 1)])
    pruned = copy.layers[0].causal.projection
    out = full.maps["causal"][0].out  # (B, H, T, D)
    alone = torch.nn.functional.linear(
        out[:, 0], projection.output.weight[:, :4], projection.output.bias
    )
    torch.testing.assert_close(pruned.merge(out, out[:, 0].repeat(1, 1, 2)), alone)
    assert bool((projection.output.weight != 0).all())  # the model itself is as it was
