"""The controls of the next run: task, model, rows and settings; the frozen `Controls` is core's FineTuneConfig."""

from __future__ import annotations

from functools import partial
from typing import Any

import streamlit as st

from core.entries import ConfigError, Param
from core.pretrained import PretrainedError
from core.pretrained.finetune import (
    BOUNDS,
    LAB,
    TASKS,
    USUAL,
    FineTuneConfig,
    check_model,
    own_rows,
    parse,
)
from core.tasks.data_store import read
from core.tasks.reading import MOST_SIGNS
from core.training.config import AUTO, devices
from dashboard.runtime.fine_tune_data import TASK, forget_link
from dashboard.runtime.link_values import between, link_value, one_of
from dashboard.ui.fine_tuned_models import config_name
from dashboard.ui.uploads import data_widget, link_data
from dashboard.views.fine_tune import text
from dashboard.widgets.model_picker.choose import OTHER, PANELS, model_box
from dashboard.widgets.model_picker.models import EMBEDDED, ModelRef
from dashboard.widgets.model_picker.resolve import other_panel, resolve_model, select_model
from dashboard.widgets.panels import field_error
from dashboard.widgets.params import BOUND, KEEP

RATES = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2)
SIZES = (4, 8, 16, 32, 64)
SENTENCE = "fine_tune:sentence"
EXAMPLE = "could you tell me why nobody answers the phone"
USUAL_MODEL = {
    "classify": EMBEDDED,
    "pairs": ModelRef("lab", str(USUAL["pairs"]["model"]).removeprefix(LAB)),
}
FIELDS = {"classify": "One text and its label", "pairs": "A source and its target"}


def controls() -> tuple[str, FineTuneConfig | None]:
    """Draw the row of controls; the task, and the config, or None with the reason on the page."""
    link_value(SENTENCE, EXAMPLE, str)
    st.session_state.setdefault(SENTENCE, EXAMPLE)
    row = st.columns([1.15, 1.3, 1, 1], vertical_alignment="bottom")
    task = (
        row[0].selectbox(
            "Task",
            list(TASKS),
            format_func=text.TASKS.__getitem__,
            help="What the model learns from each row.",
            key=TASK,
            on_change=forget_link,
            **BOUND,
        )
        or "classify"
    )
    name = model_box(row[1], USUAL_MODEL[task])
    with row[2]:
        data = _rows(task)
    with row[3]:
        settings = _settings(task)
    try:
        model = _model(name, task)
        parse(task, data, settings["seed"])
        watch = str(st.session_state.get(SENTENCE) or "") if task == "classify" else ""
        if not model:
            return task, None
        return task, FineTuneConfig(
            task=task, data=data, model=model, watch=watch.strip(), **settings
        )
    except PretrainedError as error:
        field_error(error)
        st.button(
            f"Use {USUAL_MODEL[task].name}",
            key="fine_tune:usual",
            on_click=select_model,
            args=(USUAL_MODEL[task].name,),
        )
    except ConfigError as error:
        if not st.session_state.get(
            f"fine_tune:data:{task}:panel"
        ):  # there it stands under the field
            field_error(error)
    return task, None


def _model(name: str, task: str) -> str | None:
    """The model's name in a config; None, with a panel on the page, while it is not here.

    PretrainedError when it cannot learn such rows.
    """
    if name == OTHER:
        other_panel(st)
        return None
    ref = resolve_model(name) if name not in PANELS else ModelRef("array", name)
    if ref is None:
        return None
    if ref.source == "array":
        raise PretrainedError(
            f"{name} holds attention weights only, so there is no model to train."
        )
    check_model(config_name(ref), task)
    return config_name(ref)


