"""Checksums: in the text of a JSON object, its last field, so that it stays JSON, and of the files of a folder."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from core.files import write_atomically

T = TypeVar("T")
FIELD = "crc32"
FOLDER = "checksums.json"  # in a sealed folder, the SHA-256 of each of its files
_START = f', "{FIELD}": "'.encode()
_LENGTH = len(_START) + len('01234567"}')


def with_checksum(text: str) -> bytes:
    """The text of a JSON object that has fields, and at its end the CRC-32 of its UTF-8 bytes as they were before."""
    data = text.encode()
    return data[:-1] + _end(data)


def read_checked(data: bytes) -> dict[str, Any]:
    """The object of a text as `with_checksum` wrote it, or of an older one without a checksum.

    ValueError where it was changed, or is no object.
    """
    data = data.rstrip()
    body, end = data[:-_LENGTH] + b"}", data[-_LENGTH:]
    if not end.startswith(_START):
        body = data
    elif end != _end(body):
        raise ValueError("it was changed after it was written")
    value = json.loads(body.decode())
    if not isinstance(value, dict) or FIELD in value:
        raise ValueError("it is no object, or its checksum was changed")
    return value


def read_lines(path: Path, parse: Callable[[dict[str, Any]], T]) -> list[tuple[bytes, T | None]]:
    """Each whole line of a file and what `parse` makes of its object: None where it was damaged, or raises ValueError.

    A last line that is still being written has no end, and is left out. No file, no lines.
    """
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except OSError:
        return []
    return [(line, _parsed(line, parse)) for line in lines if line]


def _parsed(line: bytes, parse: Callable[[dict[str, Any]], T]) -> T | None:
    try:
        return parse(read_checked(line))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _end(data: bytes) -> bytes:
    return _START + f'{zlib.crc32(data):08x}"}}'.encode()


def seal(folder: Path) -> None:
    """Write the checksums of a folder's files beside them."""
    sums = {path.name: _digest(path) for path in sorted(folder.iterdir()) if path.is_file()}
    write_atomically(folder / FOLDER, with_checksum(json.dumps(sums)))


def is_intact(folder: Path) -> bool:
    """Whether each file of a folder is as it was sealed; so is one that never was."""
    if not (folder / FOLDER).exists():
        return True
    try:
        sums = read_checked((folder / FOLDER).read_bytes())
        return all(_digest(folder / name) == value for name, value in sums.items())
    except (OSError, ValueError):
        return False


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
