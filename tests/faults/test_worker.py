"""What goes wrong under a worker: the disk, its folder, the bytes of its files, memory, the clock."""

import ctypes
import errno
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
import urllib.request
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from streamlit.testing.v1 import AppTest
from tokenizers import Tokenizer, models

from core.entries import ConfigError
from core.files import (
    PEOPLE,
    append_line,
    disk_refused,
    sentence_of,
    server_folder,
    write_atomically,
)
from core.runs import archive, worker
from core.runs.folder import DAMAGED, JOBS, Status
from core.runs.runs import Run, create_run, discard, find_run, list_runs, new_id, restore
from core.runs.worker import work
from core.tasks import reading
from core.training.loop import train
from dashboard.navigation import STEPS
from dashboard.server import health, queue
from dashboard.ui.export import read_report
from tests.browser.conftest import running
from tests.cases import PATIENCE, wait_for
from tests.damage import flip
from tests.pages.app import assert_says, open_at, page_text
from tests.pages.test_report import VIEW, open_page, stored
from tests.pages.test_train import half_way
from tests.tiny_models import save
from tests.training.small import forked, record_numbers, small_run

CONFIG = dict(steps=8, record_every=2, finish_early=False)
HOUR = 3_600.0


@pytest.fixture
def run(tmp_path, worker_here) -> Run:
    return create_run(small_run(**CONFIG), path=tmp_path / "run")


@pytest.fixture
def stopped(run) -> Run:
    work(run.path, on_record=at_step(6, run.request_stop))
    assert run.status().state == "stopped"
    return run


@pytest.fixture(scope="module")
def records() -> list:
    return [record_numbers(record) for record in train(small_run(**CONFIG))]


def go_on(run: Run, records: list) -> None:
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
    pytest.raises(OSError, write_atomically, tmp_path / "object", b"whole", new).match(
        "No space left"
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("after", range(9))
def test_a_full_disk_ends_the_run_in_words(after, run, records, monkeypatch):
    run.set_status("starting")
    with monkeypatch.context() as patch:
        fill_disk(patch, after)
        if work(run.path) == "failed":
            assert "is full" in run.status().message and "is kept" in run.status().message
    assert not list(run.path.rglob(".*")), "half a file takes no room"
    go_on(run, records)


def test_a_run_can_be_stopped_on_a_full_disk(run, tmp_path, monkeypatch):
    run.set_status("running", pid=os.getpid())
    fill_disk(monkeypatch, 0)
    run.request_stop("pause")
    run.set_status("failed", "x" * 300)
    assert run.stop_request() == "stop" and run.status().message == "x" * 300
    run.set_status("stopped")
    assert run.status().state == "stopped" and run.status().message == ""
    with pytest.raises(OSError) as full:
        create_run(small_run(), root=tmp_path / "new")
    assert "is full. Delete files" in sentence_of(full.value)
    assert list((tmp_path / "new").iterdir()) == []


def test_a_line_after_half_a_line_is_whole(tmp_path):
    path = tmp_path / "lines"
    append_line(path, b"1")
    with path.open("a", encoding="utf-8") as file:
        file.write('{"half": ')
    append_line(path, b"2")
    assert path.read_text(encoding="utf-8") == '1\n{"half": \n2\n'


def at_step(step: int, do: Callable[[], object]) -> Callable[[Any], object]:
    return lambda record: do() if record.step == step else None


@pytest.mark.parametrize("at", [0, 4])
def test_deleted_folder_ends_worker_and_is_not_made_again(at, run):
    assert work(run.path, on_record=at_step(at, lambda: shutil.rmtree(run.path))) == "failed"
    for write in (
        lambda: run.set_status("queued"),
        run.request_stop,
        lambda: run.update_metadata(name="x"),
    ):
        pytest.raises(FileNotFoundError, write).match("was deleted")
    assert not run.path.exists()


def test_a_half_deleted_folder_ends_the_worker(run):
    work(run.path, on_record=at_step(2, (run.path / "run.json").unlink))
    assert not (run.path / "run.json").exists() and run.records()[-1].step == 2


@pytest.mark.parametrize("seed", range(4))
def test_flipped_bytes_of_last_checkpoint_cost_steps(seed, stopped, records):
    *_, before, last = stopped.checkpoint_steps()
    flip(stopped.checkpoint_path(last), random.Random(seed))
    pytest.raises(ValueError, stopped.checkpoint, last).match(
        "was changed after it was saved|cannot be read"
    )
    assert stopped.checkpoint(before)
    go_on(stopped, records)


def test_a_run_with_damaged_checkpoints_keeps_its_records(stopped):
    steps = [record.step for record in stopped.records()]
    for step in stopped.checkpoint_steps():
        flip(stopped.checkpoint_path(step), random.Random(step))
    stopped.requeue()
    last = stopped.checkpoint_steps()[-1]
    assert work(stopped.path) == "failed" and f"of step {last} " in stopped.status().message
    assert [record.step for record in stopped.records()] == steps and stopped.default_step() == last


@pytest.mark.parametrize("seed", range(6))
def test_flipped_bytes_are_read_around(seed, stopped):
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


def test_a_run_whose_best_weights_are_damaged_continues(tmp_path, worker_here):
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
    monkeypatch.setattr(worker, "prepare", Mock(side_effect=error))
    assert work(run.path) == "failed"
    assert run.status().message.startswith("The run needed more memory than is free.")


def set_clock(monkeypatch, by: float) -> None:
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + by)


