"""The experiment of a claim: every condition from every seed, one cell after another."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from core.claims.base import Claim, ClaimSettings, Stop
from core.claims.results import CellResult
from core.models import Model
from core.tasks import Task
from core.training.config import RunConfig
from core.training.evaluate import Stopped, never_stop
from core.training.loop import train
from core.training.record import Record
from core.training.session import prepare

Cell = tuple[str, int]  # a condition and a seed


def cells(claim: Claim, settings: Mapping[str, Any]) -> tuple[Cell, ...]:
    """Every cell, seed by seed, so that each condition has its first number early."""
    return tuple((condition, seed) for seed in range(int(settings["seeds"]))
                 for condition in claim.conditions(settings))


def measure_cell(claim: Claim, cell: Cell, settings: ClaimSettings, stop: Stop = never_stop) -> CellResult | None:
    """The numbers of one cell; None where it was stopped."""
    started = time.process_time()
    try:
        values = tuple((measure, float(value), None if x is None else float(x))
                       for measure, value, x in claim.measure(*cell, settings, stop))
    except Stopped:
        return None
    return None if stop() else CellResult(*cell, time.process_time() - started, values)


@dataclass(frozen=True)
class Trained:
    """A trained model in eval mode, its task, and the records of its training, the last one over 1,000 items."""

    model: Model
    task: Task
    records: tuple[Record, ...]

    @property
    def last(self) -> Record:
        return self.records[-1]


def trained(config: RunConfig, seed: int, stop: Stop = never_stop) -> Trained:
    """Train a model from a seed to its last step, in this process; Stopped when `stop()` becomes true."""
    config = replace(config, seed=seed, finish_early=False, patience=0, device="cpu")
    session = prepare(config)
    records = tuple(train(config, session, stop))
    if stop():
        raise Stopped
    return Trained(session.model.eval(), session.task, records)


def measure_all(claim: Claim, settings: ClaimSettings, stop: Stop = never_stop) -> Iterator[CellResult]:
    """Every cell in this process; ends early once `stop()` is true."""
    for cell in cells(claim, settings):
        if (result := measure_cell(claim, cell, settings, stop)) is None:
            return
        yield result
