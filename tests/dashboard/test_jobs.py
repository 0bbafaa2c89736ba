"""Start, queue, stop and follow, with workers that are small scripts instead of training."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from core.runs.runs import create_run, list_runs
from dashboard.server import jobs
from tests.training.small import small_run

ROOT = Path(__file__).resolve().parents[2]
# Holds the folder's lock and writes its status as a real worker does, until it is asked to stop; without torch.
OBEYS = """
import json, os, sys, time
from pathlib import Path
from filelock import FileLock
folder = Path(sys.argv[1])

def set_status(state, message=""):
    status = {"state": state, "message": message, "pid": os.getpid(), "at": time.time()}
    (folder / "status.new").write_text(json.dumps(status))
    os.replace(folder / "status.new", folder / "status.json")

if "stillborn" in sys.argv:
    sys.exit(1)
with FileLock(folder / "lock"):
    set_status("running")
    while not (folder / "stop").exists() or "deaf" in sys.argv:
        time.sleep(0.01)
    set_status("stopped", "Stopped.")
"""


@pytest.fixture
def workers(monkeypatch, tmp_path):
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(jobs, "max_workers", lambda: 1)
    monkeypatch.setattr(jobs, "warm_up", lambda: None)
    monkeypatch.setattr(jobs, "WATCH_SECONDS", 0.05)
    started = []

    def spawn(arguments, stdin=None, log=None, gpu=None):
        process = subprocess.Popen(
            [sys.executable, "-c", OBEYS, *arguments, *started_with], cwd=ROOT
        )
        started.append(process)
        return process

    started_with: list[str] = []
    monkeypatch.setattr("core.runs.executor.spawn_worker", spawn)
    yield started, started_with
    monkeypatch.setattr(jobs, "max_workers", lambda: 0)  # what still waits shall not begin
    for process in started:
        process.kill()
        process.wait()
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path / "elsewhere"))  # which ends the watcher
    for thread in threading.enumerate():
        if thread.name.startswith("wait for ") or thread is jobs._watcher:
            thread.join()  # or it would look after the next test's runs


def wait_for(what, seconds: float = 120):
    end = time.time() + seconds
    while not what():
        assert time.time() < end, "waited too long"
        time.sleep(0.02)


def place_number(run) -> int | None:
    place = jobs.place(run)
    return None if place is None else place.number


def ended_at_tick(run) -> bool:
    jobs.tick()
    return run.status().ended


def test_a_run_starts_and_the_next_waits_its_turn(workers):
    first, second, third = (jobs.start(small_run(seed=i)) for i in range(3))
    wait_for(lambda: first.status().state == "running")
    assert [place_number(r) for r in (first, second, third)] == [None, 1, 2]
    jobs.stop(second)
    assert second.status().state == "stopped" and place_number(third) == 1
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
    wait_for(lambda: ended_at_tick(run))
    assert run.status().state == "stopped"


@pytest.mark.parametrize("ran_out", [True, False])
def test_a_worker_that_died_is_named_and_whether_memory_ran_out(workers, monkeypatch, ran_out):
    kills = [7]
    monkeypatch.setattr("core.memory.out_of_memory_kills", lambda: kills[0])
    run = jobs.start(small_run())
    wait_for(lambda: run.status().state == "running")
    kills[0] += ran_out
    workers[0][0].kill()
    wait_for(lambda: ended_at_tick(run))
    words = "memory ran out" if ran_out else "ended without a message"
    assert run.status().state == "failed" and words in run.status().message


def test_a_restarted_server_finds_its_runs(workers):
    """What a server that is no more left behind: a run of a dead worker, one that never began, one that waits."""
    dead, lost, waits = (create_run(small_run(seed=i)) for i in range(3))
    dead.set_status("running", pid=1)  # alive as a number, yet no worker of ours
    lost.set_status("starting")
    (lost.path / "status.json").write_text(
        '{"state": "starting", "at": 1}', encoding="utf-8"
    )  # long ago
    jobs.tick()
    assert dead.status().state == "failed" and lost.status().state == "failed"
    wait_for(lambda: waits.status().state == "running")


def test_a_run_that_is_waited_for_goes_before_a_sweep(workers):
    first, *swept = jobs.start_all([(small_run(seed=i), {"sweep": {"id": "s"}}) for i in range(3)])
    wait_for(lambda: first.status().state == "running")
    urgent = jobs.start(small_run(seed=9))
    assert [place_number(r) for r in (urgent, *swept)] == [1, 2, 3]
    jobs.stop(first)
    wait_for(lambda: urgent.status().state == "running")
    assert {r.status().state for r in swept} == {"queued"}


def test_a_worker_that_dies_before_its_first_word_gives_its_place_away(workers):
    workers[1].append("stillborn")
    run = jobs.start(small_run())
    wait_for(lambda: run.status().ended)  # long before START_SECONDS, and though no page looks
    assert run.status().state == "failed" and "nothing was measured" in run.status().message


def test_the_queue_moves_on_when_a_worker_of_an_earlier_server_ends(workers):
    """That server's thread which waited for the worker is gone with it, and nobody looks at a page."""
    earlier, waits = create_run(small_run()), create_run(small_run(seed=1))
    earlier.set_status("starting")
    workers[0].append(subprocess.Popen([sys.executable, "-c", OBEYS, str(earlier.path)], cwd=ROOT))
    wait_for(earlier.alive)
    jobs.tick()  # what the first page does that is opened
    assert waits.status().state == "queued"
    earlier.request_stop()
    wait_for(lambda: waits.status().state == "running")
    jobs.stop(waits)
    wait_for(lambda: waits.status().ended)


def test_two_servers_give_a_run_to_one_worker(workers, tmp_path):
    """Both tick at the same moment; the folder's lock lets one of them take the run."""
    code = "import sys; from dashboard.server import jobs; jobs._give = lambda run: print(run.id); jobs.tick()"
    env = {**os.environ, "ATTENTION_LAB_RUNS": str(tmp_path / "runs")}
    run = create_run(small_run())
    command = [sys.executable, "-c", code]
    servers = [
        subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, encoding="utf-8")
        for _ in range(2)
    ]
    assert sorted(server.communicate(timeout=120)[0].strip() for server in servers) == ["", run.id]


def test_the_queue_has_an_end_and_several_runs_are_all_taken_or_none(workers, monkeypatch):
    monkeypatch.setattr(jobs, "QUEUE", 1)
    jobs.start(small_run())
    jobs.start(small_run())
    for start in (lambda: jobs.start(small_run()), lambda: jobs.start_all([(small_run(), {})] * 4)):
        with pytest.raises(jobs.QueueFull, match="stop"):
            start()
    assert len(list_runs()) == 2


def test_a_worker_that_ends_late_does_not_fail_the_one_that_went_on(workers):
    run = create_run(small_run())
    run.set_status("starting")
    late = subprocess.Popen([sys.executable, "-c", ""])
    given = run.status().at
    run.set_status("starting")  # paused, and given to another worker, before the first one has left
    jobs._wait_for(late, run, given)
    assert run.status().state == "starting"
    jobs._wait_for(late, run, run.status().at)
    assert run.status().state == "failed"
