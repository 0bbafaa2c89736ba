"""The worker as a process of its own: the same numbers, an end for every way to end, and words for each."""

import dataclasses
import gc
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from core.models import ModelConfig
from core.runs import executor, worker
from core.runs.archive import pack, unpack
from core.runs.runs import Run, create_run, find_run
from core.training import Record, loop, prepare, train
from core.training.__main__ import progress
from dashboard.server import jobs
from dashboard.ui import run_data
from pages import runs as runs_words, train as train_words
from tests.cases import each, wait_for
from tests.training.small import (
    FINAL,
    SAME_LAST_BIT,
    record_numbers,
    records_of,
    run_command,
    small_run,
    trained,
)

ROOT = Path(__file__).resolve().parents[2]
LONG = dict(steps=20_000, max_seconds=300, record_every=20, finish_early=False)


def command(*arguments: str, **env: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "core.runs.worker", *arguments],
        cwd=ROOT,
        encoding="utf-8",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", **env},
    )


@pytest.fixture
def run(tmp_path) -> Run:
    return create_run(small_run(seed=3), root=tmp_path)


@SAME_LAST_BIT
def test_command_line_spare_and_loop_give_the_same_numbers(
    run, tmp_path, monkeypatch, worker_here, capsys
):
    monkeypatch.setattr(loop, "FINAL", FINAL)  # as the other processes have it
    torch.set_num_threads(
        2
    )  # as in a notebook: the snippet of docs/library.md trains on one thread all the same
    here = [record_numbers(r) for r in train(run.config())]
    assert torch.get_num_threads() == 2
    file = tmp_path / "asked.json"
    file.write_text(json.dumps(run.config().to_json()), encoding="utf-8")
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path / "runs"))
    torch.set_num_threads(2)
    assert run_command("core.training", "train", str(file)) == 0
    spare = command("--spare")
    assert spare.stdout.readline() == "ready\n"
    spare.communicate(f"{run.path}\n", timeout=120)
    link = re.search(r"\?run=(\S+)", capsys.readouterr().out)
    by_command = find_run(link[1], tmp_path / "runs")  # the page finds it by this link
    assert by_command is not None and by_command.status().state == "finished"
    assert (
        [record_numbers(r) for r in run.records()]
        == here
        == [record_numbers(r) for r in by_command.records()]
    )
    assert run.status().state == "finished" and "4 steps" in run.status().message
    assert run.checkpoint_steps()[-1] == 4


def test_a_signal_stops_a_process_and_keeps_what_was_reached(tmp_path):
    """Where memory runs out, a worker is ended before its server."""
    run = create_run(small_run(**LONG), root=tmp_path)
    process = command(str(run.path))
    wait_for(lambda: len(run.records()) >= 2)
    assert run.alive() and run.status().pid == process.pid
    if sys.platform == "linux":
        score = "/proc/{}/oom_score_adj".format
        worker_score, own = (
            int(Path(score(one)).read_text("utf-8")) for one in (process.pid, "self")
        )
        assert worker_score == 500 > own
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=60)
    assert run.status().state == "stopped" and "is saved" in run.status().message
    assert not run.alive() and run.checkpoint_steps()


@pytest.mark.parametrize(
    "ask",
    [Run.request_stop, lambda run: signal.raise_signal(signal.SIGINT)],
    ids=["file", "Ctrl-C"],
)
def test_stop_keeps_what_was_reached(tmp_path, ask, worker_here):
    run = create_run(small_run(**LONG), root=tmp_path)
    assert (
        worker.work(run.path, on_record=lambda record: ask(run) if record.step == 20 else None)
        == "stopped"
    )
    assert run.status().state == "stopped" and "is saved" in run.status().message
    assert len(run.records()) == 2 and not run.alive() and run.checkpoint_steps()


def test_a_spare_ends_with_whoever_started_it(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO())  # at its end, as when its pipe is closed
    assert worker.main(["--spare"]) == 0 and capsys.readouterr().out == "ready\n"


