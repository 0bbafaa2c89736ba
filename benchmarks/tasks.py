"""`python -m benchmarks tasks`: every kind of model on its tasks, trained by its recipe, beside its target.

CPU seconds of one thread from the first step to the end, with measuring; what is told is measured on 1,000 held-out
items (or all there are), most of a layer's and a head's weight on the expected place, beside what even attention puts
there. `python -m benchmarks.tasks recall sort` takes some tasks alone, `--seeds 3` each three times.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from core.models.cards import card
from core.tasks import TaskConfig, make_task
from core.training import Record, RunConfig, recommended, train
from core.training.config import card_recipe

HEAD = (
    "| task | model | steps | CPU s | exact % | BLEU | mass on expected place | even | data % | target | met |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


@dataclass(frozen=True)
class Target:
    """What a task's recipe must reach: exact match and BLEU in percent, weight on the expected place, CPU seconds.

    With a `card` it is that of the small model with a published one's pattern of layers.
    """

    task: str
    model: str
    seconds: float
    exact: float = 99.0
    mass: float | None = None
    bleu: float | None = None
    seeds: int = 1
    card: str = ""

    def config(self, seed: int) -> RunConfig:
        """The recipe, with one seed for the data and the model."""
        task = make_task(TaskConfig.of(self.task, seed=seed))
        recipe = card_recipe(card(self.card)) if self.card else recommended(task, self.model)
        return replace(recipe, task=task.config, seed=seed, max_seconds=900)

    def words(self) -> str:
        target = [f"BLEU ≥ {self.bleu:g}" if self.bleu else f"exact ≥ {self.exact:g}"]
        if self.mass is not None:
            target.append(f"mass ≥ {self.mass:g}")
        return ", ".join([*target, f"≤ {self.seconds:g} s"])

    def met(self, result: Sequence[Figures]) -> bool:
        good = self.bleu or self.exact
        return (
            mean([f.bleu if self.bleu else f.exact for f in result]) >= good
            and (self.mass is None or mean([f.mass for f in result]) >= self.mass)
            and mean([f.seconds for f in result]) <= self.seconds
        )


@dataclass(frozen=True)
class Figures:
    """What one run came to."""

    steps: float
    seconds: float
    exact: float
    bleu: float
    mass: float
    even: float
    data: float


TARGETS = (
    Target("copy", "transformer", 10, mass=0.8),
    Target("copy", "decoder", 10, mass=0.85),
    Target("copy", "recurrent", 30),
    Target("copy", "hybrid", 30),
    Target("reverse", "transformer", 10, mass=0.8),
    Target("reverse", "decoder", 10, mass=0.85),
    Target("reverse", "recurrent", 30),
    Target("reverse", "hybrid", 30),
    Target("sort", "transformer", 15, mass=0.6),
    Target("sort", "decoder", 15, mass=0.6),
    Target("sort", "recurrent", 30),
    Target("sort", "hybrid", 30),
    Target("recall", "decoder", 10, mass=0.9),
    Target("recall", "transformer", 30, mass=0.9),
    Target("recall", "recurrent", 15),
    Target("recall", "hybrid", 15),
    *(
        Target("recall", "decoder", seconds, card=key)
        for key, seconds in {
            "gemma2": 30,
            "gemma3": 90,
            "gpt_oss": 30,
            "qwen3_next": 120,
            "deepseek_v32": 30,
        }.items()
    ),
    Target("induction", "decoder", 20, mass=0.9),
    Target("induction", "transformer", 90, exact=95, mass=0.75),  # the slowest to find it
    Target("induction", "recurrent", 30),
    Target("induction", "hybrid", 30),
    Target("addition", "decoder", 15, mass=0.9),
    Target("addition", "transformer", 30),
    Target("addition", "recurrent", 40),
    Target("addition", "hybrid", 40),
    Target("dates", "recurrent", 25),
    Target("dates", "transformer", 60),
    Target("dates", "decoder", 60),
    Target("dates", "hybrid", 40),
    Target("numbers", "recurrent", 60, bleu=96),
    Target("numbers", "transformer", 240, bleu=96),
    Target("numbers", "decoder", 240, bleu=85),
    Target("numbers", "hybrid", 90, bleu=96),
    Target("language", "classifier", 15),
    Target("documents", "hierarchical", 15, mass=0.75, seeds=3),
    Target("documents", "classifier", 60, mass=0.75),
    Target("iris", "classifier", 15, exact=92, seeds=10),
    Target("digits", "classifier", 60, exact=95),
    Target("pictures", "transformer", 120, exact=90),
)


def trained(target: Target, seed: int) -> Figures:
    """The target's recipe to its end."""
    start = time.process_time()
    *_, last = train(target.config(seed))
    return figures(last, time.process_time() - start)


def figures(last: Record, seconds: float) -> Figures:
    """Of a run's final record; "not a number" where it does not say."""
    nan = float("nan")
    return Figures(
        last.step,
        seconds,
        nan if last.sequence_accuracy is None else 100 * last.sequence_accuracy,
        nan if last.bleu is None else last.bleu,
        max(map(max, last.expected)) if last.expected else nan,
        nan if last.even is None else last.even,
        nan if last.data_share is None else 100 * last.data_share,
    )


def mean(values: Sequence[float]) -> float:
    return statistics.fmean(values)


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    target: Target
    results: Sequence[Figures]

    def markdown(self) -> str:
        text = [
            describe([getattr(f, name) for f in self.results], digits)
            for name, digits in (
                ("steps", 0),
                ("seconds", 1),
                ("exact", 1),
                ("bleu", 1),
                ("mass", 2),
                ("even", 2),
                ("data", 1),
            )
        ]
        met = "yes" if self.target.met(self.results) else "no"
        model = self.target.card or self.target.model
        return f"| {' | '.join([self.target.task, model, *text, self.target.words(), met])} |"


def describe(values: Sequence[float], digits: int) -> str:
    """A mean, with the spread where there are several; a dash where there is nothing to tell."""
    if any(value != value for value in values):
        return "–"
    spread = f" ± {statistics.stdev(values):,.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):,.{digits}f}{spread}"


def rows(names: Sequence[str] = (), seeds: int = 0) -> Iterator[Row]:
    """The rows of these tasks, or of all, one by one as they are measured; `seeds` overrides each target's own."""
    torch.set_num_threads(1)
    for target in TARGETS:
        if not names or target.task in names:
            yield Row(target, [trained(target, seed) for seed in range(seeds or target.seeds)])


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tasks", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "tasks", nargs="*", choices=sorted({target.task for target in TARGETS}) or None
    )
    parser.add_argument("--seeds", type=int, default=0)
    chosen = parser.parse_args()
    print(HEAD)
    for row in rows(chosen.tasks, chosen.seeds):
        print(row.markdown(), flush=True)


if __name__ == "__main__":
    main()
