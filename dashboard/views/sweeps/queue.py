"""A sweep's runs in the queue: begin, stop, and go on with what is missing."""

from __future__ import annotations

from core.training.sweep_files import Sweep, create_sweep, delete_sweep
from core.training.sweeps import Cell, SweepConfig
from dashboard.runtime import jobs


def begin(config: SweepConfig) -> Sweep:
    """A new sweep whose runs all wait their turn. Raises ConfigError and QueueFull, and then leaves nothing behind."""
    config.try_models()
    sweep = create_sweep(config)
    try:
        _start(sweep, config, list(config.cells))
    except jobs.QueueFull:
        delete_sweep(sweep)
        raise
    return sweep


def proceed(sweep: Sweep) -> None:
    """Queue what has not finished: a run that was stopped goes on, one that failed or was lost begins anew.

    Raises QueueFull.
    """
    outcomes, runs = sweep.outcomes(), sweep.runs()
    fresh = []
    for cell in sweep.missing():
        if cell in runs and outcomes[cell].state in ("stopped", "paused"):
            jobs.resume(runs[cell])
        else:
            fresh.append(cell)
    if fresh:
        _start(sweep, sweep.config(), fresh)


def _start(sweep: Sweep, config: SweepConfig, cells: list[Cell]) -> None:
    about = [{"sweep": {"id": sweep.id, "value": place}} for place, _ in cells]
    runs = jobs.start_all([(config.run(*cell), more) for cell, more in zip(cells, about, strict=True)])
    sweep.add_runs(dict(zip(cells, runs, strict=True)))


def stop(sweep: Sweep) -> None:
    """Stop all that waits or trains, the waiting first, so that none of them takes a freed place."""
    running = []
    for run in sweep.runs().values():
        state = run.status().state
        if state == "queued":
            jobs.stop(run)
        elif state in ("starting", "running"):
            running.append(run)
    for run in running:
        jobs.stop(run)
