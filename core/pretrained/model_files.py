"""Whether a model can be read, by its config and the names of its files, before any weights are opened."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.entries import quote_name
from core.pretrained.base import PretrainedError, format_count

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

INDEX = "model.safetensors.index.json"
SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
BESIDE = re.compile(
    r"(config|generation_config|tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab|preprocessor_config"
    r"|processor_config|feature_extractor_config|normalizer|model\.safetensors\.index)\.json"
    r"|vocab\.txt|merges\.txt|bpe\.codes|[a-z.]+\.spm|[a-z.]+\.model"
)
READ = re.compile(
    r".*\.(json|jinja|txt|model|spm|codes|tiktoken|tokenizer)"
)  # what any class of the library looks for
OTHER_WEIGHTS = re.compile(r".*\.(bin|pt|pth|ckpt|pkl|h5|msgpack|onnx|gguf|ot)")
MOST_CONFIG = 1_000_000
MOST_BESIDE = 256_000_000  # bytes of a tokenizer, of an index
COUNT = re.compile(
    r"(\w+_)?((num|n)_(\w+_)?(layers?|blocks?|heads?|experts|stages)|layers|blocks|depths?|experts)"
)
MOST_PARTS = 512  # layers, heads or experts that may be built whatever the weights
SPARE = 64 << 20  # numbers that a model may have beside its weights: masks and tables of positions

SCAN = "its layers pass a state from token to token and have no attention weights"
PLAIN = "its layers combine neighbouring tokens by fixed rules"
WITHOUT_ATTENTION: dict[str, str] = {
    **dict.fromkeys(("mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm"), SCAN),
    **dict.fromkeys(("convnext", "convnextv2", "resnet", "regnet", "efficientnet", "mobilenet_v1", "mobilenet_v2",
                     "hgnet_v2", "rt_detr_resnet", "textnet", "univnet"), "it consists of convolutions"),
    "fnet": "it combines tokens by a Fourier transform", "poolformer": PLAIN, "patchtsmixer": PLAIN,
}  # fmt: skip


def refuse_config(config: Mapping[str, Any], name: str) -> None:
    """PretrainedError, with what would help, where this config promises no attention that could be drawn."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    family = config.get("model_type")
    if not isinstance(family, str) or not family:
        raise PretrainedError(
            f"{name} has a config.json that names no model_type, so it is not a model of the library "
            "transformers; take one whose page says Transformers."
        )
    if family in WITHOUT_ATTENTION:
        raise PretrainedError(
            f"{name} is of the family {family} and has no attention to draw: "
            f"{WITHOUT_ATTENTION[family]}. Take a Transformer, such as distilbert/distilgpt2."
        )
    if (
        family in ("big_bird", "bigbird_pegasus")
        and config.get("attention_type", "block_sparse") == "block_sparse"
    ):
        raise PretrainedError(
            f"{name} is a BigBird in its block-sparse mode, which computes blocks and no whole "
            'matrix to draw. Copy it to a folder, set "attention_type": "original_full" in its '
            "config.json (the same weights, every pair of tokens), and open that folder."
        )
    if family not in CONFIG_MAPPING_NAMES or not _has_library_class(config):
        own = (
            " It would need code of its own, which is never run here."
            if config.get("auto_map")
            else ""
        )
        raise PretrainedError(
            f"{name} is a {_architecture_name(config)}, which the installed transformers has no "
            f"code for.{own} Take a model of a family that it knows, such as BERT, GPT-2, Llama, T5 "
            "or ViT."
        )


def _has_library_class(config: Mapping[str, Any]) -> bool:
    """Whether transformers has the class of the weights; a config with code of its own may name another."""
    import transformers

    names = config.get("architectures")
    return not config.get("auto_map") or any(
        hasattr(transformers, str(name)) for name in (names if isinstance(names, list) else ())
    )


def _architecture_name(config: Mapping[str, Any]) -> str:
    names = config.get("architectures")
    family = quote_name(config["model_type"])
    return f"{quote_name(names[0])} ({family})" if isinstance(names, list) and names else family


def weight_files(names: Iterable[str], name: str) -> tuple[str, ...]:
    """The safetensors files among a model's files; PretrainedError when there are none."""
    names = set(names)
    if "config.json" not in names:
        instead = "It is an adapter to another model. " if "adapter_config.json" in names else ""
        raise PretrainedError(
            f"{name} has no config.json, so it is not a model of the library transformers. {instead}"
            "Take a model whose page says Transformers."
        )
    if "model.safetensors" in names:
        return ("model.safetensors",)
    if shards := sorted(file for file in names if SHARD.fullmatch(file)):
        return tuple(shards)
    others = sorted(file for file in names if OTHER_WEIGHTS.fullmatch(file))
    if any(file.endswith((".bin", ".pt", ".pth", ".ckpt", ".pkl")) for file in others):
        raise PretrainedError(
            f"{name} has its weights only as {others[0]}, a pickle, which could run code, so it is "
            "not opened. Take a model that has model.safetensors. For many older models the hub has "
            f"one at revision refs/pr/1: try {name}@refs/pr/1."
        )
    has = f"only {others[0]}" if others else "no weights"
    raise PretrainedError(
        f"{name} has {has}; this page opens only model.safetensors. Take a model that has it."
    )


