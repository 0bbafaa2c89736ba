"""What a run's numbers depend on beside its config: threads, PyTorch, the processor, and its libraries' settings."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import torch

from core.training.runs import Run

KINDS = {"threads": int, "torch": str, "device": str, "capability": str, "libraries": str}
LONGEST, MOST = 100, 5  # characters of a name, and machines, that are read from a file
SETTINGS = ("ATEN_", "DNNL_", "MKL_", "OMP_", "ONEDNN_")  # of PyTorch, MKL, oneDNN and OpenMP


def machine(device: str) -> dict[str, Any]:
    """Threads, torch's version, the processor or GPU, its instruction set or compute capability, and its libraries."""
    if device == "cuda":
        name, capability = (
            torch.cuda.get_device_name(),
            ".".join(map(str, torch.cuda.get_device_capability())),
        )
    else:
        name = processor() if device == "cpu" else f"{processor()} ({device})"
        capability = torch.backends.cpu.get_cpu_capability()
    return {
        "threads": torch.get_num_threads(),
        "torch": str(torch.__version__),
        "device": name,
        "capability": capability,
        "libraries": libraries(),
    }


def libraries() -> str:
    """Which of MKL and oneDNN compute, and what the environment sets of them."""
    on = (
        ("MKL", torch.backends.mkl.is_available()),
        ("oneDNN", torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled),
    )
    named = [
        f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith(SETTINGS)
    ]
    return ", ".join([f"{name} {'on' if there else 'off'}" for name, there in on] + named)[
        : 3 * LONGEST
    ]


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
        for item in (data[-MOST:] if isinstance(data, list) else [])
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
