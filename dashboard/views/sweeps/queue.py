"""Start, stop and resume a sweep's runs."""

from __future__ import annotations

from collections.abc import Sequence

from core.training.sweep_files import Sweep, create_sweep, delete_sweep
from core.training.sweeps import Cell, SweepConfig
from dashboard.runtime import jobs
from dashboard.runtime.limits import check_owner


def start(config: SweepConfig) -> Sweep:
    """A new sweep with all its runs in the queue. ConfigError and QueueFull leave nothing on the disk."""
    config.try_models()
    sweep = create_sweep(config)
    try:
        _queue(sweep, config, config.cells)
    except jobs.QueueFull:
        delete_sweep(sweep)
        raise
    return sweep


def resume(sweep: Sweep) -> None:
    """Queue all runs that have not finished: a stopped one continues, a failed or lost one starts again.

    Raises QueueFull, NotYours.
    """
    check_owner(sweep)
    outcomes, runs, lost = sweep.outcomes(), sweep.runs(), []
    for cell in sweep.missing():
        if cell in runs and outcomes[cell].state in ("stopped", "paused"):
            jobs.resume(runs[cell])
        else:
            lost.append(cell)
    if lost:
        _queue(sweep, sweep.config(), lost)


def _queue(sweep: Sweep, config: SweepConfig, cells: Sequence[Cell]) -> None:
    runs = jobs.start_all([(config.run(*cell), {"sweep": {"id": sweep.id, "value": cell[0]}}) for cell in cells])
    sweep.add_runs(dict(zip(cells, runs, strict=True)))


def stop(sweep: Sweep) -> None:
    """Stop all runs of a sweep, the waiting ones first, so that none of them takes a free worker. Raises NotYours."""
    check_owner(sweep)
    states = {run: run.status().state for run in sweep.runs().values()}
    for live in (("queued",), ("starting", "running")):
        for run, state in states.items():
            if state in live:
                jobs.stop(run)
