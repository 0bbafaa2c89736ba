"""The findings about a run, and how long a run on a person's own data will take."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import lru_cache

from core.tasks import task_of
from core.training.config import RunConfig
from core.training.diagnosis import Finding, Pace, diagnose, in_words, pace
from core.training.loop import FINAL
from dashboard.runtime.run_data import RunData
from dashboard.runtime.threads import one_thread
from dashboard.ui.uploads import DATA

FRESH = 60  # seconds after which steps are timed again


def findings(data: RunData, step: int) -> dict[str, list[Finding]]:
    """What goes wrong up to a step, by the name of the curve that shows it."""
    result: dict[str, list[Finding]] = {}
    if data.config is not None:
        failure = data.status.message if data.status.state == "failed" else ""
        for finding in diagnose(data.until(step), data.config, data.task().baseline_loss, failure):
            result.setdefault(finding.beside, []).append(finding)
    return result


def time_needed(config: RunConfig) -> str:
    """A sentence that estimates the run's duration; "" for the lab's own tasks, whose recipes were measured."""
    if DATA not in dict(config.task.params):
        return ""
    estimate = _pace(
        replace(
            config,
            seed=0,
            steps=1,
            seconds=60.0,
            learning_rate=1e-3,
            warmup=0,
            patience=0,
            record_every=1,
            decode_every=1,
            held_out=1,
        ),
        int(time.monotonic() // FRESH),
    )
    task = task_of(config.task)
    held_out = len(task.held_out(config.held_out)[: config.held_out])
    return in_words(config, estimate.seconds(config, held_out, len(task.held_out(FINAL))))


@lru_cache(maxsize=32)
def _pace(config: RunConfig, minute: int) -> Pace:
    """The time of a config's steps, measured again each `minute`, as the machine may be busy in one."""
    with one_thread():  # as the run has
        return pace(config, task_of(config.task))
