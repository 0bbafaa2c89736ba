"""Arrays that were uploaded, in memory by their content, so that a link of this session and every page finds them."""

from __future__ import annotations

import hashlib

from core.pretrained import PretrainedError, Reading
from core.pretrained.arrays import read_arrays
from dashboard.memory import Memory

_readings = Memory(400_000_000, 16)


def keep(data: bytes, name: str, tokens: str) -> str:
    """Read an uploaded file and keep its reading; the name under which `reading` has it. PretrainedError in words."""
    digest = hashlib.sha256(b"\0".join((data, name.encode(), tokens.encode()))).hexdigest()[:12]
    _readings.get(digest, lambda: read_arrays(data, name, tokens))
    return digest


def reading(digest: str) -> Reading:
    """An upload's reading; PretrainedError once it has made room for others, or the server began anew."""
    return _readings.get(digest, lambda: _gone(digest))


def _gone(digest: str) -> Reading:
    raise PretrainedError(f"The uploaded arrays {digest[:12]} are no longer in memory; upload the file again.")
