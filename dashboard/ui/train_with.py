"""The buttons that take a mask, a position or a model's pattern from another page to Train, for the next run."""

from __future__ import annotations

import streamlit as st

from core.attention import Choice, ConfigError
from core.models import ModelConfig
from core.models.cards.base import ModelCard
from core.models.config import STACKED
from core.tasks import TASKS, TaskConfig, make_task
from core.training.config import card_recipe
from dashboard.draw.formats import plain
from dashboard.navigation import STEPS

HELP = {
    axis: f"Open Train and watch with this {axis} in the model; the rest of the model is as the task recommends."
    for axis in ("mask", "position")
}


def attention_key(name: str) -> str:
    """The session key of the attention chosen for a task and model."""
    return f"{name}:attention:now"


def train_with(axis: str, choice: Choice, *, key: str) -> None:
    """Draw the button; a press opens Train with this choice on its axis, all else as the task recommends."""
    if not st.button(
        "Train a model with it",
        icon=":material/play_circle:",
        type="tertiary",
        key=key,
        help=HELP[axis],
    ):
        return
    task, model = _stacked_model(st.session_state.get("train:task", TASKS[0].key))
    recommended = ModelConfig.from_json(
        make_task(TaskConfig.of(task)).recommended[model].model
    ).attention
    assert recommended is not None
    try:
        config = recommended.with_(**{axis: choice})
    except ConfigError as error:
        st.error(plain(str(error)))
        return
    st.session_state.update(
        {
            "train:task": task,
            f"train:{task}:kind": model,
            attention_key(f"train:{task}:{model}"): config,
        }
    )
    _open_train()


def train_small(card: ModelCard, *, key: str) -> None:
    """Draw the button; a press opens Train with the card's pattern of layers in a model of a few heads."""
    if not st.button(
        "Train it small",
        icon=":material/play_circle:",
        key=key,
        help="Open Train with the same pattern of layers, with 64 dimensions and short windows.",
    ):
        return
    config = card_recipe(card)
    task, model = config.task.key, config.model
    name = f"train:{task}:{model.kind}"
    state = {
        "train:task": task,
        f"train:{task}:kind": model.kind,
        attention_key(name): model.attention,
        f"{name}:heads:{model.d_model}": model.num_heads,
    }
    state |= {
        f"{name}:{field}": getattr(model, field)
        for field in ("following", "layers", "d_model", "norm", "pool")
    }
    st.session_state.update(state)
    _open_train()


def _open_train() -> None:
    # Without query_params the switch would clear the link, which bound widgets of this page forbid.
    st.switch_page(next(step.page() for step in STEPS if step.key == "train"), query_params={})


def _stacked_model(task: str) -> tuple[str, str]:
    """The task and the first of its models that reads positions and masks; the first task's where it has none."""
    for key in (task, TASKS[0].key):
        for model in make_task(TaskConfig.of(key)).recommended:
            if model in STACKED and model != "one_token":
                return key, model
    raise AssertionError("the first task has a stacked model")
