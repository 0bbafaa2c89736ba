"""Dot-product attention against F.scaled_dot_product_attention and closed forms, forward and gradients."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from core.attention import attend
from tests.cases import each
from tests.oracles.agreement import same_result

B, H, T, S, D, E = 2, 3, 7, 11, 13, 5
FORWARD, GRADIENT = dict[str, Any](rtol=1e-5, atol=1e-5), (1.25e-5, 1.25e-5)


def heads(dtype=torch.float32, queries=T, keys=S, value=E):
    shapes = (B, H, queries, D), (B, H, keys, D), (B, H, keys, value)
    return tuple(torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes)


def masks():
    padding = (torch.arange(S) < torch.tensor([8, 5])[:, None])[:, None, None]
    return {
        "none": None,
        "causal top-left": torch.ones(T, S, dtype=torch.bool).tril(),
        "causal bottom-right": torch.ones(T, S, dtype=torch.bool).tril(S - T),
        "padding": padding,
        "causal and padding": padding & torch.ones(T, S, dtype=torch.bool).tril(),
        "a head each": torch.rand(B, H, T, S) < 0.6,
    }


@each("kernel", ["exact", "fused"])
@each("name", masks())
@each("scale", [None, 1.0, 0.37])
def test_against_sdpa(name, scale, kernel):
    q, k, v = heads()
    mask = masks()[name]
    if name == "a head each":
        mask[..., 0] = True
    out = attend(q, k, v, mask, scale=scale, kernel=kernel).out
    reference = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    same_result(out, reference, (q, k, v), **FORWARD, gradient=GRADIENT)


@each("kernel", ["exact", "fused"])
def test_a_bias_is_added_after_the_scale(kernel):
    q, k, v = heads()
    bias = torch.randn(H, T, S)
    reference = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    torch.testing.assert_close(attend(q, k, v, bias=bias, kernel=kernel).out, reference, **FORWARD)


@each("kernel", ["exact", "fused"])
def test_a_bias_and_a_mask_together(kernel):
    q, k, v = heads()
    bias, mask = torch.randn(H, T, S), torch.ones(T, S, dtype=torch.bool).tril()
    reference = F.scaled_dot_product_attention(
        q, k, v, attn_mask=bias.masked_fill(~mask, -torch.inf)
    )
    torch.testing.assert_close(
        attend(q, k, v, mask, bias=bias, kernel=kernel).out, reference, **FORWARD
    )


@each("kernel", ["exact", "fused"])
@each("temperature", [0.25, 1.0, 4.0])
def test_temperature_divides_scores_and_bias_alike(temperature, kernel):
    q, k, v = heads()
    bias = torch.randn(H, T, S)
    want = ((q @ k.mT / math.sqrt(D) + bias) / temperature).softmax(-1) @ v
    out = attend(q, k, v, bias=bias, temperature=temperature, kernel=kernel).out
    torch.testing.assert_close(out, want, **FORWARD)


def test_exact_in_float64_is_exact():
    q, k, v = heads(torch.float64)
    reference = F.scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(attend(q, k, v).out, reference, rtol=1e-12, atol=1e-12)


def test_gradcheck():
    """The derivative is that of the formula, in float64, with a mask that leaves one row without a key."""
    q, k, v = heads(torch.float64, 3, 5, 2)
    mask = torch.ones(3, 5, dtype=torch.bool).tril()
    mask[1] = False
    assert torch.autograd.gradcheck(lambda q, k, v: attend(q, k, v, mask).out, (q, k, v))


@each("kernel", ["exact", "fused"])
def test_bfloat16(kernel):
    q, k, v = heads(torch.bfloat16)
    mask = torch.ones(T, S, dtype=torch.bool).tril()
    reference = F.scaled_dot_product_attention(q.float(), k.float(), v.float(), attn_mask=mask)
    out = attend(q, k, v, mask, kernel=kernel).out
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), reference, rtol=5e-2, atol=5e-2)


def test_the_worked_example():
    q, k = torch.tensor([[[[1.0, 2]]]]), torch.tensor([[[[1.0, 0], [0, 1], [1, 1]]]])
    v = torch.tensor([[[[0.5, 0.3], [0.8, 0.2], [0.1, 0.9]]]])
    steps = attend(q, k, v)
    torch.testing.assert_close(steps.raw.flatten(), torch.tensor([1.0, 2, 3]))
    torch.testing.assert_close(
        steps.weights.flatten(), torch.tensor([0.140, 0.284, 0.576]), rtol=0, atol=5e-4
    )
    torch.testing.assert_close(steps.out.flatten(), torch.tensor([0.355, 0.617]), rtol=0, atol=5e-4)


def test_the_two_by_two_example_unscaled():
    q, k = torch.tensor([[[[1.0, 0], [0, 1]]]]), torch.tensor([[[[0.0, 1], [1, 0]]]])
    v = torch.tensor([[[[1.0, 2], [3, 4]]]])
    out = attend(q, k, v, scale=1.0).out
    torch.testing.assert_close(
        out[0, 0], torch.tensor([[2.462, 3.462], [1.538, 2.538]]), rtol=0, atol=5e-4
    )


def test_two_keys_one_nat_apart_weigh_1_and_e():
    q, k = torch.ones(1, 1, 1, 1), torch.tensor([[[[0.0], [1.0]]]])
    weights = attend(q, k, k, scale=1.0).weights.flatten()
    torch.testing.assert_close(weights, torch.tensor([1, math.e]) / (1 + math.e))


def test_equal_keys_weigh_the_same_and_one_key_weighs_one():
    q, v = torch.randn(1, 1, 3, 5), torch.randn(1, 1, 7, 5)
    even = attend(q, torch.ones(1, 1, 7, 5), v)
    torch.testing.assert_close(even.weights, torch.full((1, 1, 3, 7), 1 / 7))
    torch.testing.assert_close(even.out, v.mean(2, keepdim=True).expand(1, 1, 3, 5))
    assert torch.equal(attend(q, v[:, :, :1], v[:, :, :1]).weights, torch.ones(1, 1, 3, 1))


def test_steps_follow_from_one_another():
    q, k, v = heads()
    bias, mask = torch.randn(H, T, S), torch.ones(T, S, dtype=torch.bool).tril()
    s = attend(q, k, v, mask, bias=bias)
    torch.testing.assert_close(s.raw, q @ k.mT)
    torch.testing.assert_close(s.scores, s.raw * s.scale + bias)
    assert s.scale == pytest.approx(D**-0.5)
    assert torch.equal(s.masked, s.scores.masked_fill(~mask, -torch.inf))
    torch.testing.assert_close(s.weights, s.masked.softmax(-1))
    torch.testing.assert_close(s.out, s.weights @ v)


def test_fused_makes_no_steps_between():
    s = attend(*heads(), kernel="fused")
    assert s.raw is s.scores is s.masked is s.weights is None
