"""A person's CSV as a table: which columns are numbers, dates, categories or text, and which are left out."""

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
MOST_EXPLICIT_CATEGORIES = 1_000  # of a column that a person chose
SAMPLE_ROWS = 500  # that decide the decimal sign where a column leaves it open
ALL, IDENTIFIERS = (
    "*",
    "identifiers,",
)  # the value of `columns` that takes identifiers, too; their reason
SAMPLE_OF_ONE = 50  # rows that decide one decimal sign for the whole table
NEARLY = 0.95  # share of numbers from which the other cells of a column are mistakes


@dataclass(frozen=True)
class Texts:
    """A column of text, the class of each text by its index, and notes on how they were read."""

    texts: tuple[str, ...]
    labels: tuple[int, ...]
    classes: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sheet:
    """Rows under the names of their columns. `comma`: whether decimals have a comma, by default where `decimal` is
    "auto", which decides it by column. "table" is one sign for all columns, without separators of thousands."""

    names: tuple[str, ...]
    rows: tuple[Row, ...]
    comma: bool
    named: bool
    decimal: str = "auto"

    def has_comma(self, cells: Sequence[str]) -> bool:
        """Whether the numbers of a column have decimal commas."""
        return decimal_comma(cells, self.comma) if self.decimal == "auto" else self.comma

    def numbers(self, cells: Sequence[str], comma: bool) -> dict[str, Cell]:
        """The number in each different cell, or None."""
        return {cell: number(cell, comma, self.decimal != "table") for cell in dict.fromkeys(cells)}


class Labelled(NamedTuple):
    """The rows that have a class, their classes by index, the names of these, and notes on how they were read."""

    rows: list[Row]
    labels: tuple[int, ...]
    classes: tuple[str, ...]
    notes: list[str]


class Reading(NamedTuple):
    """A column as it is read (None: empty), why it is left out by default ("": it is not), and its cells' values."""

    column: Column | None
    why: str
    values: dict[str, Cell]
    is_text: bool = False


def sheet_of(text: str, header: str, decimal: str = "auto") -> Sheet:
    """The rows of a CSV and the names of its columns, from the first line if it has them; ConfigError as read_rows."""
    rows, delimiter = read_rows(text)
    comma = decimal == "comma"
    if decimal == "auto":
        cells = [cell for row in rows[:SAMPLE_ROWS] for cell in row.cells]
        points = any("." in cell and number(cell, False) is not None for cell in cells)
        comma = decimal_comma(cells, usual=delimiter == ";" and not points)
    elif decimal == "table":
        numeric = [
            cell
            for row in rows[:SAMPLE_OF_ONE]
            for cell in row.cells
            if re.fullmatch(r"[\d.,]+", cell)
        ]
        comma = delimiter == ";" and not any("." in cell for cell in numeric)
    sheet = Sheet((), (), comma, False, decimal)
    named = header == "yes" or header == "auto" and _is_header(rows, sheet)
    first = rows[0].cells
    names = (
        tuple(name or f"column {i}" for i, name in enumerate(first, 1))
        if named
        else tuple(f"column {i}" for i in range(1, len(first) + 1))
    )
    if duplicates := [name for name, count in Counter(names).items() if count > 1]:
        raise ConfigError(
            f"Line {rows[0].line} names two columns {quote(duplicates[0])}; give each its own name."
        )
    return Sheet(names, tuple(rows[1:] if named else rows), comma, named, decimal)


def _is_header(rows: Sequence[Row], sheet: Sheet) -> bool:
    """Whether the first row is different words, none of which occurs again in its column."""
    first = rows[0].cells
    numbers = sheet.numbers(first, sheet.comma)
    if any(missing(cell) or numbers[cell] is not None for cell in first) or len(set(first)) < len(
        first
    ):
        return False
    return not any(row.cells[i] == cell for i, cell in enumerate(first) for row in rows[1:])


def find_column(names: Sequence[str], query: str, what: str) -> int:
    """The index of a column, by its name or its number from 1; ConfigError lists the names."""
    folded = [name.casefold() for name in names]
    if query.strip().casefold() in folded:
        return folded.index(query.strip().casefold())
    if query.strip().isdecimal() and 1 <= int(query) <= len(folded):
        return int(query) - 1
    raise ConfigError(
        f"{what} = {quote(query)}: the table has no such column. It has {', '.join(names)}."
    )


