"""The arrays in an NPZ or safetensors file, checked by their headers before they are unpacked; no code is run."""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from core.entries import quote_name
from core.pretrained.base import PretrainedError, first_line, format_count, wrap_errors
from core.trace import to_numpy

MOST_BYTES = 200_000_000
MOST_NUMBERS = 40_000_000
MOST_TOKENS = 2048
MOST_HEADER = 4_000_000
MOST_LETTERS = 1_000
LIMITS = (
    f"NPZ or safetensors of at most {MOST_BYTES // 10**6} MB and {MOST_NUMBERS // 10**6} million weights, "
    f"0 to 1, for at most {MOST_TOKENS:,} tokens."
)
LABELS = ("tokens", "queries", "keys")


@dataclass(frozen=True, eq=False)
class ArrayFile:
    """The numbers in a file by name, in its order, float32; and its labels by name."""

    weights: dict[str, np.ndarray]
    labels: dict[str, tuple[str, ...]]


def open_arrays(data: bytes, name: str) -> ArrayFile:
    """What an NPZ or safetensors file of at most 200 MB and 40 million numbers holds; PretrainedError in words."""
    if len(data) > MOST_BYTES:
        raise PretrainedError(
            f"{name} has {len(data) / 1e6:,.0f} MB; at most {MOST_BYTES // 10**6} MB are read."
        )
    return _npz(data, name) if data[:2] == b"PK" else _safetensors(data, name)


def _npz(data: bytes, name: str) -> ArrayFile:
    """The arrays of an NPZ, each checked by its header before it is unpacked; nothing pickled is opened."""
    weights: dict[str, np.ndarray] = {}
    labels: dict[str, tuple[str, ...]] = {}
    room = MOST_NUMBERS
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for member in archive.namelist():
                key = member.removesuffix(".npy")
                with archive.open(member) as file:
                    shape, kind = _npy_header(file, member, name)
                size = -(-kind.itemsize // 8)  # in numbers of 8 bytes; two letters are one
                if kind.kind == "U" and _label(key) and len(shape) == 1:
                    _refuse_large(key, shape, MOST_TOKENS * 2, name)
                    if kind.itemsize > 4 * MOST_LETTERS:
                        raise PretrainedError(
                            f"{key} in {name} allows {kind.itemsize // 4:,} letters for a token; "
                            f"at most {MOST_LETTERS:,} are read."
                        )
                    _refuse_large(key, (*shape, size), room, name)
                    room -= int(np.prod(shape)) * size
                    labels[key] = tuple(str(one) for one in _npy(archive, member))
                elif kind.kind in "fiu":
                    _refuse_large(key, (*shape, size), room, name)
                    room -= int(np.prod(shape)) * size
                    weights[key] = _npy(archive, member).astype(np.float32)
                else:
                    raise PretrainedError(
                        f"{key} in {name} holds {kind}, not numbers. Weights are numbers; tokens are "
                        "an array of text named tokens, queries or keys."
                    )
    except PretrainedError:
        raise
    except Exception as error:  # a header is Python's text, and may make its reader raise anything
        raise PretrainedError(
            f"{name} is not a readable NPZ: {first_line(error)}. Write it with "
            "numpy.savez_compressed."
        ) from error
    return ArrayFile(weights, labels)


def _npy_header(file: Any, member: str, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    read = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    shape, _, kind = read(file)
    if kind.hasobject:
        raise PretrainedError(
            f"{member} in {name} holds Python objects, which could run code, so it is not opened. "
            "Save text as numpy.array([...], dtype=str)."
        )
    return shape, kind


def _npy(archive: zipfile.ZipFile, member: str) -> np.ndarray:
    with archive.open(member) as file:
        values: np.ndarray = np.lib.format.read_array(file, allow_pickle=False)
        return values


def _safetensors(data: bytes, name: str) -> ArrayFile:
    """The tensors of a safetensors file, and the labels in its metadata."""
    from safetensors.torch import load

    header = _header(data, name)
    metadata = header.pop("__metadata__", {})
    labels = {key: _listed(text, key, name) for key, text in metadata.items() if _label(key)}
    for key, item in header.items():
        _refuse_large(key, tuple(item["shape"]), MOST_NUMBERS, name)
    if sum(int(np.prod(item["shape"])) for item in header.values()) > MOST_NUMBERS:
        raise PretrainedError(f"{name} holds more than {MOST_NUMBERS:,} numbers.")
    with wrap_errors(f"{name} is not a readable safetensors file"):
        tensors = load(data)
        return ArrayFile({key: to_numpy(tensors[key].float()) for key in header}, labels)


def _header(data: bytes, name: str) -> dict[str, Any]:
    length = int.from_bytes(data[:8], "little")
    try:
        if not 2 <= length <= min(MOST_HEADER, len(data) - 8):
            raise ValueError("its header is missing or too long")
        header = json.loads(data[8 : 8 + length])
        metadata = header.get("__metadata__", {})
        if not isinstance(metadata, dict) or not all(
            isinstance(item["shape"], list)
            and all(isinstance(size, int) and size >= 0 for size in item["shape"])
            for key, item in header.items()
            if key != "__metadata__"
        ):
            raise ValueError("its header names no shapes")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise PretrainedError(f"{name} is neither NPZ nor safetensors. {LIMITS}") from error
    return dict(header)


def _listed(text: object, key: str, name: str) -> tuple[str, ...]:
    try:
        names = json.loads(str(text))
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
        raise PretrainedError(
            f'The metadata {key} of {name} is not a JSON list of text, such as ["the", "cat"].'
        )
    return tuple(names)


def _label(key: str) -> bool:
    return key.rsplit("_", 1)[-1] in LABELS


def _refuse_large(key: str, shape: Sequence[int], most: int, name: str) -> None:
    count = math.prod(map(int, shape))
    if count > most:
        raise PretrainedError(
            f"{quote_name(key)} in {name} holds {format_count(count)} numbers; at most "
            f"{MOST_NUMBERS:,} are read in all. Take fewer layers, or fewer tokens."
        )
