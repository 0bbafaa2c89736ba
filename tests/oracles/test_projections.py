"""Projections against their references: shared, doubled, gated and exclusive heads, keys as values; gradients too."""

import pytest
import torch
import torch.nn.functional as F
from transformers.models.diffllama import modeling_diffllama as diffllama
from transformers.models.gemma4 import modeling_gemma4 as gemma4

from core.attention import Attention, AttentionConfig, Choice, ConfigError
from core.models import ModelConfig
from core.models.transformer import cross_config
from tests.attention.drawing import perturbed, read_in_parts
from tests.cases import each
from tests.close import assert_close
from tests.oracles.agreement import agree, by_name, put, same_layer, twin

B, T, S, C, H = 2, 7, 11, 24, 6
D = C // H
FUTURE = torch.full((T, T), -torch.inf).triu(1)[None, None]


def layer_of(choice, heads=H, size=C, **axes):
    return perturbed(Attention(AttentionConfig(size, heads, choice, **axes)))


# Grouped-query and multi-query against PyTorch's own sharing of heads.


@each("record", [True, False])
@each("cross", [False, True])
@each("head_dim", [0, 7])
@each("kv_heads", [None, 1, 2, 3, 6])
def test_shared_heads_against_sdpa(kv_heads, head_dim, cross, record):
    few = {"kv_heads": kv_heads} if kv_heads else {}
    key = "grouped_query" if kv_heads else "multi_query"
    layer = layer_of(Choice.of(key, **few, head_dim=head_dim))
    p, x = layer.projection, torch.randn(B, T, C, requires_grad=True)
    context = torch.randn(B, S, C, requires_grad=True) if cross else x
    parts = ((p.query(x), H), (p.key(context), p.kv_heads), (p.value(context), p.kv_heads))
    q, k, v = (part.unflatten(-1, (n, -1)).transpose(1, 2) for part, n in parts)
    theirs = F.scaled_dot_product_attention(q, k, v, enable_gqa=True).transpose(1, 2).flatten(2)
    ours = layer(x, context if cross else None, record=record).merged
    agree(ours, p.output(theirs), (x, context, p.key.weight))


@each("size", [0, 5])
def test_as_many_key_heads_as_queries_is_multi_head(size):
    many, x = layer_of(Choice.of("multi_head", head_dim=size)), torch.randn(B, T, C)
    grouped = twin(many, projection=Choice.of("grouped_query", kv_heads=H, head_dim=size))
    torch.testing.assert_close(grouped(x).merged, many(x).merged)


