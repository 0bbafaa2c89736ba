"""How long a run on a reader's own data will take, before Train is pressed."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import lru_cache

import streamlit as st

from core.training.config import RunConfig
from core.training.estimate import Pace, in_words, pace
from core.training.loop import FINAL
from dashboard.runtime.run_data import task_of
from dashboard.runtime.threads import one_thread
from dashboard.widgets.data_upload import DATA
from dashboard.widgets.panels import plain

FRESH = 60  # seconds after which steps are timed again


def time_needed(config: RunConfig) -> None:
    """The estimate as a caption; nothing for a task of the lab's own, whose recipes were measured."""
    if DATA not in dict(config.task.params):
        return
    with st.spinner("Timing a few steps"):
        estimate = _pace(replace(config, seed=0, steps=1, seconds=60.0, learning_rate=1e-3, warmup=0, patience=0,
                              record_every=1, decode_every=1, held_out=1), int(time.monotonic() // FRESH))
    task = task_of(config.task)
    held_out = len(task.held_out(config.held_out)[: config.held_out])
    seconds = estimate.seconds(config, held_out, len(task.held_out(FINAL)))
    st.caption(plain(in_words(config, seconds)))


@lru_cache(maxsize=32)
def _pace(config: RunConfig, minute: int) -> Pace:
    """What a config takes, timed again each `minute`, as the machine may be busy in one; whatever of the config does
    not change the time of a step is left out by whoever calls."""
    with one_thread():  # as the run has
        return pace(config, task_of(config.task))
