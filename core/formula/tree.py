"""The parts of a formula: names, functions and operators, with the types that they take and give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from core.entries import ConfigError

Kind = Literal["score", "mask"]
Type = Literal["number", "truth value"]

MAX_TEXT = 400  # characters
MAX_NODES = 120  # operations, names and numbers together
MAX_DEPTH = 40  # brackets, signs, functions and operands within one another
LARGEST = 1e30  # of a typed number; far below what overflows in fp32

NAMES: dict[Kind, tuple[str, ...]] = {
    "score": ("score", "i", "j", "h", "T", "S"),
    "mask": ("i", "j", "h", "T", "S"),
}
MEANINGS = {
    "score": "the score",
    "i": "the position of the query",
    "j": "the position of the key",
    "h": "the head, from 0",
    "T": "the number of queries",
    "S": "the number of keys",
}
# how many arguments each takes; min and max take two or more
FUNCTIONS: dict[str, tuple[int, int]] = {
    "abs": (1, 1),
    "min": (2, 8),
    "max": (2, 8),
    "exp": (1, 1),
    "log": (1, 1),
    "sqrt": (1, 1),
    "tanh": (1, 1),
    "floor": (1, 1),
    "sin": (1, 1),
    "cos": (1, 1),
    "where": (3, 3),
}
COMPARISONS = ("<=", ">=", "==", "!=", "<", ">")
WORDS = ("and", "or", "not")


class FormulaError(ConfigError):
    """A formula that cannot be read or computed; `at` is the index of the character concerned."""

    def __init__(self, text: str, at: int, why: str) -> None:
        self.text, self.at, self.why = text, at, why
        super().__init__(f"Formula {text[:MAX_TEXT]!r}, character {at + 1}: {why}")

    def pointed(self) -> str:
        """The formula with a caret below the character, for a code font."""
        line = self.text.replace("\n", " ").replace("\t", " ")
        return f"{line}\n{' ' * self.at}^"


@dataclass(frozen=True)
class Node:
    """One operation: `op` is an operator, a function, a name, "compare" or "number"; `at` its index in the text."""

    op: str
    parts: tuple[Node, ...]
    gives: Type
    at: int
    value: float = 0.0  # of a number
    signs: tuple[str, ...] = ()  # of a comparison, one fewer than its parts

    def names(self) -> frozenset[str]:
        """All names in the tree."""
        name = frozenset({self.op}) if self.op in MEANINGS else frozenset()
        return name.union(*(part.names() for part in self.parts))
