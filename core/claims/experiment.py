"""The experiment of a claim: every condition from every seed, one cell after another."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from core.attention.cost import seconds
from core.claims.base import CellResult, Claim, ClaimSettings, Number, Stop
from core.models import Model, ModelConfig
from core.tasks import Task, TaskConfig
from core.threads import num_threads
from core.training import Record, RunConfig, Session, Stopped, never_stop, prepare, train, until

Cell = tuple[str, int]  # a condition and a seed
TEXT_BITS = 2.5  # a character: a model of two layers that has learned the text needs fewer


@num_threads(1)
def measure_cell(
    claim: Claim, cell: Cell, settings: ClaimSettings, stop: Stop = never_stop
) -> CellResult | None:
    """The numbers of one cell; None where it was stopped."""
    started = time.process_time()
    try:
        values = tuple(
            (measure, float(value), None if x is None else float(x))
            for measure, value, x in claim.measure(*cell, settings, stop)
        )
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

    @property
    def bits(self) -> float:
        """The last validation loss, in bits a token."""
        return known(self.last.loss) / math.log(2)

    @property
    def parameters(self) -> int:
        return sum(weight.numel() for weight in self.model.parameters())


def known(measured: float | None) -> float:
    """A measure that each record of an experiment's task has."""
    assert measured is not None
    return measured


def numbers(values: Mapping[str, float | None], x: float | None = None) -> Iterator[Number]:
    """What a claim measures, by name, all at one x of their curves where they have any."""
    return ((measure, known(value), x) for measure, value in values.items())


def trained(config: RunConfig, seed: int, stop: Stop = never_stop) -> Trained:
    """Train a model from a seed to its last step, in this process; Stopped when `stop()` becomes true."""
    return train_whole(session_of(config, seed), stop)


def trained_for(
    task: TaskConfig,
    model: ModelConfig,
    seed: int,
    settings: ClaimSettings,
    stop: Stop = never_stop,
    warm: float = 0.0,
    **more: Any,
) -> Trained:
    """A model trained for as many steps as the claim's setting says, with a record at their end alone.

    The rate rises over the share `warm` of the steps.
    """
    steps = int(settings["steps"])
    options = {"steps": steps, "record_every": steps, "warmup": int(warm * steps)} | more
    return trained(RunConfig(task, model, **options), seed, stop)


def after_training(
    task: TaskConfig,
    models: Mapping[str, ModelConfig],
    measured: Callable[[Trained], Mapping[str, float | None]],
    own: Mapping[str, Mapping[str, Any]] | None = None,
    **options: Any,
) -> Callable[[str, int, ClaimSettings, Stop], Iterator[Number]]:
    """A claim's `measure` that trains each condition's model, by `trained_for` with the options, and its `own` ones."""

    def measure(condition: str, seed: int, settings: ClaimSettings, stop: Stop) -> Iterator[Number]:
        more = options | dict((own or {}).get(condition, {}))
        yield from numbers(
            measured(trained_for(task, models[condition], seed, settings, stop, **more))
        )

    return measure


def session_of(config: RunConfig, seed: int) -> Session:
    """A model as training begins, which no good result ends early."""
    return prepare(replace(config, seed=seed, finish_early=False, patience=0, device="cpu"))


def train_whole(session: Session, stop: Stop = never_stop) -> Trained:
    """Train a session's model to the last step; Stopped when `stop()` becomes true."""
    records = tuple(train(session.config, session, stop))
    if stop():
        raise Stopped
    return Trained(session.model.eval(), session.task, records)


def fit(
    model: torch.nn.Module,
    loss: Callable[[], torch.Tensor],
    steps: int,
    rate: float,
    stop: Stop = never_stop,
) -> None:
    """Take steps of AdamW with the loss of a fresh batch each, for a model that is no ModelConfig's.

    Stopped when `stop()` becomes true.
    """
    optimizer = torch.optim.AdamW(model.parameters(), rate)
    for _ in until(stop, range(steps)):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()


def fewest_seconds(work: Callable[[], object], rounds: int) -> float:
    """The fewest CPU seconds of a call in so many, after one to warm up: what else the machine does only adds."""
    work()
    return min(seconds(work, time.process_time) for _ in range(rounds))