def test_too_much_memory_ends_in_words(tmp_path):
    run = create_run(small_run(**LONG), root=tmp_path)
    command(str(run.path), ATTENTION_LAB_LIMITS="memory_mb=20").communicate(timeout=120)
    assert run.status().state == "failed" and "20 MB" in run.status().message


def test_what_ends_a_run_is_told_and_costs_this_run_alone(run, monkeypatch, worker_here):
    with monkeypatch.context() as patch:
        patch.setattr(worker, "prepare", lambda config: 1 / 0)
        assert worker.work(run.path) == "failed"
    assert "ZeroDivisionError" in run.status().message
    (run.path / "run.json").write_text('{"config": {"steps": 3}}', encoding="utf-8")
    run.requeue()
    assert worker.main([str(run.path)]) == 1
    assert "A run needs model and task" in run.status().message


def test_a_run_that_was_killed_at_its_beginning_measures_it_once(
    run, monkeypatch, worker_here, capsys
):
    """And its log is whole before the final status shows."""
    session = worker.prepare(run.config())
    run.append(next(train(run.config(), session)))
    run.save_checkpoint(session, run.config())
    assert run.checkpoint_steps() == [0]
    logs, set_status = {}, Run.set_status

    def noted(self, state, *words, **more):
        logs[state] = capsys.readouterr().out
        set_status(self, state, *words, **more)

    monkeypatch.setattr(Run, "set_status", noted)
    assert worker.work(run.path) == "finished"
    assert [record.step for record in run.records() if not record.final] == [0, 2, 4]
    assert logs["finished"] == f"finished: {run.status().message}\n"


# A worker killed at any place goes on to the numbers of a run that was never killed.


class Killed(BaseException):
    """The end of a process, as far as a test can have it: nothing of the worker's own runs after it."""


PLACES = [("append", at, late) for at in range(4) for late in (False, True)] + [
    ("save_checkpoint", at, late) for at in range(4) for late in (False, True)
]


def train_here(run: Run, stop=lambda: False) -> str:
    return worker.train_run(run, stop, lambda record: None)[0]


def numbers(run: Run | list[Record]) -> list[tuple]:
    records = run.records() if isinstance(run, Run) else run
    return [(record_numbers(record), record.final) for record in records]


def kill(monkeypatch, method: str, at: int, late: bool) -> None:
    """The call number `at` of a method of Run ends the worker, before what it does or, `late`, after."""
    whole, calls = getattr(Run, method), []

    def call(self, *args):
        calls.append(args)
        if len(calls) == at + 1 and not late:
            raise Killed
        whole(self, *args)
        if len(calls) == at + 1:
            raise Killed

    monkeypatch.setattr(Run, method, call)


@pytest.mark.parametrize(("method", "at", "late"), PLACES)
def test_a_killed_run_goes_on_as_if_it_had_not_been(tmp_path, monkeypatch, method, at, late):
    broken = create_run(
        small_run(steps=4), path=tmp_path
    )  # three records, the final one, a checkpoint beside each
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill(patch, method, at, late)
        train_here(broken)
    assert train_here(broken) == "finished"
    assert numbers(broken) == numbers(records_of(steps=4))
    assert broken.checkpoint_steps()[-1] == 4


@pytest.mark.parametrize("asks", [3, 4, 5, 6, 8])
def test_a_run_stopped_at_any_step_goes_on_as_if_it_had_not_been(tmp_path, asks):
    """Between two records the mean training loss of both parts counts; only the last gradients are not kept."""
    sizes = dict(steps=7, record_every=3)
    broken = create_run(small_run(**sizes), path=tmp_path)
    left = iter(range(asks))
    assert train_here(broken, lambda: next(left, None) is None) == "stopped"
    assert train_here(broken) == "finished"
    assert [(r.step, r.final, r.loss, r.train_loss, r.gradient) for r in broken.records()] == [
        (r.step, r.final, r.loss, r.train_loss, r.gradient) for r in records_of(**sizes)
    ]


