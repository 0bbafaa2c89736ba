"""The queue and its workers; a public copy, on which each person has a folder of their own for a day."""

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from streamlit import config
from streamlit.testing.v1 import AppTest

from core.files import runs_folder, server_folder, without_paths
from core.interpret.corpus import corpora_folder
from core.plugins import folder as plugin_folder
from core.pretrained.hub import HOSTED_MODELS
from core.runs.folder import RUN_ID
from core.runs.runs import Run, create_run, discard, find_run, list_runs, new_id
from core.runs.sweeps import create_sweep, list_sweeps
from core.runs.worker import work
from core.training import Record
from core.training.sweeps import SweepConfig
from dashboard.server import cache, hosting, limits, queue, visitors
from dashboard.ui import export
from dashboard.ui.export import Report, new_id as new_report_id, save
from dashboard.ui.runs import copy_run, path_code
from pages.sweeps import linked
from tests.cases import wait_for
from tests.training.small import small_run

ANNA, BEN = "a" * 32, "b" * 32


def ended(run: Run, state: str = "finished") -> Run:
    run.set_status(state, "Done.")
    return run


def run_of(asking: AbstractContextManager, **changes: Any) -> Run:
    """A run of who is asking."""
    with asking:
        return create_run(small_run(**changes))


def set_at(run: Run, state: str, at: float) -> None:
    """Put a run in a state since that time."""
    (run.path / "status.json").write_text(json.dumps({"state": state, "at": at}), encoding="utf-8")


@pytest.fixture
def who(monkeypatch):
    """A public copy on which nothing trains, and a context in which a person asks."""
    monkeypatch.setenv("ATTENTION_LAB_HOSTED", "1")
    monkeypatch.setattr(queue, "_give", lambda run: None)
    monkeypatch.setattr(visitors, "_visits", {})
    monkeypatch.setattr(limits, "_uploads", [])
    asks = [""]
    for module in (limits, visitors):
        monkeypatch.setattr(module, "me", lambda: asks[0])
    monkeypatch.setattr("core.files._person", [lambda: asks[0]])

    @contextmanager
    def is_asking(key, address=""):
        earlier, asks[0] = asks[0], key
        visitors._visits[key] = (0.0, address or key)
        yield
        asks[0] = earlier

    return is_asking


def test_each_person_has_what_they_made_and_nothing_else(who):
    with who(ANNA):
        hers = ended(create_run(small_run(), name="secret"))
        sweep = create_sweep(SweepConfig(small_run(), "batch_size", (4, 8), (0, 1)))
        save(report := Report(new_report_id(), "hers"))
    with who(BEN):
        assert not list_runs() and not list_sweeps() and not list(runs_folder().glob("*"))
        assert find_run(hers.id) is None and export.read_report(report.id) is None
        assert limits.find_run(hers.id) == hers and linked(sweep.id) == sweep, "by their links"
        assert not limits.mine(hers) and not limits.mine(sweep)
    assert limits.owner(hers) == ANNA and not list_runs(), "the server itself has none"


def test_ids_of_a_public_copy_cannot_be_guessed(who, monkeypatch):
    long = new_id()
    assert RUN_ID.fullmatch(long) and len(long) == 22 + 32
    monkeypatch.delenv("ATTENTION_LAB_HOSTED")
    assert RUN_ID.fullmatch(short := new_id()) and len(short) == 22
    with who(ANNA):
        create_run(small_run(), path=server_folder() / limits.PEOPLE / ANNA / short)
    monkeypatch.setenv("ATTENTION_LAB_HOSTED", "1")
    with who(BEN):
        assert limits.find_run(short) is None, (
            "an id of 22 characters opens nothing of anybody else"
        )


def test_nobody_changes_the_run_of_another(who):
    hers = run_of(who(ANNA))
    hers.update_metadata(parent={"run": new_id(), "step": 2})
    for change in (
        queue.stop,
        lambda run: queue.stop(run, "pause"),
        queue.resume,
        lambda run: queue.resume(run, steps=9),
    ):
        with who(BEN), pytest.raises(limits.NotYours, match="belongs to another person"):
            change(hers)
    assert hers.status().state == "queued" and not hers.stop_request()
    with who(BEN):
        copy = copy_run(ended(hers), "mine now")
        assert list_runs() == [copy] and limits.mine(copy) and "parent" not in copy.metadata()
        discard(copy)
    with who(ANNA):
        assert list_runs() == [hers]


