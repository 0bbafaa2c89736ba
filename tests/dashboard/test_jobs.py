"""Start, queue, stop and follow, with workers that are small scripts instead of training."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from core.training import create_run, list_runs
from dashboard import jobs
from tests.training.small import small_run

ROOT = Path(__file__).resolve().parents[2]
# Holds the folder's lock as a real worker does, until it is asked to stop.
OBEYS = """
import sys, time
from pathlib import Path
from core.training.runs import Run
run = Run(Path(sys.argv[1]))
with run.held():
    import os
    run.set_status("running", pid=os.getpid())
    while not run.stop_asked() or "deaf" in sys.argv:
        time.sleep(0.01)
    run.set_status("stopped", "Stopped.")
"""


@pytest.fixture
def workers(monkeypatch, tmp_path):
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(jobs, "most_workers", lambda: 1)
    monkeypatch.setattr(jobs, "warm_up", lambda: None)
    started = []

    def spawn(arguments, stdin=None, log=None):
        process = subprocess.Popen([sys.executable, "-c", OBEYS, *arguments, *started_with], cwd=ROOT)
        started.append(process)
        return process

    started_with: list[str] = []
    monkeypatch.setattr(jobs, "_spawn", spawn)
    yield started, started_with
    for process in started:
        process.kill()
        process.wait()


def wait_for(what, seconds: float = 40):
    end = time.time() + seconds
    while not what():
        assert time.time() < end, "waited too long"
        time.sleep(0.02)


def test_a_run_starts_and_the_next_waits_its_turn(workers):
    first, second, third = (jobs.start(small_run(seed=i)) for i in range(3))
    wait_for(lambda: first.status().state == "running")
    assert [jobs.place(r) for r in (first, second, third)] == [None, 1, 2]
    jobs.stop(second)
    assert second.status().state == "stopped" and jobs.place(third) == 1
    jobs.stop(first)
    wait_for(lambda: third.status().state == "running")  # the next begins by itself
    assert first.status().state == "stopped"
    jobs.stop(third)
    wait_for(lambda: third.status().ended)


def test_a_deaf_worker_is_ended(workers, monkeypatch):
    workers[1].append("deaf")
    monkeypatch.setattr(jobs, "STOP_SECONDS", 0.1)
    run = jobs.start(small_run())
    wait_for(lambda: run.status().state == "running")
    jobs.stop(run)
    wait_for(lambda: jobs.tick() or run.status().ended)
    assert run.status().state == "stopped"


def test_a_worker_that_died_is_named(workers):
    run = jobs.start(small_run())
    wait_for(lambda: run.status().state == "running")
    workers[0][0].kill()
    wait_for(lambda: jobs.tick() or run.status().ended)
    assert run.status().state == "failed" and "without a word" in run.status().message


def test_a_restarted_server_finds_its_runs(workers):
    """What a server that is no more left behind: a run of a dead worker, one that never began, one that waits."""
    dead, lost, waits = (create_run(small_run(seed=i)) for i in range(3))
    dead.set_status("running", pid=1)  # alive as a number, yet no worker of ours
    lost.set_status("starting")
    (lost.path / "status.json").write_text('{"state": "starting", "at": 1}')  # long ago
    jobs.tick()
    assert dead.status().state == "failed" and lost.status().state == "failed"
    wait_for(lambda: waits.status().state == "running")


def test_the_queue_has_an_end(workers, monkeypatch):
    monkeypatch.setattr(jobs, "QUEUE", 1)
    jobs.start(small_run())
    jobs.start(small_run())
    with pytest.raises(jobs.QueueFull):
        jobs.start(small_run())
    assert len(list_runs()) == 2