def test_longer_is_more_steps_of_the_same_run_and_its_own_end_stays_its_end(tmp_path):
    config = small_run(steps=4, schedule="constant")
    run = create_run(config, path=tmp_path / "run")
    train_here(run)
    before = numbers(run)
    assert train_here(run) == "finished" and numbers(run) == before
    run.update_metadata(config=dataclasses.replace(config, steps=8).to_json())
    assert train_here(run) == "finished"
    ours, whole = numbers(run), numbers(records_of(steps=8, schedule="constant"))
    assert [one for one in ours if not one[1]][:3] == whole[:3] and ours[-1] == whole[-1]
    assert run.records()[-1].step == 8


def test_a_run_that_waited_long_enough_ends_where_it_was_killed(tmp_path, monkeypatch):
    waits = dict(steps=40, patience=1, learning_rate=1e-6, weight_decay=0.0, optimizer="sgd")
    broken = create_run(small_run(**waits), path=tmp_path)
    steps = [record.step for record in records_of(**waits)]
    assert records_of(**waits)[-1].final
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill(patch, "append", len(steps) - 1, late=False)
        train_here(broken)
    train_here(broken)
    assert [record.step for record in broken.records()] == steps


@pytest.mark.parametrize(
    ("optimizer", "kind"),
    [
        ("adamw", "transformer"),
        ("adam", "recurrent"),
        ("rmsprop", "transformer"),
        ("sgd", "recurrent"),
    ],
)
def test_stopped_and_gone_on_is_as_never_stopped(tmp_path, optimizer, kind):
    dropped = {
        "transformer": ModelConfig.transformer(8, 2, dropout=0.2),
        "recurrent": ModelConfig.recurrent(8, layers=2, dropout=0.2, cell="lstm"),
    }
    config = small_run(steps=8, optimizer=optimizer, model=dropped[kind])
    broken = create_run(config, path=tmp_path / "broken")
    session = prepare(config)
    for record in train(config, session):
        broken.append(record)
        broken.save_checkpoint(session, config)
        if record.step == 4:  # as a killed worker leaves it: the last checkpoint stands at a record
            break
    assert broken.checkpoint_steps()[-1] == 4 and train_here(broken) == "finished"
    whole = create_run(config, path=tmp_path / "whole")
    assert train_here(whole) == "finished" and numbers(broken) == numbers(whole)
    torch.testing.assert_close(
        broken.model()[0].state_dict(), whole.model()[0].state_dict(), rtol=0, atol=0
    )


def test_checkpoints_are_few_and_the_last_is_there(tmp_path):
    config = small_run(steps=60, record_every=1, held_out=2, num_examples=1)
    run = create_run(config, path=tmp_path / "run")
    with pytest.raises(ValueError, match="saved no weights"):
        run.model()
    train_here(run)
    steps = run.checkpoint_steps()
    assert steps[-1] == 60 and 8 <= len(steps) <= 12
    model, task = run.model(steps[3])
    assert model.training is False and task.key == "reverse"
    run.update_metadata(config=small_run(model=ModelConfig.transformer(16, 2)).to_json())
    for use in (run.model, lambda: train_here(run)):
        with pytest.raises(ValueError, match="do not fit"):
            use()
    run.checkpoint_path(steps[3]).write_bytes(b"nothing of the kind")
    with pytest.raises(ValueError, match=f"step {steps[3]} cannot be read"):
        run.checkpoint(steps[3])


# Opening runs and working on them gives back what it takes: memory maps, open files and threads.


LINUX = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="counts what Linux lists")
FEW = 8  # maps that the allocator may add or give back meanwhile: of more calls each would show if it left one


@pytest.fixture(scope="module", autouse=True)
def _collect_own():
    """Ten collections go through what these tests made, and not each through what all others have left."""
    gc.collect()
    gc.freeze()


