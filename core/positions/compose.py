"""Several positions at once: rotations one after the other, biases added, then the changes of the scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from operator import add

from torch import Tensor, nn

from core.positions.rotary import Position
from core.score_block import ScoreBlock


class Joined(Position):
    """Every part acts where it acts alone, in the order of the parts."""

    def __init__(self, parts: Sequence[Position]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.table_count = sum(part.table_count for part in parts)

    def positions(self) -> Iterator[Position]:
        return (part for part in self.parts if isinstance(part, Position))

    def rotate(self, x: Tensor, offset: int = 0, length: int | None = None) -> Tensor:
        return reduce(
            lambda rotated, part: part.rotate(rotated, offset, length), self.positions(), x
        )

    def tables(self, block: ScoreBlock) -> tuple[Tensor, ...]:
        return tuple(table for part in self.positions() for table in part.tables(block))

    def bias(self, block: ScoreBlock) -> Tensor | None:
        biases: list[Tensor] = []
        tables = iter(block.tables)
        for part in self.positions():
            own = tuple(table for _, table in zip(range(part.table_count), tables, strict=False))
            if (bias := part.bias(replace(block, tables=own))) is not None:
                biases.append(bias)
        return reduce(add, biases) if biases else None

    def adjust(self, scores: Tensor, block: ScoreBlock) -> Tensor:
        return reduce(lambda adjusted, part: part.adjust(adjusted, block), self.positions(), scores)

    def values(self, weights: Tensor, block: ScoreBlock) -> Tensor | None:
        values = [
            value for part in self.positions() if (value := part.values(weights, block)) is not None
        ]
        return reduce(add, values) if values else None
