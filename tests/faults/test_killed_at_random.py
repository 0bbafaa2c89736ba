"""A worker killed at a random moment: the run goes on to the numbers of one that was never killed, to the last bit.

`make faults` kills two hundred, `make test` six.
"""

import os
import random
import signal
import time
from functools import cache
from pathlib import Path

import pytest
import torch

from core.runs.runs import Run, create_run
from core.runs.worker import work
from tests.training.small import record_numbers, small_run

KILLS = int(os.environ.get("ATTENTION_LAB_KILLS") or 6)
CONFIG = dict(steps=60, record_every=6, finish_early=False)


def start(run: Run) -> int:
    """Train in a process of its own, without the seconds of its imports."""
    worker = os.fork()
    if worker:
        return worker
    try:
        work(run.path, memory_mb=1e6)
    finally:
        os._exit(0)


@cache
def whole(root: Path) -> tuple[list, dict, float]:
    """The records and the last state of a run that was not killed, and its seconds."""
    run, begin = create_run(small_run(**CONFIG), path=root), time.perf_counter()
    os.waitpid(start(run), 0)
    seconds = time.perf_counter() - begin
    assert run.status().state == "finished"
    return (
        list(map(record_numbers, run.records())),
        run.checkpoint(run.checkpoint_steps()[-1])[0],
        seconds,
    )


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return tmp_path_factory.mktemp("whole") / "run"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.parametrize("seed", range(KILLS))
def test_a_worker_killed_at_any_moment_loses_one_record_at_most(seed, base, tmp_path, worker_here):
    records, state, seconds = whole(base)
    run = create_run(small_run(**CONFIG), path=tmp_path / "run")
    worker = start(run)
    time.sleep(random.Random(seed).uniform(0, seconds))
    os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)
    measured = [record.step for record in run.records()]
    kept = max(run.checkpoint_steps(), default=0)
    assert len([step for step in measured if step > kept]) <= 1
    assert run.status().state in ("queued", "running", "finished")
    run.requeue()
    assert work(run.path, memory_mb=1e6) == "finished"
    assert list(map(record_numbers, run.records())) == records
    again = run.checkpoint(run.checkpoint_steps()[-1])[0]
    assert again.keys() == state.keys() and all(
        torch.equal(again[name], state[name]) for name in state
    )
    assert not [path for path in run.path.rglob(".*") if path.is_file()], (
        "what was half written is gone"
    )