def counts() -> tuple[int, int, int]:
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
        assert run_data.head_counts(run, step)[0]
        assert run_data.head_over_time(run, [step], 0, "cross", 0, 0)

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


# A run names what its numbers depend on: threads, PyTorch, processor; and whether seconds ended it, not steps.


OTHER = {
    "threads": 4,
    "torch": "2.1.0+cpu",
    "device": "Another CPU",
    "capability": "NO AVX",
    "libraries": "MKL on",
}


def test_a_run_records_where_it_trained_and_shows_it(tmp_path):
    torch.set_num_threads(1)
    run, here = create_run(small_run(), path=tmp_path / "run"), executor.machine("cpu")
    train_here(run)
    assert run.metadata()["machines"] == [here] and here["torch"] == str(torch.__version__)
    words = executor.line([here])
    version = torch.__version__.partition("+")[0]
    assert words == f"{here['device']} ({here['capability']}), 1 thread, PyTorch {version}"
    assert words in runs_words.about_text(run_data.summarize(run))
    assert "1 thread, PyTorch" in train_words.pace(run.records()[-1], words)
    run.update_metadata(machines=[OTHER], config=small_run(steps=6).to_json())
    train_here(run)
    assert run.metadata()["machines"] == [OTHER, here]
    both = executor.line(run.metadata()["machines"])
    assert both.startswith("Another CPU (NO AVX), 4 threads, PyTorch 2.1.0; then ")
    assert unpack(pack(run), tmp_path / "there").metadata()["machines"] == [OTHER, here]


def test_it_records_its_gpu_and_how_its_libraries_are_set(monkeypatch):
    """What moves the last bit of a sum, and so a run: another way of MKL's, or oneDNN left out."""
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert re.match(
        "MKL (on|off), oneDNN off, (.*, )?MKL_CBWR=COMPATIBLE(, |$)",
        executor.machine("cpu")["libraries"],
    )
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA A100")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    assert executor.line([executor.machine("cuda")]).startswith("NVIDIA A100 (8.0), ")
    before = {key: value for key, value in OTHER.items() if key != "libraries"}
    assert executor.valid([before]) == [{**OTHER, "libraries": ""}], "a run of an older version"


@each(
    "data", [None, "x", [3], [{}], [{**OTHER, "threads": "4"}], [{**OTHER, "torch": 1}], {"a": 1}]
)
def test_what_is_no_machine_is_left_out(data):
    assert executor.valid(data) == [] and executor.line(data) == ""
    assert len(executor.line([{**OTHER, "device": "x" * 10_000}])) < 200


def test_a_cap_on_seconds_that_ended_a_run_is_named(tmp_path):
    config = small_run(steps=20_000, max_seconds=1, record_every=50, finish_early=False)
    run, whole = create_run(config, path=tmp_path / "run"), create_run(small_run(), tmp_path)
    words, others = (
        worker.train_run(one, lambda: False, lambda record: None)[1] for one in (run, whole)
    )
    last, ended = run.records()[-1], dataclasses.replace(whole.records()[-1], elapsed=1e4)
    assert last.capped and "The time limit of 1 s ended it before step 20,000" in words
    assert "ended by the limit of 1 s" in progress(last, config)
    whole_line = progress(
        Record(1, loss=2.0, known_loss=1.5, unknown=0.25, best=4, cut=3, expected=((0.1, 0.7),)),
        small_run(),
    )
    assert whole_line == (
        "step 1/4  0.0 s  loss 2.000  without the 25.0% unknown: loss 1.500  weights of step 4  cut 3  "
        "weight on the expected position 0.70"
    )
    assert not ended.capped and "cap" not in others + progress(ended, whole.config()), (
        "it made all of its steps, however long that took"
    )


# How runs share GPUs, with numbers and memories that this machine does not have; no GPU is used.


