"""How runs share the GPUs of one machine: each GPU takes as many as its memory holds, the one with the most room first.

A run on a GPU has $ATTENTION_LAB_GPU_MB of it (8,000 by default), and PyTorch refuses it more. A run that finds no room
waits. On a cluster Ray places the runs (core.cluster.settings).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from functools import cache

import torch

from core.cluster.settings import needs
from core.training.runs import Run

VARIABLE, GPU_MB = "ATTENTION_LAB_GPU_MB", 8_000.0
KEY = "gpu"  # of run.json: the number of the run's GPU
VISIBLE = "CUDA_VISIBLE_DEVICES"


@cache
def gpus() -> tuple[float, ...]:
    """The memory of each CUDA device in MB, in PyTorch's order."""
    if not torch.cuda.is_available():
        return ()
    return tuple(
        torch.cuda.get_device_properties(number).total_memory / 1e6
        for number in range(torch.cuda.device_count())
    )


def share() -> float:
    """The MB of a GPU that a run has."""
    text = os.environ.get(VARIABLE, "").strip()
    return float(text) if text.isdecimal() and int(text) else GPU_MB


def admit(run: Run, busy: Sequence[Run]) -> bool:
    """Whether a run can start beside the busy ones; where it needs a GPU, its number is written into run.json."""
    try:
        return not gpus() or _place(run, busy)
    except OSError:  # it was deleted, or waits on, since the disk is full
        return False


def _place(run: Run, busy: Sequence[Run]) -> bool:
    if not needs(run.metadata(), True).gpus:
        run.update_metadata(gpu=None)
        return True
    taken = Counter(number_of(one) for one in busy)
    room = [max(1, int(memory // share())) - taken[number] for number, memory in enumerate(gpus())]
    if max(room) < 1:
        return False
    run.update_metadata(gpu=room.index(max(room)))
    return True


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


def limit_memory(run: Run) -> None:
    """In a worker, which sees one GPU: let it take no more of it than its share."""
    if KEY in run.metadata() and gpus():
        torch.cuda.set_per_process_memory_fraction(min(1.0, share() / gpus()[0]), 0)