@pytest.mark.parametrize("by", [-HOUR, HOUR])
def test_a_clock_that_jumps_gives_no_place_away(by, run, monkeypatch):
    run.set_status("starting")
    assert queue._still_busy(run)
    with monkeypatch.context() as patch:
        set_clock(patch, by)
        assert not queue._still_busy(run) and run.status().state == "failed"
    assert work(run.path) == "finished", "its worker was only slow"


def test_a_clock_that_was_set_back_begins_the_seconds(run, monkeypatch):
    run.request_stop()
    os.utime(run.path / "stop", (time.time() + HOUR,) * 2)
    assert run.stop_age() == 0 and 0 <= run.stop_age() < 60
    set_clock(monkeypatch, 10)
    assert run.stop_age() >= 9


# A worker killed at a random moment: the run goes on to the numbers of one that was never killed, to the last bit.


KILLED = dict(steps=30, record_every=3, finish_early=False)


@cache
def whole(path: Path) -> tuple[list, dict, float]:
    """The records and the last state of a run that was not killed, and its seconds."""
    run = create_run(small_run(**KILLED), path=path)
    begin = time.perf_counter()
    os.waitpid(forked(run), 0)
    seconds = time.perf_counter() - begin
    assert run.status().state == "finished"
    return [*map(record_numbers, run.records())], run.checkpoint(30)[0], seconds


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.parametrize("seed", range(int(os.environ.get("ATTENTION_LAB_KILLS") or 6)))
def test_a_killed_worker_loses_one_record_at_most(seed, tmp_path, worker_here):
    records, state, seconds = whole(tmp_path.parent / "whole")
    run = create_run(small_run(**KILLED), path=tmp_path / "run")
    child = forked(run)
    time.sleep(random.Random(seed).uniform(0, seconds))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    saved = max(run.checkpoint_steps(), default=0)
    assert len([record for record in run.records() if record.step > saved]) <= 1
    assert run.status().state in ("queued", "running", "finished")
    run.requeue()
    assert work(run.path, memory_mb=1e6) == "finished"
    assert list(map(record_numbers, run.records())) == records
    torch.testing.assert_close(run.checkpoint(30)[0], state, rtol=0, atol=0)
    assert not [path for path in run.path.rglob(".*") if path.is_file()], (
        "what was half written is gone"
    )


# A real server, ended and started again: what waited goes on without a visitor.


