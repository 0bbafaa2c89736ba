"""From another page to training: a mask or a position that was looked at becomes the mechanism of the next run."""

from __future__ import annotations

import streamlit as st

from core.attention import Choice, ConfigError
from core.models import ModelConfig
from core.models.config import STACKED
from core.tasks import TASKS, TaskConfig, make_task
from dashboard.navigation import STEPS
from dashboard.views.train.mechanism import now_key
from dashboard.widgets.panels import plain


def train_with(axis: str, choice: Choice, *, key: str) -> None:
    """A button that goes to Train with this choice on its axis, all else as the task recommends."""
    if not st.button("Train a model with it", icon=":material/play_circle:", type="tertiary", key=key):
        return
    task, kind = _stacked(st.session_state.get("train:task", TASKS[0].key))
    usual = ModelConfig.from_json(make_task(TaskConfig.of(task)).recommended[kind].model).attention
    assert usual is not None
    try:
        taken = usual.with_(**{axis: choice})
    except ConfigError as error:
        st.error(plain(str(error)))
        return
    st.session_state.update({"train:task": task, now_key(f"train:{task}:{kind}"): taken, f"train:{task}:kind": kind})
    st.switch_page(next(step.path for step in STEPS if step.key == "train"))


def _stacked(task: str) -> tuple[str, str]:
    """The task and the first of its models that reads positions and masks; the first task's where it has none."""
    for key in (task, TASKS[0].key):
        for kind in make_task(TaskConfig.of(key)).recommended:
            if kind in STACKED and kind != "one_token":
                return key, kind
    raise AssertionError("the first task has a stacked model")
