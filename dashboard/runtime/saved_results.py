"""Results of pretrained models at the first settings of each page, saved, so that a page opens before its model loads.

A result is saved under what the cache calls it, the function's name and the repr of its arguments, so that it stands in
for exactly this call. Files are of safetensors: the arrays, and a tree of JSON for what holds them. A file counts only
with the very weights that it was computed with. `make sights` computes them again.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

FOLDER = Path(__file__).parent / "first_sights"
MOST_BYTES = 600_000  # of a result
ROOTS = ("core.", "dashboard.")  # the packages whose dataclasses are saved

T = TypeVar("T")
Key = tuple[str, str]
Arrays = dict[str, torch.Tensor]


class Recorder:
    """The results of cached calls during which a pretrained model was used, by key."""

    def __init__(self) -> None:
        self.results: dict[Key, Any] = {}
        self._used = False

    def compute(self, key: Key, make: Callable[[], T]) -> T:
        before, self._used = self._used, False
        try:
            value = make()
        finally:
            used, self._used = self._used, self._used or before
        if used or "ModelRef(" in key[1]:
            self.results[key] = value
        return value

    def note_use(self) -> None:
        self._used = True


recorder: Recorder | None = None  # while results are recorded, saved ones are not used


def saved_or(key: Key, make: Callable[[], T]) -> T:
    """The saved result of this call; without one, `make()`."""
    if recorder is not None:
        return recorder.compute(key, make)
    if not is_saved(key):
        return make()
    value: T = saved_result(key)
    return value


def is_saved(key: Key) -> bool:
    """Whether there is a saved result of this call."""
    return recorder is None and _digest(key) in _index()


def note_use() -> None:
    """Tell the recorder that a pretrained model is used now."""
    if recorder is not None:
        recorder.note_use()


def weights_digests() -> dict[str, str]:
    """The sha256 of the weights of each local model: that which MiniLM must have to be loaded, and of the lab's own."""
    from core.pretrained.load import LAB_MODELS, MINILM, MINILM_SHA256  # Start here needs no models

    own = {
        file.parent.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(LAB_MODELS.glob("*/model.safetensors"))
    }
    return {MINILM: MINILM_SHA256, **own}


def save(file: Path, results: Mapping[Key, Any]) -> None:
    """Write into a file those results that can be saved: numbers, text, arrays and dataclasses, up to MOST_BYTES."""
    from safetensors.torch import save_file

    arrays: Arrays = {}
    trees = {"weights": json.dumps(weights_digests())}
    for key, value in results.items():
        if (encoded := encode(value)) is not None:
            trees[_digest(key)] = encoded[0]
            arrays |= encoded[1]
    save_file(arrays, file, metadata=trees)


def encode(value: Any) -> tuple[str, Arrays] | None:
    """A result as JSON and its arrays; None for one that is too large, or holds what is not saved."""
    arrays: Arrays = {}
    try:
        tree = json.dumps(_encode(value, arrays), separators=(",", ":"))
    except TypeError:
        return None
    return (
        None
        if len(tree) + sum(one.nbytes for one in arrays.values()) > MOST_BYTES
        else (tree, arrays)
    )


def saved_result(key: Key) -> Any:
    """The saved result of a call; KeyError where there is none."""
    return _load(_index()[_digest(key)], _digest(key))


@cache
def _index() -> dict[str, Path]:
    """The file of each saved result, by the digest of its key."""
    weights = json.dumps(weights_digests())
    metadata = {file: _metadata(file) for file in sorted(FOLDER.glob("*.safetensors"))}
    return {
        digest: file
        for file, trees in metadata.items()
        if trees.get("weights") == weights
        for digest in trees
    }


def _metadata(file: Path) -> dict[str, str]:
    from safetensors import safe_open

    with safe_open(file, "pt") as tensors:
        return dict(tensors.metadata())


def _load(file: Path, digest: str) -> Any:
    from safetensors import safe_open

    with safe_open(file, "pt") as tensors:
        return _decode(json.loads(tensors.metadata()[digest]), tensors.get_tensor)


def _digest(key: Key) -> str:
    return hashlib.sha256("\n".join(key).encode()).hexdigest()


def _encode(value: Any, arrays: Arrays) -> Any:
    """A value as JSON; what JSON lacks becomes an object with the name of its type."""

    def parts(values: Any) -> list[Any]:
        return [_encode(part, arrays) for part in values]

    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) in (list, tuple, frozenset, set):
        return {type(value).__name__: parts(value)}
    if isinstance(value, dict):
        return {"dict": [parts(pair) for pair in value.items()]}
    if isinstance(value, np.generic):
        return _encode(value.item(), arrays)
    if isinstance(value, np.ndarray | torch.Tensor):
        tensor = torch.as_tensor(value).detach().contiguous()
        name = hashlib.sha256(
            f"{tensor.dtype}{tuple(tensor.shape)}".encode() + tensor.numpy().tobytes()
        ).hexdigest()
        arrays[name] = tensor.clone()  # equal ones once
        return {"array" if isinstance(value, np.ndarray) else "tensor": name}
    if (
        is_dataclass(value)
        and not isinstance(value, type)
        and type(value).__module__.startswith(ROOTS)
    ):
        inner = {part.name: _encode(getattr(value, part.name), arrays) for part in fields(value)}
        return {"class": [type(value).__module__, type(value).__qualname__, inner]}
    raise TypeError(f"{type(value)} is not saved")


def _decode(tree: Any, array: Callable[[str], torch.Tensor]) -> Any:
    if not isinstance(tree, dict):
        return tree
    ((name, value),) = tree.items()
    if name == "class":
        return _object(value, array)
    if name in ("array", "tensor"):
        return array(value).numpy() if name == "array" else array(value)
    if name == "dict":
        return {_decode(key, array): _decode(part, array) for key, part in (pair for pair in value)}
    return {"list": list, "tuple": tuple, "frozenset": frozenset, "set": set}[name](
        _decode(part, array) for part in value
    )


def _object(saved: tuple[str, str, dict[str, Any]], array: Callable[[str], torch.Tensor]) -> Any:
    """A dataclass of this repository, without its checks, which it has passed before."""
    module, name, inner = saved
    kind = getattr(importlib.import_module(module), name) if module.startswith(ROOTS) else None
    if not (is_dataclass(kind) and isinstance(kind, type)):
        raise TypeError(f"{module}.{name} is no dataclass of this repository")
    value = object.__new__(kind)
    for part, tree in inner.items():
        object.__setattr__(value, part, _decode(tree, array))
    return value