@pytest.mark.parametrize("mode", ["local", "hosted"])
def test_a_restarted_server_starts_what_waits(mode, tmp_path, monkeypatch):
    home = tmp_path / "runs"
    if mode == "hosted":
        monkeypatch.setenv("ATTENTION_LAB_HOSTED", "1")
        home = home / PEOPLE / ("a" * 32)
    home.mkdir(parents=True)
    run = create_run(small_run(), path=home / new_id())
    with running(tmp_path) as server:
        wait_for(lambda: run.status().ended)
        assert run.status().state == "finished"
        health = json.load(urllib.request.urlopen(f"{server.url}/health", timeout=PATIENCE))
        assert health["status"] == "ok" and health["queue"] == 0


# A disk without room, which writes half of a file before it says so: what a worker and the server's buttons do.


# A disk of some hundred kilobytes, which really is full: a tmpfs that one process of its own has mounted.
# of unshare(2): with users of its own, nobody need be root
NEW_MOUNTS, NEW_USERS = (0x00020000, 0x10000000)
PAGE = 4096  # bytes: what a file takes on a tmpfs is whole pages
READ_ONLY, REMOUNT = 1, 32  # of mount(2)
BALLAST = "ballast"
CANNOT = 77


def on_small_disk(folder: Path, size: int, body: Callable[[Path], None]) -> None:
    """Call `body` with the folder, on which a disk of `size` bytes lies, in a fork of this process.

    AssertionError with the error of the body; skips the test where no user may mount.
    """
    ends, begins = os.pipe()
    child = os.fork()
    if not child:
        os.close(ends)
        code = CANNOT
        try:
            _mount(folder, size)
            code = 1
            body(folder)
            code = 0
        except BaseException:
            os.write(begins, traceback.format_exc().encode())
        os._exit(code)
    os.close(begins)
    with os.fdopen(ends, encoding="utf-8") as words:
        error = words.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == CANNOT:
        pytest.skip(f"a disk cannot be mounted here: {error}")
    assert code == 0, error


def _mount(folder: Path, size: int) -> None:
    libc, user, group = ctypes.CDLL(None, use_errno=True), os.getuid(), os.getgid()
    if libc.unshare(NEW_MOUNTS | NEW_USERS):
        raise OSError(ctypes.get_errno(), "unshare")
    Path("/proc/self/setgroups").write_text("deny", encoding="utf-8")
    Path("/proc/self/uid_map").write_text(f"0 {user} 1", encoding="utf-8")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1", encoding="utf-8")
    if libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, f"size={size}".encode()):
        raise OSError(ctypes.get_errno(), "mount")


