"""Tasks whose examples have one length: a batch is drawn at once, as ids."""

from __future__ import annotations

import string

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from core.tasks.base import BOS, EOS, Batch, Example, Task

LETTERS = string.ascii_lowercase + string.ascii_uppercase
FEWEST = 20_000  # different sources, so that a tenth is enough
_ODD, _MIX = 0x9E3779B97F4A7C15, -0x40A7B892E31B1A47


class RowTask(Task):
    """A task whose `rows` draws sources and targets; everything else follows from it."""

    unit, whole = "letter", "sequences"

    def rows(
        self, count: int, generator: torch.Generator
    ) -> tuple[Int[Tensor, "N S"], Int[Tensor, "N T"]]:
        """Sources and targets as ids of the vocabularies."""
        raise NotImplementedError

    def item(self, source: Int[Tensor, "N S"]) -> Int[Tensor, "N K"]:
        """The part of a source that decides its side of the split: by default all of it."""
        return source

    def batch(self, batch_size: int, generator: torch.Generator) -> Batch:
        source, target = self._side(
            batch_size, batch_size + batch_size // 4 + 8, generator, held_out=False
        )
        mask = torch.ones_like(source, dtype=torch.bool)
        if self.form == "text":
            return Batch(source, mask, None, target)
        begin, end = (torch.full((batch_size, 1), mark) for mark in (BOS, EOS))
        return Batch(source, mask, torch.cat((begin, target), 1), torch.cat((target, end), 1))

    def draw(self, generator: torch.Generator, held_out: bool) -> Example:
        source, target = self._side(1, 16, generator, held_out)
        return Example(
            tuple(self.source_vocab.tokens[i] for i in source[0].tolist()),
            tuple(self.target_vocab.tokens[i] for i in target[0].tolist()),
        )

    def _side(
        self, size: int, batch: int, generator: torch.Generator, held_out: bool
    ) -> tuple[Int[Tensor, "N S"], Int[Tensor, "N T"]]:
        """`size` rows of one side of the split, drawn `batch` at a time."""
        sources, targets, count = [], [], 0
        while count < size:
            source, target = self.rows(batch, generator)
            on_side = in_held_out(self.item(source)) == held_out
            sources.append(source[on_side])
            targets.append(target[on_side])
            count += len(sources[-1])
        return torch.cat(sources)[:size], torch.cat(targets)[:size]


def in_held_out(rows: Int[Tensor, "N K"]) -> Bool[Tensor, " N"]:
    """Whether rows are in the held-out tenth; a hash of their ids decides, so the split does not depend on the seed."""
    # A polynomial in the ids modulo 2^64 (int64 wraps around), its high bits then mixed into the low ones.
    powers = [pow(_ODD, i + 1, 2**64) for i in range(rows.shape[1])]
    mixed = (
        rows * torch.tensor([power - 2**64 if power >= 2**63 else power for power in powers])
    ).sum(1) * _MIX
    return (mixed >> 32) % 10 == 0
