"""The rule of the claim on the k largest keys, and how keys are left out."""

import pytest
import torch

from core.attention import Attention
from core.claims.entries.scores import (
    BITS,
    COUNTS,
    FEW,
    INDEXER,
    LARGEST,
    LATEST,
    TOPK,
    WINDOW,
    keep,
)
from core.entries import Choice
from core.models import ModelConfig, build_model
from core.models.base import Shape
from tests.claims.made_up import World, judge


def world(largest: float, indexer: float, latest: float) -> World:
    """4 bits where each sees itself alone, 3 with all keys; with FEW keys what is given."""
    few = {LARGEST: largest, INDEXER: indexer, LATEST: latest}
    return {
        (condition, BITS, count): 4.0 if count == 1 else few[condition] if count == FEW else 3.0
        for condition in few
        for count in COUNTS
    }


def test_the_rule_confirms_refutes_and_abstains():
    assert judge(TOPK, world(3.01, 3.05, 3.3), 0.001) == ("holds", ["holds"] * 3)
    assert judge(TOPK, world(3.3, 3.5, 3.1), 0.001) == ("does not hold", ["refuted"] * 3)
    assert judge(TOPK, world(3.05, 3.1, 3.12), 0.1) == (
        "cannot be told here",
        ["cannot be told"] * 3,
    )


@pytest.mark.parametrize("condition", [LARGEST, INDEXER, LATEST])
def test_each_query_keeps_as_many_keys_as_said(condition):
    torch.manual_seed(0)
    config = ModelConfig.transformer(
        16,
        2,
        2,
        kind="decoder",
        norm="pre",
        position="rope",
        mask=Choice.of("lightning", keys=WINDOW),
    )
    model = build_model(config, Shape(11, 11, 12, one_vocabulary=True)).eval()
    source = torch.randint(4, 11, (3, 12))
    before = model(source, source > 0).logits
    for count in (1, 5, WINDOW):
        output = keep(model, condition, count)(source, source > 0, record=True)
        for steps in output.maps["causal"]:
            seen = (steps.weights > 0).sum(-1)
            expected = torch.arange(1, 13).clamp(max=count).expand_as(seen)
            assert torch.equal(seen, expected)
        assert count < WINDOW or torch.allclose(output.logits, before, atol=1e-5)
    assert all(
        layer.indexer.keys == WINDOW for layer in model.modules() if isinstance(layer, Attention)
    )


def test_the_latest_keys_are_kept():
    model = build_model(
        ModelConfig.transformer(16, 2, kind="decoder", mask=Choice.of("lightning", keys=WINDOW)),
        Shape(11, 11, 6, one_vocabulary=True),
    ).eval()
    (steps,) = keep(model, LATEST, 2)(
        torch.tensor([[4, 5, 6, 7]]), torch.ones(1, 4, dtype=torch.bool), record=True
    ).maps["causal"]
    assert torch.equal(steps.weights[0, 0] > 0, torch.ones(4, 4).tril().triu(-1).bool())