def fill(folder: Path, room: int) -> None:
    with open(folder / BALLAST, "wb", buffering=0) as file:
        try:
            while file.write(bytes(PAGE)):
                pass
        except OSError:
            file.truncate(os.fstat(file.fileno()).st_size // PAGE * PAGE - room)


LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs mounts of its own")
SIZE = 1_000 * PAGE
DISK_FULL = "is full. Delete runs or other files on it, then try again."
WORKER_FULL = "is full. Everything that was saved is kept; free some space, then continue the run."


@pytest.fixture(autouse=True)
def given(monkeypatch) -> list[Run]:
    runs: list[Run] = []
    monkeypatch.setattr(queue, "warm_up", lambda *_, **__: None)
    monkeypatch.setattr(queue, "_give", runs.append)
    return runs


@LINUX
@pytest.mark.parametrize("pages", [0, 1, 2, 3, 5, 8, 13, 21])
def test_a_run_on_a_full_disk_ends_in_words_and_continues(pages, tmp_path, records, worker_here):
    def body(disk):
        run = create_run(small_run(**CONFIG), path=disk / "run")
        run.set_status("starting")
        fill(disk, pages * PAGE)
        log_path = run.path / "worker.log"  # on the same disk
        with (
            suppress(OSError),
            open(log_path, "a", buffering=1, encoding="utf-8") as log,
            redirect_stdout(log),
            redirect_stderr(log),  # as of a worker that a server started
        ):
            assert work(run.path) == "failed"
        assert run.status() == Status(
            "failed", f"The disk of {server_folder()} {WORKER_FULL}", os.getpid(), run.status().at
        )
        measured = [record_numbers(record) for record in run.records()]
        assert measured == records[: len(measured)], "what was kept is whole"
        assert not list(run.path.rglob(".*"))
        (disk / BALLAST).unlink()
        go_on(run, records)

    on_small_disk(tmp_path, SIZE, body)


SAVERS = {
    "safetensors": lambda disk: save_file({"a": torch.zeros(10_000)}, disk / "file"),
    "torch": lambda disk: torch.save(torch.zeros(10_000), disk / "file"),
    "numpy": lambda disk: np.save(disk / "file.npy", np.zeros(10_000)),
    "tokenizers": lambda disk: words().save(str(disk / "file")),
    "python": lambda disk: (disk / "file").write_bytes(bytes(40_000)),
}


def words() -> Tokenizer:
    return Tokenizer(models.WordLevel({f"word {number}": number for number in range(3_000)}, "1"))


@LINUX
@pytest.mark.parametrize("job", [*JOBS, "hosted"])
@pytest.mark.parametrize("saver", SAVERS)
def test_a_full_disk_is_said_whatever_library_met_it(
    saver, job, tmp_path, monkeypatch, worker_here
):
    monkeypatch.setenv("ATTENTION_LAB_HOSTED", "1" if job == "hosted" else "")
    monkeypatch.setattr(
        worker.pkgutil, "resolve_name", lambda name: lambda run, *_: SAVERS[saver](run.path)
    )

    def body(disk):
        (run := Run(disk / "run")).create(**{"config" if job == "hosted" else job: {}})
        run.set_status("starting")
        with (
            suppress(OSError),
            open(run.path / "worker.log", "a", buffering=1, encoding="utf-8") as log,
            redirect_stdout(log),
            redirect_stderr(log),
        ):
            fill(disk, 2 * PAGE)
            log.write("x" * PAGE)
            work(run.path)
        status = run.status()
        assert status.state == "failed" and status.message.endswith(WORKER_FULL), status
        assert status.message.startswith(
            "The disk of this server" if job == "hosted" else "The disk of /"
        )

    on_small_disk(tmp_path, SIZE, body)


@LINUX
def test_a_worker_killed_on_a_full_disk_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path))

    def body(disk):
        run = half_way()
        run.set_status("running", pid=2**30)
        fill(disk, 0)
        with monkeypatch.context() as patch:  # a disk on which no byte is changed in its place
            patch.setattr(Run, "set_status", Mock(side_effect=OSError(errno.ENOSPC, "")))
            queue.tick()
            assert run.status().state == "running"
        (disk / BALLAST).unlink()
        queue.tick()  # as a page does a second later
        app = open_at("train", run=run.id)
        assert run.status().message.endswith(WORKER_FULL) and WORKER_FULL in page_text(app)
        press(app, "continue")
        assert run.status().state == "starting"

    on_small_disk(tmp_path, SIZE, body)


@LINUX
@pytest.mark.parametrize("state", ["", "queued"])
def test_a_run_that_waits_on_a_full_disk_is_begun(state, tmp_path, monkeypatch, given):
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path))

    def body(disk):
        run = create_run(small_run())
        if state:
            run.set_status(state)
        fill(disk, 0)
        app = open_at("train", run=run.id)
        assert not app.exception and not app.error
        assert [run.status().state] == (["starting"] if given else ["queued"])
        assert bool(given) == bool(state), (
            "without a file of its state there is no room to begin it"
        )
        (disk / BALLAST).unlink()
        queue.tick()
        assert run.status().state == "starting" and given == [run]

    on_small_disk(tmp_path, SIZE, body)


