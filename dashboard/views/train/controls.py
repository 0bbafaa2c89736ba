"""The controls of Train: a task, a model, its mechanism and the training; the frozen `Controls` is core's RunConfig."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.attention import ConfigError
from core.attention.config import heads_that_divide
from core.entries import Value
from core.models import ModelConfig
from core.models.config import RECURRENT, STACKED
from core.tasks import TASKS, Task, TaskConfig, TaskEntry, task_entry
from core.training import recommended
from core.training.config import BOUNDS, RunConfig
from dashboard.runtime.link_values import between, link_param, link_value, one_of
from dashboard.runtime.run_data import MODEL_NAMES, count_parameters, task_of
from dashboard.server.limits import within
from dashboard.ui import uploads as data_upload
from dashboard.ui.presentation import presenting
from dashboard.ui.train_with import attention_key
from dashboard.views.train import parameters
from dashboard.views.train.mechanism import choose_attention, summary
from dashboard.views.train.parameters import RATES, WIDTHS
from dashboard.widgets.layer_pattern import adopt_pattern, layer_pattern, pattern_changes
from dashboard.widgets.panels import caption, plain
from dashboard.widgets.params import KEEP, keep_heads, note_heads, param_widget

BY_INPUT = {
    ("transformer", "patches"): "Image to text",
    ("classifier", "patches"): "Vision Transformer",
}
TASK = "train:task"
MOST_HEADS, MOST_WIDTH = 16, 1024
WIDE = ("task", "told", "own")
OF_TASK = ("param", "more")
NAMES = ("model", "mechanism")  # which are long
CELLS = ("axes", "pattern", "heads", "rate", "seed", "sizes", "training")


def controls() -> RunConfig | None:
    """Draw the controls; the config of the run, or None with the reason on the page."""
    with st.container(gap="small"):
        cells = {name: st.container() for name in WIDE}
        cells |= _grid(OF_TASK) | {name: st.container() for name in NAMES} | _grid(CELLS)
    keys = [entry.key for entry in TASKS]
    link_value(
        TASK, keys[0], one_of(keys), always="run" in st.query_params
    )  # a run alone brings its own set-up
    key = cells["task"].selectbox(
        "Task",
        keys,
        format_func=lambda k: task_entry(k).name,
        key=TASK,
        **KEEP,
        help="What the model learns. The tasks on your own data come last.",
    )
    entry = task_entry(key)
    try:
        task = task_of(_task(entry, cells))
    except (ConfigError, ValueError) as error:
        cells["own"].error(plain(str(error)))
        return None
    if task.notes:
        cells["own"].caption(plain(" ".join(task.notes)))
    config = None
    try:
        config = _run(task, cells)
    except ConfigError as error:
        st.error(plain(str(error)))
    attends = config is None or config.model.attention is not None
    cells["told"].caption(f"{entry.meaning} {entry.look if attends else ''}")
    return config


def _grid(names: Sequence[str]) -> dict[str, DeltaGenerator]:
    """Cells in one column beside the pictures, in two on a phone."""
    with st.grid(1 if presenting() else "auto", min_column_width=150, gap="small"):
        return {name: st.container() for name in names}


def adopt(config: RunConfig) -> None:
    """Set the widgets to the config of a run that a link brought."""
    config = within(config)
    task, model = config.task, config.model
    name = f"train:{task.key}:{model.kind}"
    values: dict[str, Any] = {
        TASK: task.key,
        f"train:{task.key}:kind": model.kind,
        "train:seed": config.seed,
        attention_key(name): model.attention,
        f"{name}:rate": config.learning_rate,
        f"{name}:d_model": model.d_model,
        f"{name}:heads:{model.d_model}": _nearest_heads(model.d_model, model.num_heads),
    }
    values |= {
        f"{name}:{param.key}": getattr(model, param.key) for param in parameters.of_model(model)
    }
    values |= adopt_pattern(name, model)
    for params in parameters.of_training(config, "pairs").values():
        values |= {f"{name}:{param.key}": getattr(config, param.key) for param in params}
    st.session_state.pop(f"train:{task.key}:first", None)
    st.session_state.update(
        values | {f"train:{task.key}:{key}": value for key, value in task.params}
    )


def _task(entry: TaskEntry, cells: dict[str, DeltaGenerator]) -> TaskConfig:
    """The config of the task: all parameters of a person's own data, or the first one with the others in a popover."""
    values: dict[str, Value] = {}
    name = f"train:{entry.key}"
    if any(param.key == data_upload.DATA for param in entry.params):
        with cells["own"]:
            return TaskConfig.of(entry.key, seed=0, **_own_data(entry, name))
    with cells["param"]:
        values |= parameters.values(entry.params[:1], name, True)
    if entry.params[1:]:
        with cells["more"]:
            panel = parameters.group("Task settings", ":material/tune:", f"{name}:group")
            with panel:
                values |= parameters.values(entry.params[1:], name, panel.open)
    return TaskConfig.of(entry.key, seed=0, **values)


def _own_data(entry: TaskEntry, name: str) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for param in entry.params:
        key = f"{name}:{param.key}"
        if param.key == data_upload.DATA:
            values[param.key] = data_upload.data_widget(param, key)
        elif param.key in data_upload.UNNAMED:
            names = data_upload.names_of(str(values[data_upload.DATA]), str(values["header"]))
            link_value(key, "", one_of(["", *names]))
            values[param.key] = data_upload.column_widget(param, names, key)
        elif param.key == data_upload.COLUMNS:
            texts = {name: str(value) for name, value in values.items()}
            link_value(key, "", str)
            values[param.key] = data_upload.columns_widget(param, texts, key)
            link_value(key, "", str)
        else:
            link_param(param, key)
            values[param.key] = param_widget(param, key=key, keep=KEEP)
    return values