def _rows(task: str) -> str:
    """The lab's rows, or a person's CSV."""
    key, own = f"fine_tune:data:{task}", own_rows(task)
    link_data(key, own)
    # The label stays the same: a popover with another label would be closed.
    panel = st.popover(
        "Rows",
        icon=":material/table_rows:",
        width="stretch",
        on_change="rerun",
        key=f"{key}:panel",
        help="The data that the model learns from.",
    )
    if not panel.open:
        return _text(str(st.session_state.get(key, own)))
    first, second = TASKS[task]
    with panel:
        st.markdown(f"**{FIELDS[task]} in each line of a CSV**")
        st.caption(
            f"The first line may name the columns: {first},{second}. A quarter of the rows is held out for "
            f"validation. The lab's rows: {text.OURS[task]}."
        )
        param = Param(
            "data",
            "Rows",
            own,
            meaning=f"CSV with {first} and {second}",
            longest=MOST_SIGNS,
            parse=lambda value: parse(task, read(value)),
        )
        rows = _text(data_widget(param, key))
        if rows != own:
            st.button(
                "Use the lab's rows",
                key=f"{key}:ours",
                type="tertiary",
                on_click=_reset,
                args=(key, own),
            )
    return rows


def _text(value: str) -> str:
    """The rows themselves; "" where they are not here, which the field reports."""
    try:
        return read(value)
    except ConfigError:
        return ""


def _reset(key: str, own: str) -> None:
    st.session_state[key] = own
    st.session_state.pop(f"{key}:trouble", None)


def _settings(task: str) -> dict[str, Any]:
    """The settings in a popover; while it is closed, those of the session."""
    usual = {name: value for name, value in USUAL[task].items() if name != "model"} | {
        "seed": 0,
        "device": "auto",
    }
    readers = {name: between(*BOUNDS[name]) for name in ("epochs", "layers", "seed")} | {
        "learning_rate": one_of(RATES),
        "batch_size": one_of(SIZES),
        "device": one_of(devices()),
    }
    key = partial("fine_tune:{1}:{0}".format, task)
    panel = st.popover(
        "Settings",
        icon=":material/tune:",
        width="stretch",
        on_change="rerun",
        key=key("panel"),
        help="Duration, learning rate and seed of the next run.",
    )
    for name, value in usual.items():
        link_value(key(name), value, readers[name])
    if not panel.open:
        return {name: st.session_state.get(key(name), value) for name, value in usual.items()}
    low, high = (int(bound) for bound in BOUNDS["epochs"])
    settings: dict[str, Any] = {}
    with panel:
        settings["epochs"] = st.number_input(
            "Epochs",
            low,
            high,
            usual["epochs"],
            key=key("epochs"),
            **KEEP,
            help="Passes over the training rows.",
        )
        if task == "classify":
            settings["layers"] = st.number_input(
                "Trained layers",
                0,
                int(BOUNDS["layers"][1]),
                usual["layers"],
                key=key("layers"),
                **KEEP,
                help="Counted from the last layer. With 0, only the classification head is trained and no attention "
                "changes. Embeddings are not trained. A classifier with the same labels keeps its head; any other "
                "model gets a new one.",
            )
        settings["learning_rate"] = st.select_slider(
            "Learning rate",
            RATES,
            usual["learning_rate"],
            **KEEP,
            key=key("learning_rate"),
            format_func=lambda rate: f"{rate:g}",
            help="The size of each update of the weights.",
        )
        settings["batch_size"] = st.select_slider(
            "Batch size",
            SIZES,
            usual["batch_size"],
            key=key("batch_size"),
            help="The number of rows in one update.",
            **KEEP,
        )
        settings["seed"] = st.number_input(
            "Seed",
            0,
            int(BOUNDS["seed"][1]),
            0,
            key=key("seed"),
            **KEEP,
            help="Fixes which rows are held out, the new weights and the order of rows.",
        )
        if len(devices()) > 2:  # more than automatic and the CPU
            settings["device"] = st.selectbox(
                "Device", devices(), key=key("device"), **KEEP, help=f"{AUTO[0].upper()}{AUTO[1:]}."
            )
    return settings
