"""Questions whose answers are compared by value, and travel only as salted hashes.

A number is right within its tolerance: all such numbers share one cell of a grid, and the cell's index is hashed.
A formula is right where its values are, on matrices of three sizes.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b, pbkdf2_hmac
from typing import Any

from core.files import text_of

TYPES = {
    "choice": "Choice",
    "numbers": "Number or matrix",
    "text": "Short text",
    "mask": "Mask formula",
    "score": "Score formula",
}
HELP = {
    "choice": "",
    "numbers": "A number, or all numbers of a matrix row by row. Brackets are ignored.",
    "text": "Case, spaces and punctuation do not count.",
    "mask": "A formula over i (query), j (key), h, T and S; true where a query may attend.",
    "score": "A formula over score, i (query), j (key), h, T and S: the new score.",
}
MOST_OPTIONS, MOST_RIGHT, MOST_NUMBERS, MOST_ANSWER, MOST_TEXT, MOST_HINT = (
    6,
    40,
    64,
    2000,
    600,
    300,
)
ROUNDS = 5_000  # of the hash
LARGEST = 1e15
SIZES = (3, 6, 8)  # rows and columns of the matrices on which formulas are compared
DECIMALS = 6


class LessonError(ValueError):
    """A lesson, an answer or a code that cannot be read; its text says what would fit."""


@dataclass(frozen=True)
class Question:
    """A question and the hashes of its right answers; `offsets` and `width` are the grid of each number."""

    type: str
    text: str
    right: tuple[str, ...]
    options: tuple[str, ...] = ()
    hint: str = ""
    offsets: tuple[float, ...] = ()
    width: float = 0.0

    def __post_init__(self) -> None:
        fits = (
            self.type in TYPES
            and 0 < len(self.text) <= MOST_TEXT
            and len(self.hint) <= MOST_HINT
            and 0 < len(self.right) <= MOST_RIGHT
            and all(re.fullmatch("[0-9a-f]{16}", one) for one in self.right)
        )
        if self.type == "choice":
            fits = fits and 2 <= len(set(self.options)) == len(self.options) <= MOST_OPTIONS
        if self.type == "numbers":
            fits = (
                fits
                and 0 < len(self.offsets) <= MOST_NUMBERS
                and 0 < self.width < LARGEST
                and all(abs(offset) < LARGEST for offset in self.offsets)
            )
        if not fits:
            raise LessonError("A question of this lesson is incomplete.")

    def check(self, answer: str) -> bool:
        """Whether an answer is right; LessonError for one that cannot be read."""
        return _digest(self._value(answer), self.text) in self.right

    def _value(self, answer: str) -> str:
        answer = text_of(answer, MOST_ANSWER + 1)
        if not answer.strip() or len(answer) > MOST_ANSWER:
            raise LessonError(
                "Give an answer first." if not answer.strip() else "This answer is too long."
            )
        if self.type == "numbers":
            return _cells(self._numbers(answer), self.offsets, self.width)
        return VALUES[self.type](answer)

    def _numbers(self, answer: str) -> list[float]:
        """As many numbers as the right answer has."""
        try:
            numbers = parse_numbers(answer)
        except LessonError:
            numbers = []
        if len(numbers) == len(self.offsets):
            return numbers
        if len(self.offsets) == 1:
            raise LessonError("Type one number, such as 2.5.")
        raise LessonError(
            f"Type {len(self.offsets)} numbers, row by row; here {'is' if len(numbers) == 1 else 'are'} "
            f"{len(numbers) or 'none'}."
        )


def make_question(
    type_: str,
    text: str,
    answer: str,
    *,
    options: tuple[str, ...] = (),
    tolerance: float = 0.0,
    hint: str = "",
) -> Question:
    """A question with its right answer, for a text one of each line; LessonError where they do not go together."""
    text, hint = text.strip(), hint.strip()
    if not text:
        raise LessonError("it has no text.")
    if not answer.strip():
        raise LessonError("it has no right answer.")
    if type_ == "choice":
        if not 2 <= len(set(options)) == len(options) <= MOST_OPTIONS:
            raise LessonError(
                f"a choice has 2 to {MOST_OPTIONS} different options, one on each line."
            )
        if answer.strip() not in options:
            raise LessonError("its right answer is none of the options.")
    answers = (
        [line for line in answer.splitlines() if line.strip()] if type_ == "text" else [answer]
    )
    offsets: tuple[float, ...] = ()
    width = 0.0
    if type_ == "numbers":
        numbers = parse_numbers(answer)
        half = max(tolerance * 1.002, 1e-9 * max(1.0, *map(abs, numbers)))
        width = float(f"{2 * half:.9g}")
        offsets = tuple(
            round((number - half) % width, 4 - math.floor(math.log10(width))) for number in numbers
        )
        values = [_cells(numbers, offsets, width)]
    else:
        values = [VALUES[type_](answer) for answer in answers]
    return Question(
        type_,
        text,
        tuple(dict.fromkeys(_digest(value, text) for value in values)),
        options if type_ == "choice" else (),
        hint,
        offsets,
        width,
    )


def parse_numbers(text: str) -> list[float]:
    """The numbers of a text such as 0,68 or 16,640 or [[1, 2], [3, 4]]; LessonError without any."""
    text = text.strip().replace("−", "-").removesuffix("%").strip()
    if re.fullmatch(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?", text):
        text = text.replace(",", "")
    elif re.fullmatch(r"[-+]?\d*,\d+", text):
        text = text.replace(",", ".")
    numbers = [
        float(part) for part in re.findall(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?", text)
    ]
    if not 0 < len(numbers) <= MOST_NUMBERS or not all(
        abs(number) <= LARGEST for number in numbers
    ):
        raise LessonError(
            f"Expected a number such as 0.25, or at most {MOST_NUMBERS} numbers of a matrix."
        )
    return numbers


def _cells(numbers: list[float], offsets: tuple[float, ...], width: float) -> str:
    return " ".join(
        str(math.floor((number - offset) / width))
        for number, offset in zip(numbers, offsets, strict=True)
    )


def _plain_text(answer: str) -> str:
    folded = unicodedata.normalize("NFKC", answer).casefold()
    return "".join(sign for sign in folded if sign.isalnum()) or folded.strip()


def _formula_values(kind: Any, answer: str) -> str:
    """The values of a formula on seeded scores of two heads, or its truth values; LessonError where it has none."""
    import torch  # not before a lesson asks for a formula

    from core.attention.formula import FormulaError, parse
    from core.attention.score_block import ScoreBlock

    values: list[float] = []
    try:
        formula = parse(answer.strip(), kind)
        for size in SIZES:
            generator = torch.Generator().manual_seed(size)
            score = torch.randn(1, 2, size, size, generator=generator, dtype=torch.float64)
            block = ScoreBlock.whole(size, size, num_heads=2)
            result = formula(block, None if kind == "mask" else score)
            values += (
                result.double().expand(2, size, size).flatten().tolist()
                if kind == "mask"
                else (result.flatten().tolist())
            )
    except FormulaError as error:
        raise LessonError(str(error)) from error
    return " ".join(f"{round(value, DECIMALS) + 0.0:g}" for value in values)


VALUES: dict[str, Callable[[str], str]] = {
    "choice": str.strip,
    "text": _plain_text,
    "mask": lambda answer: _formula_values("mask", answer),
    "score": lambda answer: _formula_values("score", answer),
}


@lru_cache(maxsize=256)
def _digest(value: str, text: str) -> str:
    """The hash of a value, salted by the text of its question; slow, so that guessing many takes long."""
    salt = blake2b(text.encode(), digest_size=16).digest()
    return pbkdf2_hmac("sha256", value.encode(), salt, ROUNDS, 8).hex()
