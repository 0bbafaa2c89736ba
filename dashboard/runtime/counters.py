"""What this server has counted since it began, for its metrics."""

from __future__ import annotations

import threading
from collections import Counter

_counts: Counter[str] = Counter()
_lock = threading.Lock()


def add(name: str, amount: float = 1) -> None:
    """Add to a counter; `dashboard.runtime.metrics` names them."""
    with _lock:
        _counts[name] += amount  # type: ignore[assignment]  # seconds


def count(name: str) -> int:
    return int(_counts[name])
