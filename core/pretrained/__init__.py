"""Pretrained models: loading them, and reading the attention they compute on an input."""

from core.pretrained.answers import answer
from core.pretrained.base import (
    Array,
    Line,
    ModelInputs,
    Pretrained,
    PretrainedError,
    Reading,
    reject_if,
)
from core.pretrained.load import load_folder, load_lab_model, load_minilm, verify
from core.pretrained.reading import LayerQKV, encode, forward, layer_qkv, read

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
]
