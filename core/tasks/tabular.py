"""Tables: each row has numbers and categories, one token a column, and one class."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from core.entries import ConfigError, quote
from core.models.base import Shape
from core.tasks.base import Batch, Example, Form, Recipe, Task, TaskConfig, TaskEntry
from core.tasks.cells import date, date_text
from core.tasks.metrics import entropy

HELD_OUT = 0.2
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
    """Rows of cells, the class of each by its index, and what a person should know of how it was read."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    labels: tuple[int, ...]
    classes: tuple[str, ...]
    notes: tuple[str, ...] = ()


class TableTask(Task):
    """Tell a row's class from its columns; a fifth of each class is held out, equal rows on one side together.

    Numbers come centred and scaled by what is trained on. A missing cell is a token that nobody may look at.
    """

    form: Form = "label"
    input = "features"
    finite = True
    unit, whole = "row", "rows"

    def __init__(self, config: TaskConfig, entry: TaskEntry, table: Table) -> None:
        super().__init__(config, entry)
        self.table, self.classes, self.notes = table, table.classes, table.notes
        self.max_source, self.max_target = len(table.columns), 1
        self.sides = sides(table.rows, table.labels, config.seed)
        self.centre, self.scale = self._scales()
        self.recommended = recipes(len(self.sides[False]), len(table.columns))

    @property
    def shape(self) -> Shape:
        counts = tuple(len(column.categories) + 1 if column.categories else 0 for column in self.table.columns)
        return Shape(len(counts), len(self.classes), len(counts) + 1, "features", "label", counts)

    @property
    def baseline_loss(self) -> float:
        return entropy([self.table.labels[i] for i in self.sides[False]])

    def batch(self, batch_size: int, generator: torch.Generator) -> Batch:
        source, mask, labels = self._trained
        picked = torch.randint(len(labels), (batch_size,), generator=generator)
        return Batch(source[picked], mask[picked], None, labels[picked])

    def draw(self, generator: torch.Generator, held_out: bool) -> Example:
        side = self.sides[held_out]
        return self._example(side[int(torch.randint(len(side), (), generator=generator))])

    def held_out(self, n: int) -> tuple[Example, ...]:
        """All that is held out, or the first n of it."""
        return tuple(self._example(i) for i in self.sides[True][:n])

    def trained(self) -> tuple[Example, ...]:
        """All that is trained on."""
        return tuple(self._example(i) for i in self.sides[False])

    def collate(self, examples: Sequence[Example]) -> Batch:
        if not examples:
            raise ValueError("A batch needs at least one row.")
        source, mask = self._numbers([example.source for example in examples])
        labels = torch.tensor([example.target[0] if example.target else 0 for example in examples])
        return Batch(source, mask, None, labels)

    def display_tokens(self, example: Example) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Each column with its value, and the class."""
        words = tuple(f"{column.name} {column.word(value)}"
                      for column, value in zip(self.table.columns, example.source, strict=True))
        return words, tuple(self.classes[i] for i in example.target)

    def tokens(self, text: str) -> list[str]:
        return [cell.strip() for cell in text.split(",")]

    def example(self, text: str) -> Example:
        """A row that a person typed, its cells separated by commas; ValueError says which cell cannot be."""
        cells = self.tokens(text)
        if len(cells) != len(self.table.columns):
            raise ValueError(f"The row has {len(cells)} cells; this table has {len(self.table.columns)} columns: "
                             f"{', '.join(column.name for column in self.table.columns)}.")
        return Example(tuple(map(parse_cell, self.table.columns, cells)), ())

    def baseline(self) -> tuple[str, float]:
        """Logistic regression on the same split, categories one-hot, missing numbers at their mean."""
        return "logistic regression", logistic(self)

    def flat(self, examples: Sequence[Example]) -> Float[Tensor, "N D"]:
        """Rows as plain numbers, for models that know nothing of tokens."""
        batch = self.collate(examples)
        parts = [torch.nn.functional.one_hot(batch.source[:, i].long(), len(column.categories) + 1).float()
                 if column.categories else batch.source[:, i, None] for i, column in enumerate(self.table.columns)]
        return torch.cat(parts, dim=1)

    def _example(self, i: int) -> Example:
        return Example(self.table.rows[i], (self.table.labels[i],))

    @cached_property
    def _trained(self) -> tuple[Tensor, Tensor, Tensor]:
        side = self.sides[False]
        source, mask = self._numbers([self.table.rows[i] for i in side])
        return source, mask, torch.tensor([self.table.labels[i] for i in side])

    def _numbers(self, rows: Sequence[Sequence[Cell]]) -> tuple[Float[Tensor, "B F"], Bool[Tensor, "B F"]]:
        """Scaled numbers and category indexes, 0 where a cell is missing, and which cells are there."""
        mask = torch.tensor([[value is not None for value in row] for row in rows])
        raw = torch.tensor([[0.0 if value is None else value for value in row] for row in rows], dtype=torch.float64)
        scaled = torch.where(mask, (raw - self.centre) / self.scale, 0.0)
        return scaled.float(), mask

    def _scales(self) -> tuple[Float[Tensor, " F"], Float[Tensor, " F"]]:
        """Each column's mean and deviation over what is trained on; 0 and 1 for categories."""
        centre, scale = [], []
        for i, column in enumerate(self.table.columns):
            values = torch.tensor([self.table.rows[j][i] for j in self.sides[False]
                                 if self.table.rows[j][i] is not None], dtype=torch.float64)
            plain = column.categories or not len(values)
            centre.append(0.0 if plain else float(values.mean()))
            scale.append(1.0 if plain else float(values.std(correction=0)) or 1.0)
        return torch.tensor(centre, dtype=torch.float64), torch.tensor(scale, dtype=torch.float64)


