"""Addition: two numbers digit by digit to their sum."""

from __future__ import annotations

import re

import torch
from jaxtyping import Int
from torch import Tensor

from core.entries import Param
from core.tasks import recipes
from core.tasks.base import Example, TaskConfig, TaskEntry, Vocabulary
from core.tasks.rows import RowTask


class Addition(RowTask):
    """a+b with leading zeros, so that all have one length; b+a is held out wherever a+b is.

    The sum's units come first unless it is written as usual; then its first digit depends on all the others (Lee 2023,
    Teaching arithmetic to small transformers).
    """

    unit, whole = "digit", "sums"

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        super().__init__(config, entry)
        self.digits, self.units_first = int(config["digits"]), config["order"] == "units"
        self.source_vocab = self.target_vocab = Vocabulary("0123456789+")
        self.ids, self.plus = (
            torch.tensor(self.source_vocab.encode("0123456789")),
            self.source_vocab.encode("+")[0],
        )
        self.max_source, self.max_target = 2 * self.digits + 1, self.digits + 1
        self.recommended = recipes.addition()

    def tokens(self, text: str) -> list[str]:
        """The digits of "7 + 25", with leading zeros."""
        return list(
            "+".join(number.zfill(self.digits) for number in re.split(r"\s*\+\s*", text.strip()))
        )

    def rows(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        numbers = torch.randint(10**self.digits, (count, 2), generator=generator)
        a, b = (self.ids[decimal_digits(number, self.digits)] for number in numbers.T)
        plus = torch.full((count, 1), self.plus)
        total = decimal_digits(numbers.sum(1), self.digits + 1)
        return torch.cat((a, plus, b), 1), self.ids[total.flip(1) if self.units_first else total]

    def item(self, source: Int[Tensor, "N S"]) -> Int[Tensor, "N K"]:
        """Both numbers, the smaller first."""
        powers = 10 ** torch.arange(self.digits - 1, -1, -1)
        digits = source - self.ids[0]
        a, b = (
            (part * powers).sum(1)
            for part in (digits[:, : self.digits], digits[:, self.digits + 1 :])
        )
        return torch.stack((torch.minimum(a, b), torch.maximum(a, b)), 1)

    def places(self, example: Example) -> tuple[tuple[int, ...], ...]:
        """The two digits that are added; for the last carry those that cause it."""
        if len(example.source) != 2 * self.digits + 1:
            return ((),) * len(example.target)
        positions = [(i, i + self.digits + 1) for i in (0, *range(self.digits))]
        return tuple(positions[::-1] if self.units_first else positions)


def decimal_digits(numbers: Int[Tensor, " N"], digits: int) -> Int[Tensor, "N D"]:
    """The decimal digits of whole numbers, the highest first."""
    return numbers[:, None] // 10 ** torch.arange(digits - 1, -1, -1) % 10


ADDITION: TaskEntry = TaskEntry(
    "addition",
    "Addition",
    "Add two numbers, digit by digit.",
    "Each digit of the sum attends to the two digits that it is the sum of: two parallel diagonals.",
    lambda config: Addition(config, ADDITION),
    (
        Param("digits", "Digits", 3, 3, 8, 1, meaning="number of digits of each number"),
        Param(
            "order",
            "Order",
            "units",
            choices=("units", "written"),
            labels=("units first", "as written"),
            meaning="order in which the model writes the digits of the sum",
        ),
    ),
)
