"""Tensor products and tied states against loops from their papers, one token and head at a time."""

import pytest
import torch

from core.attention import Attention, AttentionConfig, Choice, ConfigError
from core.attention.positions.rotary import Rotary
from tests.cases import each

B, T, S, H, D = 2, 5, 7, 6, 8
C = H * D


def softmax_attention(layer, q, k, v, real):
    """q[b][h][t] and so on, vector by vector, to the layer's output."""
    rows = []
    for b in range(B):
        for t in range(len(q[b][0])):
            heads = []
            for h in range(H):
                seen = [j for j in range(len(k[b][h])) if real[b, j]]
                scores = torch.stack([q[b][h][t] @ k[b][h][j] for j in seen]) / D**0.5
                heads.append(
                    sum(w * v[b][h][j] for w, j in zip(scores.softmax(0), seen, strict=True))
                )
            rows.append(layer.projection.output(torch.cat(heads)))
    return torch.stack(rows).view(B, -1, C)


def inputs():
    real = torch.rand(B, S) < 0.7
    real[:, 1] = True
    x, context = (torch.randn(B, n, C, dtype=torch.float64, requires_grad=True) for n in (T, S))
    return x, context, real


def agree(ours, theirs, tensors):
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-11)
    pull = torch.randn_like(theirs)
    for one, two in zip(
        torch.autograd.grad((ours * pull).sum(), tensors),
        torch.autograd.grad((theirs * pull).sum(), tensors),
        strict=True,
    ):
        assert two.abs().sum() > 0
        torch.testing.assert_close(one, two, rtol=1e-8, atol=1e-9)


@each(("query_rank", "rank"), [(1, 1), (6, 2), (3, 5)])
def test_tensor_products_are_the_papers_sums(query_rank, rank):
    """Q_t = (1/R) Σ_r a_r(x_t) ⊗ b_r(x_t), and K and V alike. Zhang 2025, section 3.1."""
    layer = Attention(
        AttentionConfig(C, H, Choice.of("tensor_product", query_rank=query_rank, rank=rank))
    ).double()
    p, (x, context, real) = layer.projection, inputs()

    def heads(tokens, a, b, r):
        return [
            [
                [
                    sum(a(token)[n * H + h] * b(token)[n * D : (n + 1) * D] for n in range(r)) / r
                    for token in text
                ]
                for h in range(H)
            ]
            for text in tokens
        ]

    q = heads(x, p.query_heads, p.query_dims, query_rank)
    k, v = (
        heads(context, p.key_heads, p.key_dims, rank),
        heads(context, p.value_heads, p.value_dims, rank),
    )
    weights = (x, context, p.query_heads.weight, p.key_dims.weight, p.value_heads.weight)
    agree(layer(x, context, key_mask=real).merged, softmax_attention(layer, q, k, v, real), weights)


def test_the_rank_of_the_keys_of_a_token_is_that_of_the_sum():
    """All heads of one token are a matrix of rank R; rotating it as a sum is rotating each b."""
    layer = Attention(AttentionConfig(C, H, Choice.of("tensor_product", rank=2)))
    assert torch.linalg.matrix_rank(layer(torch.randn(1, 3, C)).k[0, :, 1], tol=1e-4) == 2
    p, x, turn = layer.projection, torch.randn(1, 3, C), Rotary(D, 10000.0, "halves")
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
    layer = Attention(AttentionConfig(C, H, choice)).double()
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
        group = h // (H // kv_heads)
        return p.tied(token)[group * D : (group + 1) * D]

    q = [[[query(token, h, t) for t, token in enumerate(text)] for h in range(H)] for text in x]
    k = [
        [
            [
                torch.cat((state(token, h)[: D // 2], turn(p.turned_key(token), j)))
                for j, token in enumerate(text)
            ]
            for h in range(H)
        ]
        for text in context
    ]
    v = [[[state(token, h) for token in text] for h in range(H)] for text in context]
    weights = (x, context, p.tied.weight, p.turned_key.weight)
    agree(layer(x, context, key_mask=real).merged, softmax_attention(layer, q, k, v, real), weights)


@each(
    ("choice", "numbers"),
    [
        (Choice.of("tensor_product", rank=3), 2 * 3 * (H + D)),
        (Choice.of("grouped_tied", kv_heads=2), 2 * D + D // 2),
    ],
)
def test_the_cache_holds_what_it_says_and_gives_the_same(choice, numbers):
    layer, x = Attention(AttentionConfig(C, H, choice, mask="causal")), torch.randn(B, T, C)
    cache, rows = None, []
    for token in x.split(1, dim=1):
        steps, cache = layer.step(token, cache)
        rows.append(steps.merged)
    torch.testing.assert_close(torch.cat(rows, 1), layer(x).merged, rtol=1e-4, atol=1e-5)
    assert cache.numbers == T * numbers == T * layer.config.sizes.cache
    stored = layer.projection.cached(x)
    assert sum(part.numel() for part in stored) == B * T * numbers


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
        AttentionConfig(C, H, **{"projection": "grouped_tied", **axes})
