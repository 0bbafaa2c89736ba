"""The rule of the claim on hybrid stacks, and what a stack caches."""

import torch

from core.claims.entries.cost import (
    EXACT,
    HYBRID,
    HYBRID_FULL as FULL,
    HYBRID_LOCAL as LOCAL,
    HYBRID_STACK,
    LONG_CACHE as CACHE,
    ONE_IN_SIX,
    PATTERNS,
    SIX_FULL,
    cached,
    stack,
)
from core.models import build_model
from core.models.base import Shape
from tests.claims.made_up import World, judge


def world(
    hybrid: float, sixth: float, local: float, cache: float = 0.25, sixth_cache: float = 0.17
) -> World:
    exact = {FULL: 0.9, HYBRID_STACK: hybrid, LOCAL: local, SIX_FULL: 0.95, ONE_IN_SIX: sixth}
    numbers: dict = {(condition, EXACT, None): value for condition, value in exact.items()}
    caches = {HYBRID_STACK: cache, ONE_IN_SIX: sixth_cache}
    return numbers | {
        (condition, CACHE, None): 100.0 * caches.get(condition, 1.0) for condition in exact
    }


def test_the_rule_confirms_refutes_and_abstains():
    assert judge(HYBRID, world(0.9, 0.95, 0.3), 0.005) == ("holds", ["holds"] * 5)
    assert judge(HYBRID, world(0.5, 0.5, 0.5, 0.5, 0.5), 0.005) == (
        "does not hold",
        ["refuted"] * 5,
    )
    assert judge(HYBRID, world(0.85, 0.9, 0.65, 0.3, 0.2), 0.2) == (
        "cannot be told here",
        ["cannot be told"] * 5,
    )


def test_a_window_caches_two_tokens():
    """64 numbers for the key and 64 for the value of each token."""
    sizes = {condition: cached(stack(pattern), 10) for condition, pattern in PATTERNS.items()}
    assert sizes == {
        FULL: 4 * 10 * 128,
        HYBRID_STACK: (10 + 3 * 2) * 128,
        LOCAL: 4 * 2 * 128,
        SIX_FULL: 6 * 10 * 128,
        ONE_IN_SIX: (10 + 5 * 2) * 128,
    }


def test_one_layer_of_four_sees_all():
    model = build_model(
        stack(PATTERNS[HYBRID_STACK]), Shape(11, 11, 12, one_vocabulary=True)
    ).eval()
    source = torch.randint(4, 11, (1, 9))
    maps = model(source, source > 0, record=True).maps["causal"]
    assert [int((steps.weights[0, 0, -1] > 0).sum()) for steps in maps] == [2, 2, 2, 9]
