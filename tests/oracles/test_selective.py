"""Selective attention against x_transformers, and against loops over the paper's sum under random key masks."""

import pytest
import torch

from core.attention import Attention, AttentionConfig, Choice, ConfigError
from core.attention.positions.contextual import MultiToken, Selective
from tests.cases import each
from tests.oracles.places import agree, cells

B, T, H, D = 2, 11, 3, 7
C = H * D


def layer_of(keep_first=True, **choices):
    position = Choice.of("selective", keep_first=keep_first)
    return Attention(AttentionConfig(C, H, position=position, mask="causal", **choices)).eval()


@each("keep_first", [True, False])
def test_the_scores_are_x_transformers(keep_first):
    """Their function on causal scores; ours is given the scores before the mask."""
    from x_transformers.attend import selective_attn

    scores = (2 * torch.randn(B, H, T, T)).requires_grad_()
    ahead = torch.ones(T, T, dtype=torch.bool).triu(1)
    theirs = selective_attn(
        scores.masked_fill(ahead, -torch.finfo(scores.dtype).max), no_mask_sos=keep_first
    )
    q, k = torch.randn(2, B, H, T, D)
    ours = Selective(keep_first).adjust(scores, cells(q, k))
    agree(ours.masked_fill(ahead, 0.0), theirs.masked_fill(ahead, 0.0), (scores, scores))


@each("padded", [False, True])
def test_a_whole_layer_is_x_transformers(padded):
    """Attend with selective; padding at the end, of which theirs hides the keys."""
    from x_transformers.attend import Attend

    layer, x = layer_of(), torch.randn(B, T, C, requires_grad=True)
    real = (
        torch.arange(T) < torch.tensor([[T], [6]]) if padded else torch.ones(B, T, dtype=torch.bool)
    )
    q, k, v = layer.projection(x, x)
    out, _ = Attend(heads=H, causal=True, selective=True)(q, k, v, mask=real[:, None, None])
    ours = layer.attend_heads(q, k, v, x, x, key_mask=real).out
    rows = real[:, None, :, None]
    agree(ours.masked_fill(~rows, 0.0), out.masked_fill(~rows, 0.0), (x, x))


def by_loops(scores, real, keep_first):
    """The paper's sum, cell by cell; a query that is padding selects nothing."""
    out = scores.clone()
    for b, i, j in ((b, i, j) for b in range(B) for i in range(T) for j in range(T)):
        if not (keep_first and j == 0):
            for m in range(j + 1, i):
                if real[b, m]:
                    out[b, :, i, j] = out[b, :, i, j] - scores[b, 0, m, j].clamp(min=0)
    return out


@each("keep_first", [True, False])
def test_random_padding_selects_nothing(keep_first):
    scores = torch.randn(B, H, T, T, dtype=torch.float64, requires_grad=True)
    q, k = torch.randn(2, B, H, T, D)
    real = torch.rand(B, T) > 0.4
    ours = Selective(keep_first).adjust(scores, cells(q, k, key_mask=real))
    agree(ours, by_loops(scores, real, keep_first), (scores, scores))


def test_by_hand():
    """Key 1 is selected by query 2 with 3, and by query 3 with 1; the first head's own scores are lowered too."""
    scores = torch.tensor(
        [[0.0, 0, 0, 0, 0], [9, 0, 0, 0, 0], [9, 3, 7, 0, 0], [9, 1, -2, 0, 0], [9, 5, 2, 6, 1]]
    )
    both = torch.stack((scores, torch.zeros(5, 5)))[None]
    q, k = torch.zeros(2, 1, 2, 5, 1)
    lower = torch.zeros(5, 5)
    lower[3, 1], lower[4, 1] = 3, 3 + 1
    torch.testing.assert_close(Selective(True).adjust(both, cells(q, k)), both - lower)
    lower[2:, 0] = torch.tensor([9.0, 18, 27])
    torch.testing.assert_close(Selective(False).adjust(both, cells(q, k)), both - lower)


def test_a_layer_decodes_with_the_votes_of_all_earlier_tokens():
    layer, x = layer_of(), torch.randn(B, T, C)
    whole, (first, cache) = layer(x), layer.step(x[:, :6], record=True)
    rest, cache = layer.step(x[:, 6:], cache, record=True)
    torch.testing.assert_close(first.merged, whole.merged[:, :6])
    for name in ("merged", "out", "scores", "weights", "q"):
        mine, all_rows = getattr(rest, name), getattr(whole, name)
        torch.testing.assert_close(mine, all_rows[..., 6:, :], rtol=1e-4, atol=1e-5)
    assert cache.length == T and rest.mask.shape[-2] == T - 6


@each("kernel", ["fused", "chunked", "local", "block_sparse", "linear", "retention"])
def test_kernels_that_never_hold_all_scores_are_refused_by_name(kernel):
    with pytest.raises(
        ConfigError, match=f"position = selective .* kernel = {kernel} .* take kernel = exact"
    ):
        AttentionConfig(C + H, H, position="selective", mask="causal", kernel=kernel)


