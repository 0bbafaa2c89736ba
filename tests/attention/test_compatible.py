"""What goes with what is found by asking, and both sides of a refusal name each other."""

from typing import Any

import pytest

from core.attention import AXES, AttentionConfig, ConfigError
from core.attention.config import example, needs, refusals
from tests.cases import each


def test_fused_and_additive_refuse_each_other_from_both_sides():
    from_fused = {(r.axis, r.key) for r in refusals("kernel", "fused")}
    from_additive = {(r.axis, r.key) for r in refusals("score", "additive")}
    assert ("score", "additive") in from_fused and ("kernel", "fused") in from_additive
    assert ("score", "scaled_dot") not in from_fused


def test_a_refusal_is_one_that_a_config_makes():
    for refusal in refusals("kernel", "fused"):
        with pytest.raises(ConfigError) as error:
            AttentionConfig(64, 4, kernel="fused").with_(
                **{refusal.axis: example(refusal.axis, refusal.key)}
            )
        assert str(error.value) == refusal.reason


@each(("axis", "key"), [(axis, e.key) for axis, entries in AXES.items() for e in entries])
def test_every_choice_goes_with_something(axis, key):
    beside: dict[str, Any] = {
        other: example(other, name) for other, name in needs(axis, key).items()
    }
    assert (
        getattr(AttentionConfig(64, 4).with_(**{axis: example(axis, key)}, **beside), axis).key
        == key
    )
