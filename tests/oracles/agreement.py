"""The harness of oracles: two computations agree in their output, and in the gradients at their inputs and weights."""

from collections.abc import Sequence

import torch
from torch import Tensor


def same_result(
    ours: Tensor,
    theirs: Tensor,
    inputs: Sequence[Tensor],
    others: Sequence[Tensor] | None = None,
    *,
    rtol: float = 1e-4,
    atol: float = 1e-5,
    gradient: tuple[float, float] | None = None,
    felt: bool = False,
) -> None:
    """One output and, along a random direction of it, the gradients; `others` are the inputs of theirs if not ours.

    `gradient` are rtol and atol of the gradients, where these are others than the output's. With `felt` each input has a
    gradient that is not zero, which would agree with too much.
    """
    torch.testing.assert_close(ours, theirs, rtol=rtol, atol=atol)
    weight = torch.randn_like(ours)
    mine = torch.autograd.grad((ours * weight).sum(), inputs, retain_graph=True)
    peers = torch.autograd.grad((theirs * weight).sum(), others or inputs, retain_graph=True)
    rtol, atol = gradient or (rtol, atol)
    for a, b in zip(mine, peers, strict=True):
        assert not felt or b.any()
        torch.testing.assert_close(a, b.view_as(a), rtol=rtol, atol=atol)
