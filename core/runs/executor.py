"""Where runs are worked on: by worker processes of this machine, or on a Ray cluster ($ATTENTION_LAB_RAY).

A run is a folder. Whoever works on it holds its lock, reads `stop`, and writes records and at the end a final status.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from core.files import hosted
from core.runs import machine, ray_queue
from core.runs.folder import RunFolder
from core.runs.machine import environment, number_of
from core.runs.ray_queue import address
from core.runs.runs import Run
from core.settings import settings

ROOT = Path(__file__).resolve().parents[2]


def start_process(run: Run) -> subprocess.Popen:
    """A worker that trains or measures a run's folder, and writes its log there."""
    return spawn_worker([str(run.path)], log=run.path / "worker.log", gpu=number_of(run))


def spawn_worker(
    arguments: Sequence[str],
    stdin: int | None = None,
    log: Path | None = None,
    gpu: int | None = None,
) -> subprocess.Popen:
    """A worker with these arguments, on one of several GPUs; without a log, its errors are visible on our standard
    error."""
    env = {
        **os.environ,
        **environment(gpu),
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "PYTHONUTF8": "1",
    }
    with open(log or os.devnull, "ab") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "core.runs.worker", *arguments],
            cwd=ROOT,
            env=env,
            stdin=stdin or subprocess.DEVNULL,
            stdout=out,
            stderr=out if log else None,
            start_new_session=True,
        )  # a run outlives the server and Ctrl-C


MAX_SLOTS = 50  # runs into which a claim is split at most
MAX_RUNS = 1_000  # that are handed to a cluster at once
POLL_SECONDS = 0.2


class Executor:
    """Where runs are worked on: worker processes of this machine, whose queue is the caller's."""

    def start(self, run: Run) -> Worker:
        """Begin or continue a run, now or as soon as there is room."""
        return start_process(run)

    def slots(self) -> int:
        """How many runs are worked on at once: one core is left to the pages, but two runs are always allowed."""
        return max(2, cores() - 1)

    def room(self, free: int) -> int:
        """How many more runs can be started where `free` slots are."""
        return max(0, free)

    def admit(self, run: Run, busy: Sequence[Run]) -> bool:
        """Whether a run can start beside the busy ones; it is given its GPU where it needs one."""
        return machine.admit(run, busy)

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
        return max(1, min(MAX_SLOTS, int(ray_queue.load_state().cpus / settings().ray_worker.cpus)))

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


Worker = (
    subprocess.Popen | ClusterWorker
)  # the work on one run: it can be waited for and terminated


def executor() -> Executor:
    """The cluster where its address is set, else this machine."""
    return RayExecutor() if address() else Executor()


def cores(limit: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """The cores of this machine that this process may use: those of its container where that has fewer."""
    machine = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    try:
        quota, period = map(
            int, limit.read_text(encoding="utf-8").split()
        )  # microseconds in as many, or "max"
    except (OSError, ValueError):
        return machine
    return max(1, min(machine, quota // period))
