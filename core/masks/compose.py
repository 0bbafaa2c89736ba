"""Masks made of masks: and, or, not, cell by cell."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import cast

import torch
from torch import Tensor, nn

from core.masks.patterns import Mask
from core.score_block import ScoreBlock


class Combined(Mask):
    """The masks of all parts, joined by an operator such as operator.and_."""

    def __init__(self, parts: tuple[Mask, ...], join: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.parts, self.join = nn.ModuleList(parts), join

    def forward(self, block: ScoreBlock) -> Tensor:
        return reduce(self.join, [part(block) for part in self.parts])

    def weight_factor(self, block: ScoreBlock) -> Tensor | None:
        """The product of the parts' factors; check_parts allows them in an `and` alone."""
        factors = [
            factor
            for part in self.parts
            if (factor := cast(Mask, part).weight_factor(block)) is not None
        ]
        return torch.stack(torch.broadcast_tensors(*factors)).prod(0) if factors else None


class Inverted(Mask):
    """True where the part is False."""

    def __init__(self, part: Mask) -> None:
        super().__init__()
        self.part = part

    def forward(self, block: ScoreBlock) -> Tensor:
        return ~self.part(block)
