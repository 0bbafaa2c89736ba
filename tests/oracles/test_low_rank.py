"""Tensor products and tied states against loops from their papers, one token and head at a time."""

import pytest
import torch
from torch import nn

from core.attention import Attention, AttentionConfig, Choice, ConfigError, attend
from core.attention.positions.rotary import Rotary
from tests.cases import each
from tests.oracles.agreement import same_result
from tests.oracles.test_projections import FORWARD, GRADIENT, B, C, H, S, T, agree, layer_of

# Latent attention, also in groups, against DeepSeek-V3's own module, and its absorbed form; gradients too.


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
    agree(steps.merged, out, (x, p.norm.weight), (y, theirs.kv_a_layernorm.weight))
    (steps.merged.sum() + out.sum()).backward()
    torch.testing.assert_close(
        torch.cat((p.down.weight.grad, p.turned_key.weight.grad)),
        theirs.kv_a_proj_with_mqa.weight.grad,
        rtol=1e-4,
        atol=1e-4,
    )


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
    content, plain = p.plain_queries(x)
    rotated = p.rotate(plain, offset)
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
    same_result(merged, naive.merged, (x, context, p.key.weight), **FORWARD, gradient=GRADIENT)


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


(
    FACTORED_B,
    FACTORED_T,
    FACTORED_S,
    FACTORED_H,
    D,
) = 2, 5, 7, 6, 8
FACTORED_C = FACTORED_H * D


def softmax_attention(layer, q, k, v, real):
    """q[b][h][t] and so on, vector by vector, to the layer's output."""
    rows = []
    for b in range(FACTORED_B):
        for t in range(len(q[b][0])):
            heads = []
            for h in range(FACTORED_H):
                seen = [j for j in range(len(k[b][h])) if real[b, j]]
                scores = torch.stack([q[b][h][t] @ k[b][h][j] for j in seen]) / D**0.5
                heads.append(
                    sum(w * v[b][h][j] for w, j in zip(scores.softmax(0), seen, strict=True))
                )
            rows.append(layer.projection.output(torch.cat(heads)))
    return torch.stack(rows).view(FACTORED_B, -1, FACTORED_C)


def inputs():
    real = torch.rand(FACTORED_B, FACTORED_S) < 0.7
    real[:, 1] = True
    x, context = (
        torch.randn(
            FACTORED_B,
            n,
            FACTORED_C,
            dtype=torch.float64,
            requires_grad=True,
        )
        for n in (FACTORED_T, FACTORED_S)
    )
    return x, context, real


def factored_agree(ours, theirs, tensors):
    same_result(ours, theirs, tensors, rtol=1e-10, atol=1e-11, gradient=(1e-8, 1e-9), felt=True)


@each(("query_rank", "rank"), [(1, 1), (6, 2), (3, 5)])
def test_tensor_products_are_the_papers_sums(query_rank, rank):
    """Q_t = (1/R) Σ_r a_r(x_t) ⊗ b_r(x_t), and K and V alike. Zhang 2025, section 3.1."""
    layer = Attention(
        AttentionConfig(
            FACTORED_C,
            FACTORED_H,
            Choice.of("tensor_product", query_rank=query_rank, rank=rank),
        )
    ).double()
    p, (x, context, real) = layer.projection, inputs()

    def heads(tokens, a, b, r):
        return [
            [
                [
                    sum(
                        a(token)[n * FACTORED_H + h] * b(token)[n * D : (n + 1) * D]
                        for n in range(r)
                    )
                    / r
                    for token in text
                ]
                for h in range(FACTORED_H)
            ]
            for text in tokens
        ]

    q = heads(x, p.query_heads, p.query_dims, query_rank)
    k, v = (
        heads(context, p.key_heads, p.key_dims, rank),
        heads(context, p.value_heads, p.value_dims, rank),
    )
    weights = (x, context, p.query_heads.weight, p.key_dims.weight, p.value_heads.weight)
    factored_agree(
        layer(x, context, key_mask=real).merged, softmax_attention(layer, q, k, v, real), weights
    )


def test_the_rank_of_the_keys_of_a_token_is_that_of_the_sum():
    """All heads of one token are a matrix of rank R; rotating it as a sum is rotating each b."""
    layer = Attention(
        AttentionConfig(
            FACTORED_C,
            FACTORED_H,
            Choice.of("tensor_product", rank=2),
        )
    )
    assert torch.linalg.matrix_rank(layer(torch.randn(1, 3, FACTORED_C)).k[0, :, 1], tol=1e-4) == 2
    p, x, turn = (
        layer.projection,
        torch.randn(1, 3, FACTORED_C),
        Rotary(D, 10000.0, "halves"),
    )
    heads, dims = (
        p.key_heads(x),
        turn.rotate(p.key_dims(x).unflatten(-1, (-1, D)).transpose(1, 2)).transpose(1, 2),
    )
    torch.testing.assert_close(
        p.outer(heads, dims.flatten(2)), turn.rotate(p(x, x)[1]), rtol=1e-4, atol=1e-5
    )


