"""The rule of the claim on grouped queries, and what a model caches."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from core.claims.entries.cost import (
    BITS,
    CACHE,
    GROUPED,
    GROUPS,
    MULTI_HEAD,
    MULTI_QUERY,
    PROJECTIONS,
    cached_numbers,
)
from core.claims.experiment import Trained
from core.models import ModelConfig, build_model
from core.models.base import Shape
from tests.claims.made_up import World, judge


def world(grouped: float, single: float, cache: float = 64.0) -> World:
    bits = {MULTI_HEAD: 3.0, GROUPED: grouped, MULTI_QUERY: single}
    numbers: dict = {(condition, BITS, None): value for condition, value in bits.items()}
    return numbers | {
        (condition, CACHE, None): cache if condition == GROUPED else 256.0 for condition in bits
    }


def test_the_rule_confirms_refutes_and_abstains():
    assert judge(GROUPS, world(3.0, 3.1), 0.002) == ("holds", ["holds"] * 3)
    assert judge(GROUPS, world(3.2, 3.1, 128.0), 0.002) == ("does not hold", ["refuted"] * 3)
    assert judge(GROUPS, world(3.03, 3.03, 76.0), 0.05) == (
        "cannot be told here",
        ["cannot be told"] * 3,
    )


@pytest.mark.parametrize(
    ("condition", "numbers"), [(MULTI_HEAD, 256), (GROUPED, 64), (MULTI_QUERY, 32)]
)
def test_the_cache_holds_keys_and_values_of_each_layer(condition, numbers):
    """2 layers · 2 (key and value) · heads of keys · 8 dimensions."""
    config = ModelConfig.transformer(
        64, 8, 2, kind="decoder", position="rope", projection=PROJECTIONS[condition]
    )
    model = build_model(config, Shape(9, 9, 12, one_vocabulary=True)).eval()
    source = torch.randint(4, 9, (1, 11))
    batch = SimpleNamespace(source=source, source_mask=source > 0)
    task: Any = SimpleNamespace(held_out=lambda n: None, collate=lambda examples: batch)
    assert cached_numbers(Trained(model, task, ())) == numbers
