"""The rule of the claim on attention sinks, and how the first token is hidden."""

import pytest
import torch

from core.claims.entries.meaning import (
    CHOICES,
    GATED,
    HIDDEN,
    ONE,
    SINK,
    SINKS,
    SOFTMAX,
    WEIGHT,
    loss,
    variant,
    weight_on_first,
    without_first,
)
from core.models import ModelConfig, build_model
from core.models.base import Shape
from core.tasks import Batch
from tests.claims.made_up import World, judge


def world(weight: float, others: float, hidden: float) -> World:
    numbers: dict = {(condition, WEIGHT, None): others for condition in (ONE, SINK, GATED)}
    return numbers | {(SOFTMAX, WEIGHT, None): weight, (SOFTMAX, HIDDEN, None): hidden}


def test_the_rule_confirms_refutes_and_abstains():
    assert judge(SINKS, world(0.8, 0.1, 0.5), 0.01) == ("holds", ["holds"] * 5)
    assert judge(SINKS, world(0.3, 0.3, 0.01), 0.01) == ("does not hold", ["refuted"] * 5)
    assert judge(SINKS, world(0.5, 0.25, 0.1), 0.3) == (
        "cannot be told here",
        ["cannot be told"] * 5,
    )


@pytest.mark.parametrize("condition", CHOICES)
def test_a_hidden_first_token_gets_weight_from_itself_alone(condition):
    torch.manual_seed(0)
    config = variant(ModelConfig.transformer(16, 4, 2, kind="decoder", position="rope"), condition)
    model = build_model(config, Shape(11, 11, 12, one_vocabulary=True)).eval()
    source = torch.randint(4, 11, (3, 12))
    batch = Batch(source, source > 0, None, source)
    assert weight_on_first(model, batch) > 0
    hidden = without_first(model)
    for steps in hidden(batch.source, batch.source_mask, record=True).maps["causal"]:
        assert not steps.weights[:, :, 1:, 0].any() and (steps.weights[:, :, 0, 0] > 0).all()
        assert not steps.weights.triu(1).any()
    assert weight_on_first(hidden, batch) == 0 and loss(hidden, batch) != loss(model, batch)