def parse_table(
    text: str,
    header: str,
    label: str,
    words: str,
    columns: str = "",
    dates: str = "out",
    decimal: str = "auto",
) -> Table | Texts:
    """The data of a CSV; Texts when `words` names a column, or when there is nothing else to read.

    `label` names the column of the class (empty: the last one), `columns` those to learn from, with commas between
    (empty: all that can tell something of other rows, with notes on the rest; "*": identifiers too, unless they count
    the rows). `dates` is "out", "numbers" or "categories", `decimal` "auto", "point", "comma" or "table".
    """
    sheet = sheet_of(text, header, decimal)
    target = find_column(sheet.names, label, "label") if label.strip() else len(sheet.names) - 1
    data = _labelled(sheet, target)
    if words.strip():
        column = find_column(sheet.names, words, "text")
        if column == target:
            raise ConfigError(
                f"text = {quote(words)} is the column of the class; take another one."
            )
        return _texts(sheet, column, data)
    every = columns.strip() == ALL
    names = columns.split(",") if columns.strip() and not every else []
    chosen = [find_column(sheet.names, name, "columns") for name in names]
    if target in chosen:
        raise ConfigError(f"columns names {sheet.names[target]}, which is the class; leave it out.")
    others = [i for i in range(len(sheet.names)) if i != target]
    readings = {
        i: _column(sheet, i, data.rows, dates, i in chosen)
        for i in others
        if not chosen or i in chosen
    }
    used = [
        i
        for i, one in readings.items()
        if one.column is not None
        and (not one.why or i in chosen or every and one.why.startswith(IDENTIFIERS))
    ]
    texts = [i for i, one in readings.items() if one.is_text]
    if not used and texts:
        longest = max(texts, key=lambda i: sum(len(row.cells[i]) for row in data.rows))
        return _texts(sheet, longest, data)
    out = [
        f"{sheet.names[i]} ({readings[i].why if i in readings else 'not chosen'})"
        for i in others
        if i not in used
    ]
    if not used:
        raise ConfigError(
            f"No column is left to learn {sheet.names[target]} from: {', '.join(out)}. Name columns "
            "under Columns to use them anyway."
        )
    if out:
        data.notes.append(f"Left out: {', '.join(out)}.")
    return _table(sheet, {i: readings[i] for i in used}, data)


def _labelled(sheet: Sheet, target: int) -> Labelled:
    """The rows with a class; ConfigError for too few rows, or too few or too many classes."""
    name = sheet.names[target]
    rows = [row for row in sheet.rows if not missing(row.cells[target])]
    notes = [
        f"{'The first line names the columns' if sheet.named else 'The first line is data'}; "
        f"{name} is the class of each of {len(rows):,} rows."
    ]
    if lines := [row.line for row in sheet.rows if missing(row.cells[target])]:
        notes.append(
            f"{line_numbers(lines).capitalize()} {'have' if len(lines) > 1 else 'has'} no {name} and "
            f"{'are' if len(lines) > 1 else 'is'} left out."
        )
    if len(rows) < FEWEST_ROWS:
        raise ConfigError(
            f"The table has {len(rows)} rows with a value of {name}; at least {FEWEST_ROWS} are needed, "
            "as a fifth is held out."
        )
    counts = Counter(row.cells[target] for row in rows)
    if len(counts) > MOST_CLASSES:
        raise ConfigError(
            f"The column {name} has {len(counts):,} different values; at most {MOST_CLASSES} classes "
            "are allowed. Choose another column as the class, or combine values."
        )
    if len(counts) < 2:
        raise ConfigError(
            f"The column {name} is always {quote(next(iter(counts)))}; a class needs at least two "
            "values."
        )
    if sum(count > 2 for count in counts.values()) < 2:
        raise ConfigError(
            f"Two classes of {name} need three rows or more, so that some can be held out."
        )
    sizes = sheet.numbers(list(counts), sheet.comma)
    classes = tuple(
        sorted(
            counts, key=lambda value: (math.inf if sizes[value] is None else sizes[value], value)
        )
    )
    index = {value: i for i, value in enumerate(classes)}
    if rare := [value for value in classes if counts[value] <= 2]:
        notes.append(
            "Classes with too few rows for a held-out row: "
            f"{', '.join(rare[:3])}{' and more' if len(rare) > 3 else ''}."
        )
    return Labelled(rows, tuple(index[row.cells[target]] for row in rows), classes, notes)


