"""Where runs are kept, and files that are replaced whole."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def runs_folder() -> Path:
    """Where runs are kept: $ATTENTION_LAB_RUNS, or ~/.attention-lab/runs."""
    chosen = os.environ.get("ATTENTION_LAB_RUNS") or Path.home() / ".attention-lab" / "runs"
    return Path(chosen).expanduser().absolute()


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file whole: a reader sees the old bytes or the new, never half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(2)}")
    draft.write_bytes(data)
    os.replace(draft, path)
