"""Train a sweep from a shell, its runs in worker processes, a few side by side."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from core.attention import ConfigError
from core.training.backend import Worker, start_worker
from core.training.config import RunConfig
from core.training.runs import create_run
from core.training.seed_stats import seed_stats
from core.training.sweep_files import (
    MEASURES,
    Outcome,
    Sweep,
    create_sweep,
    find_sweep,
    sweep_comparisons,
)
from core.training.sweeps import Cell, SweepConfig, value_text, with_settings


def start(
    file: str, changes: dict[str, Any], to: Path | None, settings: Mapping[str, Any] | None = None
) -> Sweep:
    """The sweep of that name or file, or a new one of the config in the file, saved at `to` or among the others.

    The file describes a sweep, or a run to be varied by `changes`; `settings` change that run. Raises ConfigError and
    OSError.
    """
    if sweep := find_sweep(file):
        return sweep
    data = json.loads(Path(file).read_text("utf-8"))
    if not isinstance(data, dict):
        raise ConfigError("A sweep is described by an object with base, axis, values and seeds.")
    if "outcomes" in data:
        return Sweep(Path(file))
    data = data.get("config", data)
    data = data if "base" in data else {"base": data}
    if settings:
        data["base"] = with_settings(RunConfig.from_json(data["base"]), settings).to_json()
    return create_sweep(SweepConfig.from_json(data | changes), to)


def run_sweep(sweep: Sweep, workers: int) -> bool:
    """Train the unfinished runs, `workers` at a time; True when all finished. Ctrl-C stops and saves the runs."""
    config, cells = sweep.config(), sweep.missing()
    config.try_models()
    children: list[Worker] = []

    def train(cell: Cell) -> None:
        run = create_run(config.run(*cell), sweep={"id": sweep.id, "value": cell[0]})
        run.set_status("starting")  # a queued run would be started by an open page
        sweep.add_runs({cell: run})
        children.append(child := start_worker(run))
        child.wait()
        outcome = Outcome.of(run)
        result = (
            "  ".join(measure_texts([outcome])) if outcome.state == "finished" else outcome.message
        )
        print(
            f"{value_text(config.axis, config.values[cell[0]])}, seed {cell[1]}: {result}\n",
            end="",
            flush=True,
        )

    pool = ThreadPoolExecutor(workers)
    try:
        list(pool.map(train, cells))
    except KeyboardInterrupt:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in children:
            child.terminate()
        print("Stopped; the same command with the name of the sweep continues it.", flush=True)
        return False
    return all(outcome.state == "finished" for outcome in sweep.outcomes().values())


def summary(sweep: Sweep) -> list[str]:
    """A line for each value with its mean and 95 % interval, then the tests of all pairs of values."""
    config, outcomes = sweep.config(), sweep.outcomes()
    lines = []
    for index, value in enumerate(config.values):
        of_value = [
            outcomes[cell] for cell in config.cells if cell[0] == index and cell in outcomes
        ]
        finished = sum(outcome.state == "finished" for outcome in of_value)
        parts = [
            f"{value_text(config.axis, value)}:",
            f"{finished} of {len(config.seeds)} seeds",
            *measure_texts(of_value),
        ]
        lines.append("  ".join(parts))
    return lines + _tests(config, outcomes)


def _tests(config: SweepConfig, outcomes: Mapping[Cell, Outcome]) -> list[str]:
    """The differences of all pairs on the measure that ranks the values, once all runs have ended."""
    names = {name for outcome in outcomes.values() for name in outcome.measures or {}}
    measure = next((name for name in MEASURES if name in names), None)
    if measure is None or not all(outcome.ended for outcome in outcomes.values()):
        return []
    values = [value_text(config.axis, value) for value in config.values]
    pairs = sweep_comparisons(config, outcomes, measure)
    lines = [
        f"{values[pair.first]} {'/' if pair.unit == 'times' else '-'} {values[pair.second]}: {measure} "
        f"{pair.difference:.4g} (interval {pair.low:.4g} to {pair.high:.4g})  p {pair.p:.3g}  n {pair.count}  "
        f"{'significant' if pair.significant else 'not significant'}"
        for pair in pairs
    ]
    return lines and [
        "Differences (ratios of losses and errors) by two-sided t tests paired by seed; p and the 95 % "
        "intervals are corrected for all pairs (Bonferroni). A difference that is not significant need "
        "not be zero.",
        *lines,
    ]


def measure_texts(outcomes: Sequence[Outcome]) -> list[str]:
    """Each measure as name, mean and 95 % interval."""
    stats = (
        (name, seed_stats([outcome.last(name) for outcome in outcomes], unit))
        for name, unit in MEASURES.items()
    )
    return [
        f"{name} {s.mean:.4g}"
        + ("" if s.interval is None else " [{:.4g}, {:.4g}]".format(*s.interval))
        for name, s in stats
        if s is not None
    ]