def _run(task: Task, cells: dict[str, DeltaGenerator]) -> RunConfig:
    link_value(f"train:{task.key}:kind", next(iter(task.recommended)), one_of(task.recommended))
    # Where other data has another first recommended model, select it, unless a person had selected another
    state, kind_key, first_key = (
        st.session_state,
        f"train:{task.key}:kind",
        f"train:{task.key}:first",
    )
    first = next(iter(task.recommended))
    if state.get(first_key, first) != first and state.get(kind_key) == state[first_key]:
        state[kind_key] = first
    state[first_key] = first
    kind = cells["model"].selectbox(
        "Model",
        list(task.recommended),
        key=f"train:{task.key}:kind",
        **KEEP,
        help="The architecture that is trained. Each has settings of its own.",
        format_func=lambda kind: BY_INPUT.get((kind, task.input), MODEL_NAMES[kind]),
    )
    base = within(recommended(task, kind))
    name = f"train:{task.key}:{kind}"  # each task and model keeps its own settings
    with cells["sizes"]:
        sizes = _sizes(base.model, name)
    heads = _heads(base.model, sizes["d_model"], name, cells["heads"])
    with cells["training"]:
        training = _training(base, task.form, name)
    link_value(f"{name}:rate", base.learning_rate, between(*BOUNDS["learning_rate"], float))
    current = st.session_state.get(f"{name}:rate", base.learning_rate)
    rates = sorted({*RATES, base.learning_rate, current})
    rate = cells["rate"].select_slider(
        "Learning rate",
        rates,
        base.learning_rate,
        format_func=_rate_text,
        key=f"{name}:rate",
        **KEEP,
        help="The size of each update of the weights.",
    )
    link_value("train:seed", 0, between(*BOUNDS["seed"]))
    seed = cells["seed"].number_input(
        "Seed",
        0,
        2**31 - 1,
        0,
        key="train:seed",
        **KEEP,
        help="Fixes the first weights, the data and its order: the same seed gives the same run.",
    )
    attention = choose_attention(
        name, base.model, kind, sizes["d_model"], heads, cells["mechanism"], cells["axes"]
    )
    if attention is not None and kind in STACKED:
        attention = attention.with_(dropout=sizes["dropout"])
    model = replace(base.model, num_heads=heads, attention=attention, **sizes)
    pattern = layer_pattern(name, model, cells["pattern"])
    with cells["pattern"]:
        _show_changes(pattern_changes(pattern))
    model = replace(model, **pattern)
    caption(f"{summary(model)} {count_parameters(model, task.shape):,} parameters.")
    return recommended(task, kind, model=model, learning_rate=rate, seed=seed, **training)


def _heads(start: ModelConfig, d_model: int, name: str, cell: DeltaGenerator) -> int:
    """The number of heads; 1, without a widget, for a recurrent model."""
    if start.kind in RECURRENT and start.num_heads == 1:
        return 1
    options = _heads_of(d_model)
    key, usual = f"{name}:heads:{d_model}", _nearest_heads(d_model, start.num_heads)
    link_value(key, usual, one_of(options))
    heads = cell.select_slider(
        "Heads",
        options,
        usual,
        key=key,
        **KEEP,
        help="The number of attention heads in each layer. Only numbers that divide d_model.",
    )
    return note_heads(f"{name}:d_model", d_model, heads)


def _nearest_heads(d_model: int, most: int) -> int:
    """The largest number of heads on offer up to `most`."""
    return max(heads for heads in _heads_of(d_model) if heads <= most)


def _heads_of(d_model: int) -> list[int]:
    return [heads for heads in heads_that_divide(d_model) if heads <= MOST_HEADS]


def _sizes(start: ModelConfig, name: str) -> dict[str, Any]:
    """The popover of the model: its width, and the parameters of its type."""
    panel = parameters.group("Model settings", ":material/layers:", f"{name}:sizes")
    params = parameters.of_model(start)
    link_value(f"{name}:d_model", start.d_model, between(1, MOST_WIDTH))
    with panel:
        width = st.session_state.get(f"{name}:d_model", start.d_model)
        if panel.open:
            width = st.select_slider(
                "d_model",
                sorted({*WIDTHS, start.d_model, width}),
                start.d_model,
                key=f"{name}:d_model",
                **KEEP,
                **keep_heads(f"{name}:d_model", lambda width: f"{name}:heads:{width}", _heads_of),
                help="The length of each token's vector.",
            )
        values = parameters.values(params, name, panel.open)
    _show_changes(
        [f"d_model {width}"] * (width != start.d_model) + parameters.changes(values, params)
    )
    return {"d_model": width, **values}


def _training(base: RunConfig, form: str, name: str) -> dict[str, Any]:
    """The popover of the training, in its groups."""
    panel = parameters.group("Training settings", ":material/model_training:", f"{name}:training")
    values: dict[str, Any] = {}
    groups = parameters.of_training(base, form)
    with panel:
        for title, params in groups.items():
            if panel.open:
                st.markdown(f"**{title}**")
            values |= parameters.values(params, name, panel.open)
    _show_changes(
        [change for params in groups.values() for change in parameters.changes(values, params)]
    )
    return values


def _show_changes(changes: list[str]) -> None:
    """The changed settings, which a closed popover hides."""
    if changes:
        st.caption(plain(f"Changed: {', '.join(changes)}."))


def _rate_text(rate: float) -> str:
    """0.003 → "3e-3", 0.0017 → "1.7e-3"; no two rates have the same text, by which the slider tells them apart."""
    mantissa, exponent = f"{rate:e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"
