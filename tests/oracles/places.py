"""What the tests of positions share: the cells of q and k, and agreement of two computations with their gradients."""

from typing import Any

import torch
from torch import Tensor

from core.attention import Attention, AttentionConfig, Choice
from core.attention.basics import ScoreBlock
from tests.close import assert_close


def cells(q: Tensor, k: Tensor, offset: int = 0, **tensors: Any) -> ScoreBlock:
    return ScoreBlock.whole(
        q.shape[2], k.shape[2], num_heads=q.shape[1], offset=offset, q=q, k=k, **tensors
    )


def layer_of(
    position: str,
    d_model: int,
    heads: int,
    *,
    score="scaled_dot",
    mask="none",
    bias=True,
    **params,
) -> Attention:
    config = AttentionConfig(
        d_model,
        heads,
        Choice.of("multi_head", bias=bias),
        score=Choice(score),
        position=Choice.of(position, **params),
        mask=Choice(mask),
    )
    return Attention(config, add_positions=True).eval()


@torch.no_grad()
def share(*pairs: tuple[Tensor, Tensor]) -> None:
    """Give each of their weights ours, after spreading ours out where they start at zero."""
    for ours, theirs in pairs:
        assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
        ours.copy_(torch.randn_like(ours) * 0.5)
        theirs.copy_(ours)


def agree(ours: Tensor, theirs: Tensor, *pairs: tuple[Tensor, Tensor]) -> None:
    """The same output, and the same gradient at each (ours, theirs) pair of inputs or weights."""
    assert_close(ours, theirs)
    weight = torch.randn_like(ours)
    mine = torch.autograd.grad(
        (ours * weight).sum(), [pair[0] for pair in pairs], retain_graph=True
    )
    other = torch.autograd.grad((theirs * weight).sum(), [pair[1] for pair in pairs])
    for a, b in zip(mine, other, strict=True):
        assert a.abs().max() > 0, "a gradient of zeros agrees with too much"
        assert_close(a, b)
