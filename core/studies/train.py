"""How long a run on a person's own data will take, from steps that are timed here and now."""

import time
from dataclasses import replace
from functools import lru_cache

from core.tasks import task_of
from core.training.config import RunConfig
from core.training.diagnosis import Pace, in_words, pace
from core.training.loop import FINAL

FRESH = 60  # seconds after which steps are timed again


def time_needed(config: RunConfig) -> str:
    """A sentence that estimates the run's duration, with torch's current threads; "" for the lab's own tasks.

    Their recipes were measured.
    """
    if "data" not in dict(config.task.params):
        return ""
    estimate = _pace(
        replace(
            config,
            seed=0,
            steps=1,
            max_seconds=60.0,
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
    return pace(config, task_of(config.task))
