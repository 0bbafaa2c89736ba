"""Pretrained models: loading them, and reading the attention they compute on an input."""

from core.pretrained.base import (
    Array,
    Line,
    ModelInputs,
    Pretrained,
    PretrainedError,
    Reading,
    reject_if,
    wrap_errors,
)
from core.pretrained.generate import (
    answer,
    mask_word,
    maskable_words,
    output_id,
    output_name,
    top_candidates,
)
from core.pretrained.load import (
    LAB_MODELS,
    MINILM,
    lab_models,
    load_folder,
    load_lab_model,
    load_minilm,
    minilm_folder,
    untrained,
    verify,
)
from core.pretrained.reading import LayerQKV, encode, forward, layer_qkv, read, sampling_rate

__all__ = [
    "Array",
    "ModelInputs",
    "LayerQKV",
    "Line",
    "Pretrained",
    "PretrainedError",
    "Reading",
    "answer",
    "encode",
    "forward",
    "layer_qkv",
    "load_folder",
    "load_lab_model",
    "load_minilm",
    "read",
    "reject_if",
    "verify",
    "mask_word",
    "maskable_words",
    "output_id",
    "output_name",
    "top_candidates",
    "LAB_MODELS",
    "MINILM",
    "lab_models",
    "minilm_folder",
    "untrained",
    "wrap_errors",
    "sampling_rate",
]
