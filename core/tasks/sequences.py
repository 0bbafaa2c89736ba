"""Copy, reverse and sort: random letters whose attention should be a diagonal, an anti-diagonal, or a staircase."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from core.entries import ConfigError, Param
from core.tasks import recipes
from core.tasks.base import Example, TaskConfig, TaskEntry, Vocabulary
from core.tasks.rows import FEWEST, LETTERS, RowTask

ORDERS: dict[str, Callable[[Tensor], Tensor]] = {
    "copy": lambda source: source,
    "reverse": lambda source: source.flip(1),
    "sort": lambda source: source.sort(1).values,  # ids are in the order of the alphabet
}


class SequenceTask(RowTask):
    """`length` letters out of `vocab`; the target is the same letters in the order that the task's key names."""

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        super().__init__(config, entry)
        self.length, self.letters = int(config["length"]), int(config["vocab"])
        self.source_vocab = self.target_vocab = Vocabulary(LETTERS[: self.letters])
        self.ids = torch.tensor(self.source_vocab.encode(LETTERS[: self.letters]))
        self.max_source = self.max_target = self.length
        self.recommended = recipes.sort() if entry.key == "sort" else recipes.repeat(self.length)

    def rows(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        source = self.ids[torch.randint(self.letters, (count, self.length), generator=generator)]
        return source, ORDERS[self.key](source)

    def expected(self, example: Example) -> tuple[int, ...]:
        """−1 for a letter of a sorted sequence that occurs twice."""
        n = len(example.source)
        if self.key == "sort":
            return tuple(
                positions[0] if len(positions) == 1 else -1 for positions in self.places(example)
            )
        return tuple(range(n - 1, -1, -1) if self.key == "reverse" else range(n))

    def places(self, example: Example) -> tuple[tuple[int, ...], ...]:
        if self.key != "sort":
            return tuple((position,) for position in self.expected(example))
        return tuple(
            tuple(i for i, letter in enumerate(example.source) if letter == target)
            for target in sorted(example.source)
        )


def check(length: int, vocab: int) -> None:
    """ConfigError for too few different sequences to hold some out."""
    if vocab**length < FEWEST:
        raise ConfigError(
            f"length = {length} with vocab = {vocab} gives only {vocab**length:,} different sequences, "
            f"too few to hold some out; take vocab ** length ≥ {FEWEST:,}."
        )


PARAMS = (
    Param("length", "Length", 10, 2, 64, 1, meaning="letters in a sequence"),
    Param("vocab", "Letters", 26, 2, 52, 1, meaning="different letters that may occur"),
)
COPY: TaskEntry = TaskEntry(
    "copy",
    "Copy",
    "Write the same letters again.",
    "Each output attends to the letter at the same position: a diagonal.",
    lambda config: SequenceTask(config, COPY),
    PARAMS,
    check,
)
REVERSE: TaskEntry = TaskEntry(
    "reverse",
    "Reverse",
    "Write the letters in reverse order.",
    "Each output attends to the letter at the mirrored position: an anti-diagonal.",
    lambda config: SequenceTask(config, REVERSE),
    PARAMS,
    check,
)
SORT: TaskEntry = TaskEntry(
    "sort",
    "Sort",
    "Write the letters in alphabetical order.",
    "Each output attends to the next letter in alphabetical order, at any position: one mark in each row and one in "
    "each column.",
    lambda config: SequenceTask(config, SORT),
    (
        Param("length", "Length", 6, 2, 32, 1, meaning="letters in a sequence"),
        Param("vocab", "Letters", 10, 2, 26, 1, meaning="different letters that may occur"),
    ),
    check,
)
