"""The rule of the claim on norms and warm-up, and what it measures against plain arithmetic."""

import math
from types import SimpleNamespace
from typing import Any

import torch

from core.claims.entries.training import (
    BARE,
    BITS,
    CONDITIONS,
    FREQUENCIES,
    GRADIENT,
    NORM,
    POST,
    POST_WARM,
    PRE,
    PRE_WARM,
    frequency_bits,
    layer_gradients,
    remove_residuals,
)
from core.models import ModelConfig
from core.models.blocks import Residual
from core.tasks import TaskConfig, make_task
from core.training.config import RunConfig
from core.training.loop import prepare
from tests.claims.made_up import World, judge


def world(
    post: float, post_warm: float, pre: float, pre_warm: float, bare: float, growth: float
) -> World:
    numbers: dict = {(BARE, FREQUENCIES, None): 4.8}
    for condition, bits in zip(
        (POST, POST_WARM, PRE, PRE_WARM, BARE), (post, post_warm, pre, pre_warm, bare), strict=True
    ):
        numbers[condition, BITS, None] = bits
    for condition in CONDITIONS:
        for layer in range(1, 9):
            rises = growth if "post" in condition else 1 / growth
            numbers[condition, GRADIENT, layer] = rises ** ((layer - 1) / 7)
    return numbers


def test_the_rule_confirms_refutes_and_abstains():
    assert judge(NORM, world(4.5, 3.5, 3.5, 3.5, 4.8, 4.0), 0.001) == ("holds", ["holds"] * 5)
    assert judge(NORM, world(3.5, 3.5, 4.0, 3.5, 3.5, 0.5), 0.001) == (
        "does not hold",
        ["refuted"] * 5,
    )
    assert judge(NORM, world(3.6, 3.5, 3.6, 3.5, 4.7, 1.1), 0.4) == (
        "cannot be told here",
        ["cannot be told"] * 5,
    )


def test_what_it_measures():
    session = prepare(
        RunConfig(
            TaskConfig.of("copy"), ModelConfig.transformer(8, 2, 2, kind="decoder", norm="pre")
        )
    )
    norms = layer_gradients(session)
    assert (
        len(norms) == 2
        and min(norms) > 0
        and all(weight.grad is None for weight in session.model.parameters())
    )
    remove_residuals(session.model)
    around = [module for module in session.model.modules() if isinstance(module, Residual)]
    x = torch.randn(1, 3, 8)
    assert len(around) == 4 and all(torch.equal(one.leave(x, -x), -x) for one in around)


def test_the_frequencies_are_counted():
    task: Any = make_task(TaskConfig.of("topics", length=32))
    tokens = [task.source_vocab.encode([token])[0] for token in "etxt"]
    task.ids = torch.tensor(tokens)  # e once, x once, t twice, and every token once more
    task.corpus = SimpleNamespace(held_out=("t", "e"))
    total = 4 + len(task.source_vocab)
    assert math.isclose(
        frequency_bits(task), -(math.log2(3 / total) + math.log2(2 / total)) / 2, rel_tol=1e-5
    )
