"""The page's controls: a run's model with its trained weights, or a model with random weights from a seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from core.attention import ConfigError, heads_that_divide
from core.attention.positions import POSITIONS
from core.models import ModelConfig
from core.models.config import STACKED
from core.runs.runs import Run, find_run, list_runs
from core.tasks import TASKS, TaskConfig, make_task, task_entry
from core.training.sweeps import SAME
from dashboard.runtime.link_start import read_start, write_start
from dashboard.runtime.link_values import is_new, link_value, one_of
from dashboard.runtime.run_data import EXAMPLE_RUNS
from dashboard.widgets.layer_pattern import pattern_label, published
from dashboard.widgets.panels import caption, plain
from dashboard.widgets.params import BOUND, keep_heads, note_heads

SEEDED, EXAMPLE = "seeded", "example"
WEIGHTS, LAYERS, DRAWN = "transformer:weights", "transformer:layers", "transformer:drawn"
CONTROLS = (
    WEIGHTS,
    *(
        f"transformer:{name}"
        for name in (
            "task",
            "kind",
            "norm",
            "normalization",
            "activation",
            "position",
            "d_model",
            "heads",
            "pattern",
            "seed",
        )
    ),
)
KINDS = {
    "transformer": "Encoder–decoder",
    "decoder": "Decoder only",
    "classifier": "Classifier",
    "one_token": "Classifier, row as one token",
    "forecaster": "Forecaster",
}
NORMS = {"post": "After (2017)", "pre": "Before (2020)"}
ACTIVATIONS = {"relu": "ReLU", "gelu": "GELU", "swiglu": "SwiGLU"}
NORMALIZATIONS = {"layer": "LayerNorm", "rms": "RMSNorm"}
WIDTHS = (16, 32, 64, 128)
LISTED = 50  # runs, the newest first


@dataclass(frozen=True)
class Controls:
    """A model: of a run (its id, and the step of the checkpoint), or from a seed."""

    config: ModelConfig
    task: TaskConfig
    run: str = SEEDED
    step: int = 0
    seed: int = 0

    @property
    def seeded(self) -> bool:
        return self.run == SEEDED


def run_of(name: str) -> Run | None:
    return EXAMPLE_RUNS[0] if name == EXAMPLE else find_run(name)


def draw_controls() -> Controls | None:
    """Draw the row of controls; None, with the error on the page, for a model that cannot be built.

    Before, the page opened on random weights, and its links count from them.
    """
    first = EXAMPLE if read_start("transformer", "trained", "random") == "trained" else SEEDED
    row = st.grid(3, min_column_width=200, vertical_alignment="bottom")
    options = sources()
    if is_new("run") and st.query_params["run"] not in options:
        st.warning(
            "The run in the link is not on this machine, or its model has no layers. Below is another model."
        )
    link_value(WEIGHTS, first, one_of(options), name="run")
    with row:
        source = st.selectbox(
            "Weights",
            options,
            options.index(first),
            key=WEIGHTS,
            format_func=source_label,
            persist_state="session",
            help="Random weights from a seed, or the trained weights of a run.",
        )
    try:
        controls = _seeded(row) if source == SEEDED else _trained(row, source)
    except (ConfigError, ValueError, KeyError, TypeError) as error:
        st.error(plain(str(error)))
        return None
    finally:
        write_start("transformer")
    st.session_state[DRAWN] = controls, _values()
    return controls


def read_controls() -> Controls | None:
    """The controls that were drawn last, with the layers of now, before they are drawn again.

    None where anything else changed, which can take other controls with it.
    """
    controls, values = st.session_state.get(DRAWN, (None, {}))
    if controls is None or values != _values():
        return None
    return (
        controls
        if not controls.seeded
        else replace(
            controls,
            config=replace(
                controls.config, layers=st.session_state.get(LAYERS, controls.config.layers)
            ),
        )
    )


def _values() -> dict[str, Any]:
    """What the session has for the controls, but for the number of layers."""
    return {name: st.session_state.get(name) for name in CONTROLS}


def sources() -> list[str]:
    """The seed, the example run, and every run with a stacked model, the newest first."""
    return [
        SEEDED,
        EXAMPLE,
        *(run.id for run in reversed(list_runs(latest=LISTED)) if _stacked(run)),
    ]


def _stacked(run: Run) -> bool:
    try:
        return bool(run.checkpoint_steps()) and run.config().model.kind in STACKED
    except (ConfigError, KeyError, TypeError, ValueError):
        return False


def source_label(source: str) -> str:
    if source in (SEEDED, EXAMPLE):
        return "Random, from a seed" if source == SEEDED else "Trained: the example run"
    run = run_of(source)
    return f"Trained: {run.name if run else source}"


def _trained(row: Any, source: str) -> Controls:
    run = run_of(source)
    steps = run.checkpoint_steps() if run else []
    if run is None or not steps:
        raise ValueError("This run is no longer here. Choose another one, or random weights.")
    config = run.config()
    task = task_entry(config.task.key)
    with row.cell(column_span=2):
        caption(
            f"{task.name}: {task.meaning} {task.look} Choose random weights to build another model."
        )
    return Controls(config.model, config.task, source, run.default_step())


def _seeded(row: Any) -> Controls:
    tasks = {
        entry.key: entry.name
        for entry in TASKS
        if not any(param.key == "data" for param in entry.params)
    }
    with row:
        task = st.selectbox(
            "Task",
            list(tasks),
            key="transformer:task",
            format_func=lambda key: tasks[key],
            help="The data whose example goes through the model.",
            **BOUND,
        )
        config = TaskConfig.of(task)
        kinds = [kind for kind in make_task(config).recommended if kind in STACKED]
        if st.session_state.get("transformer:kind") not in kinds:
            st.session_state.pop("transformer:kind", None)
        kind = st.selectbox(
            "Model",
            kinds,
            key="transformer:kind",
            format_func=KINDS.__getitem__,
            help="Encoder and decoder, only a decoder, or an encoder that classifies.",
            **BOUND,
        )
        layers = st.slider(
            "Layers", 1, 12, 3, key=LAYERS, help="How many layers are stacked.", **BOUND
        )
        panel = st.popover(
            "Blocks",
            icon=":material/tune:",
            key="transformer:blocks",
            width="stretch",
            help="Norm, activation, position, sizes and seed",
        )
    blocks = _blocks(panel, kind)
    seed, pattern = blocks.pop("seed"), blocks.pop("pattern")
    model = ModelConfig.transformer(kind=kind, layers=layers, **blocks)
    if pattern:
        model = replace(model, attention=pattern[0], following=pattern[1:])
    return Controls(model, config, seed=seed)


def _heads_of(d_model: int) -> list[int]:
    return [heads for heads in heads_that_divide(d_model) if heads <= 8]


def _blocks(panel: Any, kind: str) -> dict[str, Any]:
    """Draw the parts of a layer and read them; "pattern" are the attentions of unlike layers, if any."""
    values: dict[str, Any] = {}
    with panel:
        for name, label, names, help_text in (
            (
                "norm",
                "Norm position",
                NORMS,
                "Whether a norm comes after the sum or before the sublayer.",
            ),
            (
                "normalization",
                "Norm",
                NORMALIZATIONS,
                "RMSNorm scales a vector without shifting its mean.",
            ),
            (
                "activation",
                "Activation",
                ACTIVATIONS,
                "The function between the two layers of feed-forward.",
            ),
        ):
            values[name] = st.selectbox(
                label,
                list(names),
                key=f"transformer:{name}",
                format_func=names.__getitem__,
                help=help_text,
                **BOUND,
            )
        names = {entry.key: entry.name for entry in POSITIONS}
        values["position"] = st.selectbox(
            "Position",
            list(names),
            list(names).index("sinusoidal"),
            key="transformer:position",
            format_func=lambda key: names[key],
            help="How the model learns the order of tokens.",
            **BOUND,
        )
        values["d_model"] = st.select_slider(
            "d_model",
            WIDTHS,
            32,
            key="transformer:d_model",
            **keep_heads("transformer:d_model", lambda _: "transformer:heads", _heads_of),
            help="The count of numbers in the vector of each token.",
            **BOUND,
        )
        fits = _heads_of(values["d_model"])
        values["num_heads"] = st.selectbox(
            "Heads",
            fits,
            fits.index(2),
            key="transformer:heads",
            help="Attentions side by side; their number divides d_model.",
            **BOUND,
        )
        note_heads("transformer:d_model", values["d_model"], values["num_heads"])
        known = published(kind, values["d_model"], values["num_heads"])
        if st.session_state.get("transformer:pattern") not in known:
            st.session_state.pop("transformer:pattern", None)
        chosen = st.selectbox(
            "Layer pattern",
            [SAME, *known],
            key="transformer:pattern",
            format_func=pattern_label,
            help="The attentions of a published model's layers, which repeat; they bring positions "
            "of their own.",
            **BOUND,
        )
        values["pattern"] = known.get(chosen, ())
        values["seed"] = int(
            st.number_input(
                "Seed",
                0,
                999_999,
                0,
                key="transformer:seed",
                help="Another seed gives other random weights.",
                **BOUND,
            )
        )
    return values
