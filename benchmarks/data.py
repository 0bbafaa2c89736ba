"""`python -m benchmarks.data`: tasks on data that lies in packages, and what stands in for a person's own, by recipe.

Iris is split and learned with ten seeds. What is told is measured on all that is held out, or on 1,000 of it: exact
match beside that of a method without attention; for text the bits a token, for a series the absolute error as a share
of the last season's. `python -m benchmarks.data iris series` takes some tasks alone; `length` trains a character model
at 64 characters with each position encoding, and asks it about longer windows (Press 2022).
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from core.attention import Choice
from core.models import ModelConfig
from core.tasks import Task, TaskConfig, make_task
from core.training import Record, prepare, recommended, train
from core.training.evaluate import bits_by_length

HEAD = (
    "| task | model | seeds | steps | CPU s | held out | beside | mass on expected place | even | data % |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)
SEEDS = {"iris": 10}
TABLES = tuple(
    TaskConfig.of(key)
    for key in (
        "iris",
        "digits",
        "pictures",
        "topics",
        "series",
        "own_text",
        "own_pairs",
        "own_table",
    )
) + (TaskConfig.of("own_table", text="name"),)
LENGTHS = (64, 128, 256)
POSITIONS = ("alibi", "rope", "sinusoidal", "learned", "none", "t5")
LENGTH = "length"


@dataclass(frozen=True)
class Run:
    """How one run ended: its last two records, CPU seconds of one thread, and the peer's exact match."""

    last: Record
    before: Record
    seconds: float
    peer: tuple[str, float] | None


def run(config: TaskConfig, kind: str, seed: int) -> Run:
    """The recipe of a task and a kind of model, the split and the weights by the seed."""
    task = make_task(TaskConfig(config.key, config.params, seed))
    run_config = recommended(task, kind, seed=seed, max_seconds=900)
    start = time.process_time()
    *_, before, last = train(run_config)
    return Run(last, before, time.process_time() - start, task.baseline())


def row(config: TaskConfig, kind: str) -> str:
    """One line of the table."""
    task, runs = (
        make_task(config),
        [run(config, kind, seed) for seed in range(SEEDS.get(config.key, 1))],
    )
    name = config.key + (f" ({config['text']})" if dict(config.params).get("text") else "")
    expected = [max(map(max, r.last.expected)) for r in runs if r.last.expected]
    cells = [
        name,
        kind,
        str(len(runs)),
        f"{runs[0].last.step:,}",
        f"{statistics.fmean(r.seconds for r in runs):.1f}",
        held_out(task, runs),
        beside(task, runs),
        spread(expected, 1, 2),
        f"{runs[0].last.even:.2f}" if runs[0].last.even is not None else "–",
        f"{100 * statistics.fmean(numbers(r.before.data_share for r in runs)):.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def held_out(task: Task, runs: Sequence[Run]) -> str:
    last = runs[0].last
    if task.form == "text" and last.loss is not None:
        return f"{last.loss / math.log(2):.2f} bits, {last.token_accuracy:.0%} right"
    if task.form == "series":
        return f"error {last.error:.2f}"
    bleu = f", BLEU {last.bleu:.1f}" if last.bleu is not None else ""
    return f"{spread(numbers(r.last.sequence_accuracy for r in runs), 100, 1)} %{bleu}"


def beside(task: Task, runs: Sequence[Run]) -> str:
    if runs[0].peer is not None:
        return (
            f"{runs[0].peer[0]} {spread([r.peer[1] for r in runs if r.peer is not None], 100, 1)} %"
        )
    return (
        f"guessing {task.baseline_loss / math.log(2):.2f} bits"
        if task.form == "text"
        else ("the last season again 1.00" if task.form == "series" else "–")
    )


def numbers(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def spread(values: Sequence[float], unit: float, digits: int) -> str:
    if not values:
        return "–"
    text = f"{unit * statistics.fmean(values):.{digits}f}"
    return text + (f" ± {unit * statistics.stdev(values):.{digits}f}" if len(values) > 1 else "")


def lengths() -> Iterator[str]:
    """Bits a character at the trained length, and at two and four times it, for each position encoding."""
    config = TaskConfig.of("topics", length=LENGTHS[0])
    yield "| position | " + " | ".join(map(str, LENGTHS)) + " |\n| --- |" + " --- |" * len(LENGTHS)
    for position in POSITIONS:
        # A table must reach the longest window, though its far end is never trained.
        choice = Choice.of(position, max_len=LENGTHS[-1] + 1) if position == "learned" else position
        model = ModelConfig.transformer(
            64, 4, 2, 256, kind="decoder", norm="pre", activation="gelu", position=choice
        )
        session = prepare(
            recommended(make_task(config), model=model, max_seconds=900, record_every=1000)
        )
        for _ in train(session.config, session):
            pass
        bits = bits_by_length(session.model.eval(), config, LENGTHS)
        yield f"| {position} | " + " | ".join(f"{bits[length]:.2f}" for length in LENGTHS) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.data", description=__doc__.splitlines()[0]
    )
    parser.add_argument("tasks", nargs="*", choices=[*{config.key for config in TABLES}, LENGTH])
    chosen = parser.parse_args().tasks
    torch.set_num_threads(1)
    if chosen != [LENGTH]:
        print(HEAD)
    for config in TABLES:
        if not chosen or config.key in chosen:
            for kind in make_task(config).recommended:
                print(row(config, kind), flush=True)
    if not chosen or LENGTH in chosen:
        for line in lengths():
            print(line, flush=True)


if __name__ == "__main__":
    main()
