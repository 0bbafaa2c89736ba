"""The parameters of a model and of its training, in groups; the values of a closed group are the session's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import streamlit as st

from core.entries import Param, Value
from core.models.config import RECURRENT, STACKED, ModelConfig
from core.training.config import BOUNDS, OPTIMIZERS, PRECISIONS, SCHEDULES, RunConfig, devices
from dashboard.widgets.params import KEEP, param_widget

WIDTHS = (8, 16, 32, 64, 96, 128, 192, 256, 384, 512)
RATES = (1e-5, 1e-4, 2e-4, 4e-4, 1e-3, 2e-3, 3e-3, 4e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.3, 1.0)
MOST_LAYERS = 12

LAYERS = Param("layers", "Layers", 1, 1, MOST_LAYERS, 1, meaning="of the encoder, and as many of the decoder")
DROPOUT = Param("dropout", "Dropout", 0.0, 0.0, 0.6, 0.05, meaning="share of numbers set to zero while it trains")
TIED = Param("tied", "Tied embeddings", False, meaning="the target's embedding and the output share one matrix")
OUTPUT_BIAS = Param("output_bias", "Output bias", True, meaning="a number for each word that is added to its logit")
BLOCK = (
    Param("norm", "Where the norm stands", "post", choices=("post", "pre"),
          labels=("post: after the sum", "pre: before the layer"),
          meaning="post as published (Vaswani 2017), pre trains deep models more easily (Xiong 2020)"),
    Param("normalization", "Norm", "layer", choices=("layer", "rms"), labels=("LayerNorm", "RMSNorm"),
          meaning="RMSNorm leaves the mean in (Zhang & Sennrich 2019)"),
    Param("activation", "Activation", "relu", choices=("relu", "gelu", "swiglu"), labels=("ReLU", "GELU", "SwiGLU"),
          meaning="between the two layers of the feed-forward part; SwiGLU gates it (Shazeer 2020)"),
    Param("d_ff", "Feed-forward width", 64, 1, 4096, 16, meaning="numbers between its two layers"),
)
POOL = Param("pool", "Answers from", "first", choices=("first", "mean"),
             labels=("a class token of its own", "the mean of all tokens"), meaning="what the class is read from")
CELLS = (
    Param("cell", "Cell", "gru", choices=("gru", "lstm"), labels=("GRU", "LSTM"), meaning="of encoder and decoder"),
    Param("bidirectional", "Bidirectional encoder", True, meaning="reads the source in both directions"),
    Param("feeding", "Into the next step", "none", choices=("none", "input", "bahdanau"),
          labels=("nothing of the attention", "input feeding (Luong)", "the context (Bahdanau)"),
          meaning="what of the attention the decoder's cell is given"),
)
OUTPUTS_TEXT = ("transformer", "decoder")
OUTPUTS_TOKENS = ("transformer", "decoder", *RECURRENT)


def number(name: str, label: str, default: float, step: float, meaning: str) -> Param:
    """A setting of a run within its bounds."""
    return Param(name, label, default, *BOUNDS[name], step, meaning=meaning)


HOW_LONG = (
    number("steps", "Steps, at most", 1000, 100, "updates of the weights"),
    number("seconds", "Seconds, at most", 900.0, 5.0, "of the whole run, with measuring"),
    number("patience", "Stop early after", 0, 5, "records without a smaller held-out loss; 0 never stops early"),
    Param("keep_best", "Keep the best weights", False,
          meaning="the final figures and the other pages take the weights of the smallest held-out loss"),
    Param("finish_early", "Finish after two passes at 99 %", True, meaning="of held-out exact match"),
)
HOW = (
    Param("optimizer", "Optimizer", "adamw", choices=OPTIMIZERS, labels=("AdamW", "Adam", "RMSprop", "SGD"),
          meaning="SGD has a momentum of 0.9, and wants a larger learning rate"),
    Param("schedule", "Learning rate over time", "cosine", choices=SCHEDULES,
          labels=("constant", "cosine, to a tenth", "1/√step (Vaswani 2017)"), meaning="after the warm-up"),
    number("warmup", "Warm-up steps", 50, 10, "in which the learning rate rises"),
    number("batch_size", "Batch", 64, 8, "examples in one update"),
    number("clip", "Clip gradients at", 1.0, 0.1, "their norm; a very large number never clips"),
    number("weight_decay", "Weight decay", 0.01, 0.01, "pulls the weights towards zero"),
    number("label_smoothing", "Label smoothing", 0.0, 0.05, "share of the target spread over all words (Szegedy 2016)"),
)
WHERE = (
    Param("precision", "Precision", "fp32", choices=PRECISIONS, labels=("float32", "bfloat16"),
          meaning="bfloat16 is for a GPU; a CPU computes it more slowly"),
    Param("checkpointing", "Gradient checkpointing", False,
          meaning="computes each layer twice instead of keeping what it made: less memory, more time"),
)


def group(label: str, icon: str, key: str) -> Any:
    """A popover whose body runs only while it is open."""
    return st.popover(label, icon=icon, width="stretch", on_change="rerun", key=key)


def values(params: Iterable[Param], key: str, visible: bool) -> dict[str, Value]:
    """Each parameter's value: of its widget while the group is visible, else of the session."""
    if visible:
        return {param.key: param_widget(param, key=f"{key}:{param.key}", keep=KEEP) for param in params}
    return {param.key: st.session_state.get(f"{key}:{param.key}", param.default) for param in params}


def of_model(start: ModelConfig) -> tuple[Param, ...]:
    """The parameters of a type of model beside its width and its attention; their defaults are the recipe's."""
    kind = start.kind
    params = [LAYERS, *(BLOCK if kind in STACKED else CELLS), *[POOL] * (kind == "classifier"), DROPOUT,
              *[TIED] * (kind in OUTPUTS_TOKENS), *[OUTPUT_BIAS] * (kind in OUTPUTS_TEXT)]
    return tuple(replace(param, default=getattr(start, param.key)) for param in params)


def of_training(base: RunConfig, form: str) -> dict[str, tuple[Param, ...]]:
    """The settings of a run by group, without those that do not apply to it; their defaults are the recipe's."""
    excluded = {"label_smoothing"} if form == "series" else set()
    excluded |= {"checkpointing"} if base.model.kind in RECURRENT else set()
    excluded |= {"finish_early"} if form in ("text", "series") else set()
    device = Param("device", "Device", "auto", choices=devices(), labels=("automatic",),
                   meaning="automatic is the CPU: models this small wait longer for a GPU than they compute")
    return {name: tuple(replace(param, default=getattr(base, param.key)) for param in params
                        if param.key not in excluded)
            for name, params in (("How long", HOW_LONG), ("How", HOW), ("Where", (device, *WHERE)))}


def changes(values: dict[str, Value], params: Iterable[Param]) -> list[str]:
    """The settings that differ from their defaults, as text."""
    return [f"{param.name.lower()} {_value_text(param, values[param.key])}" for param in params
            if values[param.key] != param.default]


def _value_text(param: Param, value: Value) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return param.label(value) if isinstance(value, str) else f"{value:g}"
