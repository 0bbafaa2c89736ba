"""A person's CSV as a table to learn from: which columns are numbers, categories or text, and what is left out."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from core.entries import ConfigError, quote
from core.tasks.reading import Row, lines_told, read_rows
from core.tasks.tabular import Cell, Column, Table

FEWEST_ROWS, MOST_CLASSES, MOST_CATEGORIES = 20, 30, 40
NEARLY = 0.95  # a column with this share of numbers is one of numbers, and the rest are mistakes
MISSING = frozenset(("", "NA", "na", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "none", "?", "-"))
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?")


@dataclass(frozen=True)
class Texts:
    """A column of text, the class of each by its index, and what a person should know of how they were read."""

    name: str
    texts: tuple[str, ...]
    labels: tuple[int, ...]
    classes: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sheet:
    """Rows under the names of their columns."""

    names: tuple[str, ...]
    rows: tuple[Row, ...]
    decimal_comma: bool
    named: bool

    def number(self, cell: str) -> float | None:
        """The number in a cell, or None where it is none, or too large to be one."""
        cell = cell.replace(",", ".") if self.decimal_comma else cell
        value = float(cell) if _NUMBER.fullmatch(cell) else math.inf
        return value if math.isfinite(value) else None


def missing(cell: str) -> bool:
    return cell in MISSING


def sheet_of(text: str, header: str) -> Sheet:
    """The rows of a CSV under their names, from its first line where that holds names; ConfigError as read_rows."""
    rows, delimiter = read_rows(text)
    decimal_comma = delimiter == ";" and not any("." in cell for row in rows[:50] for cell in row.cells
                                                 if re.fullmatch(r"[\d.,]+", cell))
    named = header == "yes" or header == "auto" and _looks_like_names(rows, Sheet((), (), decimal_comma, False))
    first = rows[0].cells
    names = tuple(name or f"column {i}" for i, name in enumerate(first, 1)) if named else tuple(
        f"column {i}" for i in range(1, len(first) + 1))
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise ConfigError(f"Line {rows[0].line} names two columns {quote(twice[0])}; give each its own name.")
    return Sheet(names, tuple(rows[1:] if named else rows), decimal_comma, named)


def _looks_like_names(rows: Sequence[Row], sheet: Sheet) -> bool:
    """Whether the first row is unlike those below: all words, and none of them said again in its column."""
    first, rest = rows[0].cells, rows[1:]
    if any(missing(cell) or sheet.number(cell) is not None for cell in first) or len(set(first)) < len(first):
        return False
    return not any(row.cells[i] == cell for i, cell in enumerate(first) for row in rest)


def find_column(sheet: Sheet, asked: str, what: str) -> int:
    """The place of a column, by its name or its number from 1; ConfigError lists the names."""
    folded = [name.casefold() for name in sheet.names]
    if asked.strip().casefold() in folded:
        return folded.index(asked.strip().casefold())
    if asked.strip().isdecimal() and 1 <= int(asked) <= len(folded):
        return int(asked) - 1
    raise ConfigError(f"{what} = {quote(asked)}: the table has no such column. It has {', '.join(sheet.names)}.")


def parse_table(text: str, header: str, label: str, words: str) -> Table | Texts:
    """What is to be learned from a CSV; a Texts when `words` names a column, or when there is nothing else to read.

    `label` names the column of the class, the last one when it is empty.
    """
    sheet = sheet_of(text, header)
    target = find_column(sheet, label, "label") if label.strip() else len(sheet.names) - 1
    rows, labels, classes, notes = _labelled(sheet, target)
    if words.strip():
        place = find_column(sheet, words, "text")
        if place == target:
            raise ConfigError(f"text = {quote(words)} is the column of the class; take another one.")
        return _texts(sheet, place, rows, labels, classes, notes)
    read = [(i, *_column(sheet, i, rows)) for i in range(len(sheet.names)) if i != target]
    kept = [(i, column) for i, column, _ in read if column is not None]
    texts = [i for i, column, why in read if column is None and why.startswith("text")]
    if not kept and texts:
        longest = max(texts, key=lambda i: sum(len(row.cells[i]) for row in rows))
        return _texts(sheet, longest, rows, labels, classes, notes)
    out = [f"{sheet.names[i]} ({why})" for i, column, why in read if column is None]
    if not kept:
        raise ConfigError(f"No column is left to learn from beside {sheet.names[target]}: {', '.join(out)}.")
    if out:
        notes += [f"Left out: {', '.join(out)}."]
    return _table(sheet, kept, rows, labels, classes, notes)


def _labelled(sheet: Sheet, target: int) -> tuple[list[Row], tuple[int, ...], tuple[str, ...], list[str]]:
    """The rows that have a class, their classes by index, the names of those, and notes; ConfigError if they won't do.
    """
    name = sheet.names[target]
    rows = [row for row in sheet.rows if not missing(row.cells[target])]
    notes = [f"{'The first line names the columns' if sheet.named else 'The first line is data'}; "
             f"{name} is the class of each of {len(rows):,} rows."]
    if without := [row.line for row in sheet.rows if missing(row.cells[target])]:
        notes.append(f"{lines_told(without).capitalize()} {'have' if len(without) > 1 else 'has'} no {name} and "
                     f"{'are' if len(without) > 1 else 'is'} left out.")
    if len(rows) < FEWEST_ROWS:
        raise ConfigError(f"The table has {len(rows)} rows with something in {name}; {FEWEST_ROWS} are needed at "
                          "least, as a fifth is held out.")
    counts = Counter(row.cells[target] for row in rows)
    if len(counts) > MOST_CLASSES:
        raise ConfigError(f"The column {name} has {len(counts):,} different values; at most {MOST_CLASSES} classes are "
                          "told apart. Name another column as the label, or join values to classes.")
    if len(counts) < 2:
        raise ConfigError(f"The column {name} is always {quote(next(iter(counts)))}; a class to be told needs another.")
    if sum(count > 2 for count in counts.values()) < 2:
        raise ConfigError(f"Two classes of {name} need three rows or more, so that some can be held out.")
    sizes = {value: sheet.number(value) for value in counts}
    classes = tuple(sorted(counts, key=lambda value: (math.inf if sizes[value] is None else sizes[value], value)))
    place = {value: i for i, value in enumerate(classes)}
    if rare := [value for value in classes if counts[value] <= 2]:
        notes.append(f"Too few rows to hold any out: {', '.join(rare[:3])}{' and more' if len(rare) > 3 else ''}.")
    return rows, tuple(place[row.cells[target]] for row in rows), classes, notes


def _column(sheet: Sheet, i: int, rows: Sequence[Row]) -> tuple[Column | None, str]:
    """The column of that place, or None and why it says nothing; ConfigError for a stray word among numbers."""
    cells = [row.cells[i] for row in rows if not missing(row.cells[i])]
    different = set(cells)
    if len(different) < 2:
        return None, f"always {next(iter(different))}" if different else "empty"
    wrong = [row for row in rows if not missing(row.cells[i]) and sheet.number(row.cells[i]) is None]
    if not wrong:
        numbers = list(map(sheet.number, cells))
        counts = numbers == list(range(int(numbers[0]), int(numbers[0]) + len(numbers)))
        return (None, "counts the rows") if counts else (Column(sheet.names[i]), "")
    if 1 - len(wrong) / len(cells) >= NEARLY:
        told = ", ".join(f"line {row.line} has {row.cells[i]!r:.30}" for row in wrong[:3])
        raise ConfigError(f"The column {sheet.names[i]} holds numbers, but {told}. Mend them, or leave those empty.")
    if len(different) > min(MOST_CATEGORIES, max(8, len(cells) // 4)):
        return None, f"text, {len(different):,} different"
    return Column(sheet.names[i], tuple(sorted(different))), ""


def _table(sheet: Sheet, kept: Sequence[tuple[int, Column]], rows: Sequence[Row], labels: tuple[int, ...],
           classes: tuple[str, ...], notes: list[str]) -> Table:
    def cell(column: Column, said: str) -> Cell:
        if missing(said):
            return None
        return float(column.categories.index(said) + 1) if column.categories else sheet.number(said)

    cells = tuple(tuple(cell(column, row.cells[i]) for i, column in kept) for row in rows)
    empty = sum(value is None for row in cells for value in row)
    numbers = [column.name for _, column in kept if not column.categories]
    kinds = [f"{column.name} ({len(column.categories)} kinds)" for _, column in kept if column.categories]
    notes += [f"{title}: {', '.join(names)}." for title, names in (("Numbers", numbers), ("Categories", kinds))
              if names]
    if empty:
        notes.append(f"{empty:,} of {len(cells) * len(kept):,} cells are empty; no attention can look at those.")
    return Table(tuple(column for _, column in kept), cells, labels, classes, tuple(notes))


def _texts(sheet: Sheet, i: int, rows: Sequence[Row], labels: tuple[int, ...], classes: tuple[str, ...],
           notes: list[str]) -> Texts:
    there = [j for j, row in enumerate(rows) if not missing(row.cells[i])]
    if gone := [row.line for row in rows if missing(row.cells[i])]:
        notes.append(f"{lines_told(gone).capitalize()} without a {sheet.names[i]} left out.")
    if len(there) < FEWEST_ROWS:
        raise ConfigError(f"The column {sheet.names[i]} has {len(there)} texts; {FEWEST_ROWS} are needed at least.")
    notes.append(f"{sheet.names[i]} is read word by word; the other columns are left out.")
    return Texts(sheet.names[i], tuple(rows[j].cells[i] for j in there), tuple(labels[j] for j in there), classes,
                 tuple(notes))
