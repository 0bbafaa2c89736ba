"""Pretrained models: loading them, and reading the attention they compute on an input."""

from core.pretrained.answers import Answer, answer
from core.pretrained.attention_recorder import AttentionCall, AttentionRecorder, record_attention
from core.pretrained.base import Array, Line, ModelInputs, Pretrained, PretrainedError, Reading
from core.pretrained.layer_qkv import LayerQKV, layer_qkv
from core.pretrained.load import load_folder, load_lab_model, load_minilm, verify
from core.pretrained.reading import encode, forward, read

__all__ = ["Answer", "Array", "ModelInputs", "LayerQKV", "Line", "Pretrained", "PretrainedError", "Reading",
           "AttentionCall", "AttentionRecorder",
           "answer", "encode", "forward", "layer_qkv", "load_folder", "load_lab_model", "load_minilm", "read", "verify",
           "record_attention"]
