"""The machine that works on a run: what run.json says of it, its GPUs, and how many cores this process may use."""

import os
import platform
from functools import cache
from pathlib import Path
from typing import Any

import torch

from core.runs.runs import Run

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
    # until 0.16 no libraries were recorded
    listed = [
        {"libraries": "", **item}
        for item in (data[-MAX_MACHINES:] if isinstance(data, list) else [])
        if isinstance(item, dict)
    ]
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


def cores(limit: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """The cores of this machine that this process may use: those of its container where that has fewer."""
    machine = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    try:
        # microseconds in as many, or "max"
        quota, period = map(int, limit.read_text(encoding="utf-8").split())
    except (OSError, ValueError):
        return machine
    return max(1, min(machine, quota // period))
