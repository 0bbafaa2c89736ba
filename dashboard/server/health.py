"""What a server tells who runs it: JSON at /health for probes, metrics beside Streamlit's, its log; and its idle work.

The metrics are runs, queue, workers, memory, caches and disk; Streamlit's own families beside them count sessions and the
bytes of its caches. No label holds what people typed.
"""

import gc
import hashlib
import importlib
import logging
import math
import secrets
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import streamlit as st
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from streamlit import config, logger, runtime

from core import event_log
from core.files import disk_refused, runs_folder, sentence_of
from core.memory import free_bytes, give_back, is_small, process_bytes, set_malloc
from core.provenance import lab_version
from core.runs.folder import ENDED, UNDER_WAY
from dashboard.draw.formats import byte_size, plain
from dashboard.server import cache
from dashboard.server.counters import counts
from dashboard.server.streamlit_internals import Family, script_run

PATH = "/health"
MIN_DISK = 100_000_000  # bytes; a few runs, or one small model
FRESH = 2.0  # seconds that one look at all folders serves all probes


@dataclass(frozen=True)
class Health:
    """The server's state: runs by state, the longest wait in seconds, free bytes of disk and memory (inf: unknown).

    `refused` is what the disk says to a file.
    """

    states: Counter[str]
    longest_wait: float
    disk_free: int
    memory_free: float
    refused: str = ""

    def problem(self) -> str:
        if self.refused:
            return self.refused
        if self.disk_free < MIN_DISK:
            return (
                f"The disk of the runs has {byte_size(self.disk_free)} left, and needs {byte_size(MIN_DISK)}: "
                "delete runs, or set disk_mb in ATTENTION_LAB_LIMITS lower."
            )
        return (
            f"No worker has taken a run that waits for {self.longest_wait:,.0f} s: restart the server."
            if self.longest_wait > 120.0 and not self.busy
            else ""
        )

    @property
    def busy(self) -> int:
        return self.states["starting"] + self.states["running"]


def health() -> Health:
    """The state at most FRESH seconds ago."""
    return cache.recent(FRESH, _health, runs_folder())


def _health(folder: Path) -> Health:
    from dashboard.server import limits

    statuses = limits.statuses()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    refused = ""
    try:
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(b"x")
    except OSError as error:
        refused = sentence_of(error)
    return Health(
        Counter(status.state for status in statuses),
        max(
            [time.time() - status.at for status in statuses if status.state == "queued"],
            default=0.0,
        ),
        shutil.disk_usage(existing).free,
        free_bytes(),
        refused,
    )


def route(base: str) -> Route:
    def answer(
        _: Request,
    ) -> JSONResponse:  # no coroutine: Starlette runs it in a thread, as it reads files
        from dashboard.server import queue

        now = health()
        problem = now.problem()
        return JSONResponse(
            {
                "status": "unable" if problem else "ok",
                **({"problem": problem} if problem else {}),
                "version": lab_version(),
                "workers": {"busy": now.busy, "most": queue.max_workers()},
                "queue": now.states["queued"],
                "disk_free_mb": round(now.disk_free / 1e6),
                **(
                    {"memory_free_mb": round(now.memory_free / 1e6)}
                    if math.isfinite(now.memory_free)
                    else {}
                ),
            },
            503 if problem else 200,
            headers={"Cache-Control": "no-store"},
        )

    return Route(base + PATH, answer)


def memory_bytes() -> dict[tuple[str, str], float]:
    server, *workers = process_bytes()
    return {("process", "server"): server, ("process", "workers"): sum(workers)}


FAMILIES: dict[str, Family] = {
    "lab_runs": (
        "gauge",
        "",
        "Runs in the folder by state.",
        lambda: {("state", state): health().states[state] for state in (*UNDER_WAY, *ENDED)},
    ),
    "lab_queue_longest_wait_seconds": (
        "gauge",
        "seconds",
        "How long the first of the queue has waited.",
        lambda: health().longest_wait,
    ),
    "lab_queue_wait_seconds": (
        "counter",
        "seconds",
        "How long all runs that began had waited.",
        lambda: counts["queue_wait_seconds"],
    ),
    "lab_worker_starts": (
        "counter",
        "",
        "Worker processes that were started.",
        lambda: counts["worker_starts"],
    ),
    "lab_worker_failures": (
        "counter",
        "",
        "Worker processes that ended with an error or a signal.",
        lambda: counts["worker_failures"],
    ),
    "lab_memory_pss_bytes": (
        "gauge",
        "bytes",
        "Proportional set size of the server and of its workers.",
        memory_bytes,
    ),
    "lab_python_blocks": (
        "gauge",
        "",
        "Blocks of memory that Python's objects hold.",
        sys.getallocatedblocks,
    ),
    "lab_cache_bytes": (
        "gauge",
        "bytes",
        "Bytes of shared results and of models.",
        lambda: {("cache", name): size for name, size in cache.sizes().items()},
    ),
    "lab_disk_free_bytes": (
        "gauge",
        "bytes",
        "Free bytes of the disk of the runs.",
        lambda: health().disk_free,
    ),
}


