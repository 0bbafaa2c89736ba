"""The parameters of a model and of its training, in groups; the values of a closed group are the session's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import streamlit as st

from core.entries import Param, Value
from core.models.config import RECURRENT, STACKED, ModelConfig
from core.training.config import AUTO, BOUNDS, OPTIMIZERS, PRECISIONS, SCHEDULES, RunConfig, devices
from dashboard.runtime.link_values import link_param
from dashboard.server.limits import most_seconds, most_steps
from dashboard.widgets.params import KEEP, param_widget

WIDTHS = (8, 16, 32, 64, 96, 128, 192, 256, 384, 512)
RATES = (1e-5, 1e-4, 2e-4, 4e-4, 1e-3, 2e-3, 3e-3, 4e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.3, 1.0)
MOST_LAYERS = 12

LAYERS = Param(
    "layers",
    "Layers",
    1,
    1,
    MOST_LAYERS,
    1,
    meaning="the number of encoder layers, and of decoder layers",
)
DROPOUT = Param(
    "dropout",
    "Dropout",
    0.0,
    0.0,
    0.6,
    0.05,
    meaning="the share of values set to zero during training",
)
TIED = Param(
    "tied",
    "Tied embeddings",
    False,
    meaning="the target embedding and the output layer share one matrix",
)
OUTPUT_BIAS = Param(
    "output_bias",
    "Output bias",
    True,
    meaning="a learned number for each token, added to its logit",
)
BLOCK = (
    Param(
        "norm",
        "Norm position",
        "post",
        choices=("post", "pre"),
        labels=("post-norm: after the residual sum", "pre-norm: before the layer"),
        meaning="post-norm is the original (Vaswani 2017); with pre-norm deep models train more easily (Xiong 2020)",
    ),
    Param(
        "normalization",
        "Norm",
        "layer",
        choices=("layer", "rms"),
        labels=("LayerNorm", "RMSNorm"),
        meaning="LayerNorm subtracts the mean, RMSNorm does not (Zhang & Sennrich 2019)",
    ),
    Param(
        "activation",
        "Activation",
        "relu",
        choices=("relu", "gelu", "swiglu"),
        labels=("ReLU", "GELU", "SwiGLU"),
        meaning="the function between the two feed-forward layers; SwiGLU adds a gate (Shazeer 2020)",
    ),
    Param(
        "d_ff",
        "Feed-forward width",
        64,
        0,
        4096,
        16,
        meaning="d_ff: the number of hidden units of the feed-forward network; 0 leaves it out",
    ),
)
POOL = Param(
    "pool",
    "Pooling",
    "first",
    choices=("first", "mean"),
    labels=("[CLS] token", "mean of all tokens"),
    meaning="which vector the class is computed from",
)
CELLS = (
    Param(
        "cell",
        "Cell",
        "gru",
        choices=("gru", "lstm"),
        labels=("GRU", "LSTM"),
        meaning="the recurrent cell of encoder and decoder",
    ),
    Param(
        "bidirectional",
        "Bidirectional encoder",
        True,
        meaning="the encoder reads the source in both directions",
    ),
    Param(
        "feeding",
        "Input feeding",
        "none",
        choices=("none", "input", "bahdanau"),
        labels=("none", "attentional vector (Luong)", "context vector (Bahdanau)"),
        meaning="which result of attention the decoder cell receives at the next step",
    ),
)
LEVELS = (
    replace(LAYERS, meaning="the number of layers of cells at each of the two levels"),
    replace(CELLS[0], meaning="the recurrent cell at both levels, over words and over sentences"),
    replace(
        CELLS[1],
        name="Bidirectional",
        meaning="the cells read words, and sentences, in both directions",
    ),
)
OUTPUTS_TEXT = ("transformer", "decoder")
OUTPUTS_TOKENS = ("transformer", "decoder", "recurrent", "hybrid")


def number(name: str, label: str, default: float, step: float, meaning: str) -> Param:
    """A setting of a run within its bounds."""
    return Param(name, label, default, *BOUNDS[name], step, meaning=meaning)


HOW_LONG = (
    number("steps", "Maximum steps", 1000, 100, "the largest number of updates of the weights"),
    number(
        "seconds", "Maximum seconds", 900.0, 5.0, "the longest time of the run, evaluation included"
    ),
    number(
        "patience",
        "Early stopping patience",
        0,
        5,
        "records without a smaller validation loss after which training stops; 0 never stops early",
    ),
    Param(
        "keep_best",
        "Keep the best weights",
        False,
        meaning="the final figures and the other pages use the weights with the smallest validation loss",
    ),
    Param(
        "finish_early",
        "Finish at 99 %",
        True,
        meaning="training ends after two records in a row with a validation sequence accuracy of 99 %",
    ),
)
HOW = (
    Param(
        "optimizer",
        "Optimizer",
        "adamw",
        choices=OPTIMIZERS,
        labels=("AdamW", "Adam", "RMSprop", "SGD"),
        meaning="the rule by which gradients change the weights; SGD has momentum 0.9 and needs a larger rate",
    ),
    Param(
        "schedule",
        "Learning rate schedule",
        "cosine",
        choices=SCHEDULES,
        labels=("constant", "cosine, to a tenth", "1/√step (Vaswani 2017)"),
        meaning="how the learning rate changes after the warm-up",
    ),
    number(
        "warmup",
        "Warm-up steps",
        50,
        10,
        "the first steps, in which the learning rate rises from 0",
    ),
    number("batch_size", "Batch size", 64, 8, "the number of examples in one update"),
    number(
        "clip",
        "Clip gradients at",
        1.0,
        0.1,
        "the largest allowed gradient norm; a very large number never clips",
    ),
    number(
        "weight_decay",
        "Weight decay",
        0.01,
        0.01,
        "how strongly each step pulls the weights towards zero",
    ),
    number(
        "label_smoothing",
        "Label smoothing",
        0.0,
        0.05,
        "the share of the target probability spread over all tokens (Szegedy 2016)",
    ),
)
WHERE = (
    Param(
        "precision",
        "Precision",
        "fp32",
        choices=PRECISIONS,
        labels=("float32", "bfloat16"),
        meaning="bfloat16 is for wide models: on a CPU with AMX from a width of about 256; below, it is slower",
    ),
    Param(
        "checkpointing",
        "Gradient checkpointing",
        False,
        meaning="each layer is computed again in the backward pass: less memory, more time",
    ),
)


def group(label: str, icon: str, key: str) -> Any:
    """A popover whose body runs only while it is open."""
    return st.popover(label, icon=icon, width="stretch", on_change="rerun", key=key)


def values(params: Iterable[Param], key: str, visible: bool) -> dict[str, Value]:
    """Each parameter's value: of its widget while the group is visible, else of the session. All are in the link."""
    params = tuple(params)
    for param in params:
        link_param(param, f"{key}:{param.key}")
    if visible:
        return {
            param.key: param_widget(param, key=f"{key}:{param.key}", keep=KEEP) for param in params
        }
    return {
        param.key: st.session_state.get(f"{key}:{param.key}", param.default) for param in params
    }


