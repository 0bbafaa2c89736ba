"""The lab's part of Streamlit's metrics at /_stcore/metrics: runs, queue, workers, memory, caches, disk.

Streamlit's own families beside them count sessions and the bytes of its caches. No label holds what people typed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

from streamlit.runtime import get_instance
from streamlit.runtime.stats import CounterStat, GaugeStat, Stat

from core.memory import process_bytes
from core.runs.folder import ENDED, UNDER_WAY
from dashboard.runtime import cache, counters
from dashboard.runtime.health import health

Values = Mapping[tuple[str, str], float] | float  # one, or by a label's name and value


def memory_bytes() -> dict[tuple[str, str], float]:
    """The proportional set size of the server and of its workers."""
    server, *workers = process_bytes()
    return {("process", "server"): server, ("process", "workers"): sum(workers)}


FAMILIES: dict[str, tuple[type, str, str, Callable[[], Values]]] = {
    "lab_runs": (
        GaugeStat,
        "",
        "Runs in the folder by state.",
        lambda: {("state", state): health().states[state] for state in (*UNDER_WAY, *ENDED)},
    ),
    "lab_queue_longest_wait_seconds": (
        GaugeStat,
        "seconds",
        "How long the first of the queue has waited.",
        lambda: health().longest_wait,
    ),
    "lab_queue_wait_seconds": (
        CounterStat,
        "seconds",
        "How long all runs that began had waited.",
        lambda: counters.count("queue_wait_seconds"),
    ),
    "lab_worker_starts": (
        CounterStat,
        "",
        "Worker processes that were started.",
        lambda: counters.count("worker_starts"),
    ),
    "lab_worker_failures": (
        CounterStat,
        "",
        "Worker processes that ended with an error or a signal.",
        lambda: counters.count("worker_failures"),
    ),
    "lab_memory_pss_bytes": (
        GaugeStat,
        "bytes",
        "Proportional set size of the server and of its workers.",
        memory_bytes,
    ),
    "lab_python_blocks": (
        GaugeStat,
        "",
        "Blocks of memory that Python's objects hold.",
        sys.getallocatedblocks,
    ),
    "lab_cache_bytes": (
        GaugeStat,
        "bytes",
        "Bytes of shared results and of models.",
        lambda: {("cache", name): size for name, size in cache.sizes().items()},
    ),
    "lab_disk_free_bytes": (
        GaugeStat,
        "bytes",
        "Free bytes of the disk of the runs.",
        lambda: health().disk_free,
    ),
}


class LabStats:
    """What Streamlit's manager of metrics calls a provider."""

    @property
    def stats_families(self) -> Sequence[str]:
        return list(FAMILIES)

    def get_stats(self, family_names: Sequence[str] | None = None) -> Mapping[str, Sequence[Stat]]:
        return {
            name: _stats(name) for name in FAMILIES if family_names is None or name in family_names
        }


def register() -> None:
    """Add the lab's families to those of the running server."""
    get_instance().stats_mgr.register_provider(LabStats())


def _stats(name: str) -> list[Stat]:
    kind, unit, text, measure = FAMILIES[name]
    values = measure()
    if not isinstance(values, Mapping):
        return [kind(name, int(values), None, unit, text)]
    return [kind(name, int(value), dict([label]), unit, text) for label, value in values.items()]
