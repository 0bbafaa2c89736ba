"""What goes wrong under a worker: the disk, its folder, the bytes of its files, memory, the clock."""

import errno
import json
import os
import random
import secrets
import shutil
import signal
import time
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from core import files
from core.claims import run as claims
from core.files import PEOPLE, write_atomically
from core.runs import worker
from core.runs.folder import DAMAGED, Status
from core.runs.runs import Run, create_run, new_id
from core.runs.worker import work
from core.training.loop import train
from dashboard.server import jobs
from tests.browser.conftest import running
from tests.cases import wait_for
from tests.damage import flip
from tests.training.small import record_numbers, small_run

CONFIG = dict(steps=8, record_every=2, finish_early=False)
HOUR = 3_600.0


@pytest.fixture
def run(tmp_path, worker_here) -> Run:
    return create_run(small_run(**CONFIG), path=tmp_path / "run")


@pytest.fixture
def stopped(run) -> Run:
    """It was stopped after three records and the first."""
    work(run.path, on_record=at_step(6, run.request_stop))
    assert run.status().state == "stopped"
    return run


@pytest.fixture(scope="module")
def records() -> list:
    return [record_numbers(record) for record in train(small_run(**CONFIG))]


def go_on(run: Run, records: list) -> None:
    """The run continues to the numbers of one that nothing befell."""
    run.requeue()
    assert work(run.path) == "finished"
    again = [record_numbers(record) for record in run.records()]
    assert again[:-1] == records[:-1] and again[-1][0] == records[-1][0]


def fill_disk(monkeypatch, after: int) -> None:
    """From the write number `after` on, half of what is written arrives, and then there is no room."""
    whole, count = Path.write_bytes, iter(range(10_000))

    def write(self, data):
        if next(count) < after:
            return whole(self, data)
        whole(self, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device", str(self))

    monkeypatch.setattr(Path, "write_bytes", write)


@pytest.mark.parametrize("new", [False, True])
def test_a_write_that_fails_leaves_nothing(tmp_path, new, monkeypatch):
    fill_disk(monkeypatch, 0)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(tmp_path / "object", b"whole", new)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("after", range(9))
def test_a_full_disk_ends_the_run_in_words_and_it_goes_on_when_there_is_room(
    after, run, records, monkeypatch
):
    run.set_status("starting")
    with monkeypatch.context() as patch:
        fill_disk(patch, after)
        if work(run.path) == "failed":
            assert "is full" in run.status().message and "is kept" in run.status().message
    assert not list(run.path.rglob(".*")), "half a file takes no room"
    go_on(run, records)


def test_a_run_can_be_stopped_on_a_full_disk_and_no_half_run_is_left(run, tmp_path, monkeypatch):
    run.set_status("running", pid=os.getpid())
    fill_disk(monkeypatch, 0)
    run.request_stop("pause")
    run.set_status("failed", "x" * 300)
    assert run.stop_request() == "stop" and run.status().message == "x" * 300
    run.set_status("stopped")
    assert run.status().state == "stopped" and run.status().message == ""
    with pytest.raises(OSError) as full:
        create_run(small_run(), root=tmp_path / "new")
    assert "is full. Delete files" in files.sentence_of(full.value)
    assert list((tmp_path / "new").iterdir()) == []


def test_a_line_after_half_a_line_is_whole(tmp_path):
    path = tmp_path / claims.CELLS
    files.append_line(path, b"1")
    with path.open("a", encoding="utf-8") as file:
        file.write('{"half": ')
    files.append_line(path, b"2")
    assert path.read_text(encoding="utf-8") == '1\n{"half": \n2\n'


def at_step(step: int, do: Callable[[], object]) -> Callable[[Any], object]:
    """What a worker does at a record: this, at that step."""
    return lambda record: do() if record.step == step else None


@pytest.mark.parametrize("at", [0, 4])
def test_a_deleted_folder_ends_the_worker_and_is_not_made_again(at, run):
    assert work(run.path, on_record=at_step(at, lambda: shutil.rmtree(run.path))) == "failed"
    for write in (
        lambda: run.set_status("queued"),
        run.request_stop,
        lambda: run.update_metadata(name="x"),
    ):
        with pytest.raises(FileNotFoundError, match="was deleted"):
            write()
    assert not run.path.exists()


def test_a_half_deleted_folder_ends_the_worker(run):
    work(run.path, on_record=at_step(2, (run.path / "run.json").unlink))
    assert not (run.path / "run.json").exists() and run.records()[-1].step == 2


@pytest.mark.parametrize("seed", range(8))
def test_flipped_bytes_of_the_last_checkpoint_cost_the_steps_after_the_one_before(
    seed, stopped, records
):
    *_, before, last = stopped.checkpoint_steps()
    flip(stopped.checkpoint_path(last), random.Random(seed))
    with pytest.raises(ValueError, match="was changed after it was saved|cannot be read"):
        stopped.checkpoint(last)
    assert stopped.checkpoint(before)
    go_on(stopped, records)


def test_a_run_whose_checkpoints_are_all_damaged_says_so_and_keeps_its_records(stopped):
    steps = [record.step for record in stopped.records()]
    for step in stopped.checkpoint_steps():
        flip(stopped.checkpoint_path(step), random.Random(step))
    stopped.requeue()
    assert work(stopped.path) == "failed" and "checkpoint of step" in stopped.status().message
    assert [record.step for record in stopped.records()] == steps


@pytest.mark.parametrize("seed", range(12))
def test_flipped_bytes_of_status_and_metrics_are_read_around(seed, stopped):
    flip(stopped.path / "metrics.jsonl", random.Random(seed), 1)
    status = stopped.path / "status.json"
    status.write_bytes(b"\xff" + status.read_bytes())
    assert stopped.status().state == "stopped" and "Continue" in stopped.status().message
    whole, damaged = stopped.read_records()
    assert len({0, 2, 4, 6} - {record.step for record in whole}) == 4 - len(whole) in (1, 2), (
        "a line, or the two whose line end it was"
    )
    assert 1 <= damaged <= 2, "or one in which a line end was made"
    stopped.requeue()
    assert work(stopped.path) == "finished"
    assert [record.step for record in stopped.records() if record.step > 6] == [8, 8]


def test_a_digit_that_changed_is_noticed_and_stays_noticed(stopped):
    path, whole = stopped.path / "metrics.jsonl", stopped.records()
    line = b'"step": 4, "train_loss": '
    path.write_bytes(path.read_bytes().replace(line + b"2.", line + b"3."))
    assert stopped.read_records() == ([record for record in whole if record.step != 4], 1)
    stopped.requeue()
    assert work(stopped.path) == "finished" and stopped.read_records()[1] == 1
    assert [record.step for record in stopped.records()] == [0, 2, 6, 8, 8]


def test_a_status_in_which_a_digit_changed_names_no_process(run):
    run.set_status("running", pid=123_456)
    path = run.path / "status.json"
    path.write_bytes(path.read_bytes().replace(b"123456", b"123457"))
    assert run.status() == Status("stopped", DAMAGED), "kill(2) would end another process"


def test_a_run_whose_best_weights_are_damaged_continues_and_uses_the_best_that_are_left(
    tmp_path, worker_here
):
    run = create_run(small_run(**CONFIG | dict(steps=12, keep_best=True)), path=tmp_path / "run")
    work(run.path, on_record=lambda record: run.request_stop() if record.step == 10 else None)
    path = run.path / "metrics.jsonl"
    losses = {2: 4.0, 4: 1.0, 6: 3.0, 8: 2.0, 10: 5.0}
    records = [replace(record, loss=losses.get(record.step)) for record in run.records()]
    path.unlink()
    for record in records:
        run.append(record)
    assert run.best_step() == 4
    flip(run.checkpoint_path(4), random.Random(0))
    run.requeue()
    assert work(run.path) == "finished"
    assert (
        "smallest at step 4, whose weights are no longer saved; those of step 8 are used"
        in run.status().message
    )
    assert run.best_step() == run.default_step() == 8 and run.records()[-1].best == 8
    assert not run.checkpoint_path(4).exists() and run.model()


def test_a_frame_with_flipped_bytes_is_drawn_or_left_out(run):
    work(run.path)
    path = run.frame_path(run.frame_steps()[-1])
    whole = path.read_bytes()
    path.write_bytes(whole[:-2] + b"\x00\x7e")  # not a number, in half precision
    assert run.frame(run.frame_steps()[-1]) == {}
    path.write_bytes(whole)
    assert run.frame(run.frame_steps()[-1])


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 7 bytes"),
    ],
)
def test_too_little_memory_is_said(error, run, monkeypatch):
    def prepare(config):
        raise error

    monkeypatch.setattr(worker, "prepare", prepare)
    assert work(run.path) == "failed"
    assert run.status().message.startswith("The run needed more memory than is free.")


