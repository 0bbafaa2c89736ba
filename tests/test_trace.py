"""The trace refuses tokens that do not fit its weights, and tells kinds apart."""

import numpy as np
import pytest

from core.interpret.trace import AttentionMap, AttentionTrace


def test_tokens_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="3 queries, 2 keys"):
        AttentionMap("self", 0, np.zeros((1, 2, 3), np.float32), ("a", "b", "c"), ("x", "y"))


def test_maps_are_told_apart_by_kind():
    one = AttentionMap("self", 0, np.ones((2, 1, 1), np.float32), ("a",), ("a",))
    other = AttentionMap("cross", 1, np.ones((4, 1, 1), np.float32), ("b",), ("a",))
    trace = AttentionTrace((one, other), "test")
    assert trace.kinds == ("self", "cross")
    assert trace.of("cross").maps == (other,)
    assert trace.shape == (2, 4)
