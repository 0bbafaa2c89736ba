"""How long a run will take on this machine: a few of its own steps and measurements, timed before it begins."""

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
from core.training.record import Prediction
from core.training.session import Progress, Session, make_optimizer

BATCHES, TIMES = 8, 3  # batches that are timed, and how often each: others that run beside it only make it slower
LONGEST = 2.0  # seconds, after which no batch is timed again
DECODED = 2, 12  # tokens that are decoded, to tell what each costs from what reading the source does


@dataclass(frozen=True)
class Pace:
    """Seconds of a step, of measuring one held-out item with the right past given, and of decoding and scoring one."""

    step: float
    teacher_forced: float
    free_running: float

    def seconds(self, config: RunConfig, held_out: int, final: int) -> float:
        """Seconds of a whole run without its caps, over so many held-out items in a record and in the final one."""
        records = math.ceil(config.steps / config.record_every) + 1
        decodes = math.ceil(records / config.decode_every)
        return (config.steps * self.step + records * held_out * self.teacher_forced
                + decodes * held_out * self.free_running + final * (self.teacher_forced + self.free_running))


def pace(config: RunConfig, task: Task) -> Pace:
    """Time a few steps and measurements of a run, each at its fastest; torch's generator stays as it was.

    It takes as many threads as torch has; a run has one. The model is untrained. Decoding is counted up to the longest
    target of a batch, which a trained model does not pass.
    """
    device = resolve_device(config.device)
    with torch.random.fork_rng(devices=[]):
        model = build_model(config.model, task.shape).to(device)
        session = Session(config, task, model, make_optimizer(config, model), torch.Generator().manual_seed(0), device,
                          task.held_out(CHUNK)[:CHUNK], Progress())
        one_step(session, 1)  # what only the first pays for
        step = _mean_step(session)
        count, model = len(session.held_out), model.eval()
        given = _fastest(lambda: measure_teacher_forced(model, task, session.held_out, device), 2) / count
        free = 0.0
        if task.form == "pairs" and objective(task).scored:
            free = (_decoding(session) + _scoring(session)) / count
    return Pace(step, given, free)


def estimate(config: RunConfig, task: Task) -> float:
    """Seconds that a run would take on this machine without its caps."""
    held_out = len(task.held_out(config.held_out)[: config.held_out])
    return pace(config, task).seconds(config, held_out, len(task.held_out(FINAL)))


def in_words(config: RunConfig, seconds: float) -> str:
    """The estimate as sentences: how long, and where a cap or patience would end it before."""
    text = f"About {duration(seconds)} for {config.steps:,} steps, as a few steps timed on this machine tell."
    if seconds > config.seconds:
        reached = max(1, int(config.steps * config.seconds / seconds))
        text += (f" The cap of {duration(config.seconds)} would end it near step {reached:,}: give it more seconds, or "
                 "a smaller model.")
    if config.patience:
        text += f" It stops before once {config.patience} records in a row bring no smaller held-out loss."
    return text


def duration(seconds: float) -> str:
    """Seconds as a person says them: "8 s", "3 min", "1.5 h"."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5_400 else f"{seconds / 3_600:.1f} h"


def _mean_step(session: Session) -> float:
    """Mean seconds of a step over some batches, as their lengths differ; each at its fastest."""
    started, fastest = time.perf_counter(), [math.inf] * BATCHES
    for _ in range(TIMES):
        for seed, before in enumerate(fastest):
            session.data.manual_seed(seed)
            fastest[seed] = min(before, _fastest(lambda: one_step(session, 2).loss.item(), 1))
        if time.perf_counter() - started > LONGEST:
            break
    return sum(fastest) / BATCHES


def _decoding(session: Session) -> float:
    """Seconds of decoding the session's held-out items, up to the longest of their targets and its end mark."""
    batch = session.task.collate(session.held_out).to(session.device)
    model: Any = session.model
    few, more = (_fastest(partial(greedy, model, batch.source, batch.source_mask, most), 2) for most in DECODED)
    tokens = max(len(example.target) for example in session.held_out) + 1
    return few + max(0.0, more - few) / (DECODED[1] - DECODED[0]) * (tokens - DECODED[0])


def _scoring(session: Session) -> float:
    """Seconds of scoring as many outputs as held-out items, all of them right."""
    task = session.task
    right = [Prediction(example.source, example.target, example.target) for example in session.held_out]
    return _fastest(lambda: (objective(task).score(task, right), buckets(task, right)), 2)


def _fastest(run: Callable[[], object], times: int) -> float:
    seconds = []
    for _ in range(times):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return min(seconds)
