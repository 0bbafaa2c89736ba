"""ONNX's own suite for Attention and RotaryEmbedding, all of it: 93 cases and 8."""

import pytest
import torch

from tests.cases import each
from tests.oracles import onnx_adapter as adapter

CASES = adapter.cases()
RTOL = {
    torch.bfloat16: 2**-6,
    torch.float16: 2**-9,
}  # two steps of the last place, as in ONNX's own runner

# Case → why this house gives another answer. A case may stand here only while it does.
AFTER_THE_CAP = "its mask of numbers is added after the softcap; here a bias is part of the score that is capped"
OUT_OF_SCOPE: dict[str, str] = {
    "test_attention_4d_with_qk_matmul_softcap": AFTER_THE_CAP,
    "test_attention_3d_with_past_and_present_qk_matmul_softcap": AFTER_THE_CAP,
}


def compare(case):
    outputs, expected = adapter.outputs(case), adapter.expected(case)
    assert outputs.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(
            outputs[name], value, rtol=RTOL.get(value.dtype, case.rtol), atol=1e-6
        )


def test_the_suite_is_whole():
    counted = [adapter.operator(case) for case in CASES.values()]
    assert counted.count("Attention") == 93 and counted.count("RotaryEmbedding") == 8
    assert OUT_OF_SCOPE.keys() <= CASES.keys()


@each("name", sorted(CASES.keys() - OUT_OF_SCOPE.keys()))
def test_case(name):
    compare(CASES[name])


@each("name", sorted(OUT_OF_SCOPE))
def test_a_case_out_of_scope_would_fail(name):
    with pytest.raises(AssertionError):
        compare(CASES[name])
