"""A disk without room, which writes half of a file before it says so: what a worker and the server's buttons do."""

import ctypes
import errno
import os
import shutil
import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from core.entries import ConfigError
from core.files import sentence_of, server_folder
from core.runs import archive
from core.runs.folder import Status
from core.runs.runs import Run, create_run, discard, find_run, list_runs, restore
from core.runs.worker import work
from core.tasks import reading
from core.training.loop import train
from dashboard.navigation import STEPS
from dashboard.server import health, jobs
from dashboard.ui.export import read_report
from tests.faults.test_worker import CONFIG, go_on
from tests.pages.app import open_at, page_text
from tests.pages.test_report import VIEW, open_page, stored
from tests.pages.test_train import half_way
from tests.tiny_models import save
from tests.training.small import record_numbers, small_run

# A disk of some hundred kilobytes, which really is full: a tmpfs that one process of its own has mounted.


NEW_MOUNTS, NEW_USERS = (
    0x00020000,
    0x10000000,
)  # of unshare(2): with users of its own, nobody need be root
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


def close(folder: Path) -> None:
    """Let nobody write on the disk any more."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(None, os.fsencode(folder), None, READ_ONLY | REMOUNT, None):
        raise OSError(ctypes.get_errno(), "mount")


def fill(folder: Path, room: int) -> None:
    """Leave `room` bytes, in whole pages, on the disk."""
    with open(folder / BALLAST, "wb", buffering=0) as file:
        try:
            while file.write(bytes(PAGE)):
                pass
        except OSError:
            file.truncate(os.fstat(file.fileno()).st_size // PAGE * PAGE - room)


def empty(folder: Path) -> None:
    """Make room again."""
    (folder / BALLAST).unlink()


LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs mounts of its own")
SIZE = 1_000 * PAGE
DISK_FULL = "is full. Delete runs or other files on it, then try again."
WORKER_FULL = "is full. Everything that was saved is kept; free some space, then continue the run."


@pytest.fixture(scope="module")
def records() -> list:
    return [record_numbers(record) for record in train(small_run(**CONFIG))]


@pytest.fixture(autouse=True)
def given(monkeypatch) -> list[Run]:
    """The runs that were given to a worker; none is started."""
    runs: list[Run] = []
    monkeypatch.setattr(jobs, "warm_up", lambda: None)
    monkeypatch.setattr(jobs, "_give", runs.append)
    return runs


@LINUX
@pytest.mark.parametrize("pages", [0, 1, 2, 3, 5, 8, 13, 21])
def test_a_run_on_a_full_disk_ends_in_words_and_continues_once_there_is_room(
    pages, tmp_path, records, worker_here
):
    def body(disk):
        run = create_run(small_run(**CONFIG), path=disk / "run")
        run.set_status("starting")
        fill(disk, pages * PAGE)
        log_path = run.path / "worker.log"  # on the same disk
        with suppress(OSError), open(log_path, "a", encoding="utf-8") as log, redirect_stdout(log):
            assert work(run.path) == "failed"
        assert run.status() == Status(
            "failed", f"The disk of {server_folder()} {WORKER_FULL}", os.getpid(), run.status().at
        )
        measured = [record_numbers(record) for record in run.records()]
        assert measured == records[: len(measured)], "what was kept is whole"
        assert not list(run.path.rglob(".*"))
        empty(disk)
        go_on(run, records)

    on_small_disk(tmp_path, SIZE, body)


@LINUX
@pytest.mark.parametrize("state", ["", "queued"])
def test_a_run_that_waits_while_the_disk_fills_is_begun_or_waits_on(
    state, tmp_path, monkeypatch, given
):
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
        empty(disk)
        jobs.tick()
        assert run.status().state == "starting" and given == [run]

    on_small_disk(tmp_path, SIZE, body)


def files(disk) -> list:
    return sorted(path for path in disk.rglob("*") if path.is_file())


@LINUX
def test_what_the_server_writes_on_a_full_disk_is_refused_in_words(
    tmp_path, monkeypatch, worker_here, given
):
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path))

    def body(disk):
        work((run := create_run(small_run())).path)
        zipped = archive.pack(run)
        train, runs, page = (
            open_at("train"),
            open_at("runs", run=run.id),
            open_page(report := stored(VIEW)),
        )
        fill(disk, 0)
        before = files(disk)
        train.button(key="train:train").click().run()
        assert not train.exception and DISK_FULL in page_text(train)
        runs.text_input(key=f"runs:name:{run.id}").set_value("a" * 80).run()
        assert (
            not runs.exception and DISK_FULL in page_text(runs) and find_run(run.id).name == run.id
        )
        runs.file_uploader[0].set_value(("run.zip", zipped, "application/zip")).run()
        assert not runs.exception and DISK_FULL in page_text(runs)
        page.text_input(key="report:title").set_value("Mine").run()
        assert (
            not page.exception and DISK_FULL in page_text(page) and read_report(report.id) == report
        )
        with pytest.raises(ConfigError, match=DISK_FULL):
            reading.put("a b\n" * 100_000)
        assert files(disk) == before and list_runs() == [run], "nothing half written is left"
        empty(disk)
        runs.text_input(key=f"runs:name:{run.id}").set_value("b" * 80).run()
        assert (
            find_run(run.id).name == "b" * 80 and archive.unpack(zipped).records() == run.records()
        )

    on_small_disk(tmp_path, SIZE, body)


@LINUX
def test_a_disk_that_can_only_be_read_is_said_in_words_by_every_page_button_and_probe(
    tmp_path, monkeypatch, given
):
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path))

    def body(disk):
        work((run := create_run(small_run())).path)
        zipped, report = archive.pack(run), stored(VIEW)
        close(disk)
        said = f"The disk of {disk} can be read, but not written."
        pages = [open_at(step.key) for step in STEPS] + [
            open_at("runs", run=run.id),
            open_page(report),
        ]
        assert [page for page in pages if page.exception or "Errno" in page_text(page)] == []
        train, runs, written = open_at("train"), *pages[-2:]
        train.button(key="train:train").click().run()
        runs.text_input(key=f"runs:name:{run.id}").set_value("a").run()
        written.text_input(key="report:title").set_value("Mine").run()
        for page in (
            train,
            runs,
            written,
            runs.file_uploader[0].set_value(("r.zip", zipped, "application/zip")).run(),
        ):
            assert not page.exception and said in page_text(page) and "Errno" not in page_text(page)
        with pytest.raises(ConfigError, match="can be read, but not written"):
            reading.put("a b\n" * 1000)
        health._last.clear()
        assert health.health().problem().startswith(said)
        health._last.clear()

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
    if code == errno.ENOSPC:
        assert ("Delete runs" in said) != ("elsewhere" in (file or "")), (
            "what can be freed is on that disk"
        )
        assert hosted or str(tmp_path / "hub") in sentence_of(
            OSError(code, ""), folder=tmp_path / "hub"
        )
    assert sentence_of(OSError("The store does not answer.")) == "The store does not answer."


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


def test_a_run_deleted_in_one_tab_is_told_in_the_other_and_comes_back_whole():
    run = paused()
    app = open_at("train", run=run.id)
    discard(run)
    press(app, "continue")
    assert "not on this machine, or was deleted" in page_text(app) and not run.path.exists()
    assert restore(run.id) == run and run.records() and run.status().state == "paused"


@pytest.mark.parametrize("name", ["stop", "pause"])
def test_a_tab_whose_run_is_gone_says_so_and_makes_no_folder(name):
    run = half_way()
    with run.lock():
        app, listed = open_at("train", run=run.id), open_at("runs", run=run.id)
    shutil.rmtree(run.path)
    press(app, name)
    listed.text_input(key=f"runs:name:{run.id}").set_value("a").run()
    assert "not on this machine, or was deleted" in page_text(app) and not listed.exception
    assert list_runs() == [] and not run.path.exists()


def test_a_full_disk_is_told_beside_the_button(monkeypatch):
    app = open_at("train")

    def full(*args, **named):
        raise OSError(errno.ENOSPC, "No space left on device", "/somewhere")

    monkeypatch.setattr(jobs, "create_run", full)
    press(app, "train")
    assert (
        "The disk of / is full. Delete files on it, then try again." in page_text(app)
        and list_runs() == []
    )


def test_a_run_with_half_its_files_is_shown():
    run = create_run(half_way().config())
    (run.path / "metrics.jsonl").write_text('{"step": 0, "lo', encoding="utf-8")
    for folder in ("frames", "checkpoints"):
        shutil.rmtree(run.path / folder)
    run.set_status("failed", "The worker ended without a message; nothing was measured yet.")
    assert "nothing was measured" in page_text(open_at("train", run=run.id))


@pytest.mark.parametrize("page", ["train", "runs"])
def test_a_run_with_a_damaged_record_says_that_it_is_left_out(page):
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