@LINUX
def test_what_the_server_writes_on_a_full_disk_is_refused(
    tmp_path, monkeypatch, worker_here, given
):
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path))

    def body(disk):
        work((run := create_run(small_run())).path)
        zipped = archive.pack(run)
        train, runs = open_at("train"), open_at("runs", run=run.id)
        page = open_page(report := stored(VIEW))
        fill(disk, 0)
        before = {path for path in disk.rglob("*") if path.is_file()}
        assert_says(train.button(key="train:train").click().run(), DISK_FULL)
        assert_says(runs.text_input(key=f"runs:name:{run.id}").set_value("a" * 80).run(), DISK_FULL)
        upload = runs.file_uploader[0].set_value(("run.zip", zipped, "application/zip"))
        assert_says(upload.run(), DISK_FULL)
        assert_says(page.text_input(key="report:title").set_value("Mine").run(), DISK_FULL)
        assert find_run(run.id).name == run.id and read_report(report.id) == report
        pytest.raises(ConfigError, reading.put, "a b\n" * 100_000).match(DISK_FULL)
        assert {path for path in disk.rglob("*") if path.is_file()} == before and list_runs() == [
            run
        ], "nothing half written is left"
        (disk / BALLAST).unlink()
        runs.text_input(key=f"runs:name:{run.id}").set_value("b" * 80).run()
        assert find_run(run.id).name == "b" * 80
        assert archive.unpack(zipped).records() == run.records()

    on_small_disk(tmp_path, SIZE, body)


@LINUX
def test_a_disk_that_can_only_be_read_is_said_in_words(tmp_path, monkeypatch, given):
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path))

    def body(disk):
        work((run := create_run(small_run())).path)
        zipped, report = archive.pack(run), stored(VIEW)
        libc = ctypes.CDLL(None, use_errno=True)
        assert not libc.mount(None, os.fsencode(disk), None, READ_ONLY | REMOUNT, None)
        said = f"The disk of {disk} can be read, but not written."
        runs, written = open_at("runs", run=run.id), open_page(report)
        pages = {step.key: open_at(step.key) for step in STEPS} | {"run": runs, "report": written}
        assert not any("Errno" in page_text(page) or page.exception for page in pages.values())
        assert_says(pages["train"].button(key="train:train").click().run(), said)
        assert_says(runs.text_input(key=f"runs:name:{run.id}").set_value("a").run(), said)
        assert_says(written.text_input(key="report:title").set_value("Mine").run(), said)
        upload = runs.file_uploader[0].set_value(("r.zip", zipped, "application/zip"))
        assert_says(upload.run(), said)
        assert not any("Errno" in page_text(page) for page in pages.values())
        pytest.raises(ConfigError, reading.put, "a b\n" * 1000).match(
            "can be read, but not written"
        )
        health.cache._recent.clear()
        assert health.health().problem().startswith(said)
        health.cache._recent.clear()

    on_small_disk(tmp_path, SIZE, body)