# The log of the pages: when a person asks for it, every line of Streamlit's and ours is an event of core.event_log.


SALT = secrets.token_bytes(16)  # a session's name in the log means nothing after a restart


def start_log() -> None:
    if style := event_log.style():
        config.set_option("logger.messageFormat", "%(message)s")
        config.set_option("logger.enableRich", False)
        event_log.install(style, _context)
        logger.update_formatter()


def unify_log() -> None:
    """Write no prefix before lines: uvicorn, which has begun by now, and other libraries have formats of their own."""
    if event_log.style():
        loggers = [logging.getLogger(name) for name in list(logging.root.manager.loggerDict)]
        for handler in {handler for one in (logging.root, *loggers) for handler in one.handlers}:
            handler.setFormatter(None)
        logging.getLogger(
            "uvicorn.access"
        ).handlers.clear()  # requests are logged by the guard, which knows the pages


@contextmanager
def page_run(page: str) -> Iterator[None]:
    begin = time.perf_counter()
    try:
        yield
    finally:
        event_log.log("page", page=page, ms=round((time.perf_counter() - begin) * 1000))


def on_script_error(error: Exception) -> bool:
    """What a page shows in place of a traceback: what the system refused, or the error's reference in the log."""
    if disk_refused(error):
        st.error(plain(sentence_of(error)))
        return True
    if not event_log.style():
        return False
    st.error(
        f"This page met an error of the lab. The log has it under the reference {event_log.reference(error)}."
    )
    return True


def _context() -> dict[str, event_log.Value]:
    run = script_run()
    if run is None:
        return {}
    info = run.pages_manager.get_pages().get(run.page_script_hash)
    page = info.get("url_pathname", "") if info else ""
    return {
        "session": hashlib.blake2b(run.session_id.encode(), key=SALT, digest_size=4).hexdigest(),
        **({"page": page} if page else {}),
    }


# What the server does while nobody waits for it: load ahead what a page will need, and return the memory of what is done.
# PyTorch in a thread of its own would hold up the first page, whose files come from the same process: it is imported
# before. Python frees the parts of a session that refer to each other in a full collection alone, which a server of many
# lasting objects seldom makes. glibc holds freed memory for the next call.


# 1.7 s of processor time; Start here needs them, pandas in Streamlit
AT_START = ("torch", "core.attention", "pandas")
IDLE = 0.2  # at most so many seconds of processor time in one second

_threads: list[threading.Thread] = []


def after_a_visit(step: Callable[[], object]) -> None:
    """Take this step in a thread, once in the life of a server, as soon as the server has little to do.

    Not where memory is short.
    """

    def take() -> None:
        wait_until_idle()
        with suppress(Exception):  # whatever fails here fails again where it can be told
            if not is_small():
                step()

    if not _threads:
        _threads.append(threading.Thread(target=take, daemon=True, name="warm_up"))
        _threads[0].start()


def wait_until_idle() -> None:
    """Wait for a second of which this process used at most the share IDLE."""
    busy = True
    while busy:
        before = time.process_time()
        time.sleep(1.0)
        busy = time.process_time() - before > IDLE


@lru_cache
def begin() -> None:
    """Import what the first page needs, and return memory from then on, in a thread of its own.

    What these libraries hold is left out of full collections, of which each would spend 0.1 s on it. From then on PyTorch
    computes on one thread (see core.threads).
    """
    # Threads spread over eight arenas for each core, and what is free in one is of no use to a thread of another.
    set_malloc(M_ARENA_MAX=2)
    if is_small():
        set_malloc(M_MMAP_THRESHOLD=1 << 20)  # glibc would raise it, and keep large arrays
    for name in AT_START:
        importlib.import_module(name)
    importlib.import_module("torch").set_num_threads(1)
    gc.collect()
    gc.freeze()
    threading.Thread(target=_watch, daemon=True, name="idle_memory").start()


def _watch() -> None:
    last = time.process_time()
    while True:
        time.sleep(15.0)
        if runtime.exists():  # else a page ran in a test
            if not is_small():  # which cannot wait: many readers leave no idle second
                wait_until_idle()
            if time.process_time() - last > IDLE:
                gc.collect()
                give_back()
                last = time.process_time()
