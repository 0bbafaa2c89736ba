"""How long a run will take on this machine: a few of its own steps and measurements, timed before it begins."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from core.decoding import greedy
from core.models import build_model
from core.tasks import Task
from core.training.config import RunConfig, resolve_device
from core.training.evaluate import CHUNK, measure_given
from core.training.loop import FINAL, one_step
from core.training.objectives import objective
from core.training.session import Progress, Session, make_optimizer

STEPS, DECODED = 3, 6  # steps and decoded tokens that are timed


@dataclass(frozen=True)
class Pace:
    """Seconds of one step, of measuring one held-out item with the right past given, and of decoding one by itself."""

    step: float
    given: float
    free: float

    def seconds(self, config: RunConfig, held_out: int, final: int) -> float:
        """Seconds of a whole run without its caps, over so many held-out items in a record and in the final one."""
        records = math.ceil(config.steps / config.record_every) + 1
        decodes = math.ceil(records / config.decode_every)
        return (config.steps * self.step + records * held_out * self.given + decodes * held_out * self.free
                + final * (self.given + self.free))


def pace(config: RunConfig, task: Task) -> Pace:
    """Time a few steps and measurements of a run; torch's generator stays as it was.

    The model that is timed is untrained. Decoding is counted up to the longest target, so that it is the most it takes.
    """
    device = resolve_device(config.device)
    with torch.random.fork_rng(devices=[]):
        model = build_model(config.model, task.shape).to(device)
        session = Session(config, task, model, make_optimizer(config, model), torch.Generator().manual_seed(0), device,
                          task.held_out(CHUNK)[:CHUNK], Progress())
        one_step(session, 1)  # what only the first pays for
        step = _fastest(lambda: one_step(session, 2).loss.item(), STEPS)
        count, model = len(session.held_out), model.eval()
        given = _fastest(lambda: measure_given(model, task, session.held_out, device), 2) / count
        free = 0.0
        if task.form == "pairs" and objective(task).scored:
            batch = task.collate(session.held_out).to(device)
            decode = _fastest(lambda: greedy(model, batch.source, batch.source_mask, DECODED), 2)  # type: ignore[arg-type]
            free = decode / count * (task.max_target + 1) / min(DECODED, task.max_target + 1)
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


def _fastest(run: Callable[[], object], times: int) -> float:
    found = []
    for _ in range(times):
        started = time.perf_counter()
        run()
        found.append(time.perf_counter() - started)
    return min(found)