@pytest.fixture
def two(monkeypatch):
    """One GPU of 16 GB and one of 24 GB, of which a run has 8."""
    monkeypatch.setattr(executor, "gpus", lambda: (16_400.0, 24_600.0))


admit = executor.Executor().admit


def test_the_gpu_with_the_most_room_comes_first_until_both_are_full(two):
    busy: list[Run] = []
    for expected in (1, 0, 1, 0, 1):
        run = create_run(small_run(device="cuda" if expected else "auto"))
        assert admit(run, busy) and executor.number_of(run) == expected
        busy.append(run)
    waits, on_cpu = (create_run(small_run(device=device)) for device in ("auto", "cpu"))
    assert not admit(waits, busy) and executor.number_of(waits) is None
    assert admit(on_cpu, busy) and executor.number_of(on_cpu) is None
    assert admit(waits, busy[1:]) and executor.number_of(waits) == 1, "that of the ended run"


def test_a_small_gpu_takes_one_run_of_its_share_and_without_one_none_is_noted(
    monkeypatch, tmp_path
):
    first, second = create_run(small_run()), create_run(small_run())
    before = (first.path / "run.json").read_bytes()
    assert admit(first, []) and (first.path / "run.json").read_bytes() == before
    first.update_metadata(gpu=1)  # by another machine
    assert executor.number_of(first) is None
    monkeypatch.setattr(executor, "gpus", lambda: (6_000.0,))
    assert not admit(Run(tmp_path / "gone"), []), "it was deleted"
    assert admit(first, []) and not admit(second, [first])
    monkeypatch.setenv("ATTENTION_LAB_LIMITS", "gpu_mb=3000")
    assert admit(second, [first])


@pytest.mark.parametrize(
    ("visible", "number", "expected"),
    [("", 1, "1"), ("2,3", 1, "3"), ("7", 1, "1"), ("GPU-a, GPU-b", 0, "GPU-a"), ("", None, None)],
)
def test_a_worker_sees_its_gpu_alone(monkeypatch, visible, number, expected):
    monkeypatch.setenv(executor.VISIBLE, visible)
    assert executor.environment(number).get(executor.VISIBLE) == expected
    started: list[dict[str, str]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda arguments, env, **more: started.append(env))
    monkeypatch.setattr(executor, "gpus", lambda: (16_400.0, 24_600.0))
    executor.start_process(create_run(small_run(), gpu=number))
    assert started[0].get(executor.VISIBLE) == (visible if expected is None else expected)


def test_a_run_that_waits_for_a_gpu_lets_one_on_the_cpu_go_first(two, monkeypatch):
    given = []
    monkeypatch.setattr(jobs, "max_workers", lambda: 9)
    monkeypatch.setattr(jobs, "_watch", lambda folder: None)
    monkeypatch.setattr(jobs, "_give", lambda run: given.append(run))
    runs = jobs.start_all(
        [(small_run(seed=seed, device="auto" if seed < 6 else "cpu"), {}) for seed in range(7)]
    )
    assert given == [*runs[:5], runs[6]] and runs[5].status().state == "queued"
    runs[2].set_status("finished")
    jobs.tick()
    assert given[-1] == runs[5] and executor.number_of(runs[5]) == 1


# How many runs this machine takes at once: no more than its container has cores for.


@pytest.mark.parametrize(
    ("limit", "cores"),
    [
        ("400000 100000", 4),
        ("150000 100000", 1),
        ("50000 100000", 1),
        ("9900000 100000", 12),
        ("max 100000", 12),
        ("nonsense", 12),
        (None, 12),
    ],
)
def test_a_container_with_fewer_cores_takes_fewer_runs(limit, cores, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)), raising=False)
    file = tmp_path / "cpu.max"
    if limit:
        file.write_text(f"{limit}\n", encoding="utf-8")
    assert executor.cores(file) == cores
    monkeypatch.setattr(executor, "cores", lambda: cores)
    assert executor.Executor().slots() == max(2, cores - 1)
