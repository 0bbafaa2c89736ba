"""What happened since the server began, counted for health's metrics."""

import threading
from collections import Counter

counts: Counter[str] = Counter()
_lock = threading.Lock()


def add_count(name: str, amount: float = 1) -> None:
    with _lock:
        counts[name] += amount  # type: ignore[assignment]  # seconds
