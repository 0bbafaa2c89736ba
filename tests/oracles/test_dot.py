"""Dot products against PyTorch's own: F.scaled_dot_product_attention, nn.MultiheadAttention, and a textbook's formula."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from core.attention import Attention, AttentionConfig, Choice, attend
from core.attention.positions.relative import alibi_slopes
from core.attention.reference import attention, rotate
from tests.cases import each
from tests.close import assert_close
from tests.oracles.agreement import agree, put

B, H, T, S, D, E = 2, 3, 7, 11, 13, 5
C = H * D
KERNELS = each("kernel", ["exact", "fused"])
RECORD = each("record", [True, False])
CAUSAL = torch.ones(T, S, dtype=torch.bool).tril()
REAL = torch.arange(S) < torch.tensor([8, 5])[:, None]


def heads(dtype=torch.float32, queries=T, keys=S, value=E):
    shapes = (B, H, queries, D), (B, H, keys, D), (B, H, keys, value)
    return tuple(torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes)


def masks():
    """What queries see, by name: a mask and a bias, which is added after the scale."""
    bias, any_cells = torch.randn(H, T, S), torch.rand(B, H, T, S) < 0.6
    any_cells[..., 0] = True
    return {
        "none": (None, None),
        "causal top-left": (CAUSAL, None),
        "causal bottom-right": (torch.ones(T, S, dtype=torch.bool).tril(S - T), None),
        "padding": (REAL[:, None, None], None),
        "causal and padding": (REAL[:, None, None] & CAUSAL, None),
        "a head each": (any_cells, None),
        "a bias": (None, bias),
        "a bias and a mask": (CAUSAL, bias),
    }


@KERNELS
@each("name", masks())
@each("scale", [None, 1.0, 0.37])
@each("temperature", [0.25, 1.0, 4.0])
def test_against_sdpa(name, scale, temperature, kernel):
    """A temperature divides scores and bias alike."""
    (q, k, v), (mask, bias) = heads(), masks()[name]
    out = attend(q, k, v, mask, bias=bias, scale=scale, temperature=temperature, kernel=kernel).out
    added = torch.zeros(T, S) if bias is None else bias / temperature
    added = added if mask is None else added.masked_fill(~mask, -torch.inf)
    scale = (scale or D**-0.5) / temperature
    theirs = F.scaled_dot_product_attention(q, k, v, attn_mask=added, scale=scale)
    agree(out, theirs, (q, k, v))


def test_exact_in_float64_is_exact():
    q, k, v = heads(torch.float64)
    reference = F.scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(attend(q, k, v).out, reference, rtol=1e-12, atol=1e-12)


def test_gradcheck():
    """The derivative is that of the formula, in float64, with a mask that leaves one row without a key."""
    mask = torch.ones(3, 5, dtype=torch.bool).tril()
    mask[1] = False
    given = heads(torch.float64, 3, 5, 2)
    assert torch.autograd.gradcheck(lambda q, k, v: attend(q, k, v, mask).out, given)


@KERNELS
def test_bfloat16(kernel):
    q, k, v = heads(torch.bfloat16)
    reference = F.scaled_dot_product_attention(q.float(), k.float(), v.float(), attn_mask=CAUSAL)
    out = attend(q, k, v, CAUSAL, kernel=kernel).out
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), reference, rtol=5e-2, atol=5e-2)


def test_the_worked_example():
    q, k = torch.tensor([[[[1.0, 2]]]]), torch.tensor([[[[1.0, 0], [0, 1], [1, 1]]]])
    steps = attend(q, k, torch.tensor([[[[0.5, 0.3], [0.8, 0.2], [0.1, 0.9]]]]))
    assert steps.raw.flatten().tolist() == [1.0, 2, 3]
    assert steps.weights.flatten().tolist() == pytest.approx([0.140, 0.284, 0.576], abs=5e-4)
    assert steps.out.flatten().tolist() == pytest.approx([0.355, 0.617], abs=5e-4)


def test_the_two_by_two_example_unscaled():
    q, k = torch.tensor([[[[1.0, 0], [0, 1]]]]), torch.tensor([[[[0.0, 1], [1, 0]]]])
    out = attend(q, k, torch.tensor([[[[1.0, 2], [3, 4]]]]), scale=1.0).out
    assert out.flatten().tolist() == pytest.approx([2.462, 3.462, 1.538, 2.538], abs=5e-4)


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


def test_steps_follow_from_one_another_and_fused_makes_none():
    q, k, v = heads()
    bias = torch.randn(H, T, S)
    s = attend(q, k, v, CAUSAL, bias=bias)
    torch.testing.assert_close(s.raw, q @ k.mT)
    torch.testing.assert_close(s.scores, s.raw * s.scale + bias)
    assert s.scale == pytest.approx(D**-0.5)
    assert torch.equal(s.masked, s.scores.masked_fill(~CAUSAL, -torch.inf))
    torch.testing.assert_close(s.weights, s.masked.softmax(-1))
    torch.testing.assert_close(s.out, s.weights @ v)
    fused = attend(q, k, v, kernel="fused")
    assert fused.raw is fused.scores is fused.masked is fused.weights is None


# The layer against nn.MultiheadAttention with our weights in it.


@KERNELS
@each(
    ("mask", "cross", "padded"),
    [
        ("none", False, False),
        ("none", True, False),
        ("none", True, True),
        ("padding", True, True),
        ("causal", False, False),
        ("causal", False, True),
    ],
)
def test_the_layer_is_torchs(mask, cross, padded, kernel):
    ours = Attention(AttentionConfig(C, H, mask=mask, kernel=kernel))
    p, peer = ours.projection, nn.MultiheadAttention(C, H, batch_first=True)
    put(*((part.bias, torch.randn(C)) for part in (p.query, p.key, p.value, p.output)))
    names = {f"out_proj.{name}": weight for name, weight in p.output.named_parameters()} | {
        f"in_proj_{name}": torch.cat([getattr(part, name) for part in (p.query, p.key, p.value)])
        for name in ("weight", "bias")
    }
    x = torch.randn(B, T, C, requires_grad=True)
    memory = torch.randn(B, S, C) if cross else x
    real = REAL[:, : memory.shape[1]] if padded else None
    steps = ours(x, memory if cross else None, key_mask=real)
    hidden = {  # theirs: True = ignore
        "key_padding_mask": None if real is None else ~real,
        "attn_mask": torch.ones(T, T, dtype=torch.bool).triu(1) if mask == "causal" else None,
        "average_attn_weights": False,
    }
    out, weights = torch.func.functional_call(peer, names, (x, memory, memory), hidden)
    if steps.weights is not None:
        assert_close(steps.weights, weights)
    agree(steps.merged, out, [x, *(part.weight for part in (p.query, p.key, p.value, p.output))])


@each("heads", [1, 3, 13, 39])
def test_heads_take_neighbouring_dimensions(heads):
    """Head h reads dimensions h·D to (h + 1)·D: with one head's values zeroed, only its part of the merge changes."""
    layer = Attention(AttentionConfig(C, heads, projection="identity", score="dot"))
    steps = layer(torch.randn(B, T, C))
    joined = torch.cat([steps.out[:, h] for h in range(heads)], dim=-1)
    torch.testing.assert_close(steps.merged, joined)


