"""Whether a config's numbers fit the weights beside it, before a model of that size is built."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.pretrained.base import PretrainedError, format_count

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

COUNT = re.compile(r"(\w+_)?((num|n)_(\w+_)?(layers?|blocks?|heads?|experts|stages)|layers|blocks|depths?|experts)")
MOST_PARTS = 512  # layers, heads or experts that may be built whatever the weights
SPARE = 64 << 20  # numbers that a model may have beside its weights: masks and tables of positions


def check_sizes(config: PreTrainedConfig, kind: Any, folder: Path, name: str) -> None:
    """PretrainedError where the config asks for many more parts or numbers than the weights in the folder have.

    The model is built without memory (on torch's meta device), so that its size is known before it is taken.
    """
    import torch

    tensors, numbers = _stored(folder)
    for field, count in _counts(config.to_dict()):
        if count > max(tensors, MOST_PARTS):
            raise PretrainedError(f"{name} has a config.json with {field} = {format_count(count)}, and its weights are "
                                  f"{tensors:,} tensors; the two do not belong together. Take a complete model.")
    with torch.device("meta"):
        model = kind(config)
    needed = sum(one.numel() for one in (*model.parameters(), *model.buffers()))
    if needed > 2 * numbers + SPARE:
        raise PretrainedError(f"{name} has a config.json that asks for {format_count(needed)} numbers, and its weights "
                              f"are {numbers:,}; the two do not belong together. Take a complete model.")


def _stored(folder: Path) -> tuple[int, int]:
    """How many tensors and numbers the weights hold, by their headers alone."""
    from safetensors import safe_open

    tensors = numbers = 0
    for file in folder.glob("*.safetensors"):
        with safe_open(file, framework="pt") as weights:
            for key in weights.keys():  # noqa: SIM118
                size = 1
                for side in weights.get_slice(key).get_shape():
                    size *= side
                tensors, numbers = tensors + 1, numbers + size
    return tensors, numbers


def _counts(data: Any, name: str = "") -> Iterator[tuple[str, int]]:
    """Every whole number of a config that counts parts, by the name of its field."""
    if isinstance(data, dict):
        for key, value in data.items():
            if key not in ("id2label", "label2id", "task_specific_params"):
                yield from _counts(value, str(key))
    elif isinstance(data, list | tuple):
        for value in data:
            yield from _counts(value, name)
    elif isinstance(data, int) and not isinstance(data, bool) and COUNT.fullmatch(name):
        yield name, data
