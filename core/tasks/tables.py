"""Tables: their cells and columns, rows as tokens, Iris, and a person's table as it is read."""

import csv
import hashlib
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float

from core.entries import ConfigError, quote, refuse_if
from core.memory import with_pauses
from core.models.base import Shape
from core.tasks import recipes
from core.tasks.base import Example, LabelledTask
from core.tasks.config import TaskConfig, TaskEntry
from core.tasks.reading import MAX_COLUMNS, Row, line_numbers, read, read_rows, row_notes

# An empty cell, and the usual marks for one.
MISSING = frozenset(
    ("", "NA", "na", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "none", "?", "-")
)
MONTH_FIRST = "month/day/year"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SPACE = re.compile("(?<=\\d)[ \u00a0\u202f](?=\\d{3}(?!\\d))")  # between thousands
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?")
_TIME = r"(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.\d+)?)?(?:Z|[+-]00:?00)?)?"
_YEAR_FIRST = re.compile(r"(\d{4})[-/](\d\d?)[-/](\d\d?)" + _TIME)
_YEAR_LAST = re.compile(r"(\d\d?)([./-])(\d\d?)\2(\d{4})" + _TIME)


def number(cell: str, comma: bool, thousands: bool = True) -> float | None:
    """The number in a cell, with a decimal comma or else a decimal point; None where it is none, or too large. With
    `thousands` the other sign or a space may separate thousands, and a minus may be one (−)."""
    if thousands:
        cell = _SPACE.sub("", cell).replace("−", "-")
    if comma:
        cell = cell.translate({ord(","): ".", ord("."): ","})
    if thousands and _THOUSANDS.fullmatch(cell):
        cell = cell.replace(",", "")
    value = float(cell) if _NUMBER.fullmatch(cell) else math.inf
    return value if math.isfinite(value) else None


def decimal_comma(cells: Sequence[str], usual: bool) -> bool:
    """Whether more of these cells are numbers with a decimal comma than with a point; `usual` for as many."""
    point, comma = (sum(number(cell, sign) is not None for cell in cells) for sign in (False, True))
    return comma > point or usual and comma == point


def date_order(cells: Sequence[str]) -> str:
    """The order of 3/4/2020 among these dates: "month/day/year" only where some second part is over 12 and no first
    one is, else "day/month/year"; "" where no date has slashes."""
    parts = [
        (int(match[1]), int(match[3]))
        for cell in cells
        if (match := _YEAR_LAST.fullmatch(cell)) and match[2] == "/"
    ]
    if not parts:
        return ""
    months = any(second > 12 for _, second in parts) and not any(first > 12 for first, _ in parts)
    return MONTH_FIRST if months else "day/month/year"


