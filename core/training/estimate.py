"""Estimate a run's duration on this machine by timing a few of its steps and measurements."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from core.decoding import greedy
from core.models import build_model
from core.tasks import Task
from core.training.config import RunConfig, resolve_device
from core.training.evaluate import CHUNK, buckets, measure_teacher_forced
from core.training.loop import FINAL, one_step
from core.training.objectives import objective
from core.training.optimizers import make_optimizer
from core.training.record import Prediction
from core.training.session import Progress, Session

BATCHES, TIMES = 8, 3  # timed batches, and repetitions of each, of which the fastest counts
LONGEST = 2.0  # seconds, after which no batch is timed again
DECODED = (
    2,
    12,
)  # tokens of two timed decodes, to separate the cost of a token from that of the source


@dataclass(frozen=True)
class Pace:
    """Seconds of a step, of measuring a held-out item under teacher forcing, and of decoding and scoring one."""

    step: float
    teacher_forced: float
    free_running: float

    def seconds(self, config: RunConfig, held_out: int, final: int) -> float:
        """Seconds of a run without its caps, with the held-out items of a record and of the final one."""
        records = math.ceil(config.steps / config.record_every) + 1
        decodes = math.ceil(records / config.decode_every)
        return (
            config.steps * self.step
            + records * held_out * self.teacher_forced
            + decodes * held_out * self.free_running
            + final * (self.teacher_forced + self.free_running)
        )


def pace(config: RunConfig, task: Task) -> Pace:
    """Time a few steps and measurements of the untrained model, each at its fastest, with torch's current threads.

    Decoding counts up to the longest target of a batch, as a trained model does. torch's generator is left unchanged.
    """
    device = resolve_device(config.device)
    with torch.random.fork_rng(devices=[]):
        model = build_model(config.model, task.shape).to(device)
        session = Session(
            config,
            task,
            model,
            make_optimizer(config, model),
            torch.Generator().manual_seed(0),
            device,
            task.held_out(CHUNK)[:CHUNK],
            Progress(),
        )
        one_step(session, 1)  # the first step is slower
        step = _mean_step(session)
        count, model = len(session.held_out), model.eval()
        forced = (
            _fastest(lambda: measure_teacher_forced(model, task, session.held_out, device), 2)
            / count
        )
        free = 0.0
        if task.form == "pairs" and objective(task).scored:
            right = [
                Prediction(example.source, example.target, example.target)
                for example in session.held_out
            ]
            scoring = _fastest(
                lambda: (objective(task).score(task, right), buckets(task, right)), 2
            )
            free = (_decoding(session) + scoring) / count
    return Pace(step, forced, free)


def estimate(config: RunConfig, task: Task) -> float:
    """Seconds of a run on this machine without its caps."""
    held_out = len(task.held_out(config.held_out)[: config.held_out])
    return pace(config, task).seconds(config, held_out, len(task.held_out(FINAL)))


def in_words(config: RunConfig, seconds: float) -> str:
    """The estimate as sentences, with the cap or the patience that may end the run before."""
    text = f"About {duration(seconds)} for {config.steps:,} steps, measured from a few steps on this machine."
    if seconds > config.seconds:
        reached = max(1, int(config.steps * config.seconds / seconds))
        text += (
            f" The time limit of {duration(config.seconds)} would end it near step {reached:,}: allow more "
            "seconds, or take a smaller model."
        )
    if config.patience:
        text += f" It stops earlier if {config.patience} records in a row bring no smaller validation loss."
    return text


def duration(seconds: float) -> str:
    """Seconds as text: "8 s", "3 min", "1.5 h"."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5_400 else f"{seconds / 3_600:.1f} h"


def _mean_step(session: Session) -> float:
    """Mean seconds of a step over batches of different lengths, each at its fastest."""
    started, fastest = time.perf_counter(), [math.inf] * BATCHES
    for _ in range(TIMES):
        for seed, before in enumerate(fastest):
            session.data.manual_seed(seed)
            fastest[seed] = min(before, _fastest(lambda: one_step(session, 2).loss.item(), 1))
        if time.perf_counter() - started > LONGEST:
            break
    return sum(fastest) / BATCHES


def _decoding(session: Session) -> float:
    """Seconds of decoding the held-out items up to their longest target and its end mark."""
    batch = session.task.collate(session.held_out).to(session.device)
    model: Any = session.model
    few, more = (
        _fastest(partial(greedy, model, batch.source, batch.source_mask, most), 2)
        for most in DECODED
    )
    tokens = max(len(example.target) for example in session.held_out) + 1
    return few + max(0.0, more - few) / (DECODED[1] - DECODED[0]) * (tokens - DECODED[0])


def _fastest(run: Callable[[], object], times: int) -> float:
    seconds = []
    for _ in range(times):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return min(seconds)
