"""Opening runs and working on them gives back what it takes: memory maps, open files and threads."""

import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from core.runs import worker
from core.runs.runs import create_run
from dashboard.ui import attention_frames
from tests.training.small import small_run
from tests.training.zips import trained

LINUX = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="counts what Linux lists")
FEW = 8  # maps that the allocator may add or give back meanwhile: of more calls each would show if it left one


@pytest.fixture(scope="module", autouse=True)
def _collect_own():
    """Ten collections go through what these tests made, and not each through what all others have left."""
    gc.collect()
    gc.freeze()


def counts() -> tuple[int, int, int]:
    """Memory maps, open files and threads of this process."""
    gc.collect()
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").count("\n")
    return maps, len(os.listdir("/proc/self/fd")), threading.active_count()


def assert_given_back(action: Callable[[], object], times: int) -> None:
    action()
    before = counts()
    for _ in range(times):
        action()
    after = counts()
    # A thread that another test left may open a file or end meanwhile; a leak would show once for each call.
    left = [now - then for now, then in zip(after[1:], before[1:], strict=True)]
    assert after[0] <= before[0] + FEW and max(left) < times, f"{before} became {after}"


@LINUX
def test_openings_of_a_run_leave_nothing_behind(tmp_path):
    run = trained(tmp_path)
    step = run.checkpoint_steps()[-1]

    def look() -> None:
        assert run.status().ended and run.frame(step) and not run.alive()
        assert attention_frames.sizes(run, step, 0)
        assert attention_frames.head_over_time(run, [step], 0, "cross", 0, 0)

    assert_given_back(look, 20)
    assert_given_back(lambda: run.model(step), 12)
    assert_given_back(lambda: run.checkpoint(step), 12)


@LINUX
@pytest.mark.parametrize("fails", [False, True])
def test_runs_one_after_the_other_leave_no_watcher_behind(fails, tmp_path, monkeypatch):
    def train(run, stop, on_record):
        if fails:
            raise ValueError("no")
        return "finished", "Finished."

    monkeypatch.setattr(worker, "train_run", train)
    queued = create_run(small_run(), tmp_path)

    def work() -> None:
        queued.set_status("queued")
        assert worker.work(queued.path) == ("failed" if fails else "finished")

    assert_given_back(work, 3)