def date(cell: str, order: str = "") -> float | None:
    """Days since 1970-01-01 of a date (2020-03-31, 31.3.2020, 31/3/2020, with or without a time), or None."""
    if match := _YEAR_FIRST.fullmatch(cell):
        year, month, day, *clock = match.groups()
    elif match := _YEAR_LAST.fullmatch(cell):
        first, mark, second, year, *clock = match.groups()
        day, month = (second, first) if mark == "/" and order == MONTH_FIRST else (first, second)
    else:
        return None
    try:
        hour, minute, second = (int(part or 0) for part in clock)
        moment = datetime(int(year), int(month), int(day), hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    return (moment - EPOCH) / timedelta(days=1)


Cell = float | None  # None: missing; a category as its index, from 1


@dataclass(frozen=True)
class Column:
    """A column of numbers, of dates (days since 1970-01-01), or of the categories it names."""

    name: str
    categories: tuple[str, ...] = ()
    date: bool = False

    def word(self, value: Cell) -> str:
        """A cell as a person reads it; of a date its time too, unless that is midnight."""
        if value is None:
            return "missing"
        if self.date:
            moment = EPOCH + timedelta(seconds=round(value * 86_400))
            return f"{moment:%Y-%m-%d %H:%M:%S}".removesuffix(" 00:00:00")
        return self.categories[int(value) - 1] if self.categories else f"{value:g}"


@dataclass(frozen=True)
class Table:
    """Rows of cells, the class of each by its index, and notes on how they were read."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    labels: tuple[int, ...]
    classes: tuple[str, ...]
    notes: tuple[str, ...] = ()


class TableTask(LabelledTask):
    """Tell a row's class from its columns. Numbers are centred and scaled by the training rows. A missing cell is a
    masked token."""

    input = "features"
    unit, whole = "row", "rows"

    def __init__(self, config: TaskConfig, entry: TaskEntry, table: Table) -> None:
        super().__init__(config, entry, table.rows, table.labels, table.classes)
        self.table, self.notes = table, table.notes
        self.centre, self.scale = self._scales()
        self.recommended = recipes.table(len(self.sides[False]))

    @property
    def shape(self) -> Shape:
        counts = tuple(
            len(column.categories) + 1 if column.categories else 0 for column in self.table.columns
        )
        return Shape(len(counts), len(self.classes), len(counts) + 1, "features", "label", counts)

    def encode(
        self, examples: Sequence[Example]
    ) -> tuple[Float[torch.Tensor, "B F"], Bool[torch.Tensor, "B F"]]:
        """Scaled numbers and category indexes, 0 where a cell is missing, and which cells are there."""
        refuse_if(not examples, "A batch needs at least one row.")
        rows = [example.source for example in examples]
        mask = torch.tensor([[value is not None for value in row] for row in rows])
        raw = torch.tensor(
            [[math.nan if value is None else value for value in row] for row in rows],
            dtype=torch.float64,
        )
        return torch.where(mask, (raw - self.centre) / self.scale, 0.0).float(), mask

    def display_tokens(self, example: Example) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Each column with its value, and the class."""
        words = tuple(
            f"{column.name} {column.word(value)}"
            for column, value in zip(self.table.columns, example.source, strict=True)
        )
        return words, example.target

    def tokens(self, text: str) -> list[str]:
        return [cell.strip() for cell in text.split(",")]

    def example(self, text: str) -> Example:
        """A typed row, its cells separated by commas; ValueError names a cell that does not fit its column."""
        cells = self.tokens(text)
        refuse_if(
            len(cells) != len(self.table.columns),
            f"The row has {len(cells)} cells; this table has {len(self.table.columns)} columns: "
            f"{', '.join(column.name for column in self.table.columns)}.",
        )
        return Example(tuple(map(parse_cell, self.table.columns, cells)), ())

    def flat(self, examples: Sequence[Example]) -> Float[torch.Tensor, "N D"]:
        """Rows as plain numbers, categories one-hot, missing numbers at their mean."""
        batch = self.collate(examples)
        parts = [
            torch.nn.functional.one_hot(
                batch.source[:, i].long(), len(column.categories) + 1
            ).float()
            if column.categories
            else batch.source[:, i, None]
            for i, column in enumerate(self.table.columns)
        ]
        return torch.cat(parts, dim=1)

    def _scales(self) -> tuple[Float[torch.Tensor, " F"], Float[torch.Tensor, " F"]]:
        centre, scale = [], []
        for i, column in enumerate(self.table.columns):
            cells = [self.table.rows[j][i] for j in self.sides[False]]
            values = torch.tensor([cell for cell in cells if cell is not None], dtype=torch.float64)
            plain = column.categories or not len(values)
            centre.append(0.0 if plain else float(values.mean()))
            scale.append(1.0 if plain else float(values.std(correction=0)) or 1.0)
        return torch.tensor(centre, dtype=torch.float64), torch.tensor(scale, dtype=torch.float64)


def parse_cell(column: Column, cell: str) -> Cell:
    """The value of a typed cell; ValueError when the column has no such value."""
    if not cell:
        return None
    if column.categories:
        refuse_if(
            cell not in column.categories,
            f"{column.name} = {quote(cell)}; expected one of {', '.join(column.categories)}.",
        )
        return float(column.categories.index(cell) + 1)
    if column.date:
        if (days := date(cell)) is None:
            raise ValueError(f"{column.name} = {quote(cell)}; expected a date such as 2020-03-31.")
        return days
    try:
        return float(cell)
    except ValueError:
        raise ValueError(f"{column.name} = {quote(cell)}; expected a number.") from None


def read_pinned(file: Path, sha256: str) -> bytes:
    """The bytes of a data set; ConfigError unless they are those that the lab's results were measured on."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"The data {file.name} cannot be read: {error.strerror}.") from error
    refuse_if(
        hashlib.sha256(data).hexdigest() != sha256,
        f"{file.name} is not the data that the lab's results were measured on, so it is not read; install the lab "
        "and scikit-learn again.",
    )
    return data


def sklearn_data(name: str, sha256: str) -> bytes:
    """A data set inside scikit-learn, by its path there and read without importing it (1 s); as `read_pinned`."""
    spec = find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise ConfigError("This data comes with scikit-learn; run pip install scikit-learn.")
    return read_pinned(Path(spec.origin).parent / "datasets" / name, sha256)


@lru_cache(maxsize=1)
def iris() -> Table:
    """150 flowers of three species, four lengths each (Fisher 1936)."""
    data = sklearn_data(
        "data/iris.csv", "f13ffa8fdd56fd8e6c8d16d4081a3fbd3114bcd0aae4256c43205169cd9d1449"
    )
    (_, _, *classes), *rows = csv.reader(data.decode().splitlines())
    names = ("sepal length", "sepal width", "petal length", "petal width")
    return Table(
        tuple(map(Column, names)),
        tuple(tuple(map(float, row[:4])) for row in rows),
        tuple(int(row[4]) for row in rows),
        tuple(classes),
    )


class Iris(TableTask):
    """Fisher's flowers, which logistic regression tells as well as any attention."""

    def places(self, example: Example) -> tuple[tuple[int, ...], ...]:
        """The two columns of the petals."""
        return ((2, 3),)


IRIS: TaskEntry = TaskEntry(
    "iris",
    "Iris",
    meaning="Classify the species of a flower from four lengths (Fisher 1936).",
    look="At least one head attends to the petals, which determine the species. With four columns, the other heads have no "
    "clear pattern.",
    build=lambda config: Iris(config, IRIS, iris()),
)


MIN_ROWS, MAX_CLASSES, MAX_CATEGORIES = 20, 30, 40
MAX_EXPLICIT_CATEGORIES = 1_000  # of a column that a person chose
SAMPLE_ROWS = 500  # that decide the decimal sign where a column leaves it open
# the value of `columns` that takes identifiers, too; their reason
ALL, IDENTIFIERS = ("*", "identifiers,")
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
    named: bool = False
    decimal: str = "auto"
    missing: str = ""
    lines: tuple[str, ...] = ()

    def has_comma(self, cells: Sequence[str]) -> bool:
        """Whether the numbers of a column have decimal commas."""
        return decimal_comma(cells, self.comma) if self.decimal == "auto" else self.comma

    @cached_property
    def empty(self) -> tuple[frozenset[str], ...]:
        """The cells that count as missing, by column: those that `missing` lists, or the usual marks.

        By itself a mark is a word of the column, as the class "-" or the country NA, where the others are no numbers or
        dates, and it is as frequent as they are: half as often as their median to twice as often as the commonest.
        """
        return tuple(map(self._empty, range(len(self.names))))

    def _empty(self, i: int) -> frozenset[str]:
        if self.missing.strip() not in ("", ALL):
            return frozenset(("", *map(str.strip, self.missing.split(","))))
        counts = Counter(row.cells[i] for row in self.rows)
        others = {cell: count for cell, count in counts.items() if cell not in MISSING}
        measured = sum(
            number(cell, False) is not None
            or number(cell, True) is not None
            or date(cell) is not None
            for cell in others
        )
        if self.missing or 2 * measured > len(others) or not others:
            return MISSING
        # Beside a single word a mark is the other class, however rare.
        least = median(others.values()) / 2 if len(others) > 1 else 1
        most = 2 * max(others.values())
        return MISSING - {mark for mark in MISSING if mark and least <= counts[mark] <= most}

    def marks(self, i: int) -> list[str]:
        """What is made of the usual marks of an empty cell in column i, in words; nothing where it has none."""
        empty, cells = self.empty[i], {row.cells[i] for row in self.rows}
        notes, name = [], self.names[i]
        if marks := sorted(cells & empty - {""}):
            notes.append(f"{name}: {', '.join(map(quote, marks))} counts as an empty cell.")
        if words := sorted(cells & MISSING - empty):
            notes.append(
                f"{name}: {', '.join(map(quote, words))} counts as a value; name it under Missing if it is none."
            )
        return notes

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


def sheet_of(data: str, header: str, decimal: str = "auto", missing: str = "") -> Sheet:
    """The rows of a CSV and the names of its columns, from the first line if it has them; ConfigError as read_rows."""
    rows, delimiter = read_rows(read(data))
    lines = tuple(row_notes(read(data), rows))
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
    sheet = Sheet((), (), comma, decimal=decimal)
    first = rows[0].cells
    numbers = sheet.numbers(first, comma)
    named = (
        header == "yes"
        or (  # words, none of which occurs again in its column
            header == "auto"
            # pandas leaves the name of its index empty
            and not any(cell in MISSING - {""} or numbers[cell] is not None for cell in first)
            and not any(
                row.cells[i] == cell != "" for i, cell in enumerate(first) for row in rows[1:]
            )
        )
    )
    names = (
        tuple(name or f"column {i}" for i, name in enumerate(first, 1))
        if named
        else tuple(f"column {i}" for i in range(1, len(first) + 1))
    )
    if duplicates := [name for name, count in Counter(names).items() if count > 1]:
        raise ConfigError(
            f"Line {rows[0].line} names two columns {quote(duplicates[0])}; give each its own name."
        )
    return Sheet(names, tuple(rows[1:] if named else rows), comma, named, decimal, missing, lines)


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


@lru_cache(maxsize=8)
def parse_table(
    data: str,
    header: str,
    label: str,
    text: str,
    columns: str = "",
    dates: str = "out",
    decimal: str = "auto",
    missing: str = "",
) -> Table | Texts:
    """The data of a CSV, or of a reference to one; Texts when `text` names a column, or when there is nothing else to read.

    `label` names the column of the class (empty: the last one), `columns` those to learn from, with commas between
    (empty: all that can tell something of other rows, with notes on the rest; "*": identifiers too, unless they count
    the rows). `dates` is "out", "numbers" or "categories", `decimal` "auto", "point", "comma" or "table". `missing`
    lists the cells that count as empty (empty: `Sheet.empty` decides, "*": all of MISSING).
    """
    sheet = sheet_of(data, header, decimal, missing)
    target = find_column(sheet.names, label, "label") if label.strip() else len(sheet.names) - 1
    labelled = _labelled(sheet, target)
    if text.strip():
        column = find_column(sheet.names, text, "text")
        refuse_if(
            column == target, f"text = {quote(text)} is the column of the class; take another one."
        )
        return _texts(sheet, column, labelled)
    every = columns.strip() == ALL
    names = columns.split(",") if columns.strip() and not every else []
    refuse_if(
        len(names) > MAX_COLUMNS,
        f"columns has {len(names):,} names; a table has at most {MAX_COLUMNS} columns.",
    )
    chosen = [find_column(sheet.names, name, "columns") for name in names]
    refuse_if(
        target in chosen, f"columns names {sheet.names[target]}, which is the class; leave it out."
    )
    others = [i for i in range(len(sheet.names)) if i != target]
    readings = {
        i: _column(sheet, i, labelled.rows, dates, i in chosen)
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
        longest = max(texts, key=lambda i: sum(len(row.cells[i]) for row in labelled.rows))
        return _texts(sheet, longest, labelled)
    out = [
        f"{sheet.names[i]} ({readings[i].why if i in readings else 'not chosen'})"
        for i in others
        if i not in used
    ]
    refuse_if(
        not used,
        f"No column is left to learn {sheet.names[target]} from: {', '.join(out)}. Name columns "
        "under Columns to use them anyway.",
    )
    if out:
        labelled.notes.append(f"Left out: {', '.join(out)}.")
    return _table(sheet, {i: readings[i] for i in used}, labelled)


def _labelled(sheet: Sheet, target: int) -> Labelled:
    name = sheet.names[target]
    empty = sheet.empty[target]
    rows = [row for row in sheet.rows if row.cells[target] not in empty]
    notes = [
        f"{'The first line names the columns' if sheet.named else 'The first line is data'}; "
        f"{name} is the class of each of {len(rows):,} rows."
    ]
    notes += [*sheet.lines, *sheet.marks(target)]
    if lines := [row.line for row in sheet.rows if row.cells[target] in empty]:
        notes.append(
            f"{line_numbers(lines).capitalize()} {'have' if len(lines) > 1 else 'has'} no {name} and "
            f"{'are' if len(lines) > 1 else 'is'} left out."
        )
    refuse_if(
        len(rows) < MIN_ROWS,
        f"The table has {len(rows)} rows with a value of {name}; at least {MIN_ROWS} are needed, "
        f"as a fifth is held out. {' '.join(sheet.marks(target))}".strip(),
    )
    counts = Counter(row.cells[target] for row in rows)
    refuse_if(
        len(counts) > MAX_CLASSES,
        f"The column {name} has {len(counts):,} different values; at most {MAX_CLASSES} classes "
        "are allowed. Choose another column as the class, or combine values.",
    )
    refuse_if(
        len(counts) < 2,
        f"The column {name} is always {quote(next(iter(counts)))}; a class needs at least two "
        f"values. {' '.join(sheet.marks(target))}".strip(),
    )
    refuse_if(
        sum(count > 2 for count in counts.values()) < 2,
        f"Two classes of {name} need three rows or more, so that some can be held out.",
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
    empty = sheet.empty[i]
    name, filled = sheet.names[i], [row for row in rows if row.cells[i] not in empty]
    cells = [row.cells[i] for row in filled]
    different = dict.fromkeys(cells)
    if not different:
        refuse_if(chosen, f"The column {name} is empty; leave it out of columns.")
        return Reading(None, "empty", {})
    always = f"always {next(iter(different))}" if len(different) < 2 else ""
    numbers = sheet.numbers(list(different), sheet.has_comma(list(different)))
    wrong = [row for row in filled if numbers[row.cells[i]] is None]
    if not wrong:
        in_order = [value for value in map(numbers.__getitem__, cells) if value is not None]
        if always or len(set(in_order)) < len(in_order) or any(value % 1 for value in in_order):
            return Reading(Column(name), always, numbers)
        counts = in_order == [in_order[0] + i for i in range(len(in_order))]
        why = (
            "counts the rows"
            if counts
            else f"{IDENTIFIERS} {len(in_order):,} different whole numbers"
        )
        return Reading(Column(name), why, numbers)
    order = date_order(cells)
    days = {cell: date(cell, order) for cell in different}
    if dates != "categories" and None not in days.values():
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
    if len(kinds) <= min(MAX_CATEGORIES, max(8, len(cells) // 4)):
        return Reading(column, always, values)
    refuse_if(
        chosen and len(kinds) > MAX_EXPLICIT_CATEGORIES,
        f"The column {name} has {len(kinds):,} different texts; at most {MAX_EXPLICIT_CATEGORIES:,} "
        "can be categories. Name it under Text to read it word by word.",
    )
    reason = "identifiers or text, all" if len(kinds) == len(cells) else "text,"
    return Reading(column, f"{reason} {len(kinds):,} different", values, is_text=True)


def _table(sheet: Sheet, readings: dict[int, Reading], data: Labelled) -> Table:
    columns = [read.column for read in readings.values() if read.column is not None]
    data.notes.extend(note for i in readings for note in sheet.marks(i))
    cells = tuple(
        tuple(
            None if row.cells[i] in sheet.empty[i] else read.values[row.cells[i]]
            for i, read in readings.items()
        )
        for row in with_pauses(data.rows)
    )
    empty = sum(value is None for row in cells for value in row)
    commas = [
        sheet.names[i]
        for i, read in readings.items()
        if read.column == Column(sheet.names[i])
        and sheet.has_comma(list(read.values))
        and any("," in cell for cell in read.values)
    ]
    orders = {sheet.names[i]: date_order(list(read.values)) for i, read in readings.items()}
    days = [
        f"{column.name} ({orders[column.name]})" if orders[column.name] else column.name
        for column in columns
        if column.date
    ]
    named = {
        "Numbers": [one.name for one in columns if not one.categories and not one.date],
        "With decimal commas": commas,
        "Dates as numbers, in days": days,
        "Categories": [
            f"{one.name} ({len(one.categories)} kinds)" for one in columns if one.categories
        ],
    }
    data.notes.extend(f"{title}: {', '.join(names)}." for title, names in named.items() if names)
    if empty:
        data.notes.append(
            f"{empty:,} of {len(cells) * len(readings):,} cells are empty and masked."
        )
    return Table(tuple(columns), cells, data.labels, data.classes, tuple(data.notes))


def _texts(sheet: Sheet, i: int, data: Labelled) -> Texts:
    missing = sheet.empty[i]
    filled = [j for j, row in enumerate(data.rows) if row.cells[i] not in missing]
    if empty := [row.line for row in data.rows if row.cells[i] in missing]:
        data.notes.append(f"{line_numbers(empty).capitalize()}: no {sheet.names[i]}, left out.")
    refuse_if(
        len(filled) < MIN_ROWS,
        f"The column {sheet.names[i]} has {len(filled)} texts; at least {MIN_ROWS} are needed. "
        f"{' '.join(sheet.marks(i))}".strip(),
    )
    data.notes.append(f"{sheet.names[i]} is read word by word; the other columns are left out.")
    return Texts(
        tuple(data.rows[j].cells[i] for j in filled),
        tuple(data.labels[j] for j in filled),
        data.classes,
        tuple(data.notes),
    )
