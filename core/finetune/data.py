"""Rows of a CSV split into training and held-out rows; errors name the lines."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from core.entries import ConfigError, quote
from core.finetune.config import TASKS
from core.tasks.metrics import majority_class
from core.tasks.reading import Row, line_numbers, read_rows

LONGEST = 1_000  # characters of a cell
MOST_ROWS = 3_000
MOST_LABELS = 20
FEWEST_ROWS = 8
HELD_OUT = 4  # one row in so many
MOST_HELD_OUT = 100  # so that measuring stays a small part of a run


@dataclass(frozen=True)
class Pair:
    """One row: a text with its label, or a source with its target."""

    text: str
    answer: str


@dataclass(frozen=True)
class Rows:
    """The training rows, the held-out rows, and the labels in alphabetical order (none for pairs)."""

    learned: tuple[Pair, ...]
    held_out: tuple[Pair, ...]
    labels: tuple[str, ...] = ()
    repeated: int = 0

    @property
    def majority(self) -> tuple[str, float]:
        """The majority class of the training rows, and its share of the held-out rows."""
        return majority_class(
            [pair.answer for pair in self.learned], [pair.answer for pair in self.held_out]
        )


@lru_cache(maxsize=8)
def parse(task: str, data: str, seed: int = 0) -> Rows:
    """Split a CSV with the columns text and label, or source and target; a quarter of each label is held out.

    ConfigError names the lines with cells that are empty or too long, a text with two answers, or a label of a single
    row. Repeated rows count once.
    """
    columns = TASKS[task]
    rows, _ = read_rows(data, "file")
    if len(rows[0].cells) != 2:
        raise ConfigError(
            f"Line {rows[0].line} has {len(rows[0].cells)} columns; two are needed: {columns[0]} and "
            f"{columns[1]}. Put a text with a comma into quotation marks."
        )
    if tuple(cell.casefold() for cell in rows[0].cells) == columns:
        rows = rows[1:]
    _check_cells(rows, columns)
    once = _once(rows)
    pairs = [Pair(*row.cells) for row in once]
    if len(pairs) < FEWEST_ROWS:
        raise ConfigError(
            f"The file has {len(pairs)} different rows; at least {FEWEST_ROWS} are needed, so that some "
            "can be held out."
        )
    labels = _labels(once) if task == "classify" else ()
    learned, held_out = _split(pairs, labels, seed)
    return Rows(tuple(learned), tuple(held_out[:MOST_HELD_OUT]), labels, len(rows) - len(pairs))


def _check_cells(rows: list[Row], columns: tuple[str, str]) -> None:
    if len(rows) > MOST_ROWS:
        raise ConfigError(f"The file has {len(rows):,} rows; at most {MOST_ROWS:,} are allowed.")
    for column, name in enumerate(columns):
        if empty := [row.line for row in rows if not row.cells[column]]:
            raise ConfigError(f"There is no {name} in {line_numbers(empty)}.")
        if long := [row.line for row in rows if len(row.cells[column]) > LONGEST]:
            raise ConfigError(
                f"The {name} is longer than {LONGEST:,} characters in {line_numbers(long)}."
            )


def _once(rows: Iterable[Row]) -> list[Row]:
    """Each text once, so that no training row is held out, too."""
    first: dict[str, Row] = {}
    for row in rows:
        text, answer = row.cells
        other = first.setdefault(text, row)
        if other.cells[1] != answer:
            raise ConfigError(
                f"Lines {other.line} and {row.line} have the same text, {text!r:.60}, but different "
                f"labels: {other.cells[1]!r:.40} and {answer!r:.40}. Keep one of them."
            )
    return list(first.values())


def _labels(rows: list[Row]) -> tuple[str, ...]:
    lines: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        lines[row.cells[1]].append(row.line)
    if len(lines) < 2:
        raise ConfigError(
            f"Every row has the label {quote(rows[0].cells[1])}; at least two labels are needed."
        )
    if len(lines) > MOST_LABELS:
        raise ConfigError(
            f"There are {len(lines):,} different labels; at most {MOST_LABELS} are allowed. Is the "
            "label in the second column?"
        )
    if single := [numbers[0] for numbers in lines.values() if len(numbers) == 1]:
        raise ConfigError(
            f"A label occurs only once in the file: {line_numbers(single)}. Each label needs two rows, "
            "one for training and one held out."
        )
    return tuple(sorted(lines))


def _split(pairs: list[Pair], labels: tuple[str, ...], seed: int) -> tuple[list[Pair], list[Pair]]:
    """Hold out a random quarter of each label's rows, or of all pairs."""
    groups = (
        [[pair for pair in pairs if pair.answer == label] for label in labels]
        if labels
        else [list(pairs)]
    )
    chance = random.Random(seed)
    learned: list[Pair] = []
    held_out: list[Pair] = []
    for group in groups:
        chance.shuffle(group)
        count = max(1, len(group) // HELD_OUT)
        held_out += group[:count]
        learned += group[count:]
    chance.shuffle(learned)
    chance.shuffle(held_out)
    return learned, held_out
