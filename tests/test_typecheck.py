"""The check of shapes that every other test runs under: a wrong shape fails, also after a call that passed."""

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from core.attention.basics import split_heads
from tests.typecheck import checked


@checked
def first_rows(x: Float[Tensor, "B T"], drop: bool) -> Float[Tensor, "B T"]:
    return x[1:] if drop else x


def test_a_wrong_argument_and_a_wrong_result_fail():
    x = torch.zeros(2, 3)
    assert first_rows(x, False) is x
    with pytest.raises(AssertionError, match="first_rows: return is "):
        first_rows(x, True)
    for wrong in (x[0], x.int()):
        with pytest.raises(AssertionError, match="split_heads: x is "):
            split_heads(wrong, 1)
