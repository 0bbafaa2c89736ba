"""Uploaded arrays, in memory by a hash of their content, so that every page and links of this session find them."""

from __future__ import annotations

import hashlib
import re

from core.pretrained import PretrainedError, Reading
from core.pretrained.arrays import read_arrays
from dashboard.runtime.byte_lru_cache import ByteLRUCache, at_most

UPLOAD_NAME = re.compile(r".*\(array ([0-9a-f]{12})\)", re.DOTALL)
_readings = ByteLRUCache(at_most(400_000_000, 1 / 12), 16)


def store(data: bytes, name: str, tokens: str) -> str:
    """Read an uploaded file and store its reading; returns its name for `reading`. PretrainedError if it is invalid."""
    digest = hashlib.sha256(b"\0".join((data, name.encode(), tokens.encode()))).hexdigest()[:12]
    _readings.get(digest, lambda: read_arrays(data, name, tokens))
    return f"{name} (array {digest})"


def reading(name: str) -> Reading:
    """An upload's reading; PretrainedError after it was evicted or the server restarted."""
    match = UPLOAD_NAME.fullmatch(name)
    return _readings.get(match[1] if match else name, lambda: _missing(name))


def _missing(name: str) -> Reading:
    raise PretrainedError(f"The upload {name} is no longer in memory; upload the file again.")
