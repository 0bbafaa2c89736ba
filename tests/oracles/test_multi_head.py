"""The layer against nn.MultiheadAttention with shared weights: self and cross, masks, outputs, weights, gradients."""

import torch
from torch import nn

from core.attention import Attention, AttentionConfig
from tests.cases import each
from tests.close import assert_close

B, T, S, H, C = 2, 7, 11, 3, 39
KEYS = torch.arange(S) < torch.tensor([8, 5])[:, None]


def pair(
    kernel="exact", mask="none", bias=True, batch=B
) -> tuple[Attention, nn.MultiheadAttention]:
    """Our layer and theirs, with the same numbers in them."""
    ours = Attention(AttentionConfig(C, H, mask=mask, kernel=kernel))
    theirs = nn.MultiheadAttention(C, H, bias=bias, batch_first=True)
    p = ours.projection
    with torch.no_grad():
        for linear in (p.query, p.key, p.value, p.output):
            linear.bias.uniform_(-1, 1)
        theirs.in_proj_weight.copy_(torch.cat((p.query.weight, p.key.weight, p.value.weight)))
        theirs.in_proj_bias.copy_(torch.cat((p.query.bias, p.key.bias, p.value.bias)))
        theirs.out_proj.weight.copy_(p.output.weight)
        theirs.out_proj.bias.copy_(p.output.bias)
    return ours, theirs


def compare(ours, theirs, x, context=None, **how):
    """Outputs, per-head weights, and the gradients of inputs and of W_q, W_k, W_v, W_o."""
    mine, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    steps = ours(mine, context, key_mask=how.get("key_mask"))
    memory = other if context is None else context
    ignore = None if how.get("key_mask") is None else ~how["key_mask"]  # theirs: True = ignore
    out, weights = theirs(
        other,
        memory,
        memory,
        key_padding_mask=ignore,
        attn_mask=how.get("attn_mask"),
        need_weights=True,
        average_attn_weights=False,
    )
    assert_close(steps.merged, out)
    if steps.weights is not None:
        assert_close(steps.weights, weights)
    seed = torch.randn_like(out)
    (steps.merged * seed).sum().backward()
    (out * seed).sum().backward()
    assert_close(mine.grad, other.grad)
    p = ours.projection
    stacked = torch.cat((p.query.weight.grad, p.key.weight.grad, p.value.weight.grad))
    assert_close(stacked, theirs.in_proj_weight.grad)
    assert_close(p.output.weight.grad, theirs.out_proj.weight.grad)


@each("kernel", ["exact", "fused"])
def test_self_attention(kernel):
    compare(*pair(kernel), torch.randn(B, T, C))


@each("kernel", ["exact", "fused"])
def test_cross_attention(kernel):
    compare(*pair(kernel), torch.randn(B, T, C), torch.randn(B, S, C))


@each("kernel", ["exact", "fused"])
def test_causal(kernel):
    future = torch.ones(T, T, dtype=torch.bool).triu(1)
    compare(*pair(kernel, "causal"), torch.randn(B, T, C), attn_mask=future)


@each("kernel", ["exact", "fused"])
@each("mask", ["padding", "none"])
def test_padding(kernel, mask):
    compare(*pair(kernel, mask), torch.randn(B, T, C), torch.randn(B, S, C), key_mask=KEYS)


@each("kernel", ["exact", "fused"])
def test_causal_and_padding(kernel):
    future = torch.ones(T, T, dtype=torch.bool).triu(1)
    compare(*pair(kernel, "causal"), torch.randn(B, T, C), key_mask=KEYS[:, :T], attn_mask=future)


@each("heads", [1, 3, 13, 39])
def test_heads_take_neighbouring_dimensions(heads):
    """Head h reads dimensions h·D to (h + 1)·D: with one head's values zeroed, only its part of the merge changes."""
    layer = Attention(AttentionConfig(C, heads, projection="identity", score="dot"))
    steps = layer(torch.randn(B, T, C))
    joined = torch.cat([steps.out[:, h] for h in range(heads)], dim=-1)
    torch.testing.assert_close(steps.merged, joined)
