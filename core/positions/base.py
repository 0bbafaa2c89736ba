"""The three places where order may enter; an encoding overrides the one it uses."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn


class Position(nn.Module):
    """No position at all: x, q and k pass unchanged and no bias is added."""

    def add(self, x: Float[Tensor, "B T C"], offset: int = 0) -> Float[Tensor, "B T C"]:
        """x with its positions added; `offset` is the position of x's first token."""
        return x

    def rotate(self, x: Float[Tensor, "B H T D"], offset: int = 0) -> Float[Tensor, "B H T D"]:
        """A query or key, turned by its position."""
        return x

    def bias(
        self, q: Float[Tensor, "B H T D"], k: Float[Tensor, "B H S D"], offset: int = 0,
    ) -> Float[Tensor, "H T S"] | None:
        """What is added to the scores of q and k, in their dtype; None for nothing."""
        return None
