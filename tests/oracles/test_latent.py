"""Latent attention, also in groups, against DeepSeek-V3's own module, and its absorbed form; gradients too."""

import pytest
import torch
from torch import nn

from core.attention import Attention, AttentionConfig, Choice, ConfigError, attend
from tests.cases import each
from tests.oracles.test_projections import FORWARD, GRADIENT, B, C, H, S, T, agree, layer_of


def deepseek(size, content, latent, rope, query_latent, layout, heads=H):
    from transformers.models.deepseek_v3 import modeling_deepseek_v3 as hf

    config = hf.DeepseekV3Config(
        hidden_size=size,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        kv_lora_rank=latent,
        q_lora_rank=query_latent or None,
        qk_nope_head_dim=content,
        qk_rope_head_dim=rope,
        v_head_dim=content,
        rope_interleave=layout != "halves",
        attention_bias=False,
        head_dim=rope,
        attn_implementation="eager",
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )
    return hf.DeepseekV3Attention(config, 0), hf.DeepseekV3RotaryEmbedding(config)


@each("layout", ["halves", "interleaved", "none"])
@each(("query_latent", "head_dim"), [(0, 0), (13, 0), (13, 7)])
def test_latent_against_deepseek(query_latent, head_dim, layout):
    content, latent, rope, size = head_dim or 5, 11, 4, 5 * H
    theirs, turning = deepseek(size, content, latent, rope, query_latent, layout)
    choice = Choice.of(
        "latent",
        latent=latent,
        rope=rope,
        query_latent=query_latent,
        layout=layout,
        head_dim=head_dim,
    )
    layer = layer_of(choice, size=size, mask="causal")
    p = layer.projection
    for norm in (part for part in p.modules() if isinstance(part, nn.RMSNorm)):
        nn.init.uniform_(norm.weight, 0.5, 1.5)
    with torch.no_grad():
        if query_latent:
            theirs.q_a_proj.weight.copy_(p.query_down[0].weight)
            theirs.q_a_layernorm.weight.copy_(p.query_down[1].weight)
        (theirs.q_b_proj if query_latent else theirs.q_proj).weight.copy_(p.query.weight)
        theirs.kv_a_proj_with_mqa.weight.copy_(torch.cat((p.down.weight, p.turned_key.weight)))
        theirs.kv_a_layernorm.weight.copy_(p.norm.weight)
        both = torch.cat(
            (p.key.weight.unflatten(0, (H, content)), p.value.weight.unflatten(0, (H, content))), 1
        )
        theirs.kv_b_proj.weight.copy_(both.flatten(0, 1))
        theirs.o_proj.weight.copy_(p.output.weight)
    x = torch.randn(B, T, size, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    causal = torch.full((T, T), -torch.inf).triu(1)[None, None]
    places = torch.arange(T) * (layout != "none")  # at position 0 nothing is rotated
    out, weights = theirs(y, turning(y, places[None]), causal)
    steps = layer(x)
    torch.testing.assert_close(steps.weights, weights, **FORWARD)
    agree(steps.merged, out, (x,), (y,))
    torch.testing.assert_close(
        torch.cat((p.down.weight.grad, p.turned_key.weight.grad)),
        theirs.kv_a_proj_with_mqa.weight.grad,
        **GRADIENT,
    )
    torch.testing.assert_close(p.norm.weight.grad, theirs.kv_a_layernorm.weight.grad, **GRADIENT)


@each("groups", [2, 3, H])
@each("rope", [2, 4])
def test_grouped_latents_are_a_layer_of_deepseek_for_each_group(groups, rope):
    """Zadouri 2025, section 3.3: heads of a group see their part of the latent alone, and all see one rotated key."""
    content, latent, size, few = 5, 12, 5 * H, H // groups
    layer = layer_of(
        Choice.of("latent", latent=latent, rope=rope, groups=groups), size=size, mask="causal"
    )
    p, part = layer.projection, latent // groups
    nn.init.uniform_(p.norm.weight, 0.5, 1.5)
    x = torch.randn(B, T, size, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    real = torch.rand(B, T) < 0.7
    real[:, 0] = True
    bias = torch.zeros(B, 1, T, T).masked_fill(
        ~(real[:, None, None] & torch.ones(T, T).tril().bool()), -torch.inf
    )
    total = torch.zeros(B, T, size)
    for group in range(groups):
        theirs, turning = deepseek(size, content, part, rope, 0, "interleaved", few)
        own, heads = slice(group * part, (group + 1) * part), slice(group * few, (group + 1) * few)
        with torch.no_grad():
            theirs.q_proj.weight.copy_(p.query.weight.unflatten(0, (H, -1))[heads].flatten(0, 1))
            theirs.kv_a_proj_with_mqa.weight.copy_(
                torch.cat((p.down.weight[own], p.turned_key.weight))
            )
            theirs.kv_a_layernorm.weight.copy_(p.norm.weight[own])
            both = [up.weight.unflatten(0, (H, content))[heads] for up in (p.key, p.value)]
            theirs.kv_b_proj.weight.copy_(torch.cat(both, 1).flatten(0, 1))
            theirs.o_proj.weight.copy_(
                p.output.weight.unflatten(1, (H, content))[:, heads].flatten(1)
            )
        total = total + theirs(y, turning(y, torch.arange(T)[None]), bias)[0]
    steps = layer(x, key_mask=real)
    rows = real[..., None]
    agree(steps.merged.masked_fill(~rows, 0.0), total.masked_fill(~rows, 0.0), (x,), (y,))


def test_grouped_latents_by_hand():
    """Latents 3 and 4 alone in their groups: a norm of one number makes them 1, which each head's map multiplies."""
    layer = Attention(AttentionConfig(2, 2, Choice.of("latent", latent=2, rope=0, groups=2)))
    p = layer.projection
    with torch.no_grad():
        p.down.weight.copy_(torch.tensor([[1.0, 0], [0, -1]]))
        p.value.weight.copy_(torch.tensor([[5.0], [7]]))
        p.norm.weight.copy_(torch.tensor([1.0, 2]))
    torch.testing.assert_close(
        layer(torch.tensor([[[3.0, 4]]])).v.flatten(), torch.tensor([5.0, -14])
    )


@each("groups", [1, 3])
def test_grouped_latents_decode_from_the_cache_of_one(groups):
    """What is stored does not depend on the number of groups, and the absorbed form gives what the whole text gives."""
    layer = layer_of(Choice.of("latent", latent=9, rope=4, groups=groups), size=30, mask="causal")
    x, cache, rows = torch.randn(B, T, 30), None, []
    for token in x.split(1, dim=1):
        steps, cache = layer.step(token, cache)
        rows.append(steps.merged)
    torch.testing.assert_close(torch.cat(rows, 1), layer(x).merged, **FORWARD)
    assert steps.v.shape == (B, groups, T, 9 // groups + 4) and cache.numbers == T * (9 + 4)


def absorbed(p, x, context, offset):
    """q, k, v with one key head: W_uk is applied to the query, and v is the latent itself. DeepSeek-V2, section 2.1."""
    content, rotated = p.queries_at(x, offset)
    latent, shared = p.latents(context)
    unfold = p.key.weight.unflatten(0, (p.num_heads, p.content))  # (H, D, R)
    return (
        torch.cat((content @ unfold, rotated), -1),
        torch.cat((latent[:, None], shared), -1),
        latent[:, None],
    )


@each("offset", [0, 4])
@each("rope", [0, 4])
def test_the_absorbed_form_is_the_naive_one(rope, offset):
    """Keys and values are never unfolded, yet weights, output and gradients are the same."""
    layer = layer_of(Choice.of("latent", latent=9, rope=rope), size=30)
    p = layer.projection
    x, context = (
        torch.randn(B, T, 30, requires_grad=True),
        torch.randn(B, S, 30, requires_grad=True),
    )
    naive = layer(x, context, offset=offset)
    q, k, v = absorbed(p, x, context, offset)
    assert k.shape == (B, 1, S, 9 + rope) and v.shape == (B, 1, S, 9)
    short = attend(q, k, v, scale=(5 + rope) ** -0.5)
    torch.testing.assert_close(short.weights, naive.weights, **FORWARD)
    merged = p.merge(short.out @ p.value.weight.unflatten(0, (H, 5)).mT, x)
    torch.testing.assert_close(merged, naive.merged, **FORWARD)
    seed = torch.randn_like(merged)
    felt = (x, context, p.key.weight)
    ours = torch.autograd.grad((merged * seed).sum(), felt, retain_graph=True)
    for one, two in zip(ours, torch.autograd.grad((naive.merged * seed).sum(), felt), strict=True):
        torch.testing.assert_close(one, two, **GRADIENT)


def test_latent_scores_see_distance_and_decode_from_a_cache():
    """The last query alone, with its offset, gives the last row of the whole."""
    layer = layer_of(Choice.of("latent", latent=9, rope=4), size=30, mask="causal")
    x = torch.randn(B, T, 30)
    torch.testing.assert_close(
        layer(x[:, -1:], x, offset=T - 1).merged, layer(x).merged[:, -1:], **FORWARD
    )
    assert (layer(x.flip(1)).merged.flip(1) - layer(x).merged).abs().max() > 1e-3


@each(
    ("wrong", "message"),
    [
        (dict(projection=Choice.of("latent", rope=3)), "rope = 3 is odd; take rope = 2 or 4"),
        (
            dict(projection="latent", position="rope"),
            "latent.*position = rope.*take position = none",
        ),
        (
            dict(projection=Choice.of("latent", groups=4)),
            f"groups = 4 does not divide num_heads = {H}; take groups = 1",
        ),
        (dict(projection=Choice.of("latent", groups=3)), "groups = 3 does not divide latent = 32"),
    ],
)
def test_latent_refuses_in_words(wrong, message):
    with pytest.raises(ConfigError, match=message):
        AttentionConfig(C, H, **wrong)
