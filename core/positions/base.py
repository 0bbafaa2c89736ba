"""The places where order may enter; an encoding overrides the one it uses."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from core.score_block import ScoreBlock


class Position(nn.Module):
    """No position at all: x, q and k pass unchanged, nothing is added to scores or output."""

    def add(self, x: Float[Tensor, "B T C"], offset: int = 0) -> Float[Tensor, "B T C"]:
        """x with its positions added; `offset` is the position of x's first token."""
        return x

    def rotate(
        self, x: Float[Tensor, "B H T D"], offset: int = 0, length: int | None = None,
    ) -> Float[Tensor, "B H T D"]:
        """A query or key, turned by its position; `length` is that of the whole sequence, offset + T unless given."""
        return x

    def tables(self, block: ScoreBlock) -> tuple[Tensor, ...]:
        """What `bias` reads that is the same for every part of the matrix; made once a call and put into its cells."""
        return ()

    def bias(self, block: ScoreBlock) -> Float[Tensor, ...] | None:
        """What is added to the scores of these cells, broadcastable to (B, H, T, S), in their dtype; None for none."""
        return None

    def adjust(self, scores: Float[Tensor, "B H T S"], block: ScoreBlock) -> Float[Tensor, "B H T S"]:
        """The scores after scale and bias, changed in a way that no bias can say (trait "adjusts")."""
        return scores

    def values(self, weights: Float[Tensor, "B H T S"], block: ScoreBlock) -> Float[Tensor, "B H T E"] | None:
        """What is added to weights · v (trait "values"); None for nothing."""
        return None