# Multi-token attention against loops over the paper's sum under random key masks, and by hand.


def mixed_layer(*beside, **choices):
    own = Choice.of("multi_token", queries=3, keys=5)
    position = Choice.of("and", *beside, own) if beside else own
    layer = Attention(AttentionConfig(C + H, H, position=position, mask="causal", **choices)).eval()
    for name, weight in layer.named_parameters():
        if name.endswith("theta"):
            torch.nn.init.normal_(weight, std=0.3)
    return layer


def mixed_by_loops(scores, theta, real):
    """The paper's sum, cell by cell, with θ of the query itself in its last row; a = 0 is that query."""
    queries, keys = theta.shape[2:]
    rows = []
    for b in range(B):
        for h in range(H):
            for i in range(T):
                for j in range(T):
                    total = scores.new_zeros(())
                    for a in range(queries):
                        for c in range(-(keys // 2), keys // 2 + 1):
                            query, key = i - a, j + c
                            if query >= 0 and 0 <= key <= query and real[b, query] and real[b, key]:
                                total = (
                                    total
                                    + theta[h, 0, queries - 1 - a, keys // 2 + c]
                                    * scores[b, h, query, key]
                                )
                    rows.append(total)
    return torch.stack(rows).view(B, H, T, T)


@each(("queries", "keys"), [(1, 1), (3, 5), (6, 1), (1, 3), (12, 21)])
@each("padded", [False, True])
def test_the_scores_are_the_papers_sum(queries, keys, padded):
    scores = torch.randn(B, H, T, T, dtype=torch.float64, requires_grad=True)
    position = MultiToken(H, queries, keys, 0.5).double()
    torch.nn.init.normal_(position.theta)
    q, k = torch.randn(2, B, H, T, D)
    real = torch.rand(B, T) > 0.4 if padded else torch.ones(B, T, dtype=torch.bool)
    ours = position.adjust(scores, cells(q, k, key_mask=real if padded else None))
    theta = position.theta
    agree(ours, mixed_by_loops(scores, theta, real), (scores, scores), (theta, theta))


def test_mixed_scores_by_hand():
    """Two queries and three keys: the third query takes 10 times its own scores and once the row before, one key on."""
    position = MultiToken(1, 2, 3, 0.0)
    with torch.no_grad():
        position.theta.copy_(torch.tensor([[0.0, 0, 1], [0, 10, 0]]))
    scores = torch.tensor([[1.0, 9, 9], [2, 3, 9], [4, 5, 6]])[None, None]
    q, k = torch.zeros(2, 1, 1, 3, 1)
    mixed = torch.tensor([[10.0, 0, 0], [20, 30, 0], [40 + 3, 50, 60]])
    torch.testing.assert_close(position.adjust(scores, cells(q, k))[0, 0], mixed)


@each("keys", [1, 5])
def test_without_mixing_nothing_changes_and_a_share_of_the_mean_else(keys):
    scores = torch.randn(B, H, T, T).tril()
    block = cells(*torch.randn(2, B, H, T, D))
    torch.testing.assert_close(MultiToken(H, 4, keys, 0.0).adjust(scores, block), scores)
    assert MultiToken(H, 4, keys, 0.3).theta.sum((2, 3)).flatten().tolist() == pytest.approx(
        [1.0] * H
    )


@each("beside", [(), (Choice("rope"),)])
def test_no_token_sees_a_later_one_and_a_cache_gives_the_whole(beside):
    layer, x = mixed_layer(*beside), torch.randn(B, T, C + H, requires_grad=True)
    whole = layer(x)
    for i in range(T - 1):
        (felt,) = torch.autograd.grad(whole.merged[:, i].sum(), x, retain_graph=True)
        assert felt[:, i].any() and not felt[:, i + 1 :].any()
    first, cache = layer.step(x[:, :4])
    rest, _ = layer.step(x[:, 4:], cache, record=True)
    torch.testing.assert_close(
        torch.cat((first.merged, rest.merged), 1), whole.merged, rtol=1e-4, atol=1e-5
    )
    torch.testing.assert_close(rest.weights, whole.weights[:, :, 4:], rtol=1e-4, atol=1e-5)


@each("kernel", ["fused", "chunked", "block_sparse", "linear"])
def test_kernels_that_never_hold_all_scores_refuse_to_mix_them(kernel):
    with pytest.raises(
        ConfigError, match=f"position = multi_token .* kernel = {kernel} .* take kernel = exact"
    ):
        AttentionConfig(C, H, position="multi_token", mask="causal", kernel=kernel)


def test_an_even_number_of_keys_is_refused():
    with pytest.raises(ConfigError, match="keys = 4 is even; take keys = 3 or 5"):
        AttentionConfig(C, H, position=Choice.of("multi_token", keys=4))
