"""Keys as values against transformers' Gemma 4, and exclusive self-attention against its definition by hand."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from transformers.models.gemma4 import modeling_gemma4 as hf

from core.attention import Attention, AttentionConfig, Choice, ConfigError
from core.models import ModelConfig
from core.models.blocks import cross_config
from tests.cases import each

B, T, S, H, D = 2, 7, 11, 6, 4
C = H * D
FORWARD, GRADIENT = dict[str, Any](rtol=1e-5, atol=1e-5), dict[str, Any](rtol=1e-4, atol=5e-5)


def layer_of(projection, **axes):
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
    layer = layer_of(choice, score="qk_norm", position="rope", mask="causal")
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
    torch.testing.assert_close(steps.merged, out, **FORWARD)
    pull = torch.randn_like(out)
    (steps.merged * pull).sum().backward()
    (out * pull).sum().backward()
    for one, two in (
        (x, y),
        (p.key.weight, theirs.k_proj.weight),
        (p.query.weight, theirs.q_proj.weight),
    ):
        torch.testing.assert_close(one.grad, two.grad, **GRADIENT)


def test_a_value_has_the_direction_of_its_key_and_length_root_d():
    steps = layer_of(Choice.of("keys_as_values", kv_heads=2))(
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
    layer = layer_of("exclusive", mask=mask).double()
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
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-12)
    pull, inputs = torch.randn_like(theirs), (x, p.query.weight, p.value.weight, p.value.bias)
    for one, two in zip(
        torch.autograd.grad((ours * pull).sum(), inputs),
        torch.autograd.grad((theirs * pull).sum(), inputs),
        strict=True,
    ):
        assert two.abs().sum() > 0
        torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-10)


def test_what_remains_is_orthogonal_to_the_own_value_and_the_weights_are_those_of_multi_head():
    layer, plain, x = layer_of("exclusive"), layer_of("multi_head"), torch.randn(B, T, C)
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
    layer, x = layer_of("exclusive", mask="causal"), torch.randn(B, T, C)
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