def _column(sheet: Sheet, i: int, rows: Sequence[Row], dates: str, chosen: bool) -> Reading:
    """The reading of column i; ConfigError for a word among numbers, or where a person chose a column that is empty or
    has too many categories."""
    name, filled = sheet.names[i], [row for row in rows if not missing(row.cells[i])]
    cells = [row.cells[i] for row in filled]
    different = dict.fromkeys(cells)
    if not different:
        if chosen:
            raise ConfigError(f"The column {name} is empty; leave it out of columns.")
        return Reading(None, "empty", {})
    always = f"always {next(iter(different))}" if len(different) < 2 else ""
    numbers = sheet.numbers(list(different), sheet.has_comma(list(different)))
    wrong = [row for row in filled if numbers[row.cells[i]] is None]
    if not wrong:
        return Reading(Column(name), always or _identifier(cells, numbers), numbers)
    if dates != "categories" and (days := _days(cells)):
        return Reading(
            Column(name, date=True), always or ("" if dates == "numbers" else "dates"), days
        )
    if 1 - len(wrong) / len(cells) >= NEARLY:
        wrong_lines = ", ".join(f"line {row.line} has {quote(row.cells[i])}" for row in wrong[:3])
        raise ConfigError(
            f"The column {name} holds numbers, but {wrong_lines}. Correct these cells, or leave them "
            "empty."
        )
    kinds = tuple(sorted(different))
    column, values = (
        Column(name, kinds),
        dict[str, Cell](zip(kinds, map(float, range(1, len(kinds) + 1)), strict=True)),
    )
    if len(kinds) <= min(MOST_CATEGORIES, max(8, len(cells) // 4)):
        return Reading(column, always, values)
    if chosen and len(kinds) > MOST_EXPLICIT_CATEGORIES:
        raise ConfigError(
            f"The column {name} has {len(kinds):,} different texts; at most {MOST_EXPLICIT_CATEGORIES:,} "
            "can be categories. Name it under Text to read it word by word."
        )
    reason = "identifiers or text, all" if len(kinds) == len(cells) else "text,"
    return Reading(column, f"{reason} {len(kinds):,} different", values, is_text=True)


def _identifier(cells: Sequence[str], numbers: dict[str, Cell]) -> str:
    """Why a column of different whole numbers identifies its rows; "" for other columns."""
    values = [numbers[cell] for cell in cells]
    if len(set(values)) < len(values) or any(
        value is None or value != int(value) for value in values
    ):
        return ""
    counts = values == [values[0] + i for i in range(len(values))]  # type: ignore[operator]
    return "counts the rows" if counts else f"{IDENTIFIERS} {len(values):,} different whole numbers"


def _days(cells: Sequence[str]) -> dict[str, Cell]:
    """The dates of a column as days since 1970-01-01; empty where it has other cells, too."""
    order = date_order(cells)
    days = {cell: date(cell, order) for cell in dict.fromkeys(cells)}
    return {} if None in days.values() else days


def _table(sheet: Sheet, readings: dict[int, Reading], data: Labelled) -> Table:
    columns = [read.column for read in readings.values() if read.column is not None]
    cells = tuple(
        tuple(
            None if missing(row.cells[i]) else read.values[row.cells[i]]
            for i, read in readings.items()
        )
        for row in data.rows
    )
    empty = sum(value is None for row in cells for value in row)
    commas = [
        sheet.names[i]
        for i, read in readings.items()
        if read.column == Column(sheet.names[i])
        and sheet.has_comma(list(read.values))
        and any("," in cell for cell in read.values)
    ]
    numbers = [column.name for column in columns if not column.categories and not column.date]
    orders = {sheet.names[i]: date_order(list(read.values)) for i, read in readings.items()}
    days = [
        f"{column.name} ({orders[column.name]})" if orders[column.name] else column.name
        for column in columns
        if column.date
    ]
    kinds = [
        f"{column.name} ({len(column.categories)} kinds)" for column in columns if column.categories
    ]
    data.notes.extend(
        f"{title}: {', '.join(names)}."
        for title, names in (
            ("Numbers", numbers),
            ("With decimal commas", commas),
            ("Dates as numbers, in days", days),
            ("Categories", kinds),
        )
        if names
    )
    if empty:
        total = len(cells) * len(readings)
        data.notes.append(f"{empty:,} of {total:,} cells are empty and masked.")
    return Table(tuple(columns), cells, data.labels, data.classes, tuple(data.notes))


def _texts(sheet: Sheet, i: int, data: Labelled) -> Texts:
    filled = [j for j, row in enumerate(data.rows) if not missing(row.cells[i])]
    if empty := [row.line for row in data.rows if missing(row.cells[i])]:
        data.notes.append(f"{line_numbers(empty).capitalize()}: no {sheet.names[i]}, left out.")
    if len(filled) < FEWEST_ROWS:
        raise ConfigError(
            f"The column {sheet.names[i]} has {len(filled)} texts; at least {FEWEST_ROWS} are needed."
        )
    data.notes.append(f"{sheet.names[i]} is read word by word; the other columns are left out.")
    return Texts(
        tuple(data.rows[j].cells[i] for j in filled),
        tuple(data.labels[j] for j in filled),
        data.classes,
        tuple(data.notes),
    )