def test_all_of_a_person_is_deleted_on_request(who):
    with who(ANNA):
        runs = [queue.start(small_run(seed=seed)) for seed in range(3)]
        (corpora_folder() / "x").mkdir(parents=True)
    with who(BEN):
        his = queue.start(small_run())
        queue.delete_mine()
        assert not his.path.exists() and not runs_folder().exists()
    assert all(run.exists() for run in runs) and [*visitors._visits] == [ANNA]


def test_who_was_not_here_for_a_day_is_forgotten(who, monkeypatch):
    old, waits = ended(run_of(who(ANNA))), run_of(who(BEN))
    day = time.time() - 25 * 3600
    for folder in limits.folders():
        os.utime(folder, (day, day))
    limits.delete_old()
    assert old.path.exists(), "it ended just now"
    set_at(old, "finished", day)
    limits.delete_old()
    assert not old.path.parent.exists() and waits.exists(), "what waits is still to come"
    with who(ANNA):
        ended(create_run(small_run()))
        os.utime(runs_folder(), (1, 1))
        monkeypatch.setattr(visitors, "_visits", {})
        monkeypatch.setattr(
            visitors.st, "context", SimpleNamespace(ip_address="10.0.0.9", cookies={})
        )
        visitors.note_visit()
        assert time.time() - runs_folder().stat().st_mtime < 60
    assert visitors._visits[ANNA][1] == "10.0.0.9"


def test_a_cookie_is_a_secret_of_128_bits(who, monkeypatch):
    header = visitors.new_cookie("", "/lab", True)
    name, *parts = header.split("; ")
    assert visitors.ID.fullmatch(name.removeprefix(f"{visitors.COOKIE}=")) and {
        "HttpOnly",
        "SameSite=Lax",
        "Secure",
        "Path=/lab",
    } <= set(parts)
    assert not visitors.new_cookie("f" * 32, "/", False) and visitors.new_cookie(
        "forged", "/", False
    ) not in ("", header)
    monkeypatch.delenv("ATTENTION_LAB_HOSTED")
    assert not visitors.new_cookie("", "/", False), "only on a public copy"


def script() -> None:
    import streamlit as st

    from core.files import runs_folder
    from dashboard.server.visitors import me

    st.text(f"{me()} {runs_folder().name}")


@pytest.mark.parametrize("cookie", ["", "f" * 32, "../../x"])
def test_a_page_knows_its_person(monkeypatch, cookie):
    monkeypatch.setenv("ATTENTION_LAB_HOSTED", "1")
    monkeypatch.setattr("streamlit.runtime.context.ContextProxy.cookies", {visitors.COOKIE: cookie})
    first, again = AppTest.from_function(script).run(), AppTest.from_function(script).run()
    key, name = first.text[0].value.split()
    assert visitors.ID.fullmatch(key) and name == key and key != cookie, (
        "the id itself is no name of anything"
    )
    assert first.run().text[0].value.split()[0] == key
    assert (again.text[0].value.split()[0] == key) == (cookie == "f" * 32), (
        "without an id, each session is a person"
    )


def test_errors_and_scripts_hold_no_path_of_the_server(who):
    run = run_of(who(ANNA))
    assert path_code(run.path) == repr(run.id)
    for path in (run.path, "/srv/the lab's/a b", "/srv/two words/run.json"):
        message = (
            f"[Errno 28] No space left: {str(path)!r} of owner/name at https://huggingface.co/a/b"
        )
        assert without_paths(message).replace('"', "'") == (
            "[Errno 28] No space left: '…' of owner/name at https://huggingface.co/a/b"
        )


def test_a_crash_has_a_number_that_the_log_has_too(who, monkeypatch, worker_here, capsys):
    run = run_of(who(ANNA))
    monkeypatch.setattr("core.runs.worker.train_run", lambda *_: 1 / 0)
    assert work(run.path) == "failed"
    message, log = run.status().message, capsys.readouterr()
    assert "division" not in message.lower() and f"reference {message[-9:-1]}" in log.out
    assert "ZeroDivisionError" in log.err