def of_model(start: ModelConfig) -> tuple[Param, ...]:
    """The parameters of a type of model beside its width and its attention; their defaults are the recipe's."""
    kind = start.kind
    sizes = LEVELS if kind == "hierarchical" else (LAYERS, *(BLOCK if kind in STACKED else CELLS))
    params = [
        *sizes,
        *[POOL] * (kind == "classifier"),
        DROPOUT,
        *[TIED] * (kind in OUTPUTS_TOKENS),
        *[OUTPUT_BIAS] * (kind in OUTPUTS_TEXT),
    ]
    return tuple(replace(param, default=getattr(start, param.key)) for param in params)


def of_training(base: RunConfig, form: str) -> dict[str, tuple[Param, ...]]:
    """The settings of a run by group, without those that do not apply to it; their defaults are the recipe's."""
    excluded = {"label_smoothing"} if form == "series" else set()
    excluded |= {"checkpointing"} if base.model.kind in RECURRENT else set()
    excluded |= {"finish_early"} if form in ("text", "series") else set()
    device = Param(
        "device", "Device", "auto", choices=devices(), labels=("automatic",), meaning=AUTO
    )
    most = {"steps": most_steps(), "seconds": most_seconds()}
    return {
        name: tuple(
            replace(param, default=getattr(base, param.key), high=most.get(param.key, param.high))
            for param in params
            if param.key not in excluded
        )
        for name, params in (
            ("Duration", HOW_LONG),
            ("Optimization", HOW),
            ("Hardware", (device, *WHERE)),
        )
    }


def changes(values: dict[str, Value], params: Iterable[Param]) -> list[str]:
    """The settings that differ from their defaults, as text."""
    return [
        f"{param.name.lower()} {_value_text(param, values[param.key])}"
        for param in params
        if values[param.key] != param.default
    ]


def _value_text(param: Param, value: Value) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return param.label(value) if isinstance(value, str) else f"{value:g}"
