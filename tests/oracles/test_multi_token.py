"""Multi-token attention against loops over the paper's sum under random key masks, and by hand."""

import pytest
import torch

from core.attention import Attention, AttentionConfig, Choice, ConfigError
from core.attention.positions.contextual import MultiToken
from tests.cases import each
from tests.oracles.places import agree, cells

B, T, H, D = 2, 9, 3, 7
C = H * D


def layer_of(*beside, **choices):
    own = Choice.of("multi_token", queries=3, keys=5)
    position = Choice.of("and", *beside, own) if beside else own
    layer = Attention(AttentionConfig(C + H, H, position=position, mask="causal", **choices)).eval()
    for name, weight in layer.named_parameters():
        if name.endswith("theta"):
            torch.nn.init.normal_(weight, std=0.3)
    return layer


def by_loops(scores, theta, real):
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
    agree(ours, by_loops(scores, theta, real), (scores, scores), (theta, theta))


def test_by_hand():
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
    layer, x = layer_of(*beside), torch.randn(B, T, C + H, requires_grad=True)
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
def test_kernels_that_never_hold_all_scores_are_refused_by_name(kernel):
    with pytest.raises(
        ConfigError, match=f"position = multi_token .* kernel = {kernel} .* take kernel = exact"
    ):
        AttentionConfig(C, H, position="multi_token", mask="causal", kernel=kernel)


def test_an_even_number_of_keys_is_refused():
    with pytest.raises(ConfigError, match="keys = 4 is even; take keys = 3 or 5"):
        AttentionConfig(C, H, position=Choice.of("multi_token", keys=4))
