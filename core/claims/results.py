"""What a claim's experiment measured: numbers by condition, seed and measure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from core.training.fields import count, fits, list_of, maybe, number, text

Key = tuple[str, str, float | None]  # condition, measure, x
CELL_FIELDS = {
    "condition": text,
    "seed": count,
    "seconds": number,
    "values": list_of(
        lambda value: (
            isinstance(value, list)
            and len(value) == 3
            and text(value[0])
            and number(value[1])
            and maybe(number)(value[2])
        )
    ),
}


@dataclass(frozen=True)
class CellResult:
    """The numbers of one condition and one seed: (measure, value, x or None), and the seconds of a core they took."""

    condition: str
    seed: int
    seconds: float
    values: tuple[tuple[str, float, float | None], ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "condition": self.condition,
            "seed": self.seed,
            "seconds": round(self.seconds, 2),
            "values": [[measure, float(f"{value:.6g}"), x] for measure, value, x in self.values],
        }

    @classmethod
    def from_json(cls, data: object) -> CellResult:
        """The cell in a line of a file; ValueError for anything else."""
        if (
            not isinstance(data, dict)
            or set(data) != set(CELL_FIELDS)
            or not fits(data, CELL_FIELDS)
        ):
            raise ValueError(
                "a cell needs a condition, a seed, seconds, and values of measure, number and x"
            )
        return cls(
            data["condition"],
            data["seed"],
            float(data["seconds"]),
            tuple((measure, float(value), x) for measure, value, x in data["values"]),
        )


@dataclass(frozen=True)
class SeedValues:
    """The numbers of one seed, of all conditions."""

    values: dict[Key, float]

    def one(self, condition: str, measure: str, x: float | None = None) -> float:
        """One number; KeyError where it was not measured."""
        return self.values[condition, measure, x]

    def curve(self, condition: str, measure: str) -> dict[float, float]:
        """A measure over x, in the order of x."""
        points = {
            x: value
            for (of, name, x), value in self.values.items()
            if (of, name) == (condition, measure) and x is not None
        }
        return dict(sorted(points.items()))


@dataclass(frozen=True)
class Results:
    """The cells so far, in any order."""

    cells: tuple[CellResult, ...]

    @classmethod
    def of(cls, cells: Iterable[CellResult]) -> Results:
        return cls(tuple(cells))

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        return tuple(sorted({cell.seed for cell in self.cells}))

    def seed(self, seed: int) -> SeedValues:
        return SeedValues(
            {
                (cell.condition, measure, x): value
                for cell in self.cells
                if cell.seed == seed
                for measure, value, x in cell.values
            }
        )

    def complete(self, conditions: Sequence[str]) -> Results:
        """Only the seeds that have all conditions: those that can be paired."""
        done = {
            seed
            for seed in self.seeds
            if set(conditions) <= {cell.condition for cell in self.cells if cell.seed == seed}
        }
        return Results(tuple(cell for cell in self.cells if cell.seed in done))

    def values(self, condition: str, measure: str, x: float | None = None) -> list[float]:
        """One number of every seed that has it, in the order of the seeds."""
        by_seed = {
            cell.seed: value
            for cell in self.cells
            if cell.condition == condition
            for name, value, at in cell.values
            if (name, at) == (measure, x)
        }
        return [by_seed[seed] for seed in sorted(by_seed)]

    def mean(self, condition: str, measure: str, x: float | None = None) -> float:
        """One number, averaged over the seeds that have it; ZeroDivisionError where none has."""
        values = self.values(condition, measure, x)
        return sum(values) / len(values)

    def mean_of(self, quantity: Callable[[SeedValues], float]) -> float:
        """A quantity of one seed, averaged over the seeds."""
        return sum(quantity(self.seed(seed)) for seed in self.seeds) / len(self.seeds)

    def xs(self, condition: str, measure: str) -> list[float]:
        """Where a measure's curve was measured."""
        return sorted(
            {
                x
                for cell in self.cells
                if cell.condition == condition
                for name, _, x in cell.values
                if name == measure and x is not None
            }
        )
