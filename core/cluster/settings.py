"""The settings of a cluster, from the environment, and what a run needs there."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from core.files import hosted

ADDRESS = "ATTENTION_LAB_RAY"
CPUS, GPU_SHARE, MEMORY = (
    "ATTENTION_LAB_RAY_CPUS",
    "ATTENTION_LAB_RAY_GPU",
    "ATTENTION_LAB_RAY_MEMORY_MB",
)
NAMESPACE = "attention-lab"
ROOT = Path(__file__).resolve().parents[2]


def address() -> str:
    """auto, HOST:PORT or ray://HOST:PORT; empty where runs stay on this machine."""
    return os.environ.get(ADDRESS, "").strip()


def words(text: str, public: str) -> str:
    """A message about the cluster; on a public copy the one that names no machine and nothing else of its inside."""
    return public if hosted() else text


@dataclass(frozen=True)
class Needs:
    """What the cluster sets aside for a run: CPUs, a share of a GPU, and memory in MB."""

    cpus: float = 1.0
    gpus: float = 0.0
    memory: float = 1_000.0

    def options(self) -> dict[str, float]:
        """The resources of a Ray actor."""
        return {"num_cpus": self.cpus, "num_gpus": self.gpus, "memory": int(self.memory * 1e6)}

    def fit(self, resources: Mapping[str, float]) -> bool:
        """Whether a node of these resources could ever run it."""
        return (
            resources.get("CPU", 0) >= self.cpus
            and resources.get("GPU", 0) >= self.gpus
            and resources.get("memory", 0) >= self.memory * 1e6
        )

    def __str__(self) -> str:
        parts = [f"{self.cpus:g} CPU{'s' if self.cpus != 1 else ''}"]
        if self.gpus:
            parts.append(f"{self.gpus:g} of a GPU" if self.gpus < 1 else f"{self.gpus:g} GPU")
        return f"{', '.join(parts)} and {self.memory / 1_000:g} GB of memory"


def needs(metadata: Mapping[str, Any], cluster_has_gpu: bool) -> Needs:
    """What a run of this run.json needs: a share of a GPU for the device cuda, and for auto where there is one."""
    config = metadata.get("config") or metadata.get("finetune")
    device = config.get("device", "auto") if isinstance(config, dict) else "cpu"
    on_gpu = device == "cuda" or (device == "auto" and cluster_has_gpu)
    return Needs(
        _number(CPUS, 1.0), _number(GPU_SHARE, 0.25) if on_gpu else 0.0, _number(MEMORY, 1_000.0)
    )


def cpus() -> float:
    """The CPUs that the cluster sets aside for a run."""
    return _number(CPUS, 1.0)


def _number(name: str, usual: float) -> float:
    try:
        value = float(os.environ.get(name) or usual)
    except ValueError:
        return usual
    return value if 0 < value < 1e6 else usual


@cache
def code_version() -> str:
    """A digest of core's files and PyTorch's version: the same one gives the same numbers from the same seeds."""
    digest = hashlib.sha256(version("torch").partition("+")[0].encode())
    for path in sorted((ROOT / "core").rglob("*.py")):
        digest.update(f"{path.relative_to(ROOT).as_posix()}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]