def set_clock(monkeypatch, by: float) -> None:
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + by)


@pytest.mark.parametrize("by", [-HOUR, HOUR])
def test_a_clock_that_jumps_gives_no_place_to_a_run_that_never_began(by, run, monkeypatch):
    run.set_status("starting")
    assert jobs._still_busy(run)
    with monkeypatch.context() as patch:
        set_clock(patch, by)
        assert not jobs._still_busy(run) and run.status().state == "failed"
    assert work(run.path) == "finished", "its worker was only slow"


def test_a_clock_that_was_set_back_begins_the_seconds_of_a_stop_again(run, monkeypatch):
    run.request_stop()
    os.utime(run.path / "stop", (time.time() + HOUR,) * 2)
    assert run.stop_age() == 0 and 0 <= run.stop_age() < 60
    set_clock(monkeypatch, 10)
    assert run.stop_age() >= 9


# A worker killed at a random moment: the run goes on to the numbers of one that was never killed, to the last bit.


KILLS = int(os.environ.get("ATTENTION_LAB_KILLS") or 6)
KILLED = dict(steps=60, record_every=6, finish_early=False)


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
    run, begin = (
        create_run(small_run(**KILLED), path=root),
        time.perf_counter(),
    )
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
    run = create_run(small_run(**KILLED), path=tmp_path / "run")
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


# A real server, ended and started again: what waited goes on without a visitor.


@pytest.mark.parametrize("mode", ["local", "hosted"])
def test_a_restarted_server_starts_what_waits_before_anybody_comes(mode, tmp_path, monkeypatch):
    home = tmp_path / "runs"
    if mode == "hosted":
        monkeypatch.setenv("ATTENTION_LAB_HOSTED", "1")
        home = home / PEOPLE / secrets.token_hex(16)
    home.mkdir(parents=True)
    runs = [create_run(small_run(steps=4, seed=seed), path=home / new_id()) for seed in range(2)]
    with running(tmp_path) as server:
        wait_for(lambda: all(run.status().state in ("finished", "failed") for run in runs))
        assert {run.status().state for run in runs} == {"finished"}
        health = json.load(urllib.request.urlopen(f"{server.url}/health", timeout=60))
        assert health["status"] == "ok" and health["queue"] == 0