@each("groups", [1, 2, 3, 6])
def test_pooled_key_heads_are_the_means_of_their_group(groups):
    """Maps are linear, so the mean of maps gives the mean of keys; queries and output stay as they were."""
    many = layer_of("multi_head").projection
    few = type(layer_of("multi_query").projection).pooled(many, groups)
    x, context = torch.randn(B, T, C), torch.randn(B, S, C)
    (q, *heads), (same_q, *means) = many(x, context), few(x, context)
    for one, mean in zip(heads, means, strict=True):
        torch.testing.assert_close(mean, one.unflatten(1, (groups, H // groups)).mean(2))
    assert torch.equal(q, same_q)


def test_neighbours_share_a_key_head():
    """Four queries, two key heads: heads 0 and 1 meet the first, 2 and 3 the second."""
    k = layer_of(Choice.of("grouped_query", kv_heads=2), 4, 20)(torch.randn(B, T, 20)).k
    assert torch.equal(k[:, 0], k[:, 1]) and torch.equal(k[:, 2], k[:, 3])
    assert not torch.equal(k[:, 1], k[:, 2])


# Differential attention against DiffLlama's own module.


@each("depth", [1, 4])
def test_differential_against_diffllama(depth):
    """Theirs puts all first queries before all second ones; here the two of a head are neighbours."""
    half, size = 4, 2 * 4 * H
    config = diffllama.DiffLlamaConfig(
        hidden_size=size,
        num_attention_heads=2 * H,
        num_key_value_heads=2 * H,
        attention_bias=True,
        head_dim=half,
        attn_implementation="eager",
        rms_norm_eps=1e-5,
    )
    choice = Choice.of("differential", depth=depth)
    layer, x = layer_of(choice, size=size, mask="causal", position="rope"), torch.randn(B, T, size)
    p, order = layer.projection, torch.cat((torch.arange(0, 2 * H, 2), torch.arange(1, 2 * H, 2)))
    dims = (order[:, None] * half + torch.arange(half)).flatten()
    maps = by_name(layer)
    names = {name: w if name.startswith("o") else w[dims] for name, w in maps.items()} | {
        name: weight for name, weight in p.named_parameters() if name.startswith("lambda")
    }
    turns = diffllama.DiffLlamaRotaryEmbedding(config)(x, torch.arange(T)[None])
    peer, given = (
        diffllama.DiffLlamaAttention(config, depth - 1),
        (x.requires_grad_(), turns, FUTURE),
    )
    out, halves = torch.func.functional_call(peer, names, given)
    steps, (first, second) = layer(x), halves.chunk(2, dim=1)
    assert_close(steps.weights, first - p.weight() * second)
    learned = [weight for name, weight in layer.named_parameters() if "key.bias" not in name]
    agree(steps.merged, out, [x, *learned])


def test_what_both_maps_see_cancels():
    """One head whose two queries and keys are equal keeps 1 − λ of the softmax, which is 0.8 in layer 1."""
    layer = layer_of("differential", 1, 4)
    p = layer.projection
    put((p.lambda_q1, 0.0), (p.lambda_q2, 0.0))
    put(*((w[2:], w[:2].clone()) for part in (p.query, p.key) for w in part.parameters()))
    steps = layer(torch.randn(B, T, 4))
    torch.testing.assert_close(steps.weights, 0.8 * steps.normalized[:, :1])
    assert steps.normalized.shape == (B, 2, T, T)


def test_differential_weights_may_be_negative_and_sum_to_one_minus_lambda():
    layer = layer_of(Choice.of("differential", depth=7))
    weights = layer(torch.randn(B, T, C) * 3).weights
    assert_close(weights.sum(-1), (1 - layer.projection.weight()).expand(B, H, T))
    assert (weights < 0).any()


# The gate, by hand.


@each(("kv_heads", "head_dim"), [(0, 0), (2, 7)])
@each(("grain", "gates"), [("elementwise", 1), ("headwise", 0)])
def test_the_gate_reads_the_query_and_scales_each_head(grain, gates, kv_heads, head_dim):
    layer = layer_of(Choice.of("gated", grain=grain, kv_heads=kv_heads, head_dim=head_dim))
    x, context = torch.randn(B, T, C), torch.randn(B, S, C)
    steps, p = layer(x, context), layer.projection
    gate = p.gate(x).sigmoid().unflatten(-1, (H, -1))  # (B, T, H, D or 1)
    want = p.output((gate * steps.out.transpose(1, 2)).flatten(2))
    torch.testing.assert_close(steps.merged, want)
    assert p.gate.weight.shape[0] == ((H * head_dim or C) if gates else H)


def test_a_shut_gate_lets_only_the_bias_through_and_an_open_one_everything():
    layer, x = layer_of("gated", 1, 1), torch.ones(1, 3, 1)
    shut = layer.projection.output.bias.expand(1, 3, 1)
    plain = twin(layer, strict=False, projection="multi_head")(x).merged
    for gate, want in ((-100.0, shut), (100.0, plain)):
        put((layer.projection.gate.weight, gate))
        torch.testing.assert_close(layer(x).merged, want)


# What is kept of a token.


@each(
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
def test_the_cache_is_as_large_as_it_says(choice):
    config = AttentionConfig(C, H, choice)
    cache = Attention(config).projection.cached(torch.randn(B, S, C))
    assert sum(part.numel() for part in cache) == B * S * config.sizes.cache


def test_a_head_has_an_equal_share_of_the_width_unless_it_says_its_size():
    """In a config stored before heads had a size of their own, too."""
    projection = {"key": "grouped_query", "kv_heads": 2, "bias": False}
    stored = {"d_model": C, "num_heads": H, "projection": projection}
    assert AttentionConfig.from_json(stored).head_dim == C // H
    wide = AttentionConfig(C, H, Choice.of("grouped_query", kv_heads=2, head_dim=7))
    assert (wide.head_dim, wide.qk_dim, wide.v_dim, wide.sizes.cache) == (7, 7, 7, 2 * 2 * 7)
    assert Attention(wide).projection.output.weight.shape == (C, H * 7)


# Keys as values against transformers' Gemma 4, and exclusive self-attention against its definition by hand.


@each(("kv_heads", "head_dim"), [(1, 0), (2, 0), (3, 0), (6, 0), (2, 10)])
def test_keys_as_values_are_gemmas(kv_heads, head_dim):
    """A layer that attends to all tokens; its scale is set to ours."""
    size, rope = head_dim or D, {"rope_type": "default", "rope_theta": 1e4}
    config = gemma4.Gemma4TextConfig(
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
        rope_parameters={"full_attention": rope, "sliding_attention": rope},
    )
    peer = gemma4.Gemma4TextAttention(config, 0).eval()
    assert peer.v_proj is None
    peer.scaling = size**-0.5
    choice = Choice.of("keys_as_values", kv_heads=kv_heads, bias=False, head_dim=head_dim)
    layer = layer_of(choice, score="qk_norm", position="rope", mask="causal")
    gains = {"q_norm.weight": layer.score.query.weight, "k_norm.weight": layer.score.key.weight}
    x, places = torch.randn(B, T, C), torch.arange(T)[None]
    turns = gemma4.Gemma4TextRotaryEmbedding(config)(x, places, "full_attention")
    same_layer(layer, peer, by_name(layer, value="") | gains, x, turns, FUTURE, {})


def test_a_value_has_the_direction_of_its_key_and_length_root_d_and_keys_alone_are_stored():
    choice, x = Choice.of("keys_as_values", kv_heads=2), torch.randn(B, T, C)
    layer = layer_of(choice, position="rope", mask="causal")
    steps = layer_of(choice)(x, torch.randn(B, S, C))
    assert_close(steps.v, steps.k / steps.k.square().mean(-1, keepdim=True).sqrt())
    assert_close(steps.v.norm(dim=-1), torch.full((B, H, S), D**0.5))
    assert layer.step(x)[1].numbers == T * layer.config.sizes.cache == T * 2 * D


@each("mask", ["none", "causal"])
def test_exclusive_is_its_definition_token_by_token(mask):
    """One query of one head at a time, in fp64, with a random key mask; gradients of all inputs and weights."""
    layer = layer_of("exclusive", mask=mask).double()
    p, real = layer.projection, torch.rand(B, T) < 0.7
    x = torch.randn(B, T, C, dtype=torch.float64, requires_grad=True)
    q, k, v = (part(x).unflatten(-1, (H, D)) for part in (p.query, p.key, p.value))
    rows = []
    for b, t, h in ((b, t, h) for b in range(B) for t in range(T) for h in range(H)):
        seen = real[b] & ((torch.arange(T) <= t) | (mask == "none"))
        y = (k[b, seen, h] @ q[b, t, h] / D**0.5).softmax(0) @ v[b, seen, h]
        own = v[b, t, h] / v[b, t, h].norm()
        rows.append(y - (y @ own) * own)
    theirs = p.output(torch.cat(rows).view(B, T, C))
    agree(layer(x, key_mask=real).merged, theirs, (x, p.query.weight, p.value.weight, p.value.bias))


def test_what_remains_is_orthogonal_to_the_own_value_and_the_weights_are_those_of_multi_head():
    layer, x = layer_of("exclusive"), torch.randn(B, T, C)
    torch.testing.assert_close(layer(x).weights, twin(layer, projection="multi_head")(x).weights)
    put((layer.projection.output.weight, torch.eye(C)), (layer.projection.output.bias, 0.0))
    rest, own = (y.unflatten(-1, (H, D)) for y in (layer(x).merged, layer.projection.value(x)))
    assert_close((rest * F.normalize(own, dim=-1)).sum(-1), torch.zeros(B, T, H))


def test_exclusive_by_hand():
    """Values (1, 0) and (1, 1) with equal weights give y = (1, 1/2); along (1, 0) 1 is left out, along (1, 1) 3/4. A
    token alone has nothing to add."""
    layer = Attention(AttentionConfig(2, 1, Choice.of("exclusive", bias=False)))
    p, eye = layer.projection, torch.eye(2)
    put((p.query.weight, 0.0), (p.value.weight, eye), (p.output.weight, eye))
    out = layer(torch.tensor([[[1.0, 0.0], [1.0, 1.0]]])).merged
    torch.testing.assert_close(out, torch.tensor([[[0.0, 0.5], [0.25, -0.25]]]))
    alone = layer(torch.tensor([[[2.0, 3.0]]])).merged
    torch.testing.assert_close(alone, torch.zeros(1, 1, 2))


def test_exclusive_decodes_and_refuses_another_sequence():
    layer, x = layer_of("exclusive", mask="causal"), torch.randn(B, T, C)
    whole = layer(x).merged
    assert_close(read_in_parts(layer, x, (1,) * T)[0], whole)
    assert_close(layer(x[:, 4:], x, offset=4).merged, whole[:, 4:])
    message = "exclusive.*7 queries from position 0 .*11 keys.*take self-attention"
    with pytest.raises(ConfigError, match=message):
        layer(x, torch.randn(B, S, C))
    with pytest.raises(ConfigError, match="recurrent .*exclusive.*take projection = multi_head"):
        ModelConfig.recurrent(C, projection="exclusive")


def test_cross_attention_of_a_model_is_multi_head_with_the_same_bias():
    config = AttentionConfig(C, H, Choice.of("exclusive", bias=False), kernel="fused")
    projection = cross_config(config).projection
    assert (projection.key, projection["bias"]) == ("multi_head", False)
    assert cross_config(config.with_(projection="gated")).projection.key == "gated"
