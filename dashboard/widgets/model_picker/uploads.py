"""Uploaded arrays, in memory by a hash of their content, so that every page and links of this session find them."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from core.files import runs_folder
from core.pretrained import PretrainedError, Reading
from core.pretrained.arrays import read_arrays
from dashboard.server.cache import ByteLRUCache, at_most, budget

UPLOAD_NAME = re.compile(r".*\(array ([0-9a-f]{12})\)", re.DOTALL)
_uploads = ByteLRUCache(at_most(400_000_000, 1 / 12), 16, budget())


@dataclass(frozen=True, eq=False)
class Upload:
    """A file's name, the tokens that were typed for it, and its reading."""

    file: str
    tokens: str
    reading: Reading


def store(data: bytes, name: str, tokens: str) -> str:
    """Read an uploaded file and store its reading; returns its name for `reading`. PretrainedError if it is invalid."""
    digest = hashlib.sha256(b"\0".join((data, name.encode(), tokens.encode()))).hexdigest()[:12]
    _uploads.get(_key(digest), lambda: Upload(name, tokens, read_arrays(data, name, tokens)))
    return f"{name} (array {digest})"


def reading(name: str) -> Reading:
    """An upload's reading; PretrainedError after it was evicted or the server restarted."""
    return _upload(name).reading


def file_of(name: str) -> tuple[str, str]:
    """The name of an upload's file, and the tokens that were typed for it."""
    upload = _upload(name)
    return upload.file, upload.tokens


def _upload(name: str) -> Upload:
    match = UPLOAD_NAME.fullmatch(name)
    return _uploads.get(_key(match[1] if match else name), lambda: _missing(name))


def _key(digest: str) -> tuple[str, str]:
    """The uploads of each person of a public copy are their own."""
    return str(runs_folder()), digest


def _missing(name: str) -> Upload:
    raise PretrainedError(f"The upload {name} is no longer in memory; upload the file again.")