# The layer against the formula as a textbook writes it.


def textbook(layer, x, context, mask, **more):
    maps = layer.projection
    return attention(x, context, maps.query, maps.key, maps.value, maps.output, 2, mask, **more)


def rotary(bias):
    """A layer with two heads of six, x, context and which keys are real; fp64."""
    config = AttentionConfig(
        12, 2, Choice.of("multi_head", bias=bias), position="rope", mask="causal"
    )
    layer = Attention(config).double()
    for weight in layer.parameters():
        nn.init.normal_(weight, std=0.3)
    x, context = (torch.randn(3, n, 12, dtype=torch.float64, requires_grad=True) for n in (T, S))
    return layer, x, context, torch.arange(S)[None] < torch.tensor([S, 4, 1])[:, None]


@each("bias", [True, False])
@RECORD
def test_rotary_causal_attention_with_padding_is_the_textbooks(bias, record):
    layer, x, context, key_mask = rotary(bias)
    out, weights = textbook(layer, x, context, CAUSAL & key_mask[:, None, None, :])
    steps = layer(x, context, key_mask=key_mask, record=record)
    if record:
        torch.testing.assert_close(steps.weights, weights)
    agree(steps.merged, out, [x, context, *layer.parameters()])


@RECORD
def test_a_bias_on_the_scores_is_added_after_the_scale(record):
    layer, x, context, _ = rotary(True)
    alibi = Attention(layer.config.with_(position="alibi")).double()
    alibi.load_state_dict(layer.state_dict())
    distance = (torch.arange(T)[:, None] - torch.arange(S)).abs()
    bias = -alibi_slopes(2)[:, None, None].double() * distance
    out, _ = textbook(layer, x, context, CAUSAL, bias=bias, rotary_base=None)
    torch.testing.assert_close(alibi(x, context, record=record).merged, out)


def test_attend_on_rotated_heads_is_the_same_formula():
    layer, x, context, key_mask = rotary(False)
    q, k, v = layer.projection(x, context)
    out, _ = textbook(layer, x, context, key_mask[:, None, None, :])
    steps = attend(rotate(q, 10000.0), rotate(k, 10000.0), v, key_mask[:, None, None, :])
    torch.testing.assert_close(layer.projection.merge(steps.out, x), out)
