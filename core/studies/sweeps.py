"""A sweep's file and its runs, as the page reads them; and the example sweep."""

from dataclasses import dataclass
from pathlib import Path

from core.attention import ConfigError
from core.runs.sweeps import MEASURES, Outcome, Sweep, sweep_comparisons
from core.tasks import Task, task_of
from core.training.seed_stats import Comparison, Line, SeedStats, line, seed_stats
from core.training.sweeps import Cell, SweepConfig, name_of, value_text

EXAMPLE_SWEEP = Sweep(Path(__file__).parent / "data" / "sweeps.json")


@dataclass(frozen=True)
class SweepData:
    """A sweep's config and the outcomes of its runs, read once a redraw."""

    sweep: Sweep
    config: SweepConfig
    outcomes: dict[Cell, Outcome]

    @property
    def is_example(self) -> bool:
        return self.sweep == EXAMPLE_SWEEP

    @property
    def live(self) -> bool:
        """Whether any of its runs waits or trains."""
        return not self.is_example and any(not outcome.ended for outcome in self.outcomes.values())

    @property
    def finished(self) -> int:
        return sum(outcome.state == "finished" for outcome in self.outcomes.values())

    @property
    def setting(self) -> str:
        """The name of the varied setting."""
        return name_of(self.config.axis, self.config.base.task)

    @property
    def names(self) -> list[str]:
        return [value_text(self.config.axis, value) for value in self.config.values]

    def task(self) -> Task:
        return task_of(self.config.base.task)

    def measures(self) -> list[str]:
        """The measures that any run has, in the order of MEASURES."""
        return [
            name
            for name in MEASURES
            if any(name in each.measures for each in self.outcomes.values())
        ]

    def outcomes_of(self, value: int) -> list[Outcome]:
        """The started runs of the value of that index, by seed."""
        return [
            self.outcomes[cell]
            for cell in self.config.cells
            if cell[0] == value and cell in self.outcomes
        ]

    def stats(self, measure: str) -> dict[int, SeedStats]:
        """Mean and interval of a measure over the finished seeds of each value, by its index."""
        unit = MEASURES.get(measure, "positive")
        stats = {
            value: seed_stats([each.last(measure) for each in self.outcomes_of(value)], unit)
            for value in range(len(self.names))
        }
        return {value: each for value, each in stats.items() if each is not None}

    def comparisons(self, measure: str) -> list[Comparison]:
        """Tests of every pair of values; none before all runs have ended, as testing again and again finds a false
        difference too often."""
        return [] if self.live else sweep_comparisons(self.config, self.outcomes, measure)

    def lines(self, measure: str, over: str) -> dict[int, Line]:
        """The mean over training of each value's finished seeds, or before any has finished the seed trained longest."""
        shared = over == "steps" and self.config.equal == "steps"
        lines = {}
        for value in range(len(self.names)):
            started = [outcome for outcome in self.outcomes_of(value) if outcome.steps]
            finished = [outcome for outcome in started if outcome.state == "finished"]
            longest = sorted(started, key=lambda outcome: outcome.train_seconds[-1])[-1:]
            points = [outcome.points(measure, over) for outcome in finished or longest]
            if (mean := line(points, shared)) is not None:
                lines[value] = mean
        return lines


def load_sweep(sweep: Sweep) -> SweepData | str:
    """Read a sweep's file and its runs; the error as text when it cannot be read."""
    try:
        config = sweep.config()
        cells = set(config.cells)
        return SweepData(
            sweep, config, {cell: each for cell, each in sweep.outcomes().items() if cell in cells}
        )
    except ConfigError as error:
        return f"This sweep's file cannot be read: {error}"