def test_a_public_copy_loads_no_plug_in(who, monkeypatch, tmp_path):
    monkeypatch.setenv("ATTENTION_LAB_PLUGINS", str(tmp_path))
    assert plugin_folder() is None
    monkeypatch.setattr(hosting, "threading", threading := Mock())
    monkeypatch.setitem(sys.modules, "streamlit_app", None)
    options: dict[str, Any] = {}
    monkeypatch.setattr(config, "set_option", options.__setitem__)
    hosting.begin_hosting.__wrapped__()
    assert options["server.maxUploadSize"] == 5 and options["client.showErrorDetails"] == "none"
    assert threading.Thread.call_args.kwargs["target"] is limits.watch
    monkeypatch.delenv("ATTENTION_LAB_HOSTED")
    assert plugin_folder() == tmp_path


def test_secrets_switch_it_on(monkeypatch):
    monkeypatch.setitem(sys.modules, "streamlit_app", None)
    monkeypatch.setattr(
        hosting.st,
        "secrets",
        {"ATTENTION_LAB_HOSTED": 1, "ATTENTION_LAB_HOSTED_LIMITS": "steps=many"},
    )
    for name in ("ATTENTION_LAB_HOSTED", "ATTENTION_LAB_HOSTED_LIMITS"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    pytest.raises(ValueError, hosting.begin_hosting.__wrapped__).match(
        "ATTENTION_LAB_HOSTED_LIMITS: steps = 'many' is no whole number"
    )
    assert os.environ["ATTENTION_LAB_HOSTED"] == "1"


@pytest.mark.parametrize(
    ("before", "most", "after"),
    [
        ((256, -1), 10_240, 10_240),
        ((1_024, 1_048_576), 65_536, 65_536),
        ((1_024, 4_096), 65_536, 4_096),
        ((100_000, 100_000), 100_000, 100_000),
        ((1_024, 2_048), 1_024, 1_024),
    ],
)
def test_the_limit_of_open_files_is_raised(monkeypatch, before, most, after):
    now = [before]

    def set_limit(_, limits):
        if limits[0] > most:
            raise ValueError("not allowed to raise maximum limit")
        now.append(limits)

    monkeypatch.setattr("resource.getrlimit", lambda _: before)
    monkeypatch.setattr("resource.setrlimit", set_limit)
    visitors.raise_file_limit()
    assert now[-1] == (after, before[1])


def test_limits_are_said_and_hold(who, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_HOSTED_LIMITS", "under_way=2")
    with who(ANNA):
        assert queue.start(small_run()).config().max_seconds == 120, (
            "a longer time becomes the limit"
        )
        pytest.raises(limits.LimitReached, queue.start, small_run(steps=2_001)).match(
            "2,000 and take 120 s"
        )
        # its seconds of training end it
        queue.start(small_run(steps=20_000, max_train_seconds=5.0))
        pytest.raises(limits.LimitReached, queue.start, small_run()).match(
            "2 of your runs wait or train.*over the 2"
        )
        assert len(list_runs()) == 2
    with who(BEN):
        run = ended(queue.start(small_run()))
        run.append(Record(4, loss=1.0, elapsed=121.0))
        pytest.raises(limits.LimitReached, queue.resume, run, steps=10).match("has had the 120 s")


def test_the_people_of_an_address_share_a_larger_sum(who, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_HOSTED_LIMITS", "address_under_way=2")
    for number in range(2):
        with who(f"{number:032x}", "10.0.0.1"):
            queue.start(small_run())
    with who(ANNA, "10.0.0.1"), pytest.raises(limits.LimitReached, match="from your network"):
        queue.start(small_run())
    with who(ANNA, "10.0.0.2"):
        queue.start(small_run())


def test_the_oldest_runs_go(who, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_HOSTED_LIMITS", "runs=2")
    first, second = (ended(run_of(who(ANNA), seed=seed)) for seed in range(2))
    with who(BEN):
        his = [ended(create_run(small_run(seed=seed))) for seed in range(2)]
        last = queue.start(small_run())
        assert list_runs() == [his[1], last]
    with who(ANNA):
        assert list_runs() == [first, second]
        copy = copy_run(first, "copy")
        assert list_runs() == [first, copy] and not second.exists()


def test_a_person_over_their_disk_waits(who, monkeypatch):
    # Two runs, neither of which is too large alone; and whatever comes next is counted before it is stored.
    monkeypatch.setenv("ATTENTION_LAB_HOSTED_LIMITS", "megabytes=5")
    monkeypatch.setattr(queue, "max_workers", lambda: 2)
    with who(ANNA):
        runs = queue.start_all([(small_run(seed=seed), {}) for seed in range(2)])
        with runs[0].lock(), runs[1].lock():
            for run in runs:
                run.set_status("running", pid=os.getpid())
                (run.path / "frames" / "0").write_bytes(bytes(2_000_000))
            queue.tick()
            assert not any(run.stop_request() for run in runs)
            limits.check_disk(900_000)
            for ask in (
                lambda: limits.check_disk(1_000_000),
                lambda: limits.make_room(1_000_000),
                lambda: limits.admit_upload(SimpleNamespace(file_id="1", size=1_000_000)),
            ):
                pytest.raises(limits.LimitReached, ask).match(
                    r"with this, and here a person has 5\sMB"
                )
            (runs[0].path / "frames" / "1").write_bytes(bytes(1_500_000))
            queue.tick()
            assert [run.stop_request() for run in runs] == ["pause", "pause"]
        runs[0].set_status("paused")
        pytest.raises(limits.LimitReached, queue.resume, runs[0]).match(
            r"5\.\d*\sMB, and here a person has 5\sMB. Delete some"
        )


def test_uploads_are_counted_once_each_by_person(who, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_HOSTED_LIMITS", "uploads=2 address_uploads=3")
    monkeypatch.setattr(limits.st, "session_state", {})
    files = [SimpleNamespace(file_id=str(number), size=10) for number in range(5)]
    with who(ANNA, "10.0.0.1"):
        for file in (files[0], files[0], files[1]):
            limits.admit_upload(file)
        pytest.raises(limits.LimitReached, limits.admit_upload, files[2]).match(
            "2 files in an hour"
        )
        pytest.raises(
            limits.LimitReached, limits.admit_upload, SimpleNamespace(file_id="9", size=6_000_000)
        ).match(r"6\sMB; here a file may have 5\sMB")
    with who(BEN, "10.0.0.1"):
        limits.admit_upload(files[3])
        pytest.raises(limits.LimitReached, limits.admit_upload, files[4]).match("from your network")


def test_people_take_turns(who):
    # Ten runs of a sweep, then the first run of another person: it is next.
    with who(ANNA):
        swept = [create_run(small_run(seed=seed), sweep={"id": "s"}) for seed in range(3)]
    first, second = (run_of(who(BEN), seed=seed) for seed in range(2))
    for at, run in enumerate([*swept, first, second]):
        set_at(run, "queued", at + 1)
    assert queue.queue()[0] == [swept[0], first, swept[1], second, swept[2]]
    swept[0].set_status("running")  # who has a worker already comes after others
    assert queue.queue()[0] == [first, swept[1], second, swept[2]]


def test_the_wait_is_told_from_the_runs_before(who, monkeypatch):
    monkeypatch.setattr(queue, "max_workers", lambda: 1)
    busy, waits, last = (
        run_of(who(person), steps=100, max_seconds=50.0, seed=seed)
        for seed, person in enumerate((ANNA, ANNA, BEN))
    )
    busy.append(Record(20, loss=1.0, elapsed=2.0))
    for at, run in enumerate((busy, waits, last)):
        set_at(run, "queued" if at else "running", at)
    assert queue.place(busy) is None
    assert queue.place(last) == (1, pytest.approx(8.0)), "80 steps at a tenth of a second"
    assert queue.place(waits) == (2, pytest.approx(18.0)), "and a whole run of the same pace"
    after = [queue.places([waits, last], [], workers)[last] for workers in (1, 2)]
    assert after == [(2, 50.0), (2, 0.0)], "without a pace, what it may take"
    monkeypatch.delenv("ATTENTION_LAB_HOSTED")
    waits = create_run(small_run(max_seconds=3_000.0))
    left = [place.seconds for place in queue.places([waits, last], [], 1).values()]
    assert left == [0.0, None], "nothing tells how long it takes"


def test_the_queue_is_read_once_however_many_poll(monkeypatch):
    monkeypatch.setattr(queue, "max_workers", lambda: 1)
    runs = [create_run(small_run(seed=seed)) for seed in range(3)]
    monkeypatch.setattr(queue, "queue", read := Mock(wraps=queue.queue))
    for _ in range(5):
        assert place_numbers(*runs) == [1, 2, 3]
    later = create_run(small_run(seed=4))  # which was not there yet is looked for
    assert queue.place(later).number == 4 and read.call_count == 2
    monkeypatch.setattr(queue, "FRESH_SECONDS", 0.0)
    runs[0].set_status("running")
    assert place_numbers(*runs, later) == [None, 1, 2, 3]
    monkeypatch.setattr(queue, "_tick", tick := Mock(return_value=False))
    cache._recent.clear()
    for fresh, looks in ((60.0, 1), (60.0, 1), (0.0, 2)):  # what was just queued does not wait
        queue.tick(fresh)
        assert tick.call_count == looks


def test_a_turn_has_an_end(who, monkeypatch):
    run = run_of(who(ANNA))
    with run.lock():
        run.set_status("running", pid=None)
        queue._tick()
        assert not run.stop_request()
        set_at(run, "running", time.time() - 151)
        queue._tick()
        assert run.stop_request() == "pause"


def test_elsewhere_nothing_is_bounded():
    most = small_run(steps=100_000, max_seconds=86_400.0)
    assert limits.admit_config(most) == most and limits.max_run_steps() == 100_000
    assert runs_folder() == server_folder() and limits.mine(Run(server_folder()))
    text = (ROOT / "docs" / "deploy.md").read_text("utf-8")
    rows = [
        f"| `{name}` | {value:,} | {meaning} |"
        for name, (value, meaning) in visitors.LIMITS.items()
    ]
    assert "\n".join(rows) in text and all(f"`{name}`" in text for name in HOSTED_MODELS)


# Start, queue, stop and follow, with workers that are small scripts instead of training.


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
    monkeypatch.setattr(queue, "max_workers", lambda: 1)
    monkeypatch.setattr(queue, "warm_up", lambda *_, **__: None)
    monkeypatch.setattr(queue, "WATCH_SECONDS", 0.05)
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
    monkeypatch.setattr(queue, "max_workers", lambda: 0)  # what still waits shall not begin
    for process in started:
        process.kill()
        process.wait()
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path / "elsewhere"))  # which ends the watcher
    for thread in threading.enumerate():
        if thread.name.startswith("wait for ") or thread is queue._watcher:
            thread.join()  # or it would look after the next test's runs


def place_numbers(*runs) -> list[int | None]:
    return [place and place.number for place in map(queue.place, runs)]


def ended_at_tick(run) -> bool:
    queue.tick()
    return run.status().ended


def test_a_run_starts_and_the_next_waits_its_turn(workers):
    first, second, third = (queue.start(small_run(seed=i)) for i in range(3))
    wait_for(lambda: first.status().state == "running")
    assert place_numbers(first, second, third) == [None, 1, 2]
    queue.stop(second)
    assert second.status().state == "stopped" and place_numbers(third) == [1]
    queue.stop(first)
    wait_for(lambda: third.status().state == "running")  # the next begins by itself
    assert first.status().state == "stopped"
    queue.stop(third)
    wait_for(lambda: third.status().ended)


def test_a_deaf_worker_is_ended(workers, monkeypatch):
    workers[1].append("deaf")
    monkeypatch.setattr(queue, "STOP_SECONDS", 0.1)
    run = queue.start(small_run())
    wait_for(lambda: run.status().state == "running")
    queue.stop(run)
    wait_for(lambda: ended_at_tick(run))
    assert run.status().state == "stopped"


@pytest.mark.parametrize("ran_out", [True, False])
def test_a_worker_that_died_is_named(workers, monkeypatch, ran_out):
    kills = [7]
    monkeypatch.setattr("core.memory.out_of_memory_kills", lambda: kills[0])
    run = queue.start(small_run())
    wait_for(lambda: run.status().state == "running")
    kills[0] += ran_out
    workers[0][0].kill()
    wait_for(lambda: ended_at_tick(run))
    words = "memory ran out" if ran_out else "ended without a message"
    assert run.status().state == "failed" and words in run.status().message


def test_a_restarted_server_finds_its_runs(workers):
    # What a server that is no more left behind: a run of a dead worker, one that never began, one that waits.
    dead, lost, waits = (create_run(small_run(seed=i)) for i in range(3))
    dead.set_status("running", pid=1)  # alive as a number, yet no worker of ours
    lost.set_status("starting")
    # long ago
    (lost.path / "status.json").write_text('{"state": "starting", "at": 1}', encoding="utf-8")
    queue.tick()
    assert dead.status().state == "failed" and lost.status().state == "failed"
    wait_for(lambda: waits.status().state == "running")


def test_a_run_that_is_waited_for_goes_before_a_sweep(workers):
    first, *swept = queue.start_all([(small_run(seed=i), {"sweep": {"id": "s"}}) for i in range(3)])
    wait_for(lambda: first.status().state == "running")
    urgent = queue.start(small_run(seed=9))
    assert place_numbers(urgent, *swept) == [1, 2, 3]
    queue.stop(first)
    wait_for(lambda: urgent.status().state == "running")
    assert {r.status().state for r in swept} == {"queued"}


def test_a_dead_worker_gives_its_place_away(workers):
    workers[1].append("stillborn")
    run = queue.start(small_run())
    wait_for(lambda: run.status().ended)  # long before START_SECONDS, and though no page looks
    assert run.status().state == "failed" and "nothing was measured" in run.status().message


def test_queue_moves_on_when_worker_of_earlier_server_ends(workers):
    # That server's thread which waited for the worker is gone with it, and nobody looks at a page.
    earlier, waits = create_run(small_run()), create_run(small_run(seed=1))
    earlier.set_status("starting")
    workers[0].append(subprocess.Popen([sys.executable, "-c", OBEYS, str(earlier.path)], cwd=ROOT))
    wait_for(earlier.alive)
    queue.tick()  # what the first page does that is opened
    assert waits.status().state == "queued"
    earlier.request_stop()
    wait_for(lambda: waits.status().state == "running")
    queue.stop(waits)
    wait_for(lambda: waits.status().ended)


# Looks at the queue once it is told to, and long enough that another sees the same, but for the folder's lock.
SERVER = """
import sys, time
from dashboard.server import queue
read = queue.queue

def look():
    seen = read()
    time.sleep(0.3)
    return seen

queue.queue, queue.max_workers, queue.warm_up = look, lambda: 2, lambda *_, **__: None
queue._give = lambda run: print(run.id)
print("ready", flush=True)
sys.stdin.readline()
queue.tick()
"""


def test_two_servers_give_a_run_to_one_worker(workers):
    run, pipe = create_run(small_run()), subprocess.PIPE
    program = [sys.executable, "-c", SERVER]
    servers = [
        subprocess.Popen(program, cwd=ROOT, stdin=pipe, stdout=pipe, encoding="utf-8")
        for _ in range(2)
    ]
    assert [server.stdout.readline() for server in servers] == ["ready\n"] * 2
    for server in servers:
        server.stdin.write("\n")
        server.stdin.flush()
    assert "".join(server.communicate()[0] for server in servers) == f"{run.id}\n"


def test_the_queue_has_an_end(workers, monkeypatch):
    monkeypatch.setattr(queue, "QUEUE", 1)
    queue.start(small_run())
    queue.start(small_run())
    for start in (
        lambda: queue.start(small_run()),
        lambda: queue.start_all([(small_run(), {})] * 4),
    ):
        pytest.raises(limits.QueueFull, start).match("stop")
    assert len(list_runs()) == 2


def test_a_late_end_does_not_fail_the_next_worker(workers):
    run = create_run(small_run())
    run.set_status("starting")
    late = subprocess.Popen([sys.executable, "-c", ""])
    given = run.status().at
    run.set_status("starting")  # paused, and given to another worker, before the first one has left
    queue._wait_for(late, run, given)
    assert run.status().state == "starting"
    queue._wait_for(late, run, run.status().at)
    assert run.status().state == "failed"
