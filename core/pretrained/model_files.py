"""What can be read of a model, judged by its config and by the names of its files, before any weights are opened."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from core.entries import quote_name
from core.pretrained.base import PretrainedError

SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
BESIDE = re.compile(
    r"(config|generation_config|tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab|preprocessor_config"
    r"|processor_config|feature_extractor_config|normalizer|model\.safetensors\.index)\.json"
    r"|vocab\.txt|merges\.txt|bpe\.codes|[a-z.]+\.spm|[a-z.]+\.model")
OTHER_WEIGHTS = re.compile(r".*\.(bin|pt|pth|ckpt|pkl|h5|msgpack|onnx|gguf|ot)")
MOST_CONFIG = 1_000_000

SCAN = "its layers carry one state from token to token and never weigh a token against another"
PLAIN = "its layers mix neighbours by fixed rules"
WITHOUT_ATTENTION: dict[str, str] = {
    **dict.fromkeys(("mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm"), SCAN),
    **dict.fromkeys(("convnext", "convnextv2", "resnet", "regnet", "efficientnet", "mobilenet_v1", "mobilenet_v2",
                     "hgnet_v2", "rt_detr_resnet", "textnet", "univnet"), "it is made of convolutions"),
    "fnet": "it mixes tokens by a Fourier transform", "poolformer": PLAIN, "patchtsmixer": PLAIN,
}  # fmt: skip


def refuse_config(config: Mapping[str, Any], name: str) -> None:
    """PretrainedError, with what would help, where this config promises no attention that could be drawn."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    family = config.get("model_type")
    if not isinstance(family, str) or not family:
        raise PretrainedError(f"{name} has a config.json that names no model_type, so it is not a model of the library "
                              "transformers; take one whose page says Transformers.")
    if family in WITHOUT_ATTENTION:
        raise PretrainedError(f"{name} is of the family {family} and has no attention to draw: "
                              f"{WITHOUT_ATTENTION[family]}. Take a Transformer, such as distilbert/distilgpt2.")
    if family in ("big_bird", "bigbird_pegasus") and config.get("attention_type", "block_sparse") == "block_sparse":
        raise PretrainedError(f"{name} is a BigBird in its block-sparse mode, which computes blocks and never has a "
                              'whole matrix to draw. Copy it to a folder, set "attention_type": "original_full" in its '
                              "config.json (the same weights, every pair of tokens), and open that folder.")
    if family not in CONFIG_MAPPING_NAMES or not _own_class(config):
        own = " It would run code of its own, which is never done here." if config.get("auto_map") else ""
        raise PretrainedError(f"{name} is a {_spoken(config)}, which the installed transformers has no code for.{own} "
                              "Take a model of a family that it knows, such as BERT, GPT-2, Llama, T5 or ViT.")


def _own_class(config: Mapping[str, Any]) -> bool:
    """Whether the class of the weights is the library's own; a config that brings code may name a foreign one."""
    import transformers

    names = config.get("architectures")
    own = names if isinstance(names, list) else ()
    return not config.get("auto_map") or any(hasattr(transformers, str(name)) for name in own)


def _spoken(config: Mapping[str, Any]) -> str:
    names = config.get("architectures") or ()
    family = quote_name(config["model_type"])
    return f"{quote_name(names[0])} ({family})" if isinstance(names, list) and names else family


def weight_files(names: Iterable[str], name: str) -> tuple[str, ...]:
    """The safetensors files of a model, of all its files; PretrainedError says what it has in their place."""
    names = set(names)
    if "config.json" not in names:
        instead = "It is an adapter to another model. " if "adapter_config.json" in names else ""
        raise PretrainedError(f"{name} has no config.json, so it is not a model of the library transformers. {instead}"
                              "Take a model whose page says Transformers.")
    if "model.safetensors" in names:
        return ("model.safetensors",)
    if shards := sorted(file for file in names if SHARD.fullmatch(file)):
        return tuple(shards)
    others = sorted(file for file in names if OTHER_WEIGHTS.fullmatch(file))
    if any(file.endswith((".bin", ".pt", ".pth", ".ckpt", ".pkl")) for file in others):
        raise PretrainedError(f"{name} keeps its weights only as {others[0]}, a pickle, which can run code when it is "
                              "opened, so it is not. Take a model that has model.safetensors; for many older ones the "
                              f"hub has made it under the revision refs/pr/1: try {name}@refs/pr/1.")
    has = f"only {others[0]}" if others else "no weights"
    raise PretrainedError(f"{name} has {has}; this page opens model.safetensors alone. Take a model that has it.")


def read_config(file: Path, name: str) -> dict[str, Any]:
    """A config.json of at most 1 MB; PretrainedError when it is none."""
    try:
        if file.stat().st_size > MOST_CONFIG:
            raise PretrainedError(f"{name} has a config.json of {file.stat().st_size:,} bytes; "
                                  f"at most {MOST_CONFIG:,} are read.")
        return parse_config(file.read_bytes(), name)
    except OSError as error:
        raise PretrainedError(f"{name} has no config.json that can be opened: {error.strerror}.") from error


def parse_config(data: bytes, name: str) -> dict[str, Any]:
    """The config in these bytes; PretrainedError when they are no JSON object."""
    try:
        config = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise PretrainedError(f"{name} has a config.json that is no JSON.") from error
    if not isinstance(config, dict):
        raise PretrainedError(f"{name} has a config.json that is no JSON object.")
    return config
