"""Arrays that were uploaded, in memory by their content, so that a link of this session and every page finds them."""

from __future__ import annotations

import hashlib
import re

from core.pretrained import PretrainedError, Reading
from core.pretrained.arrays import read_arrays
from dashboard.runtime.byte_lru_cache import ByteLRUCache, at_most

UPLOAD_NAME = re.compile(r".*\(array ([0-9a-f]{12})\)", re.DOTALL)
_readings = ByteLRUCache(at_most(400_000_000, 1 / 12), 16)


def store(data: bytes, name: str, tokens: str) -> str:
    """Read an uploaded file and keep its reading; the name under which `reading` has it. PretrainedError in words."""
    digest = hashlib.sha256(b"\0".join((data, name.encode(), tokens.encode()))).hexdigest()[:12]
    _readings.get(digest, lambda: read_arrays(data, name, tokens))
    return f"{name} (array {digest})"


def reading(name: str) -> Reading:
    """An upload's reading; PretrainedError once it has made room for others, or the server began anew."""
    found = UPLOAD_NAME.fullmatch(name)
    return _readings.get(found[1] if found else name, lambda: _gone(name))


def _gone(name: str) -> Reading:
    raise PretrainedError(f"The upload {name} is no longer in memory; upload the file again.")
