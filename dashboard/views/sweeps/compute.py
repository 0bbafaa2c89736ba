"""Which sweep the page shows, the one the link names or the example, and how far it has come."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from core.attention import ConfigError
from core.tasks import Task, TaskConfig, make_task
from core.training.comparisons import Comparison
from core.training.seed_stats import Line, SeedStats, line, seed_stats
from core.training.sweep_files import MEASURES, Outcome, Sweep, sweep_comparisons
from core.training.sweeps import Cell, SweepConfig, name_of, value_text

EXAMPLE_SWEEP = Sweep(Path(__file__).with_name("scores.json"))
HIGHER = {"exact": True, "letters": True, "bleu": True, "chrf": True, "expected": True, "loss": False, "error": False}


@lru_cache(maxsize=32)
def task_of(config: TaskConfig) -> Task:
    """A task, made once for every look at it."""
    return make_task(config)


@dataclass(frozen=True)
class SweepData:
    """All that one look at a sweep needs, read once."""

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
        """What is varied, in words."""
        return name_of(self.config.axis, self.config.base.task)

    @property
    def names(self) -> list[str]:
        return [value_text(self.config.axis, value) for value in self.config.values]

    def task(self) -> Task:
        return task_of(self.config.base.task)

    def measures(self) -> list[str]:
        """What was measured: the whole outputs first, else the error, else the loss."""
        there = {name for outcome in self.outcomes.values() for name in outcome.measures or {}}
        return [name for name in MEASURES if name in there]

    def of(self, place: int) -> list[Outcome]:
        """The runs of one value that were begun, by seed."""
        return [self.outcomes[cell] for cell in self.config.cells if cell[0] == place and cell in self.outcomes]

    def spread(self, place: int, measure: str) -> SeedStats | None:
        """The seeds of one value that finished, together."""
        if measure == "trained":
            return seed_stats([outcome.trained[-1] for outcome in self.of(place)
                           if outcome.state == "finished" and outcome.trained])
        return seed_stats([outcome.last(measure) for outcome in self.of(place)])

    def comparisons(self, measure: str) -> list[Comparison]:
        """Every pair of values tested on this measure; none before all runs have ended, or each look would be one more
        chance of a false claim."""
        return [] if self.live else sweep_comparisons(self.config, self.outcomes, measure)

    def line(self, place: int, measure: str, over: str) -> Line | None:
        """The mean along the way: of the seeds that finished, or until then of the one that is furthest."""
        started = [outcome for outcome in self.of(place) if outcome.steps]
        done = [outcome for outcome in started if outcome.state == "finished"]
        furthest = sorted(started, key=lambda outcome: outcome.trained[-1])[-1:]
        shared = over == "steps" and self.config.equal == "steps"
        return line([outcome.points(measure, over) for outcome in done or furthest], shared)


def load_sweep(sweep: Sweep) -> SweepData | str:
    """Read a sweep's file and its runs; words when it cannot be understood."""
    try:
        config = sweep.config()
        cells = set(config.cells)
        return SweepData(sweep, config, {cell: each for cell, each in sweep.outcomes().items() if cell in cells})
    except ConfigError as error:
        return f"This sweep's file cannot be read: {error}"


assert set(HIGHER) == set(MEASURES)
