"""Projections against their references: grouped heads, differential attention; gradients too."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers.models.gemma4 import modeling_gemma4 as hf

from core.attention import Attention, AttentionConfig, Choice, ConfigError
from core.models import ModelConfig
from core.models.blocks import cross_config
from tests.cases import each
from tests.oracles.agreement import same_result

B, T, S, C, H = 2, 7, 11, 24, 6
FORWARD, GRADIENT = dict[str, Any](rtol=1e-5, atol=1e-5), (1.25e-5, 5e-5)


def layer_of(choice, heads=H, size=C, **axes):
    layer = Attention(AttentionConfig(size, heads, choice, **axes))
    for name, weight in layer.named_parameters():
        if name.endswith("bias"):
            nn.init.uniform_(weight, -1, 1)
    return layer


def agree(ours, theirs, mine, others):
    same_result(ours, theirs, mine, others, **FORWARD, gradient=GRADIENT)


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


# Keys as values against transformers' Gemma 4, and exclusive self-attention against its definition by hand.


D = C // H


def values_layer(projection, **axes):
    layer = Attention(AttentionConfig(C, H, projection, **axes))
    for name, weight in layer.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.uniform_(weight, -1, 1)
    return layer


def gemma4(kv_heads, size):
    """A layer of Gemma 4 that attends to all tokens, and its rotation; its scale is set to ours."""
    config = hf.Gemma4TextConfig(
        hidden_size=C,
        num_attention_heads=H,
        num_key_value_heads=kv_heads,
        num_global_key_value_heads=kv_heads,
        head_dim=size,
        global_head_dim=size,
        layer_types=["full_attention"],
        num_hidden_layers=1,
        attention_k_eq_v=True,
        num_kv_shared_layers=0,
        attn_implementation="eager",
        attention_bias=False,
        rope_parameters={
            "full_attention": {"rope_type": "default", "rope_theta": 1e4},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    )
    layer, rotary = hf.Gemma4TextAttention(config, 0), hf.Gemma4TextRotaryEmbedding(config)
    layer.scaling = size**-0.5
    return layer.eval(), rotary


@each(("kv_heads", "head_dim"), [(1, 0), (2, 0), (3, 0), (6, 0), (2, 10)])
def test_keys_as_values_are_gemmas(kv_heads, head_dim):
    theirs, rotary = gemma4(kv_heads, head_dim or D)
    choice = Choice.of("keys_as_values", kv_heads=kv_heads, bias=False, head_dim=head_dim)
    layer = values_layer(choice, score="qk_norm", position="rope", mask="causal")
    p = layer.projection
    assert theirs.v_proj is None
    for norm in (layer.score.query, layer.score.key):
        torch.nn.init.uniform_(norm.weight, 0.5, 1.5)
    with torch.no_grad():
        for one, two in (
            (theirs.q_proj, p.query),
            (theirs.k_proj, p.key),
            (theirs.o_proj, p.output),
            (theirs.q_norm, layer.score.query),
            (theirs.k_norm, layer.score.key),
        ):
            one.weight.copy_(two.weight)
    x = torch.randn(B, T, C, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    causal = torch.full((T, T), -torch.inf).triu(1)[None, None]
    out, weights = theirs(y, rotary(y, torch.arange(T)[None], "full_attention"), causal, {})
    steps = layer(x)
    torch.testing.assert_close(steps.weights, weights, **FORWARD)
    mine, others = (p.key.weight, p.query.weight), (theirs.k_proj.weight, theirs.q_proj.weight)
    same_result(steps.merged, out, (x, *mine), (y, *others), **FORWARD, gradient=(1e-4, 5e-5))


def test_a_value_has_the_direction_of_its_key_and_length_root_d():
    steps = values_layer(Choice.of("keys_as_values", kv_heads=2))(
        torch.randn(B, T, C), torch.randn(B, S, C)
    )
    torch.testing.assert_close(
        steps.v, steps.k / steps.k.square().mean(-1, keepdim=True).sqrt(), **FORWARD
    )
    torch.testing.assert_close(steps.v.norm(dim=-1), torch.full((B, H, S), D**0.5), **FORWARD)


def test_keys_alone_are_stored():
    config = AttentionConfig(
        C, H, Choice.of("keys_as_values", kv_heads=2), position="rope", mask="causal"
    )
    layer, x = Attention(config), torch.randn(B, T, C)
    _, cache = layer.step(x)
    assert cache.numbers == T * config.sizes.cache == T * 2 * D
    with pytest.raises(
        ConfigError, match="keys_as_values.*kv_heads = 4 does not divide num_heads = 6; take"
    ):
        AttentionConfig(C, H, Choice.of("keys_as_values", kv_heads=4))


@each("mask", ["none", "causal"])
def test_exclusive_is_its_definition_token_by_token(mask):
    """One query of one head at a time, in fp64, with a random key mask; gradients of all inputs and weights."""
    layer = values_layer("exclusive", mask=mask).double()
    p, real = layer.projection, torch.rand(B, T) < 0.7
    x = torch.randn(B, T, C, dtype=torch.float64, requires_grad=True)
    ours = layer(x, key_mask=real).merged
    q, k, v = (part(x).unflatten(-1, (H, D)) for part in (p.query, p.key, p.value))
    rows = []
    for b in range(B):
        for t in range(T):
            seen, heads = [j for j in range(T) if real[b, j] and (mask == "none" or j <= t)], []
            for h in range(H):
                scores = (
                    torch.stack([q[b, t, h] @ k[b, j, h] for j in seen]) if seen else torch.zeros(0)
                )
                y = sum(
                    (
                        w * v[b, j, h]
                        for w, j in zip((scores / D**0.5).softmax(0), seen, strict=True)
                    ),
                    torch.zeros(D, dtype=torch.float64),
                )
                own = v[b, t, h] / v[b, t, h].norm()
                heads.append(y - (y @ own) * own)
            rows.append(p.output(torch.cat(heads)))
    theirs = torch.stack(rows).view(B, T, C)
    inputs = (x, p.query.weight, p.value.weight, p.value.bias)
    same_result(ours, theirs, inputs, rtol=1e-11, atol=1e-12, gradient=(1e-9, 1e-10), felt=True)


def test_what_remains_is_orthogonal_to_the_own_value_and_the_weights_are_those_of_multi_head():
    layer, plain, x = values_layer("exclusive"), values_layer("multi_head"), torch.randn(B, T, C)
    plain.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer(x).weights, plain(x).weights)
    with torch.no_grad():
        layer.projection.output.weight.copy_(torch.eye(C))
        layer.projection.output.bias.zero_()
    rest, own = (
        layer(x).merged.unflatten(-1, (H, D)),
        layer.projection.value(x).unflatten(-1, (H, D)),
    )
    torch.testing.assert_close(
        (rest * F.normalize(own, dim=-1)).sum(-1), torch.zeros(B, T, H), **FORWARD
    )


def test_exclusive_by_hand():
    """Values (1, 0) and (1, 1) with equal weights give y = (1, 1/2); along (1, 0) 1 is left out, along (1, 1) 3/4."""
    layer = Attention(AttentionConfig(2, 1, Choice.of("exclusive", bias=False)))
    p = layer.projection
    with torch.no_grad():
        p.query.weight.zero_()
        p.value.weight.copy_(torch.eye(2))
        p.output.weight.copy_(torch.eye(2))
    out = layer(torch.tensor([[[1.0, 0.0], [1.0, 1.0]]])).merged
    torch.testing.assert_close(out, torch.tensor([[[0.0, 0.5], [0.25, -0.25]]]))
    alone = layer(torch.tensor([[[2.0, 3.0]]])).merged
    torch.testing.assert_close(alone, torch.zeros(1, 1, 2))  # a token alone has nothing to add


def test_exclusive_decodes_and_refuses_another_sequence():
    layer, x = values_layer("exclusive", mask="causal"), torch.randn(B, T, C)
    whole, cache, rows = layer(x).merged, None, []
    for token in x.split(1, dim=1):
        steps, cache = layer.step(token, cache)
        rows.append(steps.merged)
    torch.testing.assert_close(torch.cat(rows, 1), whole, **FORWARD)
    torch.testing.assert_close(layer(x[:, 4:], x, offset=4).merged, whole[:, 4:], **FORWARD)
    with pytest.raises(
        ConfigError, match="exclusive.*7 queries from position 0 .*11 keys.*take self-attention"
    ):
        layer(x, torch.randn(B, S, C))
    with pytest.raises(ConfigError, match="recurrent .*exclusive.*take projection = multi_head"):
        ModelConfig.recurrent(C, projection="exclusive")


def test_cross_attention_of_a_model_is_multi_head_with_the_same_bias():
    config = AttentionConfig(C, H, Choice.of("exclusive", bias=False), kernel="fused")
    projection = cross_config(config).projection
    assert (projection.key, projection["bias"]) == ("multi_head", False)
    assert cross_config(config.with_(projection="gated")).projection.key == "gated"
