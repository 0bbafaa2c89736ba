"""Where runs are worked on: by worker processes of this machine, or on a Ray cluster ($ATTENTION_LAB_RAY).

Each GPU of this machine takes as many runs as its memory holds, the one with the most room first. A run on a GPU has
`gpu_mb` of ATTENTION_LAB_LIMITS (8,000 by default), and PyTorch refuses it more. A run that finds no room waits.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from core.files import hosted, lab_path, server_folder
from core.memory import total_bytes
from core.runs import machine, ray_queue
from core.runs.folder import RunFolder
from core.runs.runs import Run
from core.settings import limits, settings

SERVER_BYTES, WORKER_BYTES = 800_000_000, 200_000_000  # with all pages open; of a small run
MAX_SLOTS = 50  # runs into which a claim is split at most
MAX_RUNS = 1_000  # that are handed to a cluster at once
POLL_SECONDS = 0.2


def spawn_worker(
    arguments: Sequence[str],
    stdin: int | None = None,
    log: Path | None = None,
    gpu: int | None = None,
) -> subprocess.Popen:
    """A worker with these arguments, on one of several GPUs; without a log, its errors are visible on our standard
    error."""
    # Tensors of 4 MB and more outside the heap, in huge pages: in it a model of 4 million parameters left holes, up to
    # 13 GB in 500 steps, and took a tenth longer.
    malloc = "glibc.malloc.mmap_threshold=4194304:glibc.malloc.hugetlb=1"
    env = {
        **os.environ,
        **machine.environment(gpu),
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "PYTHONUTF8": "1",
        "PYTHONUNBUFFERED": "1",
        "GLIBC_TUNABLES": malloc,
        "ATTENTION_LAB_RUNS": str(server_folder()),  # which may be named from this folder
    }
    with open(log or os.devnull, "ab") as out:
        # a run outlives the server and Ctrl-C
        return subprocess.Popen(
            [sys.executable, "-m", "core.runs.worker", *arguments],
            cwd=lab_path(""),
            env=env,
            stdin=stdin or subprocess.DEVNULL,
            stdout=out,
            stderr=out if log else None,
            start_new_session=True,
        )


def start_process(run: Run) -> subprocess.Popen:
    """A worker that trains or measures a run's folder, and writes its log there."""
    return spawn_worker([str(run.path)], log=run.path / "worker.log", gpu=machine.number_of(run))


class Executor:
    """Where runs are worked on: worker processes of this machine, whose queue is the caller's."""

    def start(self, run: Run) -> Worker:
        """Begin or continue a run, now or as soon as there is room."""
        return start_process(run)

    def slots(self) -> int:
        """How many runs are worked on at once: one core is left to the pages, but two runs are allowed where memory has
        room for them beside the server."""
        room = min(1e3, (total_bytes() - SERVER_BYTES) / WORKER_BYTES)
        return max(1, min(max(2, machine.cores() - 1), int(room)))

    def room(self, free: int) -> int:
        """How many more runs can be started where `free` slots are."""
        return max(0, free)

    def admit(self, run: Run, busy: Sequence[Run]) -> bool:
        """Whether a run can start beside the busy ones; where it needs a GPU, its number is written into run.json."""
        taken = Counter(machine.number_of(one) for one in busy)
        room = [
            max(1, int(memory // limits().gpu_mb)) - taken[number]
            for number, memory in enumerate(machine.gpus())
        ]
        needed = bool(room) and bool(ray_queue.needs(run.metadata(), True).gpus)
        if needed and max(room) < 1:
            return False
        with suppress(OSError):  # it was deleted, or waits on, since the disk is full
            if room:
                run.update_metadata(gpu=room.index(max(room)) if needed else None)
            return True
        return False

    def holds(self, run: RunFolder) -> bool:
        """Whether the run is in good hands, though nobody may hold its lock right now."""
        return False


class RayExecutor(Executor):
    """The nodes of a Ray cluster, which queues what it has no room for."""

    def start(self, run: Run) -> Worker:
        ray_queue.submit(run)
        return ClusterWorker(run)

    def slots(self) -> int:
        """One until the cluster is reached."""
        ray_queue.ensure_driver()
        return max(
            1, min(MAX_SLOTS, int(ray_queue.load_state().has[0] / settings().ray_worker.cpus))
        )

    def room(self, free: int) -> int:
        """Every run, once the cluster is reached: the queue is Ray's, except on a public copy, whose own is fair."""
        ray_queue.ensure_driver()
        if not ray_queue.load_state().reachable:
            return 0
        return max(0, free) if hosted() else MAX_RUNS

    def admit(self, run: Run, busy: Sequence[Run]) -> bool:
        return True

    def holds(self, run: RunFolder) -> bool:
        return ray_queue.holds(run)


@dataclass(frozen=True)
class ClusterWorker:
    """The work on a run of the cluster, seen through its folder."""

    run: Run

    def wait(self, timeout: float | None = None) -> None:
        end = time.monotonic() + (float("inf") if timeout is None else timeout)
        while ray_queue.holds(self.run) or self.run.alive():
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(self.run.id, timeout or 0.0)
            ray_queue.ensure_driver()
            time.sleep(POLL_SECONDS)

    def terminate(self) -> None:
        self.run.request_stop()


# the work on one run: it can be waited for and terminated
Worker = subprocess.Popen | ClusterWorker


def executor() -> Executor:
    """The cluster where its address is set, else this machine."""
    return RayExecutor() if ray_queue.address() else Executor()
