"""Latents against DeepSeek-V3's own module and their absorbed form, tensor products and tied states against the papers."""

import torch
import torch.nn.functional as F
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek

from core.attention import Attention, AttentionConfig, Choice, attend
from core.attention.positions.rotary import Rotary
from tests.attention.drawing import perturbed, read_in_parts
from tests.cases import each
from tests.close import assert_close
from tests.oracles.agreement import agree, put, same_layer

B, T, S, H, D = 2, 7, 11, 6, 8
FUTURE = torch.full((T, T), -torch.inf).triu(1)[None, None]


def layer_of(choice, size=H * D, **axes):
    return perturbed(Attention(AttentionConfig(size, H, choice, **axes)))


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
        output = p.output.weight.unflatten(1, (H, content))[:, some].flatten(1)
        names.append(
            {
                "q_b_proj.weight" if query_latent else "q_proj.weight": query,
                "kv_a_proj_with_mqa.weight": torch.cat((p.down.weight[own], p.turned_key.weight)),
                "kv_a_layernorm.weight": p.norm.weight[own],
                "kv_b_proj.weight": torch.cat(both, 1).flatten(0, 1),
                "o_proj.weight": output,
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
    layer = layer_of(Choice.of("latent", latent=11, rope=4, **how), 5 * H, mask="causal")
    peer, turns, (names,) = peer_of(layer, positions=layout != "none")
    same_layer(layer, peer, names, torch.randn(B, T, 5 * H), turns, FUTURE)


@each("groups", [2, 3, H])
@each("rope", [2, 4])
def test_grouped_latents_are_a_layer_of_deepseek_for_each_group(groups, rope):
    """Zadouri 2025, section 3.3: heads of a group see their part of the latent alone, and all see one rotated key."""
    choice = Choice.of("latent", latent=12, rope=rope, groups=groups)
    layer = layer_of(choice, 5 * H, mask="causal")
    x, real = torch.randn(B, T, 5 * H, requires_grad=True), torch.rand(B, T) < 0.7
    real[:, 0] = True
    bias = FUTURE.expand(B, 1, T, T).masked_fill(~real[:, None, None], -torch.inf)
    peer, turns, names = peer_of(layer, H // groups, groups)
    total = sum(torch.func.functional_call(peer, own, (x, turns, bias))[0] for own in names)
    rows = real[..., None]
    agree(layer(x, key_mask=real).merged * rows, total * rows, (x, layer.projection.norm.weight))


def test_grouped_latents_by_hand():
    """Latents 3 and 4 alone in their groups: a norm of one number makes them 1, which each head's map multiplies."""
    layer = Attention(AttentionConfig(2, 2, Choice.of("latent", latent=2, rope=0, groups=2)))
    p = layer.projection
    put(
        (p.down.weight, [[1.0, 0], [0, -1]]),
        (p.value.weight, [[5.0], [7]]),
        (p.norm.weight, [1.0, 2]),
    )
    v = layer(torch.tensor([[[3.0, 4]]])).v
    torch.testing.assert_close(v.flatten(), torch.tensor([5.0, -14]))


@each("offset", [0, 4])
@each("rope", [0, 4])
def test_the_absorbed_form_is_the_naive_one(rope, offset):
    """DeepSeek-V2, section 2.1: W_uk is applied to the query, with one key head, and v is the latent itself. Keys and
    values are never unfolded, yet weights, output and gradients are the same."""
    layer = layer_of(Choice.of("latent", latent=9, rope=rope), 5 * H)
    p, x = layer.projection, torch.randn(B, T, 5 * H, requires_grad=True)
    context = torch.randn(B, S, 5 * H, requires_grad=True)
    naive = layer(x, context, offset=offset)
    (content, plain), (latent, shared) = p.plain_queries(x), p.latents(context)
    q = torch.cat((content @ p.key.weight.unflatten(0, (H, 5)), p.rotate(plain, offset)), -1)
    k = torch.cat((latent[:, None], shared), -1)
    assert k.shape == (B, 1, S, 9 + rope)
    short = attend(q, k, latent[:, None], scale=(5 + rope) ** -0.5)
    assert_close(short.weights, naive.weights)
    merged = p.merge(short.out @ p.value.weight.unflatten(0, (H, 5)).mT, x)
    agree(merged, naive.merged, (x, context, p.key.weight))


def test_latent_scores_see_distance_and_decode_from_a_cache():
    """The last query alone, with its offset, gives the last row of the whole."""
    layer, x = layer_of(Choice.of("latent", latent=9), mask="causal"), torch.randn(B, T, H * D)
    whole = layer(x).merged
    assert_close(layer(x[:, -1:], x, offset=T - 1).merged, whole[:, -1:])
    assert (layer(x.flip(1)).merged.flip(1) - whole).abs().max() > 1e-3


# Tensor products and tied states, from their papers.


def drawn():
    x, context = (torch.randn(B, n, H * D, dtype=torch.float64, requires_grad=True) for n in (T, S))
    real = torch.rand(B, S) < 0.7
    real[:, 1] = True
    return x, context, real


def output(p, q, k, v, real):
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=real[:, None, None])
    return p.output(out.transpose(1, 2).flatten(2))


@each(("query_rank", "rank"), [(1, 1), (6, 2), (3, 5)])
def test_tensor_products_are_the_papers_sums(query_rank, rank):
    """Q_t = (1/R) Σ_r a_r(x_t) ⊗ b_r(x_t), and K and V alike. Zhang 2025, section 3.1."""
    layer = layer_of(Choice.of("tensor_product", query_rank=query_rank, rank=rank)).double()
    p, (x, context, real) = layer.projection, drawn()

    def heads(a, b, rank):
        a, b = a.unflatten(-1, (rank, H)), b.unflatten(-1, (rank, D))
        return torch.einsum("btrh,btrd->bhtd", a, b) / rank

    q = heads(p.query_heads(x), p.query_dims(x), query_rank)
    k = heads(p.key_heads(context), p.key_dims(context), rank)
    v = heads(p.value_heads(context), p.value_dims(context), rank)
    weights = (x, context, p.query_heads.weight, p.key_dims.weight, p.value_heads.weight)
    agree(layer(x, context, key_mask=real).merged, output(p, q, k, v, real), weights)


def test_the_rank_of_the_keys_of_a_token_is_that_of_the_sum():
    """All heads of one token are a matrix of rank R; rotating it as a sum is rotating each b."""
    layer, x = layer_of(Choice.of("tensor_product", rank=2)), torch.randn(1, 3, H * D)
    p, turn = layer.projection, Rotary(D, 10000.0, "halves")
    assert torch.linalg.matrix_rank(layer(x).k[0, :, 1], tol=1e-4) == 2
    dims = turn.rotate(p.key_dims(x).unflatten(-1, (-1, D)).transpose(1, 2)).transpose(1, 2)
    assert_close(p.outer(p.key_heads(x), dims.flatten(2)), turn.rotate(p(x, x)[1]))


def test_a_tensor_product_by_hand():
    """Heads take 1 and 3 of b = (x, 2x): with R = 1 and x = 2 they are (2, 4) · 2 and (2, 4) · 6."""
    layer = Attention(AttentionConfig(4, 2, Choice.of("tensor_product", rank=1, query_rank=1)))
    a, b = ([[1.0, 0, 0, 0], [n, 0, 0, 0]] for n in (3, 2))
    put((layer.projection.key_heads.weight, a), (layer.projection.key_dims.weight, b))
    k = layer(torch.tensor([[[2.0, 0, 0, 0]]])).k
    assert k[0, :, 0].tolist() == [[4.0, 8.0], [12.0, 24.0]]


@each("kv_heads", [1, 2, 3])
@each("layout", ["halves", "interleaved"])
def test_tied_states_are_the_papers(kv_heads, layout):
    """v is the state of the group, k its first half and one rotated half for all. Zadouri 2025, section 3.3."""
    layer = layer_of(Choice.of("grouped_tied", kv_heads=kv_heads, layout=layout)).double()
    p, (x, context, real) = layer.projection, drawn()

    def turned(rows):
        """Each pair of numbers is a complex one, times e^(i · position · θ)."""
        halves, n = layout == "halves", D // 4
        pairs = rows.unflatten(-1, (2, n)).mT if halves else rows.unflatten(-1, (n, 2))
        rates = 10000.0 ** (-2 * torch.arange(n).double() / (D // 2))
        angle = torch.arange(rows.shape[-2])[:, None] * rates
        wave = torch.polar(torch.ones_like(angle), angle)
        out = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * wave)
        return (out.mT if halves else out).flatten(-2)

    q = p.query(x).unflatten(-1, (H, D)).transpose(1, 2)
    q = torch.cat((q[..., : D // 2], turned(q[..., D // 2 :])), -1)
    states = p.tied(context).unflatten(-1, (kv_heads, D)).transpose(1, 2)
    states = states.repeat_interleave(H // kv_heads, 1)
    shared = turned(p.turned_key(context))[:, None].expand(-1, H, -1, -1)
    k = torch.cat((states[..., : D // 2], shared), -1)
    weights = (x, context, p.tied.weight, p.turned_key.weight)
    ours = layer(x, context, key_mask=real).merged
    agree(ours, output(p, q, k, states, real), weights)


@each(
    ("choice", "numbers", "absorbed"),
    [
        (Choice.of("latent", latent=9, rope=4), 9 + 4, (1, 9 + 4)),
        (Choice.of("latent", latent=9, rope=4, groups=3), 9 + 4, (3, 3 + 4)),
        (Choice.of("tensor_product", rank=3), 2 * 3 * (H + D), None),
        (Choice.of("grouped_tied", kv_heads=2), 2 * D + D // 2, None),
    ],
)
def test_the_cache_holds_what_it_says_and_gives_the_same(choice, numbers, absorbed):
    """What is stored does not depend on the number of groups, whose absorbed form gives what the whole text gives."""
    layer, x = layer_of(choice, mask="causal"), torch.randn(B, T, H * D)
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
