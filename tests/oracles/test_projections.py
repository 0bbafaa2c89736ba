"""Projections against their references: grouped heads, differential attention; gradients too."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from core.attention import Attention, AttentionConfig, Choice, ConfigError
from tests.cases import each

B, T, S, C, H = 2, 7, 11, 24, 6
FORWARD, GRADIENT = dict[str, Any](rtol=1e-5, atol=1e-5), dict[str, Any](rtol=1.25e-5, atol=5e-5)


def layer_of(choice, heads=H, size=C, **axes):
    layer = Attention(AttentionConfig(size, heads, choice, **axes))
    for name, weight in layer.named_parameters():
        if name.endswith("bias"):
            nn.init.uniform_(weight, -1, 1)
    return layer


def agree(ours, theirs, mine, others):
    """Two outputs, and the gradients of the inputs of each, by one random direction."""
    torch.testing.assert_close(ours, theirs, **FORWARD)
    seed = torch.randn_like(ours)
    (ours * seed).sum().backward()
    (theirs * seed).sum().backward()
    for one, other in zip(mine, others, strict=True):
        torch.testing.assert_close(one.grad, other.grad, **GRADIENT)


# Grouped-query and multi-query against PyTorch's own sharing of heads.


@each("record", [True, False])
@each("cross", [False, True])
@each("head_dim", [0, 7])
@each(
    "choice",
    [Choice("multi_query"), *(Choice.of("grouped_query", kv_heads=g) for g in (1, 2, 3, 6))],
)
def test_shared_heads_against_sdpa(choice, head_dim, cross, record):
    layer = layer_of(Choice.of(choice.key, **choice.kwargs, head_dim=head_dim))
    p, g, size = layer.projection, layer.projection.kv_heads, head_dim or C // H
    x, context = torch.randn(B, T, C, requires_grad=True), torch.randn(B, S, C, requires_grad=True)
    y, memory = x.detach().clone().requires_grad_(), context.detach().clone().requires_grad_()
    out, source = layer(x, context if cross else None, record=record).merged, memory if cross else y
    q, k, v = (
        part.unflatten(-1, (n, size)).transpose(1, 2)
        for part, n in ((p.query(y), H), (p.key(source), g), (p.value(source), g))
    )
    reference = p.output(
        F.scaled_dot_product_attention(q, k, v, enable_gqa=True).transpose(1, 2).flatten(2)
    )
    agree(out, reference, *((x, context), (y, memory)) if cross else ((x,), (y,)))


def test_as_many_key_heads_as_queries_is_multi_head():
    for size in (0, 5):
        grouped = layer_of(Choice.of("grouped_query", kv_heads=H, head_dim=size))
        many = layer_of(Choice.of("multi_head", head_dim=size))
        grouped.load_state_dict(many.state_dict())
        x = torch.randn(B, T, C)
        torch.testing.assert_close(grouped(x).merged, many(x).merged)


@each("groups", [1, 2, 3, 6])
def test_pooled_key_heads_are_the_means_of_their_group(groups):
    """Maps are linear, so the mean of maps gives the mean of keys; queries and output stay as they were."""
    many = layer_of("multi_head").projection
    few = type(layer_of("multi_query").projection).pooled(many, groups)
    x, context = torch.randn(B, T, C), torch.randn(B, S, C)
    for one, mean in zip(many(x, context)[1:], few(x, context)[1:], strict=True):
        torch.testing.assert_close(mean, one.unflatten(1, (groups, H // groups)).mean(2))
    assert torch.equal(many(x, context)[0], few(x, context)[0])


def test_neighbours_share_a_key_head():
    """Four queries, two key heads: heads 0 and 1 meet the first, 2 and 3 the second."""
    layer = layer_of(Choice.of("grouped_query", kv_heads=2), heads=4, size=20)
    steps = layer(torch.randn(B, T, 20))
    assert torch.equal(steps.k[:, 0], steps.k[:, 1]) and torch.equal(steps.k[:, 2], steps.k[:, 3])
    assert not torch.equal(steps.k[:, 1], steps.k[:, 2])


def test_a_number_of_key_heads_that_does_not_fit_is_refused():
    message = "grouped_query.*kv_heads = 4.*num_heads = 6; take kv_heads = one of 1, 2, 3, 6"
    with pytest.raises(ConfigError, match=message):
        AttentionConfig(C, H, Choice.of("grouped_query", kv_heads=4))


# Differential attention against DiffLlama's own module.


@each("depth", [1, 4])
def test_differential_against_diffllama(depth):
    from transformers.models.diffllama import modeling_diffllama as hf

    half, size = 4, 2 * 4 * H
    config = hf.DiffLlamaConfig(
        hidden_size=size,
        num_attention_heads=2 * H,
        num_key_value_heads=2 * H,
        attention_bias=True,
        head_dim=half,
        attn_implementation="eager",
        rms_norm_eps=1e-5,
    )
    theirs = hf.DiffLlamaAttention(config, depth - 1)
    layer = layer_of(
        Choice.of("differential", depth=depth), size=size, mask="causal", position="rope"
    )
    p = layer.projection
    # Theirs puts all first queries before all second ones; here the two of a head are neighbours.
    order = torch.cat((torch.arange(0, 2 * H, 2), torch.arange(1, 2 * H, 2)))
    dims = (order[:, None] * half + torch.arange(half)).flatten()
    with torch.no_grad():
        for one, two in (
            (theirs.q_proj, p.query),
            (theirs.k_proj, p.key),
            (theirs.v_proj, p.value),
        ):
            one.weight.copy_(two.weight[dims])
            one.bias.copy_(two.bias[dims])
        theirs.o_proj.weight.copy_(p.output.weight)
        theirs.o_proj.bias.copy_(p.output.bias)
        for name in ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2"):
            getattr(p, name).normal_()
            getattr(theirs, name).copy_(getattr(p, name))
    x = torch.randn(B, T, size, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    causal = torch.full((T, T), -torch.inf).triu(1)[None, None]
    out, halves = theirs(y, hf.DiffLlamaRotaryEmbedding(config)(y, torch.arange(T)[None]), causal)
    steps = layer(x)
    first, second = halves.chunk(2, dim=1)
    torch.testing.assert_close(steps.weights, first - p.weight() * second, **FORWARD)
    torch.testing.assert_close(steps.merged, out, **FORWARD)
    seed = torch.randn_like(out)
    (steps.merged * seed).sum().backward()
    (out * seed).sum().backward()
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-4, atol=1e-4)
    for one, two in (
        (p.query.weight.grad[dims], theirs.q_proj.weight.grad),
        (p.lambda_q1.grad, theirs.lambda_q1.grad),
        (p.lambda_k2.grad, theirs.lambda_k2.grad),
        (p.output.weight.grad, theirs.o_proj.weight.grad),
    ):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4)


def test_what_both_maps_see_cancels():
    """One head whose two queries and keys are equal keeps 1 − λ of the softmax, which is 0.8 in layer 1."""
    layer = layer_of(Choice.of("differential"), heads=1, size=4)
    p = layer.projection
    with torch.no_grad():
        for linear in (p.query, p.key):
            linear.weight[2:], linear.bias[2:] = linear.weight[:2].clone(), linear.bias[:2].clone()
        for weight in (p.lambda_q1, p.lambda_q2):
            weight.zero_()
    steps = layer(torch.randn(B, T, 4))
    torch.testing.assert_close(steps.weights, 0.8 * steps.normalized[:, :1])
    assert steps.normalized.shape == (B, 2, T, T)


def test_differential_weights_may_be_negative_and_sum_to_one_minus_lambda():
    layer = layer_of(Choice.of("differential", depth=7))
    weights = layer(torch.randn(B, T, C) * 3).weights
    torch.testing.assert_close(
        weights.sum(-1), (1 - layer.projection.weight()).expand(B, H, T), **FORWARD
    )
    assert (weights < 0).any()


def test_an_odd_head_cannot_be_halved():
    with pytest.raises(ConfigError, match="differential.*odd head size = 5; take an even one"):
        AttentionConfig(15, 3, "differential")


# The gate, by hand.


@each(("kv_heads", "head_dim"), [(0, 0), (2, 7)])
@each("grain", ["elementwise", "headwise"])
def test_the_gate_reads_the_query_and_scales_each_head(grain, kv_heads, head_dim):
    layer = layer_of(Choice.of("gated", grain=grain, kv_heads=kv_heads, head_dim=head_dim))
    x, context = torch.randn(B, T, C), torch.randn(B, S, C)
    steps = layer(x, context)
    gate = layer.projection.gate(x).sigmoid()
    gate = gate.unflatten(-1, (H, -1))  # (B, T, H, D or 1)
    want = layer.projection.output((gate * steps.out.transpose(1, 2)).flatten(2))
    torch.testing.assert_close(steps.merged, want)
    inner = H * head_dim or C
    assert layer.projection.gate.weight.shape[0] == (inner if grain == "elementwise" else H)


def test_gated_refuses_a_number_of_key_heads_that_does_not_fit():
    with pytest.raises(
        ConfigError, match="gated.*kv_heads = 4 does not divide num_heads = 6; take kv_heads = 0"
    ):
        AttentionConfig(C, H, Choice.of("gated", kv_heads=4))


def test_a_shut_gate_lets_only_the_bias_through_and_an_open_one_everything():
    layer, plain = layer_of("gated", heads=1, size=1), layer_of("multi_head", heads=1, size=1)
    plain.load_state_dict(layer.state_dict(), strict=False)
    x = torch.ones(1, 3, 1)
    with torch.no_grad():
        layer.projection.gate.weight.fill_(-100.0)
        torch.testing.assert_close(layer(x).merged, layer.projection.output.bias.expand(1, 3, 1))
        layer.projection.gate.weight.fill_(100.0)
        torch.testing.assert_close(layer(x).merged, plain(x).merged)


# What is kept of a token.

ALL = each(
    "choice",
    [
        Choice("identity"),
        Choice("multi_head"),
        Choice("multi_query"),
        Choice.of("grouped_query", kv_heads=2),
        Choice.of("latent", latent=10, rope=6),
        Choice.of("latent", latent=10, groups=2),
        Choice.of("latent", latent=9, rope=0, query_latent=7),
        Choice("differential"),
        Choice("gated"),
        Choice.of("gated", grain="headwise"),
        *(
            Choice.of(key, head_dim=7)
            for key in ("multi_head", "multi_query", "grouped_query", "latent", "keys_as_values")
        ),
        Choice.of("gated", kv_heads=2, head_dim=7),
    ],
)


@ALL
def test_the_cache_is_as_large_as_it_says(choice):
    config = AttentionConfig(C, H, choice)
    cache = Attention(config).projection.cached(torch.randn(B, S, C))
    assert sum(part.numel() for part in cache) == B * S * config.sizes.cache


def test_a_head_has_an_equal_share_of_the_width_unless_it_says_its_size():
    """In a config stored before heads had a size of their own, too."""
    stored = {
        "d_model": C,
        "num_heads": H,
        "projection": {"key": "grouped_query", "kv_heads": 2, "bias": False},
    }
    assert AttentionConfig.from_json(stored).head_dim == C // H
    wide = AttentionConfig(C, H, Choice.of("grouped_query", kv_heads=2, head_dim=7))
    assert (wide.head_dim, wide.qk_dim, wide.v_dim, wide.sizes.cache) == (7, 7, 7, 2 * 2 * 7)
    assert Attention(wide).projection.output.weight.shape == (C, H * 7)