def folder_weights(folder: Path, name: str) -> list[Path]:
    """The safetensors files of a folder; PretrainedError unless all that would be read are regular files in it.

    Both doors ask it, the page and `load_folder`. An index names shards beside it, and nothing else: the library would
    follow it to a pickle, or out of the folder.
    """
    try:
        files = {path.name: path for path in folder.iterdir() if not path.is_dir()}
        weights = weight_files(files, name)
        files |= {
            str(path.relative_to(folder)): path
            for path in folder.glob("additional_chat_templates/*")
        }
        for file, path in files.items():
            if path.exists() and not path.is_file() or file in weights and not path.exists():
                raise PretrainedError(
                    f"{name} has {file} as something other than a regular file, so it is not opened."
                )
            if (
                READ.fullmatch(file)
                and path.exists()
                and (size := path.stat().st_size) > MOST_BESIDE
            ):
                raise PretrainedError(
                    f"{name} has {file} of {size:,} bytes; at most {MOST_BESIDE:,} are read."
                )
        if weights != ("model.safetensors",):
            _check_index(files[INDEX].read_bytes() if INDEX in files else b"", weights, name)
    except OSError as error:
        raise PretrainedError(f"The folder {folder} cannot be read: {error.strerror}.") from error
    return [files[file] for file in weights]


def _check_index(data: bytes, weights: Sequence[str], name: str) -> None:
    """PretrainedError unless an index names these shards alone."""
    try:
        named = set(map(str, json.loads(data)["weight_map"].values()))
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise PretrainedError(
            f"{name} has its weights in parts and no {INDEX} that can be read; take a complete "
            "model."
        ) from error
    if others := sorted(named - set(weights)):
        raise PretrainedError(
            f"{name} has an index that names {quote_name(others[0])}, which is none of the "
            "model-*.safetensors beside it, so it is not opened. Take a complete model."
        )


def read_config(file: Path, name: str) -> dict[str, Any]:
    """A config.json of at most 1 MB; PretrainedError when it is none."""
    try:
        if file.exists() and not file.is_file():
            raise PretrainedError(
                f"{name} has a config.json that is not a regular file, so it is not opened."
            )
        with file.open("rb") as stream:
            data = stream.read(MOST_CONFIG + 1)
    except OSError as error:
        raise PretrainedError(
            f"{name} has no config.json that can be opened: {error.strerror}."
        ) from error
    if len(data) > MOST_CONFIG:
        raise PretrainedError(
            f"{name} has a config.json of {file.stat().st_size:,} bytes; "
            f"at most {MOST_CONFIG:,} are read."
        )
    return parse_config(data, name)


def parse_config(data: bytes, name: str) -> dict[str, Any]:
    """The config in these bytes; PretrainedError when they are no JSON object."""
    try:
        config = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise PretrainedError(f"{name} has a config.json that is not JSON.") from error
    if not isinstance(config, dict):
        raise PretrainedError(f"{name} has a config.json that is not a JSON object.")
    return config


def check_sizes(config: PreTrainedConfig, kind: Any, folder: Path, name: str) -> None:
    """PretrainedError where the config asks for many more parts or numbers than the weights in the folder have.

    A config may have as many parts as its class has by default: the experts of Doge are rows of a table, 16,384.
    The model is built without memory (on torch's meta device), so that its size is known before it is taken.
    """
    import torch

    tensors, numbers = _stored(folder)
    for field, count, usual in counts(config):
        if count > max(tensors, MOST_PARTS, usual):
            raise PretrainedError(
                f"{name} has a config.json with {field} = {format_count(count)}, and its weights "
                f"are {tensors:,} tensors; the two do not fit together. Take a complete model."
            )
    with torch.device("meta"):
        model = kind(config)
    needed = sum(one.numel() for one in (*model.parameters(), *model.buffers()))
    if needed > 2 * numbers + SPARE:
        raise PretrainedError(
            f"{name} has a config.json that asks for {format_count(needed)} numbers, and its "
            f"weights are {numbers:,}; the two do not fit together. Take a complete model."
        )


def _stored(folder: Path) -> tuple[int, int]:
    """How many tensors and numbers the weights hold, by their headers alone."""
    from safetensors import safe_open

    tensors = numbers = 0
    for file in folder.glob("*.safetensors"):
        with safe_open(file, framework="pt") as weights:
            for key in weights.keys():  # noqa: SIM118
                tensors, numbers = (
                    tensors + 1,
                    numbers + math.prod(weights.get_slice(key).get_shape()),
                )
    return tensors, numbers


def counts(data: Any, name: str = "", kind: type = object) -> Iterator[tuple[str, int, int]]:
    """Every whole number of a config that counts parts: its field, itself, and the default of its part's class or 0."""
    if hasattr(data, "to_dict"):
        data, kind = vars(data), type(data)
    if isinstance(data, dict):
        for key, value in data.items():
            if key not in ("id2label", "label2id", "task_specific_params"):
                yield from counts(value, str(key), kind)
    elif isinstance(data, list | tuple):
        for value in data:
            yield from counts(value, name, kind)
    elif isinstance(data, int) and not isinstance(data, bool) and COUNT.fullmatch(name):
        usual = getattr(kind, name, None)
        yield name, data, usual if isinstance(usual, int) else 0
