"""Start core.training.worker in a process of its own, on one thread."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from core.training.gpus import environment, number_of
from core.training.runs import Run

ROOT = Path(__file__).resolve().parents[2]


def start_worker(run: Run) -> subprocess.Popen:
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
            [sys.executable, "-m", "core.training.worker", *arguments],
            cwd=ROOT,
            env=env,
            stdin=stdin or subprocess.DEVNULL,
            stdout=out,
            stderr=out if log else None,
            start_new_session=True,
        )  # a run outlives the server and Ctrl-C