@pytest.mark.parametrize(
    "code",
    [
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.EACCES,
        errno.EPERM,
        errno.EIO,
        errno.ENOENT,
        errno.ESTALE,
        errno.EMFILE,
    ],
)
@pytest.mark.parametrize("file", [None, "runs/a/status.json", "/elsewhere/model.safetensors"])
@pytest.mark.parametrize("hosted", ["", "1"])
def test_what_the_system_refuses_is_said_in_words(code, file, hosted, tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("ATTENTION_LAB_HOSTED", hosted)
    path = file and str(tmp_path / file)
    said = sentence_of(OSError(code, os.strerror(code), path))
    assert said.endswith(".") and "Errno" not in said and (not hosted or str(tmp_path) not in said)
    assert (
        hosted or ("elsewhere" if file and file.startswith("/") else str(tmp_path / "runs")) in said
    )
    words = {
        errno.ENOSPC: "is full.",
        errno.EDQUOT: "is full.",
        errno.EROFS: "can be read, but not written.",
        errno.EACCES: "may not be written or read",
        errno.EPERM: "may not be written or read",
        errno.ENOENT: "is not there.",
    }
    assert words.get(code, "cannot be read or written") in said
    if code == errno.ENOSPC:
        assert ("Delete runs" in said) != ("elsewhere" in (file or "")), (
            "what can be freed is on that disk"
        )
        assert hosted or str(tmp_path / "hub") in sentence_of(
            OSError(code, ""), folder=tmp_path / "hub"
        )
    assert sentence_of(OSError("The store does not answer.")) == "The store does not answer."
    own = code in (errno.ENOENT, errno.ESTALE, errno.EMFILE)
    assert disk_refused(OSError(code, "")) != own and not disk_refused(ValueError())


# What a person sees: two tabs on one run, a run or a model that is deleted while it is open, a full disk.


def paused() -> Run:
    run = half_way()
    run.set_status("paused", "Paused at step 2.")
    return run


def press(app: AppTest, name: str) -> AppTest:
    app.button(key=f"train:{name}").click().run()
    assert not app.exception
    return app


def test_continue_in_two_tabs_starts_one_worker(given):
    run = paused()
    first, second = open_at("train", run=run.id), open_at("train", run=run.id)
    press(first, "continue")
    with run.lock():
        run.set_status("running")
        press(second, "continue")
        assert run.status().state == "running" and given == [run]
        assert [button.label for button in second.button if button.proto.type == "primary"] == [
            "Stop"
        ]
        press(second, "stop")
        press(first, "stop") if any(
            one.key == "train:stop" for one in first.button
        ) else first.run()
    assert run.stop_request() == "stop" and not first.exception


def test_a_run_deleted_in_one_tab_is_told_in_the_other():
    run = paused()
    app = open_at("train", run=run.id)
    discard(run)
    press(app, "continue")
    assert "not on this machine, or was deleted" in page_text(app) and not run.path.exists()
    assert restore(run.id) == run and run.records() and run.status().state == "paused"


@pytest.mark.parametrize("name", ["stop", "pause"])
def test_tab_whose_run_is_gone_says_so_and_makes_no_folder(name):
    run = half_way()
    with run.lock():
        app, listed = open_at("train", run=run.id), open_at("runs", run=run.id)
    shutil.rmtree(run.path)
    press(app, name)
    listed.text_input(key=f"runs:name:{run.id}").set_value("a").run()
    assert "not on this machine, or was deleted" in page_text(app) and not listed.exception
    assert list_runs() == [] and not run.path.exists()


def test_a_run_with_half_its_files_is_shown():
    run = create_run(half_way().config())
    (run.path / "metrics.jsonl").write_text('{"step": 0, "lo', encoding="utf-8")
    for folder in ("frames", "checkpoints"):
        shutil.rmtree(run.path / folder)
    run.set_status("failed", "The worker ended without a message; nothing was measured yet.")
    assert "nothing was measured" in page_text(open_at("train", run=run.id))


@pytest.mark.parametrize("page", ["train", "runs"])
def test_run_with_damaged_record_says_that_it_is_left_out(page):
    run = paused()
    path = run.path / "metrics.jsonl"
    path.write_bytes(
        path.read_bytes().replace(b'"step": 2, "train_loss": 1.0', b'"step": 2, "train_loss": 7.0')
    )
    app = open_at(page, run=run.id)
    assert (
        "1 line of this run's records changed after they were saved" in page_text(app)
        and not app.exception
    )


def test_a_model_whose_folder_is_gone_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    (folder := tmp_path / "own").mkdir()
    app = open_at("pretrained", **{"inside:model": str(save("bert", folder))})
    assert not app.error and str(folder) in app.session_state["inside:model"]
    shutil.rmtree(folder)
    app.text_input(key="inside:text").set_value("A small dog").run()
    assert not app.exception and "There is no folder" in page_text(app)
