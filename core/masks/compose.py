"""Masks made of masks: and, or, not, cell by cell."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from core.masks.patterns import Mask
from core.score_block import ScoreBlock


class AllOf(Mask):
    def __init__(self, parts: tuple[Mask, ...]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, block: ScoreBlock) -> Tensor:
        allowed = self.parts[0](block)
        for part in self.parts[1:]:
            allowed = allowed & part(block)
        return allowed

    def weight_factor(self, block: ScoreBlock) -> Tensor | None:
        parts: Iterable[Any] = self.parts
        factors = [factor for part in parts if (factor := part.weight_factor(block)) is not None]
        return torch.stack(torch.broadcast_tensors(*factors)).prod(0) if factors else None


class AnyOf(Mask):
    def __init__(self, parts: tuple[Mask, ...]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, block: ScoreBlock) -> Tensor:
        allowed = self.parts[0](block)
        for part in self.parts[1:]:
            allowed = allowed | part(block)
        return allowed


class NotOf(Mask):
    def __init__(self, part: Mask) -> None:
        super().__init__()
        self.part = part

    def forward(self, block: ScoreBlock) -> Tensor:
        return ~self.part(block)
