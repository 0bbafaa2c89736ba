"""Cache: what a causal layer stores of the tokens it has read, so that each new one computes its own q, k, v alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(frozen=True)
class Cache:
    """What is stored of `length` tokens; every tensor has the batch first.

    `heads` are what the projection stores: keys and values before rotation, or a latent and its shared key; their
    tokens are the dimension before the last. `inputs` are the tokens' own vectors, only where a position, a mask or a
    kernel reads them. A query is never stored: only its own token reads it. A `state` takes the place of both where the
    kernel sums all tokens up in one, whose size does not grow with them. `real` says which tokens are no padding.
    """

    length: int = 0
    heads: tuple[Float[Tensor, ...], ...] = ()
    inputs: Float[Tensor, "B S C"] | None = None
    state: Float[Tensor, "B H R P"] | None = None
    real: Bool[Tensor, "B S"] | None = None  # None while all are

    def real_with(
        self, x: Float[Tensor, "B T C"], key_mask: Bool[Tensor, "B T"] | None
    ) -> Bool[Tensor, "B S"] | None:
        """Which tokens are real once x follows, whose own key mask is given; None where all of them are."""
        if key_mask is None and self.real is None:
            return None
        every = torch.ones(len(x), self.length + x.shape[1], dtype=torch.bool, device=x.device)
        before = every[:, : self.length] if self.real is None else self.real
        return torch.cat((before, every[:, self.length :] if key_mask is None else key_mask), dim=1)

    @property
    def numbers(self) -> int:
        """How many numbers are stored, of one sequence."""
        return sum(
            tensor[0].numel()
            for tensor in (*self.heads, self.inputs, self.state)
            if tensor is not None
        )


def append(stored: Sequence[Tensor], new: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Stored tensors with those of new tokens after them; nothing stored yet is an empty sequence."""
    return (
        tuple(torch.cat(pair, dim=-2) for pair in zip(stored, new, strict=True))
        if stored
        else tuple(new)
    )
