"""The reach of a stack of layers with one mask: powers of the mask as a graph."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def layers_needed(allowed: Bool[Tensor, "T S"]) -> Int[Tensor, "T T"]:
    """The number of layers of this mask after which query i depends on token j; 0 where no depth is enough.

    `allowed` (T, T) of one sequence on itself. With the residual path, L layers reach the L-th power of (allowed or
    identity). ValueError unless T = S.
    """
    if allowed.dim() != 2 or allowed.shape[0] != allowed.shape[1]:
        raise ValueError(
            f"allowed is {tuple(allowed.shape)}; expected one sequence on itself, (T, T)."
        )
    step = (allowed | torch.eye(len(allowed), dtype=torch.bool, device=allowed.device)).float()
    reached = step > 0
    needed = reached.int()
    for layers in range(2, len(allowed)):  # a path between T tokens has at most T − 1 steps
        further = (reached.float() @ step) > 0
        if torch.equal(further, reached):
            break
        needed[further & ~reached] = layers
        reached = further
    return needed
