"""The settings of a model and of its training, each once: bounds and choices are those of its field, the words stand here."""

from dataclasses import fields
from functools import partial
from typing import Any, Literal, get_args, get_origin

from msgspec import inspect

from core.entries import Param
from core.models.base import READERS, STACKED, ModelConfig
from core.serialization import field_types
from core.training.config import AUTO, RunConfig


def setting(of: type, key: str, name: str, meaning: str, **more: Any) -> Param:
    """A field of the config `of` as a Param, with the field's default, bounds and choices; `more` says what differs.

    A field without a default begins at its lowest value.
    """
    hint, known = field_types(of)[key], {field.name: field.default for field in fields(of)}
    given: dict[str, Any] = {"default": known[key]}
    if get_origin(hint) is Literal:
        given["choices"] = get_args(hint)
    elif isinstance(info := inspect.type_info(hint), inspect.IntType | inspect.FloatType):
        number = int if isinstance(info, inspect.IntType) else float
        given |= {
            end: None if bound is None else number(bound)
            for end, bound in (("low", info.ge), ("high", info.le))
        }
        given |= {"default": getattr(of, key, given["low"]), "step": number(1)}
    return Param(key, name, meaning=meaning, **given | more)


_model, _training = partial(setting, ModelConfig), partial(setting, RunConfig)

WIDTH = _model("d_model", "d_model", "the length of each token's vector")
HEADS = _model("num_heads", "Heads", "the number of attention heads in each layer")
MODEL_SETTINGS = {
    param.key: param
    for param in (
        _model("layers", "Layers", "the number of encoder layers, and of decoder layers"),
        _model(
            "norm",
            "Norm position",
            "post-norm is the original (Vaswani 2017); with pre-norm deep models train more easily (Xiong 2020)",
            labels=("post-norm: after the residual sum", "pre-norm: before the layer"),
        ),
        _model(
            "residual",
            "Between layers",
            "what a sublayer reads: the sum of all outputs before it; a sum of them with weights that it computes "
            "for each token (Kimi 2026); or one of several sums (streams), which each token mixes (DeepSeek 2025). "
            "The last two need pre-norm",
            labels=("sum: the residual connection", "attention over depth", "hyper-connections"),
        ),
        _model(
            "streams",
            "Streams",
            "of hyper-connections alone: how many sums of the outputs each token carries",
        ),
        _model(
            "normalization",
            "Norm",
            "LayerNorm subtracts the mean, RMSNorm does not (Zhang & Sennrich 2019)",
            labels=("LayerNorm", "RMSNorm"),
        ),
        _model(
            "activation",
            "Activation",
            "the function between the two feed-forward layers; SwiGLU adds a gate (Shazeer 2020)",
            labels=("ReLU", "GELU", "SwiGLU"),
        ),
        _model(
            "d_ff",
            "Feed-forward width",
            "d_ff: the number of hidden units of the feed-forward network; 0 leaves it out",
            step=16,
        ),
        _model("cell", "Cell", "the recurrent cell of encoder and decoder", labels=("GRU", "LSTM")),
        _model(
            "bidirectional",
            "Bidirectional encoder",
            "the encoder reads the source in both directions",
        ),
        _model(
            "feeding",
            "Input feeding",
            "which result of attention the decoder cell receives at the next step",
            labels=("none", "attentional vector (Luong)", "context vector (Bahdanau)"),
        ),
        _model(
            "pool",
            "Pooling",
            "which vector the class is computed from",
            labels=("[CLS] token", "mean of all tokens"),
        ),
        _model(
            "dropout",
            "Dropout",
            "the share of values set to zero during training",
            step=0.05,
            high=0.6,
        ),
        _model(
            "tied", "Tied embeddings", "the target embedding and the output layer share one matrix"
        ),
        _model("output_bias", "Output bias", "a learned number for each token, added to its logit"),
        _model(
            "scaled_embedding",
            "Scaled embedding",
            "a token's vector is multiplied by √d_model (Vaswani 2017); in GPT-2 it is not",
        ),
    )
}
# Only these types of models have the setting.
KINDS_WITH = dict.fromkeys(("norm", "normalization", "activation", "d_ff"), STACKED) | READERS
RATE = _training("learning_rate", "Learning rate", "the size of each update of the weights")
TRAINING_SETTINGS = {  # by group
    "Duration": (
        _training(
            "steps", "Maximum steps", "the largest number of updates of the weights", step=100
        ),
        _training(
            "max_seconds",
            "Maximum seconds",
            "the longest time of the run, evaluation included",
            step=5.0,
        ),
        _training(
            "patience",
            "Early stopping patience",
            "records without a smaller validation loss after which training stops; 0 never stops early",
            step=5,
        ),
        _training(
            "keep_best",
            "Keep the best weights",
            "the final figures and the other pages use the weights with the smallest validation loss",
        ),
        _training(
            "finish_early",
            "Finish at 99 %",
            "training ends after two records in a row with a validation sequence accuracy of 99 %",
        ),
    ),
    "Optimization": (
        _training(
            "optimizer",
            "Optimizer",
            "the rule by which gradients change the weights; SGD has momentum 0.9 and needs a larger rate",
            labels=("AdamW", "Adam", "RMSprop", "SGD"),
        ),
        _training(
            "schedule",
            "Learning rate schedule",
            "how the learning rate changes after the warm-up",
            labels=("constant", "cosine", "1/√step (Vaswani 2017)"),
        ),
        _training(
            "min_rate",
            "Minimum rate",
            "where a cosine ends, as a share of the learning rate",
            step=0.05,
        ),
        _training(
            "warmup",
            "Warm-up steps",
            "the first steps, in which the learning rate rises from 0",
            step=10,
        ),
        _training("batch_size", "Batch size", "the number of examples in one update", step=8),
        _training(
            "clip",
            "Clip gradients at",
            "the largest allowed gradient norm; a very large number never clips",
            step=0.1,
        ),
        _training(
            "weight_decay",
            "Weight decay",
            "how strongly each step pulls the weights towards zero",
            step=0.01,
        ),
        _training(
            "decayed",
            "Weight decay of",
            "what weight decay pulls at; biases and norms are not matrices",
            labels=("all weights", "matrices alone"),
        ),
        _training("beta1", "β₁", "Adam's decay of the mean gradient, by step", step=0.01),
        _training("beta2", "β₂", "Adam's decay of the mean squared gradient, by step", step=0.001),
        _training(
            "initialization",
            "First weights",
            "as each part begins, or as in GPT-2: N(0, 0.02²), less for what layers add (Radford 2019)",
            labels=("usual", "GPT-2"),
        ),
        _training(
            "label_smoothing",
            "Label smoothing",
            "the share of the target probability spread over all tokens (Szegedy 2016)",
            step=0.05,
        ),
    ),
    "Hardware": (
        _training("device", "Device", AUTO, labels=("automatic",)),
        _training(
            "precision",
            "Precision",
            "bfloat16 is for wide models: on a CPU with AMX from a width of about 256; below, it is slower",
            labels=("float32", "bfloat16"),
        ),
        _training(
            "checkpointing",
            "Gradient checkpointing",
            "each layer is computed again in the backward pass: less memory, more time",
        ),
    ),
}

SETTINGS = {
    param.key: param
    for params in ((WIDTH, HEADS, RATE), MODEL_SETTINGS.values(), *TRAINING_SETTINGS.values())
    for param in params
}