def test_a_tensor_product_by_hand():
    """Heads take 1 and 3 of b = (x, 2x): with R = 1 and x = 2 they are (2, 4) · 2 and (2, 4) · 6."""
    layer = Attention(AttentionConfig(4, 2, Choice.of("tensor_product", rank=1, query_rank=1)))
    p = layer.projection
    with torch.no_grad():
        p.key_heads.weight.copy_(torch.tensor([[1.0, 0, 0, 0], [3, 0, 0, 0]]))
        p.key_dims.weight.copy_(torch.tensor([[1.0, 0, 0, 0], [2, 0, 0, 0]]))
    k = layer(torch.tensor([[[2.0, 0, 0, 0]]])).k
    assert k[0, :, 0].tolist() == [[4.0, 8.0], [12.0, 24.0]]


@each("kv_heads", [1, 2, 3])
@each("layout", ["halves", "interleaved"])
def test_tied_states_are_the_papers(kv_heads, layout):
    """v is the state of the group, k its first half and one rotated half for all. Zadouri 2025, section 3.3."""
    choice = Choice.of("grouped_tied", kv_heads=kv_heads, layout=layout)
    layer = Attention(AttentionConfig(FACTORED_C, FACTORED_H, choice)).double()
    p, (x, context, real) = layer.projection, inputs()

    def turn(vector, position):
        half, turned = D // 4, vector.clone()
        for m in range(half):
            angle = torch.tensor(position * 10000.0 ** (-2 * m / (D // 2)), dtype=torch.float64)
            a, b = (m, m + half) if layout == "halves" else (2 * m, 2 * m + 1)
            turned = turned.index_put(
                (torch.tensor([a, b]),),
                torch.stack(
                    (
                        vector[a] * angle.cos() - vector[b] * angle.sin(),
                        vector[a] * angle.sin() + vector[b] * angle.cos(),
                    )
                ),
            )
        return turned

    def query(token, h, t):
        q = p.query(token)[h * D : (h + 1) * D]
        return torch.cat((q[: D // 2], turn(q[D // 2 :], t)))

    def state(token, h):
        group = h // (FACTORED_H // kv_heads)
        return p.tied(token)[group * D : (group + 1) * D]

    q = [
        [[query(token, h, t) for t, token in enumerate(text)] for h in range(FACTORED_H)]
        for text in x
    ]
    k = [
        [
            [
                torch.cat((state(token, h)[: D // 2], turn(p.turned_key(token), j)))
                for j, token in enumerate(text)
            ]
            for h in range(FACTORED_H)
        ]
        for text in context
    ]
    v = [[[state(token, h) for token in text] for h in range(FACTORED_H)] for text in context]
    weights = (x, context, p.tied.weight, p.turned_key.weight)
    factored_agree(
        layer(x, context, key_mask=real).merged, softmax_attention(layer, q, k, v, real), weights
    )


@each(
    ("choice", "numbers"),
    [
        (Choice.of("tensor_product", rank=3), 2 * 3 * (FACTORED_H + D)),
        (Choice.of("grouped_tied", kv_heads=2), 2 * D + D // 2),
    ],
)
def test_the_cache_holds_what_it_says_and_gives_the_same(choice, numbers):
    layer, x = (
        Attention(AttentionConfig(FACTORED_C, FACTORED_H, choice, mask="causal")),
        torch.randn(FACTORED_B, FACTORED_T, FACTORED_C),
    )
    cache, rows = None, []
    for token in x.split(1, dim=1):
        steps, cache = layer.step(token, cache)
        rows.append(steps.merged)
    torch.testing.assert_close(torch.cat(rows, 1), layer(x).merged, rtol=1e-4, atol=1e-5)
    assert cache.numbers == FACTORED_T * numbers == FACTORED_T * layer.config.sizes.cache
    stored = layer.projection.cached(x)
    assert sum(part.numel() for part in stored) == FACTORED_B * FACTORED_T * numbers


def test_heads_without_a_pair_are_not_rotated():
    layer = Attention(AttentionConfig(9, 3, "grouped_tied"))
    assert layer.projection.rotated == 0 and layer(torch.randn(1, 4, 9)).merged.isfinite().all()


@each(
    ("axes", "words"),
    [
        ({"position": "rope"}, "grouped_tied.*position = rope.*take position = none"),
        ({"projection": Choice.of("grouped_tied", kv_heads=4)}, "kv_heads = 4 does not divide"),
    ],
)
def test_tied_refuses_in_words(axes, words):
    with pytest.raises(ConfigError, match=words):
        AttentionConfig(
            FACTORED_C,
            FACTORED_H,
            **{"projection": "grouped_tied", **axes},
        )
