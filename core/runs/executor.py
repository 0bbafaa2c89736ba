"""Where runs are worked on: by worker processes of this machine, or on a Ray cluster ($ATTENTION_LAB_RAY).

A run is a folder. Whoever works on it holds its lock, reads `stop`, and writes records and at the end a final status.
Each GPU of this machine takes as many runs as its memory holds, the one with the most room first. A run on a GPU has
`gpu_mb` of ATTENTION_LAB_LIMITS (8,000 by default), and PyTorch refuses it more. A run that finds no room waits.
"""

import os
import platform
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from core.files import hosted, lab_path
from core.runs import ray_queue
from core.runs.folder import RunFolder
from core.runs.runs import Run
from core.settings import limits, settings

KINDS = {"threads": int, "torch": str, "device": str, "capability": str, "libraries": str}
LONGEST, MAX_MACHINES = 100, 5  # characters of a name, and machines, that are read from a file
SETTINGS = ("ATEN_", "DNNL_", "MKL_", "OMP_", "ONEDNN_")  # of PyTorch, MKL, oneDNN and OpenMP


def machine(device: str) -> dict[str, Any]:
    """Threads, torch's version, the processor or GPU, its instruction set or compute capability, and its libraries:
    which of MKL and oneDNN compute, and what the environment sets of them."""
    name, capability = processor(), torch.backends.cpu.get_cpu_capability()
    name = name if device == "cpu" else f"{name} ({device})"
    if device == "cuda":
        name = torch.cuda.get_device_name()
        capability = ".".join(map(str, torch.cuda.get_device_capability()))
    onednn = torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled
    on = {"MKL": torch.backends.mkl.is_available(), "oneDNN": onednn}
    named = [f"{key}={one}" for key, one in sorted(os.environ.items()) if key.startswith(SETTINGS)]
    libraries = ", ".join(
        [f"{key} {'on' if there else 'off'}" for key, there in on.items()] + named
    )
    return {
        "threads": torch.get_num_threads(),
        "torch": str(torch.__version__),
        "device": name,
        "capability": capability,
        "libraries": libraries[: 3 * LONGEST],
    }


def record_machine(run: Run, device: str) -> None:
    """Add this machine to a run's run.json, unless it is the last one there."""
    before, here = valid(run.metadata().get("machines")), machine(device)
    if before[-1:] != [here]:
        run.update_metadata(machines=[*before, here])


def processor() -> str:
    """The model of the CPU, or its architecture where the system does not name it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return (names or [platform.processor() or platform.machine()])[0]


def valid(data: object) -> list[dict[str, Any]]:
    """The valid machines in a run.json, oldest first."""
    listed = [
        {"libraries": "", **item}
        for item in (data[-MAX_MACHINES:] if isinstance(data, list) else [])
        if isinstance(item, dict)
    ]  # until 0.16 no libraries were recorded
    longest = dict.fromkeys(KINDS, LONGEST) | {"libraries": 3 * LONGEST}
    return [
        {name: item[name] if name == "threads" else item[name][: longest[name]] for name in KINDS}
        for item in listed
        if all(type(item.get(name)) is kind for name, kind in KINDS.items())
    ]


def line(data: object) -> str:
    """The machines in a run.json as text; empty for none."""
    return "; then ".join(
        f"{item['device']} ({item['capability']}), {item['threads']} thread{'s' if item['threads'] != 1 else ''}, "
        f"PyTorch {item['torch'].partition('+')[0]}"
        for item in valid(data)
    )


KEY = "gpu"  # of run.json: the number of the run's GPU
VISIBLE = "CUDA_VISIBLE_DEVICES"


@cache
def gpus() -> tuple[float, ...]:
    """The memory of each CUDA device in MB, in PyTorch's order."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return tuple(torch.cuda.get_device_properties(n).total_memory / 1e6 for n in range(count))


def number_of(run: Run) -> int | None:
    """The number of the run's GPU among those of this machine; None on the CPU."""
    number = run.metadata().get(KEY)
    return number if type(number) is int and 0 <= number < len(gpus()) else None


def environment(number: int | None) -> dict[str, str]:
    """The variables with which a worker sees that GPU alone."""
    if number is None:
        return {}
    names = [name for name in os.environ.get(VISIBLE, "").split(",") if name.strip()]
    return {VISIBLE: names[number] if number < len(names) else str(number)}


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
        **environment(gpu),
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "PYTHONUTF8": "1",
        "GLIBC_TUNABLES": malloc,
    }
    with open(log or os.devnull, "ab") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "core.runs.worker", *arguments],
            cwd=lab_path(""),
            env=env,
            stdin=stdin or subprocess.DEVNULL,
            stdout=out,
            stderr=out if log else None,
            start_new_session=True,
        )  # a run outlives the server and Ctrl-C


MAX_SLOTS = 50  # runs into which a claim is split at most
MAX_RUNS = 1_000  # that are handed to a cluster at once
POLL_SECONDS = 0.2


def start_process(run: Run) -> subprocess.Popen:
    """A worker that trains or measures a run's folder, and writes its log there."""
    return spawn_worker([str(run.path)], log=run.path / "worker.log", gpu=number_of(run))


class Executor:
    """Where runs are worked on: worker processes of this machine, whose queue is the caller's."""

    def start(self, run: Run) -> "Worker":
        """Begin or continue a run, now or as soon as there is room."""
        return start_process(run)

    def slots(self) -> int:
        """How many runs are worked on at once: one core is left to the pages, but two runs are always allowed."""
        return max(2, cores() - 1)

    def room(self, free: int) -> int:
        """How many more runs can be started where `free` slots are."""
        return max(0, free)

    def admit(self, run: Run, busy: Sequence[Run]) -> bool:
        """Whether a run can start beside the busy ones; where it needs a GPU, its number is written into run.json."""
        taken = Counter(number_of(one) for one in busy)
        room = [
            max(1, int(memory // limits().gpu_mb)) - taken[number]
            for number, memory in enumerate(gpus())
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

    def start(self, run: Run) -> "Worker":
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
    return RayExecutor() if ray_queue.address() else Executor()


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
