"""Selective attention against x_transformers, and against loops over the paper's sum under random key masks."""

import pytest
import torch

from core.attention import Attention, AttentionConfig, Choice, ConfigError
from core.attention.positions.contextual import Selective
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
