"""Projections against their references: shared, doubled, gated and exclusive heads, keys as values; gradients too."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek
from transformers.models.diffllama import modeling_diffllama as diffllama
from transformers.models.gemma4 import modeling_gemma4 as gemma4
from transformers.models.neomme import modeling_neomme as neomme
from transformers.models.zaya import modeling_zaya as zaya
from x_transformers import x_transformers

from core.attention import Attention, AttentionConfig, Choice, ConfigError, attend
from core.attention.positions.rotary import Rotary
from core.models import ModelConfig
from core.models.transformer import cross_config
from tests.attention.drawing import perturbed, read_in_parts
from tests.cases import each
from tests.close import assert_close
from tests.oracles.agreement import agree, by_name, cells, fla, put, same_layer, twin

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
    agree(
        layer(x, context if cross else None, record=record).merged,
        p.output(theirs),
        (x, context, p.key.weight),
    )


@each("groups", [1, 2, 3, 6])
def test_pooled_key_heads_are_the_means_of_their_group(groups):
    # Maps are linear, so the mean of maps gives the mean of keys; queries and output stay as they were.
    many = layer_of("multi_head").projection
    few = type(layer_of("multi_query").projection).pooled(many, groups)
    x, context = torch.randn(B, T, C), torch.randn(B, S, C)
    (q, *heads), (same_q, *means) = many(x, context), few(x, context)
    for one, mean in zip(heads, means, strict=True):
        torch.testing.assert_close(mean, one.unflatten(1, (groups, H // groups)).mean(2))
    assert torch.equal(q, same_q)


# Differential attention against DiffLlama's own module.


@each("depth", [1, 4])
def test_differential_against_diffllama(depth):
    # Theirs puts all first queries before all second ones; here the two of a head are neighbours.
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
    layer, x = (
        layer_of(Choice.of("differential", depth=depth), size=size, mask="causal", position="rope"),
        torch.randn(B, T, size),
    )
    p, order = layer.projection, torch.cat((torch.arange(0, 2 * H, 2), torch.arange(1, 2 * H, 2)))
    dims = (order[:, None] * half + torch.arange(half)).flatten()
    names = {name: w if name.startswith("o") else w[dims] for name, w in by_name(layer).items()} | {
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
    agree(
        steps.merged,
        out,
        [x, *[weight for name, weight in layer.named_parameters() if "key.bias" not in name]],
    )


def test_what_both_maps_see_cancels():
    # One head whose two queries and keys are equal keeps 1 − λ of the softmax, which is 0.8 in layer 1.
    layer = layer_of("differential", 1, 4)
    p = layer.projection
    put((p.lambda_q1, 0.0), (p.lambda_q2, 0.0))
    put(*((w[2:], w[:2].clone()) for part in (p.query, p.key) for w in part.parameters()))
    steps = layer(torch.randn(B, T, 4))
    torch.testing.assert_close(steps.weights, 0.8 * steps.normalized[:, :1])
    assert steps.normalized.shape == (B, 2, T, T)


@each("kv_heads", [1, 2, H])
@each("record", [True, False])
def test_differential_v2_subtracts_two_heads_of_pytorchs(kv_heads, record):
    # As its authors have it: fused attention of 2H heads, neighbours of which share keys; here with cached queries, too.
    layer = layer_of(Choice.of("differential_v2", kv_heads=kv_heads), kernel="exact")
    p, real = layer.projection, torch.rand(B, S) < 0.7
    real[:, 0] = True
    x, context = (torch.randn(B, n, C, requires_grad=True) for n in (T, S))
    q, k, v = (
        part(given).unflatten(-1, (-1, D)).transpose(1, 2)
        for part, given in ((p.query, x), (p.key, context), (p.value, context))
    )
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=real[:, None, None], enable_gqa=True)
    theirs = out[:, ::2] - p.share(x).mT[..., None].sigmoid() * out[:, 1::2]
    agree(
        layer(x, context, key_mask=real, offset=3, record=record).merged,
        p.output(theirs.transpose(1, 2).flatten(2)),
        (x, context, *(w for name, w in p.named_parameters() if name != "key.bias")),
    )


def test_differential_v2_by_hand():
    # Two equal maps and λ = 0: a half of each weight is left.
    layer = layer_of("differential_v2", 1, 4)
    p = layer.projection
    put((p.share.weight, 0.0), *((w[4:], w[:4].clone()) for w in p.query.parameters()))
    steps = layer(torch.randn(B, T, 4))
    torch.testing.assert_close(steps.weights, steps.normalized[:, :1] / 2)


# The residual of values against x_transformers, and in a stack.


def test_value_residual_is_x_transformers():
    # Which clears the outputs of padding.
    choice = Choice.of("value_residual", bias=False)
    layers = [Attention(AttentionConfig(C, H, choice, mask="causal"), layer=n) for n in (0, 1)]
    shared: dict[str, torch.Tensor] = {}
    x = torch.randn(B, T, C, requires_grad=True)
    real = torch.rand(B, T) < 0.7
    real[:, 0] = True
    first = layers[0](x, key_mask=real, shared=shared)
    peer = x_transformers.Attention(C, heads=H, dim_head=D, causal=True)
    names = {
        "to_q.weight": layers[1].projection.query.weight,
        "to_k.weight": layers[1].projection.key.weight,
        "to_v.weight": layers[1].projection.value.weight,
        "to_out.weight": layers[1].projection.output.weight,
    }
    theirs = torch.func.functional_call(
        peer, names, (first.merged,), {"mask": real, "value_residual": first.v}
    )
    agree(
        layers[1](first.merged, key_mask=real, shared=shared).merged * real[..., None],
        theirs,
        (x, *names.values(), layers[0].projection.value.weight),
    )


def test_value_residual_by_hand_and_of_other_sizes():
    # Two tokens' values 1 and 2 in the first layer, 3 and 5 in the second: a quarter of the first.
    choice = Choice.of("value_residual", bias=False, share=0.25)
    layers = [Attention(AttentionConfig(1, 1, choice), layer=n) for n in (0, 1)]
    shared: dict[str, torch.Tensor] = {}
    for layer, values in zip(layers, ([1.0, 2.0], [3.0, 5.0]), strict=True):
        put((layer.projection.value.weight, 1.0))
        v = layer(torch.tensor(values).view(1, 2, 1), shared=shared).v.flatten().tolist()
    assert v == [2.5, 4.25]
    other = Attention(AttentionConfig(8, 2, "value_residual"), layer=2)
    pytest.raises(ConfigError, other, torch.randn(1, 2, 8), shared=shared).match(
        "value_residual .*take the same heads"
    )


# Parallax against flash-linear-attention, and by hand.


@each("kv_heads", [1, H])
def test_parallax_against_fla(kv_heads):
    # Theirs scales the first query's scores alone: their r is ours over √D.
    layer = layer_of(Choice.of("parallax", kv_heads=kv_heads), mask="causal", position="rope")
    x, p = torch.randn(B, T, C, requires_grad=True), layer.projection
    q, k, v = p(x, x)
    q, r, k = (layer.position.rotate(one) for one in (q[:, ::2], q[:, 1::2] * D**-0.5, k))
    theirs = fla("parallax", "naive_parallax")(*(one.transpose(1, 2) for one in (q, r, k, v)))
    steps = layer(x)
    agree(
        steps.merged,
        p.output(theirs.flatten(2)),
        (x, p.query.weight, p.probe.weight, p.key.weight, p.value.weight),
    )
    assert (steps.weights < 0).any()
    rows = steps.weights.sum(-1)
    torch.testing.assert_close(rows, torch.ones_like(rows), rtol=1e-4, atol=1e-4)


def test_parallax_is_a_line_through_its_maps():
    # The formula in both maps of a head, under a random key mask, whose hidden keys may hold anything.
    layer = layer_of("parallax", 2, 8).double()
    real = torch.rand(B, T) < 0.6
    real[:, 0] = True
    x = torch.randn(B, T, 8, dtype=torch.float64).masked_fill(~real[..., None], torch.nan)
    steps = layer(x, key_mask=real)
    first, second = steps.normalized[:, ::2], steps.normalized[:, 1::2]
    logs = second.log().masked_fill(second == 0, 0.0)
    torch.testing.assert_close(
        steps.weights, first * (1 + (first * logs).sum(-1, keepdim=True) - logs)
    )


def test_parallax_by_hand():
    # a is 1/2 and 1/2, s' is 1 and −3, whose mean is −1: the weights are (1 − 2) / 2 and (1 + 2) / 2.
    p = layer_of("parallax", 1, 2).projection
    scores = torch.tensor([[0.0, 0.0], [1.0, -3.0]]).view(1, 2, 1, 2)
    weights = p.combine_heads(scores.softmax(-1), scores, cells(scores, scores))
    torch.testing.assert_close(weights.flatten(), torch.tensor([-0.5, 1.5]))


def test_parallax_says_what_it_goes_with():
    for axis, choice in (
        ("normalizer", Choice("sparsemax")),
        ("normalizer", Choice.of("softmax", temperature=2.0)),
        ("mask", Choice.of("local_m", gaussian=True)),
    ):
        pytest.raises(ConfigError, AttentionConfig(C, H, "parallax").with_, **{axis: choice}).match(
            f"projection = parallax.*{choice.key}.*take "
        )


# The gate, by hand.


@each(("kv_heads", "head_dim"), [(0, 0), (2, 7)])
@each(("grain", "gates"), [("elementwise", 1), ("headwise", 0)])
def test_the_gate_reads_the_query_and_scales_each_head(grain, gates, kv_heads, head_dim):
    layer = layer_of(Choice.of("gated", grain=grain, kv_heads=kv_heads, head_dim=head_dim))
    x, context = torch.randn(B, T, C), torch.randn(B, S, C)
    steps, p = layer(x, context), layer.projection
    gate = p.gate(x).sigmoid().unflatten(-1, (H, -1))  # (B, T, H, D or 1)
    torch.testing.assert_close(
        steps.merged, p.output((gate * steps.out.transpose(1, 2)).flatten(2))
    )
    assert p.gate.weight.shape[0] == ((H * head_dim or C) if gates else H)


def test_a_shut_gate_lets_only_the_bias_through():
    layer, x = layer_of("gated", 1, 1), torch.ones(1, 3, 1)
    shut = layer.projection.output.bias.expand(1, 3, 1)
    plain = twin(layer, strict=False, projection="multi_head")(x).merged
    for gate, want in ((-100.0, shut), (100.0, plain)):
        put((layer.projection.gate.weight, gate))
        torch.testing.assert_close(layer(x).merged, want)


# What is kept of a token.


def test_a_head_has_an_equal_share_of_the_width():
    # In a config stored before heads had a size of their own, too.
    stored = {
        "d_model": C,
        "num_heads": H,
        "projection": {"key": "grouped_query", "kv_heads": 2, "bias": False},
    }
    assert AttentionConfig.from_json(stored).head_dim == C // H
    wide = AttentionConfig(C, H, Choice.of("grouped_query", kv_heads=2, head_dim=7))
    assert (
        (wide.head_dim, wide.qk_dim, wide.v_dim, wide.sizes.cache),
        Attention(wide).projection.output.weight.shape,
    ) == ((7, 7, 7, 2 * 2 * 7), (C, H * 7))


# Keys as values against transformers' Gemma 4, and exclusive self-attention against its definition by hand.


@each(("kv_heads", "head_dim"), [(1, 0), (2, 0), (3, 0), (6, 0), (2, 10)])
def test_keys_as_values_are_gemmas(kv_heads, head_dim):
    # A layer that attends to all tokens; its scale is set to ours.
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
    same_layer(
        layer,
        peer,
        by_name(layer, value="") | gains,
        x,
        gemma4.Gemma4TextRotaryEmbedding(config)(x, places, "full_attention"),
        FUTURE,
        {},
    )


@each("mask", ["none", "causal"])
def test_exclusive_is_its_definition_token_by_token(mask):
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
    agree(
        layer(x, key_mask=real).merged,
        p.output(torch.cat(rows).view(B, T, C)),
        (x, p.query.weight, p.value.weight, p.value.bias),
    )


def test_exclusive_with_a_learned_share_is_neommes():
    layer = layer_of(Choice.of("exclusive", learned=True), mask="causal")
    config = SimpleNamespace(num_attention_heads=H, num_key_value_heads=H)
    peer, x = neomme.NeoMMEExclusiveSelfAttention(config), torch.randn(B, T, C, requires_grad=True)
    p, steps = layer.projection, layer(x)
    left = torch.func.functional_call(
        peer, {"alpha": p.alpha}, (steps.out.transpose(1, 2), steps.v)
    )
    agree(steps.merged, p.output(left.flatten(2)), (x, p.alpha, p.value.weight))


def test_exclusive_by_hand():
    # Values (1, 0) and (1, 1) with equal weights give y = (1, 1/2); along (1, 0) 1 is left out, along (1, 1) 3/4. A
    # token alone has nothing to add.
    layer = Attention(AttentionConfig(2, 1, Choice.of("exclusive", bias=False)))
    p, eye = layer.projection, torch.eye(2)
    put((p.query.weight, 0.0), (p.value.weight, eye), (p.output.weight, eye))
    out = layer(torch.tensor([[[1.0, 0.0], [1.0, 1.0]]])).merged
    torch.testing.assert_close(
        (out, layer(torch.tensor([[[2.0, 3.0]]])).merged),
        (torch.tensor([[[0.0, 0.5], [0.25, -0.25]]]), torch.zeros(1, 1, 2)),
    )


def test_exclusive_refuses_another_sequence():
    layer, x = layer_of("exclusive", mask="causal"), torch.randn(B, T, C)
    pytest.raises(ConfigError, layer, x, torch.randn(B, S, C)).match(
        "exclusive.*7 queries from position 0 .*11 keys.*take self-attention"
    )
    pytest.raises(ConfigError, ModelConfig.recurrent, C, projection="exclusive").match(
        "recurrent .*exclusive.*take projection = multi_head"
    )


def test_cross_attention_of_a_model_is_multi_head():
    config = AttentionConfig(C, H, Choice.of("exclusive", bias=False), kernel="fused")
    projection = cross_config(config).projection
    assert (
        (projection.key, projection["bias"]),
        cross_config(config.with_(projection="gated")).projection.key,
    ) == (("multi_head", False), "gated")


# Latents against DeepSeek-V3's own module and their absorbed form, tensor products and tied states against the papers.

SIZE = 8


def peer_of(layer, heads=H, groups=1, positions=True):
    """A layer of DeepSeek of so many heads, its turns of T tokens, and what it calls the weights of each of our groups."""
    p, choice = layer.projection, layer.config.projection
    content, rope, latent = p.content, choice["rope"], choice["latent"] // groups
    query_latent, size = choice["query_latent"], layer.config.d_model
    config = deepseek.DeepseekV3Config(
        hidden_size=size,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        kv_lora_rank=latent,
        q_lora_rank=query_latent or None,
        qk_nope_head_dim=content,
        qk_rope_head_dim=rope,
        v_head_dim=content,
        rope_interleave=choice["layout"] != "halves",
        attention_bias=False,
        head_dim=rope,
        attn_implementation="eager",
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )
    places = torch.arange(T)[None] * positions  # at position 0 nothing is rotated
    turns = deepseek.DeepseekV3RotaryEmbedding(config)(torch.randn(B, T, size), places)
    names = []
    for group in range(groups):
        own, some = (slice(group * n, (group + 1) * n) for n in (latent, heads))
        both = [up.weight.unflatten(0, (H, content))[some] for up in (p.key, p.value)]
        query = p.query.weight.unflatten(0, (H, -1))[some].flatten(0, 1)
        names.append(
            {
                "q_b_proj.weight" if query_latent else "q_proj.weight": query,
                "kv_a_proj_with_mqa.weight": torch.cat((p.down.weight[own], p.turned_key.weight)),
                "kv_a_layernorm.weight": p.norm.weight[own],
                "kv_b_proj.weight": torch.cat(both, 1).flatten(0, 1),
                "o_proj.weight": p.output.weight.unflatten(1, (H, content))[:, some].flatten(1),
            }
        )
        if query_latent:
            down, norm = p.query_down
            names[-1] |= {"q_a_proj.weight": down.weight, "q_a_layernorm.weight": norm.weight}
    return deepseek.DeepseekV3Attention(config, 0), turns, names


@each("layout", ["halves", "interleaved", "none"])
@each(("query_latent", "head_dim"), [(0, 0), (13, 0), (13, 7)])
def test_latent_against_deepseek(query_latent, head_dim, layout):
    how = {"query_latent": query_latent, "head_dim": head_dim, "layout": layout}
    layer = layer_of(Choice.of("latent", latent=11, rope=4, **how), size=5 * H, mask="causal")
    peer, turns, (names,) = peer_of(layer, positions=layout != "none")
    same_layer(layer, peer, names, torch.randn(B, T, 5 * H), turns, FUTURE)


@each("groups", [2, 3, H])
@each("rope", [2, 4])
def test_grouped_latents_are_a_layer_of_deepseek(groups, rope):
    # Zadouri 2025, section 3.3: heads of a group see their part of the latent alone, and all see one rotated key.
    layer = layer_of(
        Choice.of("latent", latent=12, rope=rope, groups=groups), size=5 * H, mask="causal"
    )
    x, real = torch.randn(B, T, 5 * H, requires_grad=True), torch.rand(B, T) < 0.7
    real[:, 0] = True
    bias = FUTURE.expand(B, 1, T, T).masked_fill(~real[:, None, None], -torch.inf)
    peer, turns, names = peer_of(layer, H // groups, groups)
    total = sum(torch.func.functional_call(peer, own, (x, turns, bias))[0] for own in names)
    rows = real[..., None]
    agree(layer(x, key_mask=real).merged * rows, total * rows, (x, layer.projection.norm.weight))


def test_grouped_latents_by_hand():
    # Latents 3 and 4 alone in their groups: a norm of one number makes them 1, which each head's map multiplies.
    layer = Attention(AttentionConfig(2, 2, Choice.of("latent", latent=2, rope=0, groups=2)))
    p = layer.projection
    put(
        (p.down.weight, [[1.0, 0], [0, -1]]),
        (p.value.weight, [[5.0], [7]]),
        (p.norm.weight, [1.0, 2]),
    )
    torch.testing.assert_close(
        layer(torch.tensor([[[3.0, 4]]])).v.flatten(), torch.tensor([5.0, -14])
    )


@each("offset", [0, 4])
@each("rope", [0, 4])
def test_the_absorbed_form_is_the_naive_one(rope, offset):
    # DeepSeek-V2, section 2.1: W_uk is applied to the query, with one key head, and v is the latent itself. Keys and
    # values are never unfolded, yet weights, output and gradients are the same.
    layer = layer_of(Choice.of("latent", latent=9, rope=rope), size=5 * H)
    p, x = layer.projection, torch.randn(B, T, 5 * H, requires_grad=True)
    context = torch.randn(B, S, 5 * H, requires_grad=True)
    naive = layer(x, context, offset=offset)
    (content, plain), (k,) = p.plain_queries(x), p.cached(context)
    q = torch.cat((content @ p.key.weight.unflatten(0, (H, 5)), p.rotate(plain, offset)), -1)
    assert k.shape == (B, 1, S, 9 + rope)
    short = attend(q, k, k[..., :9], scale=(5 + rope) ** -0.5)
    assert_close(short.weights, naive.weights)
    agree(
        p.merge(short.out @ p.value.weight.unflatten(0, (H, 5)).mT, x),
        naive.merged,
        (x, context, p.key.weight),
    )


# Tensor products and tied states, from their papers.


def drawn():
    x, context = (
        torch.randn(B, n, H * SIZE, dtype=torch.float64, requires_grad=True) for n in (T, S)
    )
    real = torch.rand(B, S) < 0.7
    real[:, 1] = True
    return x, context, real


def output(p, q, k, v, real):
    return p.output(
        F.scaled_dot_product_attention(q, k, v, attn_mask=real[:, None, None])
        .transpose(1, 2)
        .flatten(2)
    )


@each(("query_rank", "rank"), [(1, 1), (6, 2), (3, 5)])
def test_tensor_products_are_the_papers_sums(query_rank, rank):
    # Q_t = (1/R) Σ_r a_r(x_t) ⊗ b_r(x_t), and K and V alike. Zhang 2025, section 3.1.
    layer = layer_of(
        Choice.of("tensor_product", query_rank=query_rank, rank=rank), size=H * SIZE
    ).double()
    p, (x, context, real) = layer.projection, drawn()

    def heads(a, b, rank):
        a, b = a.unflatten(-1, (rank, H)), b.unflatten(-1, (rank, SIZE))
        return torch.einsum("btrh,btrd->bhtd", a, b) / rank

    q = heads(p.query_heads(x), p.query_dims(x), query_rank)
    k = heads(p.key_heads(context), p.key_dims(context), rank)
    v = heads(p.value_heads(context), p.value_dims(context), rank)
    weights = (x, context, p.query_heads.weight, p.key_dims.weight, p.value_heads.weight)
    agree(layer(x, context, key_mask=real).merged, output(p, q, k, v, real), weights)


def test_the_rank_of_the_keys_of_a_token_is_that_of_the_sum():
    # All heads of one token are a matrix of rank R; rotating it as a sum is rotating each b.
    layer = layer_of(Choice.of("tensor_product", rank=2), size=H * SIZE)
    x = torch.randn(1, 3, H * SIZE)
    p, turn = layer.projection, Rotary(SIZE, 10000.0, "halves")
    assert torch.linalg.matrix_rank(layer(x).k[0, :, 1], tol=1e-4) == 2
    dims = turn.rotate(p.key_dims(x).unflatten(-1, (-1, SIZE)).transpose(1, 2)).transpose(1, 2)
    assert_close(p.outer(p.key_heads(x), dims.flatten(2)), turn.rotate(p(x, x)[1]))


def test_a_tensor_product_by_hand():
    # Heads take 1 and 3 of b = (x, 2x): with R = 1 and x = 2 they are (2, 4) · 2 and (2, 4) · 6.
    layer = Attention(AttentionConfig(4, 2, Choice.of("tensor_product", rank=1, query_rank=1)))
    a, b = ([[1.0, 0, 0, 0], [n, 0, 0, 0]] for n in (3, 2))
    put((layer.projection.key_heads.weight, a), (layer.projection.key_dims.weight, b))
    assert layer(torch.tensor([[[2.0, 0, 0, 0]]])).k[0, :, 0].tolist() == [[4.0, 8.0], [12.0, 24.0]]


@each("kv_heads", [1, 2, 3])
@each("layout", ["halves", "interleaved"])
def test_tied_states_are_the_papers(kv_heads, layout):
    # v is the state of the group, k its first half and one rotated half for all. Zadouri 2025, section 3.3.
    layer = layer_of(
        Choice.of("grouped_tied", kv_heads=kv_heads, layout=layout), size=H * SIZE
    ).double()
    p, (x, context, real) = layer.projection, drawn()

    def turned(rows):
        """Each pair of numbers is a complex one, times e^(i · position · θ)."""
        halves, n = layout == "halves", SIZE // 4
        pairs = rows.unflatten(-1, (2, n)).mT if halves else rows.unflatten(-1, (n, 2))
        angle = torch.arange(rows.shape[-2])[:, None] * (
            10000.0 ** (-2 * torch.arange(n).double() / (SIZE // 2))
        )
        out = torch.view_as_real(
            torch.view_as_complex(pairs.contiguous()) * torch.polar(torch.ones_like(angle), angle)
        )
        return (out.mT if halves else out).flatten(-2)

    q = p.query(x).unflatten(-1, (H, SIZE)).transpose(1, 2)
    q = torch.cat((q[..., : SIZE // 2], turned(q[..., SIZE // 2 :])), -1)
    states = p.tied(context).unflatten(-1, (kv_heads, SIZE)).transpose(1, 2)
    states = states.repeat_interleave(H // kv_heads, 1)
    k = torch.cat(
        (states[..., : SIZE // 2], turned(p.turned_key(context))[:, None].expand(-1, H, -1, -1)), -1
    )
    agree(
        layer(x, context, key_mask=real).merged,
        output(p, q, k, states, real),
        ((x, context, p.tied.weight, p.turned_key.weight)),
    )


@each(
    ("choice", "numbers", "absorbed"),
    [
        (Choice("identity"), H * SIZE, None),
        (Choice("multi_head"), 2 * H * SIZE, None),
        (Choice("multi_query"), 2 * SIZE, None),
        (Choice("gated"), 2 * H * SIZE, None),
        (Choice.of("latent", latent=9, rope=4), 9 + 4, (1, 9 + 4)),
        (Choice.of("latent", latent=9, rope=4, groups=3), 9 + 4, (3, 3 + 4)),
        (Choice.of("tensor_product", rank=3), 2 * 3 * (H + SIZE), None),
        (Choice.of("grouped_tied", kv_heads=2), 2 * SIZE + SIZE // 2, None),
        (Choice.of("latent", latent=9, rope=0, query_latent=7, head_dim=7), 9, (1, 9)),
        (Choice("differential"), 2 * H * SIZE, None),
        (Choice.of("parallax", kv_heads=2), 2 * 2 * SIZE, None),
        (Choice.of("differential_v2", kv_heads=2), 2 * 2 * SIZE, None),
        (Choice.of("grouped_query", kv_heads=2, head_dim=7), 2 * 2 * 7, None),
        (Choice.of("gated", kv_heads=2, head_dim=7), 2 * 2 * 7, None),
        (Choice.of("keys_as_values", kv_heads=2), 2 * SIZE, None),
    ],
)
def test_the_cache_holds_what_it_says_and_gives_the_same(choice, numbers, absorbed):
    layer, x = layer_of(choice, size=H * SIZE, mask="causal"), torch.randn(B, T, H * SIZE)
    out, cache = read_in_parts(layer, x, (1,) * T)
    assert_close(out, layer(x).merged)
    assert cache.numbers == T * numbers == T * layer.config.sizes.cache
    assert sum(part.numel() for part in layer.projection.cached(x)) == B * T * numbers
    if absorbed:
        steps, _ = layer.step(x[:, -1:], layer.step(x[:, :-1])[1])
        assert (steps.v.shape[1], steps.v.shape[3]) == absorbed


def test_heads_without_a_pair_are_not_rotated():
    layer = Attention(AttentionConfig(9, 3, "grouped_tied"))
    assert layer.projection.rotated == 0 and layer(torch.randn(1, 4, 9)).merged.isfinite().all()


# CCA against the attention of ZAYA, whole, and by hand.


@each(
    ("heads", "kv_heads", "head_dim", "widths"),
    [(6, 2, 4, (2, 2)), (3, 1, 8, (3, 4)), (4, 4, 2, (1, 2))],
)
def test_compressed_heads_against_zaya(heads, kv_heads, head_dim, widths):
    width, head_width = widths
    choice = Choice.of(
        "compressed", kv_heads=kv_heads, head_dim=head_dim, width=width, head_width=head_width
    )
    rope = Choice.of("rope", base=5000.0, share=0.5)
    layer = perturbed(Attention(AttentionConfig(12, heads, choice, position=rope, mask="causal")))
    config = zaya.ZayaConfig(
        hidden_size=12,
        num_hidden_layers=1,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        cca_time0=width,
        cca_time1=head_width,
        rope_parameters={
            "hybrid": {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.5}
        },
        attn_implementation="eager",
    )
    peer, p = zaya.ZayaAttention(config, 0), layer.projection
    names = {
        "qkv_proj.q_proj": p.query,
        "qkv_proj.k_proj": p.key,
        "qkv_proj.v_proj_current": p.value,
        "qkv_proj.v_proj_delayed": p.delayed_value,
        "qkv_proj.conv_qk_depthwise": p.by_number,
        "qkv_proj.conv_qk_grouped": p.by_head,
        "o_proj": p.output,
    }
    weights = {
        f"{name}.{part}": weight
        for name, own in names.items()
        for part, weight in own.named_parameters()
    } | {"qk_norm.temp": p.factor.flatten()}
    assert set(weights) == set(dict(peer.named_parameters()))
    x = torch.randn(2, 9, 12, requires_grad=True)
    real = torch.tensor([[True] * 9, [False, False, True, True, False, True, True, True, False]])
    visible = real[:, None, None] & torch.ones(9, 9, dtype=torch.bool).tril()
    masks = {
        "causal": torch.zeros(2, 1, 9, 9).masked_fill(~visible, torch.finfo(x.dtype).min),
        "conv": real,
    }
    waves = zaya.ZayaRotaryEmbedding(config)(x, torch.arange(9)[None], "hybrid")
    theirs, _ = torch.func.functional_call(
        peer, weights, (x,), {"attention_mask": masks, "position_embeddings": waves}
    )
    shown = visible.any(-1).mT.float() * real[..., None]  # rows that see a key, of real tokens
    ours = layer(x, key_mask=real).merged
    agree(ours * shown, theirs * shown, [x, *p.parameters()])
    for parts in ((9,), (1,) * 9, (2, 3, 1, 3)):
        stepped, cache = read_in_parts(layer, x, parts, key_mask=real)
        assert_close(stepped * shown, ours * shown)
    later = (width + head_width - 2) * (
        p.query.out_features + p.key.out_features
    ) + kv_heads * head_dim // 2
    assert cache.numbers == 9 * layer.config.sizes.cache + later


def test_compressed_heads_by_hand():
    # One head of two numbers, maps that copy x, convolutions of ones: the first adds the token before, the second that
    # of the sums and both numbers.
    p = Attention(AttentionConfig(2, 1, "compressed")).projection
    put(
        *((part.weight, torch.eye(2)) for part in (p.query, p.key)),
        (p.value.weight, [[1.0, 0.0]]),
        (p.delayed_value.weight, [[0.0, 1.0]]),
        *((part.weight, torch.ones_like(part.weight)) for part in (p.by_number, p.by_head)),
        *((part.bias, torch.zeros_like(part.bias)) for part in (p.by_number, p.by_head)),
        (p.factor, [[[3.0]]]),
    )
    x = torch.tensor([[[1.0, 0.0], [2.0, 5.0]]])
    q, k, v = p(x, x)
    # token 0: 1 + (1, 0) = (2, 1); token 1: (2 + 5) + 2 · (1 + 0) = 9, and (11, 14); both of length √2
    expected = F.normalize(torch.tensor([[2.0, 1.0], [11.0, 14.0]]), dim=-1) * 2**0.5
    assert_close(q[0, 0], expected)
    assert_close(k[0, 0], 3 * expected)
    # the second number is that of the token before
    assert v.tolist() == [[[[1.0, 0.0], [2.0, 0.0]]]]
    assert p(x, x[:, :0])[1].shape[2] == 0
