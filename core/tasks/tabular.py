"""Tables: a row has numbers and categories, one token a column, and one class."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from core.entries import quote
from core.models.base import Shape
from core.tasks import recipes
from core.tasks.base import Example, TaskConfig, TaskEntry
from core.tasks.cells import date, date_text
from core.tasks.labelled import LabelledTask

Cell = float | None  # None: missing; a category as its index, from 1


@dataclass(frozen=True)
class Column:
    """A column of numbers, of dates (days since 1970-01-01), or of the categories it names."""

    name: str
    categories: tuple[str, ...] = ()
    date: bool = False

    def word(self, value: Cell) -> str:
        """A cell as a person reads it."""
        if value is None:
            return "missing"
        if self.date:
            return date_text(value)
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
        super().__init__(config, entry, table.rows, table.labels)
        self.table, self.classes, self.notes = table, table.classes, table.notes
        self.max_source = len(table.columns)
        self.centre, self.scale = self._scales()
        self.recommended = recipes.table(len(self.sides[False]))

    @property
    def shape(self) -> Shape:
        counts = tuple(
            len(column.categories) + 1 if column.categories else 0 for column in self.table.columns
        )
        return Shape(len(counts), len(self.classes), len(counts) + 1, "features", "label", counts)

    def item(self, i: int) -> Example:
        return Example(self.table.rows[i], (self.labels[i],))

    def encode(
        self, examples: Sequence[Example]
    ) -> tuple[Float[Tensor, "B F"], Bool[Tensor, "B F"]]:
        """Scaled numbers and category indexes, 0 where a cell is missing, and which cells are there."""
        if not examples:
            raise ValueError("A batch needs at least one row.")
        rows = [example.source for example in examples]
        mask = torch.tensor([[value is not None for value in row] for row in rows])
        raw = torch.tensor(
            [[0.0 if value is None else value for value in row] for row in rows],
            dtype=torch.float64,
        )
        return torch.where(mask, (raw - self.centre) / self.scale, 0.0).float(), mask

    def display_tokens(self, example: Example) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Each column with its value, and the class."""
        words = tuple(
            f"{column.name} {column.word(value)}"
            for column, value in zip(self.table.columns, example.source, strict=True)
        )
        return words, tuple(self.classes[i] for i in example.target)

    def tokens(self, text: str) -> list[str]:
        return [cell.strip() for cell in text.split(",")]

    def example(self, text: str) -> Example:
        """A typed row, its cells separated by commas; ValueError names a cell that does not fit its column."""
        cells = self.tokens(text)
        if len(cells) != len(self.table.columns):
            raise ValueError(
                f"The row has {len(cells)} cells; this table has {len(self.table.columns)} columns: "
                f"{', '.join(column.name for column in self.table.columns)}."
            )
        return Example(tuple(map(parse_cell, self.table.columns, cells)), ())

    def flat(self, examples: Sequence[Example]) -> Float[Tensor, "N D"]:
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

    def _scales(self) -> tuple[Float[Tensor, " F"], Float[Tensor, " F"]]:
        """Each column's mean and standard deviation over the training rows; 0 and 1 for categories."""
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
        if cell not in column.categories:
            raise ValueError(
                f"{column.name} = {quote(cell)}; expected one of {', '.join(column.categories)}."
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


def data_file(name: str) -> Path:
    """The path of a data set inside scikit-learn, found without importing it (1 s)."""
    spec = find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(
            "This task's data comes with scikit-learn; install requirements.txt."
        )
    return Path(spec.origin).parent / "datasets" / "data" / name


@lru_cache(maxsize=1)
def iris() -> Table:
    """150 flowers of three species, four lengths each (Fisher 1936)."""
    with data_file("iris.csv").open(encoding="utf-8") as file:
        (_, _, *classes), *rows = list(csv.reader(file))
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
    "Classify the species of a flower from four lengths (Fisher 1936).",
    "At least one head attends to the petals, which determine the species. With four columns, the other heads have no "
    "clear pattern.",
    lambda config: Iris(config, IRIS, iris()),
)