def sides(rows: Sequence[object], labels: Sequence[int], seed: int) -> Mapping[bool, tuple[int, ...]]:
    """Indexes of rows to train on (False) and held out (True): a fifth of each class.

    Equal rows count as one, of the class of the first, so that nothing held out is ever trained on. ConfigError when
    no class has three different rows.
    """
    groups: dict[object, list[int]] = {}
    for i, row in enumerate(rows):
        groups.setdefault(row, []).append(i)
    by_class: dict[int, list[list[int]]] = {}
    for group in groups.values():
        by_class.setdefault(labels[group[0]], []).append(group)
    generator = torch.Generator().manual_seed(seed)
    split: dict[bool, list[int]] = {False: [], True: []}
    for label in sorted(by_class):
        of_class = by_class[label]
        held_out_count = round(HELD_OUT * len(of_class)) if len(of_class) > 2 else 0
        for place, j in enumerate(torch.randperm(len(of_class), generator=generator).tolist()):
            split[place < held_out_count] += of_class[j]
    if not split[True]:
        raise ConfigError("No class has three different rows, so none can be held out; add rows that differ.")
    order = torch.randperm(len(split[True]), generator=generator).tolist()
    return {False: tuple(split[False]), True: tuple(split[True][i] for i in order)}


def parse_cell(column: Column, cell: str) -> Cell:
    """A cell that a person typed; ValueError when the column has no such value."""
    if not cell:
        return None
    if column.categories:
        if cell not in column.categories:
            raise ValueError(f"{column.name} = {quote(cell)}; expected one of {', '.join(column.categories)}.")
        return float(column.categories.index(cell) + 1)
    if column.date:
        if (days := date(cell)) is None:
            raise ValueError(f"{column.name} = {quote(cell)}; expected a date such as 2020-03-31.")
        return days
    try:
        return float(cell)
    except ValueError:
        raise ValueError(f"{column.name} = {quote(cell)}; expected a number.") from None


def recipes(rows: int, columns: int) -> Mapping[str, Recipe]:
    """Sixty passes over the rows."""
    from core.models.config import ModelConfig

    steps = max(200, min(2000, 60 * rows // 32))
    return {kind: Recipe(ModelConfig.transformer(32, num_heads=4, d_ff=64, kind=kind).to_json(), steps, 32, 3e-3)
            for kind in ("classifier", "one_token")}


def logistic(task: Any) -> float:
    """The share of held-out rows that logistic regression tells right, trained on the others."""
    from sklearn.linear_model import LogisticRegression

    return baseline_accuracy(task, LogisticRegression(max_iter=1000))


def baseline_accuracy(task: Any, classifier: Any) -> float:
    """What a classifier of scikit-learn's gets right of a task's held-out rows, fitted to the others."""
    (train, answers), (test, targets) = (
        (task.flat(side), [example.target[0] for example in side])
        for side in (task.trained(), task.held_out(10**6)))
    return float(classifier.fit(train, answers).score(test, targets))


def data_file(name: str) -> Path:
    """A data set inside scikit-learn, found without the second that importing it takes."""
    spec = find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("This task's data comes with scikit-learn; install requirements.txt.")
    return Path(spec.origin).parent / "datasets" / "data" / name


@lru_cache(maxsize=1)
def iris() -> Table:
    """150 flowers of three species, four lengths each (Fisher 1936)."""
    with data_file("iris.csv").open(encoding="utf-8") as file:
        (_, _, *classes), *rows = list(csv.reader(file))
    names = ("sepal length", "sepal width", "petal length", "petal width")
    return Table(tuple(map(Column, names)), tuple(tuple(map(float, row[:4])) for row in rows),
                 tuple(int(row[4]) for row in rows), tuple(classes))


class Iris(TableTask):
    """Fisher's flowers; logistic regression tells them as well as any attention does."""

    def places(self, example: Example) -> tuple[tuple[int, ...], ...]:
        """The two columns of the petals."""
        return ((2, 3),)


IRIS = TaskEntry(
    "iris", "Iris", "Tell a flower's species from four lengths (Fisher 1936).",
    "One head at least looks at the petals, which tell the species; the others look anywhere, as four columns leave "
    "little to choose from.",
    lambda config: Iris(config, IRIS, iris()))
