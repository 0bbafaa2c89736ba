"""A person's CSV as a table to learn from: which columns are numbers, categories or text, and what is left out."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from core.entries import ConfigError, quote
from core.tasks.cells import date, date_order, decimal_comma, missing, number
from core.tasks.reading import Row, line_numbers, read_rows
from core.tasks.tabular import Cell, Column, Table

FEWEST_ROWS, MOST_CLASSES, MOST_CATEGORIES = 20, 30, 40
MOST_EXPLICIT_CATEGORIES = 1_000  # of a text column that a person puts back
SAMPLE_ROWS = 500  # that decide what a decimal sign is where a column does not say
ALL, IDENTIFIERS = "*", "identifiers,"  # all columns, those too
SAMPLE_OF_ONE = 50  # rows that decide the decimal sign where it is one for the whole table
NEARLY = 0.95  # a column with this share of numbers is one of numbers, and the rest are mistakes


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
    """Rows under the names of their columns. `comma` is whether decimals have a comma, column by column where `decimal`
    is "auto". With "table" it is one sign for all of them, and nothing stands between thousands."""

    names: tuple[str, ...]
    rows: tuple[Row, ...]
    comma: bool
    named: bool
    decimal: str = "auto"

    def has_comma(self, cells: Sequence[str]) -> bool:
        """Whether the numbers of a column have decimal commas."""
        return decimal_comma(cells, self.comma) if self.decimal == "auto" else self.comma

    def numbers(self, cells: Sequence[str], comma: bool) -> dict[str, Cell]:
        """The number in each different cell, None where it is none."""
        return {cell: number(cell, comma, self.decimal != "table") for cell in dict.fromkeys(cells)}


class Reading(NamedTuple):
    """How a column is read, why it is left out unless a person puts it back ("" where it is not), and its cells.

    `column` is None where it cannot be learned from at all.
    """

    column: Column | None
    why: str
    values: dict[str, Cell]
    is_text: bool = False


def sheet_of(text: str, header: str, decimal: str = "auto") -> Sheet:
    """The rows of a CSV under their names, from its first line where that holds names; ConfigError as read_rows."""
    rows, delimiter = read_rows(text)
    comma = decimal == "comma"
    if decimal == "auto":
        cells = [cell for row in rows[:SAMPLE_ROWS] for cell in row.cells]
        points = any("." in cell and number(cell, False) is not None for cell in cells)
        comma = decimal_comma(cells, usual=delimiter == ";" and not points)
    elif decimal == "table":
        numeric = [cell for row in rows[:SAMPLE_OF_ONE] for cell in row.cells if re.fullmatch(r"[\d.,]+", cell)]
        comma = delimiter == ";" and not any("." in cell for cell in numeric)
    sheet = Sheet((), (), comma, False, decimal)
    named = header == "yes" or header == "auto" and _is_header(rows, sheet)
    first = rows[0].cells
    names = tuple(name or f"column {i}" for i, name in enumerate(first, 1)) if named else tuple(
        f"column {i}" for i in range(1, len(first) + 1))
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise ConfigError(f"Line {rows[0].line} names two columns {quote(twice[0])}; give each its own name.")
    return Sheet(names, tuple(rows[1:] if named else rows), comma, named, decimal)


def _is_header(rows: Sequence[Row], sheet: Sheet) -> bool:
    """Whether the first row is unlike those below: all words, and none of them said again in its column."""
    first, rest = rows[0].cells, rows[1:]
    numbers = sheet.numbers(first, sheet.comma)
    if any(missing(cell) or numbers[cell] is not None for cell in first) or len(set(first)) < len(first):
        return False
    return not any(row.cells[i] == cell for i, cell in enumerate(first) for row in rest)


def find_column(names: Sequence[str], query: str, what: str) -> int:
    """The place of a column, by its name or its number from 1; ConfigError lists the names."""
    folded = [name.casefold() for name in names]
    if query.strip().casefold() in folded:
        return folded.index(query.strip().casefold())
    if query.strip().isdecimal() and 1 <= int(query) <= len(folded):
        return int(query) - 1
    raise ConfigError(f"{what} = {quote(query)}: the table has no such column. It has {', '.join(names)}.")


def parse_table(text: str, header: str, label: str, words: str, columns: str = "", dates: str = "out",
                decimal: str = "auto") -> Table | Texts:
    """What is to be learned from a CSV; a Texts when `words` names a column, or when there is nothing else to read.

    `label` names the column of the class, the last one when it is empty. `columns` names those to learn from, with
    commas between; empty: all but those that tell nothing of other rows, which the notes name with the reason; "*":
    identifiers too, unless they count the rows. `dates` is "out", "numbers" or "categories", `decimal` "auto", "point",
    "comma" or "table". Runs of before these three were parameters go by "*", "categories" and "table".
    """
    sheet = sheet_of(text, header, decimal)
    target = find_column(sheet.names, label, "label") if label.strip() else len(sheet.names) - 1
    rows, labels, classes, notes = _labelled(sheet, target)
    if words.strip():
        place = find_column(sheet.names, words, "text")
        if place == target:
            raise ConfigError(f"text = {quote(words)} is the column of the class; take another one.")
        return _texts(sheet, place, rows, labels, classes, notes)
    every = columns.strip() == ALL
    chosen = [find_column(sheet.names, name, "columns") for name in columns.split(",")
              ] if columns.strip() and not every else []
    if target in chosen:
        raise ConfigError(f"columns names {sheet.names[target]}, which is the class; leave it out.")
    others = [i for i in range(len(sheet.names)) if i != target]
    read = {i: _column(sheet, i, rows, dates, i in chosen) for i in others if not chosen or i in chosen}
    used = [i for i, one in read.items() if one.column is not None
            and (not one.why or i in chosen or every and one.why.startswith(IDENTIFIERS))]
    texts = [i for i, one in read.items() if one.is_text]
    if not used and texts:
        longest = max(texts, key=lambda i: sum(len(row.cells[i]) for row in rows))
        return _texts(sheet, longest, rows, labels, classes, notes)
    out = [f"{sheet.names[i]} ({read[i].why if i in read else 'not chosen'})" for i in others if i not in used]
    if not used:
        raise ConfigError(f"No column is left to learn from beside {sheet.names[target]}: {', '.join(out)}. Name those "
                          "to take all the same under Columns.")
    if out:
        notes += [f"Left out: {', '.join(out)}."]
    return _table(sheet, {i: read[i] for i in used}, rows, labels, classes, notes)


def _labelled(sheet: Sheet, target: int) -> tuple[list[Row], tuple[int, ...], tuple[str, ...], list[str]]:
    """The rows that have a class, their classes by index, the names of those, and notes; ConfigError if they won't do.
    """
    name = sheet.names[target]
    rows = [row for row in sheet.rows if not missing(row.cells[target])]
    notes = [f"{'The first line names the columns' if sheet.named else 'The first line is data'}; "
             f"{name} is the class of each of {len(rows):,} rows."]
    if without := [row.line for row in sheet.rows if missing(row.cells[target])]:
        notes.append(f"{line_numbers(without).capitalize()} {'have' if len(without) > 1 else 'has'} no {name} and "
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
    sizes = sheet.numbers(list(counts), sheet.comma)
    classes = tuple(sorted(counts, key=lambda value: (math.inf if sizes[value] is None else sizes[value], value)))
    place = {value: i for i, value in enumerate(classes)}
    if rare := [value for value in classes if counts[value] <= 2]:
        notes.append(f"Too few rows to hold any out: {', '.join(rare[:3])}{' and more' if len(rare) > 3 else ''}.")
    return rows, tuple(place[row.cells[target]] for row in rows), classes, notes


def _column(sheet: Sheet, i: int, rows: Sequence[Row], dates: str, chosen: bool) -> Reading:
    """How the column of that place is read; ConfigError for a stray word among numbers, or where a person chose a
    column that nothing can be learned from."""
    name, there = sheet.names[i], [row for row in rows if not missing(row.cells[i])]
    cells = [row.cells[i] for row in there]
    different = dict.fromkeys(cells)
    if not different:
        if chosen:
            raise ConfigError(f"The column {name} is empty; leave it out of columns.")
        return Reading(None, "empty", {})
    always = f"always {next(iter(different))}" if len(different) < 2 else ""
    numbers = sheet.numbers(list(different), sheet.has_comma(list(different)))
    wrong = [row for row in there if numbers[row.cells[i]] is None]
    if not wrong:
        return Reading(Column(name), always or _identifier(cells, numbers), numbers)
    if dates != "categories" and (days := _days(cells)):
        return Reading(Column(name, date=True), always or ("" if dates == "numbers" else "dates"), days)
    if 1 - len(wrong) / len(cells) >= NEARLY:
        wrong_lines = ", ".join(f"line {row.line} has {quote(row.cells[i])}" for row in wrong[:3])
        raise ConfigError(f"The column {name} holds numbers, but {wrong_lines}. Mend them, or leave those empty.")
    kinds = tuple(sorted(different))
    read = Column(name, kinds), always, {kind: float(place) for place, kind in enumerate(kinds, 1)}
    if len(kinds) <= min(MOST_CATEGORIES, max(8, len(cells) // 4)):
        return Reading(*read)
    if chosen and len(kinds) > MOST_EXPLICIT_CATEGORIES:
        raise ConfigError(f"The column {name} has {len(kinds):,} different texts; at most {MOST_EXPLICIT_CATEGORIES:,} "
                          "can be categories. Name it under Text to read it word by word.")
    what = "identifiers or text, all" if len(kinds) == len(cells) else "text,"
    return Reading(read[0], f"{what} {len(kinds):,} different", read[2], is_text=True)


def _identifier(cells: Sequence[str], numbers: dict[str, Cell]) -> str:
    """Why whole numbers that are all different name their rows, and tell nothing of other ones; "" where they do not.
    """
    values = [numbers[cell] for cell in cells]
    if len(set(values)) < len(values) or any(value is None or value != int(value) for value in values):
        return ""
    counts = values == [values[0] + i for i in range(len(values))]  # type: ignore[operator]
    return "counts the rows" if counts else f"{IDENTIFIERS} {len(values):,} different whole numbers"


def _days(cells: Sequence[str]) -> dict[str, Cell]:
    """The dates of a column that holds nothing else, as days since 1970-01-01; empty where it holds other things."""
    order = date_order(cells)
    days = {cell: date(cell, order) for cell in dict.fromkeys(cells)}
    return {} if None in days.values() else days


def _table(sheet: Sheet, readings: dict[int, Reading], rows: Sequence[Row], labels: tuple[int, ...],
           classes: tuple[str, ...], notes: list[str]) -> Table:
    columns = [read.column for read in readings.values() if read.column is not None]
    cells = tuple(tuple(None if missing(row.cells[i]) else read.values[row.cells[i]] for i, read in readings.items())
                  for row in rows)
    empty = sum(value is None for row in cells for value in row)
    commas = [sheet.names[i] for i, read in readings.items() if read.column == Column(sheet.names[i])
              and sheet.has_comma(list(read.values)) and any("," in cell for cell in read.values)]
    numbers = [column.name for column in columns if not column.categories and not column.date]
    orders = {sheet.names[i]: date_order(list(read.values)) for i, read in readings.items()}
    days = [f"{column.name} ({orders[column.name]})" if orders[column.name] else column.name for column in columns
            if column.date]
    kinds = [f"{column.name} ({len(column.categories)} kinds)" for column in columns if column.categories]
    notes += [f"{title}: {', '.join(names)}." for title, names in (
        ("Numbers", numbers), ("With decimal commas", commas), ("Dates as numbers, in days", days),
        ("Categories", kinds)) if names]
    if empty:
        notes.append(f"{empty:,} of {len(cells) * len(readings):,} cells are empty; no attention can look at those.")
    return Table(tuple(columns), cells, labels, classes, tuple(notes))


def _texts(sheet: Sheet, i: int, rows: Sequence[Row], labels: tuple[int, ...], classes: tuple[str, ...],
           notes: list[str]) -> Texts:
    there = [j for j, row in enumerate(rows) if not missing(row.cells[i])]
    if empty := [row.line for row in rows if missing(row.cells[i])]:
        notes.append(f"{line_numbers(empty).capitalize()} without a {sheet.names[i]} left out.")
    if len(there) < FEWEST_ROWS:
        raise ConfigError(f"The column {sheet.names[i]} has {len(there)} texts; {FEWEST_ROWS} are needed at least.")
    notes.append(f"{sheet.names[i]} is read word by word; the other columns are left out.")
    return Texts(sheet.names[i], tuple(rows[j].cells[i] for j in there), tuple(labels[j] for j in there), classes,
                 tuple(notes))
