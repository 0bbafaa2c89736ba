"""A run names what its numbers depend on: threads, PyTorch, processor; and whether seconds ended it, not steps."""

import dataclasses
import os
import re
import subprocess

import pytest
import torch

from core.runs import executor
from core.runs.archive import pack, unpack
from core.runs.executor import line, machine, valid
from core.runs.runs import Run, create_run
from core.runs.worker import train_run
from core.tasks import TASKS, TaskConfig, make_task
from core.training import RunConfig, recommended
from core.training.__main__ import progress
from dashboard.server import jobs
from dashboard.ui.run_data import summarize
from pages import runs as runs_words, train as train_words
from tests.cases import each
from tests.training.small import small_run

OTHER = {
    "threads": 4,
    "torch": "2.1.0+cpu",
    "device": "Another CPU",
    "capability": "NO AVX",
    "libraries": "MKL on",
}


def trained(path, **changes) -> tuple[Run, str]:
    run = create_run(small_run(**changes), path=path)
    return run, train_run(run, lambda: False, lambda record: None)[1]


def test_a_run_records_where_it_trained_and_shows_it(tmp_path):
    torch.set_num_threads(1)
    run, _ = trained(tmp_path / "run")
    here = machine("cpu")
    assert run.metadata()["machines"] == [here]
    assert here["threads"] == 1 and here["torch"] == str(torch.__version__) and here["device"]
    words = line([here])
    assert (
        f"{here['device']} ({here['capability']}), 1 thread, PyTorch {torch.__version__.partition('+')[0]}"
        == words
    )
    assert words in runs_words.about_text(summarize(run))
    assert "1 thread, PyTorch" in train_words.pace(run.records()[-1], words)
    run.update_metadata(machines=[OTHER], config=small_run(steps=6).to_json())
    train_run(run, lambda: False, lambda record: None)
    assert run.metadata()["machines"] == [OTHER, here]
    assert line(run.metadata()["machines"]).startswith(
        "Another CPU (NO AVX), 4 threads, PyTorch 2.1.0; then "
    )
    assert unpack(pack(run), tmp_path / "there").metadata()["machines"] == [OTHER, here]


def test_it_records_how_its_libraries_are_set(monkeypatch):
    """What moves the last bit of a sum, and so a run: another way of MKL's, or oneDNN left out."""
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert re.match(
        "MKL (on|off), oneDNN off, (.*, )?MKL_CBWR=COMPATIBLE(, |$)", machine("cpu")["libraries"]
    )
    before = {key: value for key, value in OTHER.items() if key != "libraries"}
    assert valid([before]) == [{**OTHER, "libraries": ""}], "a run of an older version"


@each(
    "data", [None, "x", [3], [{}], [{**OTHER, "threads": "4"}], [{**OTHER, "torch": 1}], {"a": 1}]
)
def test_what_is_no_machine_is_left_out(data):
    assert valid(data) == [] and line(data) == ""
    assert len(line([{**OTHER, "device": "x" * 10_000}])) < 200


def test_a_gpu_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA A100")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    assert line([machine("cuda")]).startswith("NVIDIA A100 (8.0), ")


def test_a_cap_on_seconds_that_ended_a_run_is_named(tmp_path):
    run, words = trained(
        tmp_path / "run", steps=20_000, max_seconds=1, record_every=50, finish_early=False
    )
    last = run.records()[-1]
    assert last.capped and "The time limit of 1 s ended it before step 20,000" in words
    assert "ended by the limit of 1 s" in progress(last, run.config())
    run, words = trained(tmp_path / "whole")
    assert not run.records()[-1].capped and "cap" not in words
    slow = dataclasses.replace(run.records()[-1], elapsed=1e4)
    assert "cap" not in progress(slow, run.config()), (
        "it made all of its steps, however long that took"
    )


def test_steps_alone_bound_every_recipe():
    for entry in TASKS:
        if any(param.key == "data" for param in entry.params):
            continue
        task = make_task(TaskConfig.of(entry.key))
        for kind in task.recommended:
            assert recommended(task, kind).max_seconds == RunConfig.max_seconds


# How runs share GPUs, with numbers and memories that this machine does not have; no GPU is used.


@pytest.fixture
def two(monkeypatch):
    """One GPU of 16 GB and one of 24 GB, of which a run has 8."""
    monkeypatch.setattr(executor, "gpus", lambda: (16_400.0, 24_600.0))


def test_the_gpu_with_the_most_room_comes_first_until_both_are_full(two):
    busy: list[Run] = []
    for expected in (1, 0, 1, 0, 1):
        run = create_run(small_run(device="cuda" if expected else "auto"))
        assert executor.Executor().admit(run, busy) and executor.number_of(run) == expected
        busy.append(run)
    waits, on_cpu = create_run(small_run(device="auto")), create_run(small_run(device="cpu"))
    assert not executor.Executor().admit(waits, busy) and executor.number_of(waits) is None
    assert executor.Executor().admit(on_cpu, busy) and executor.number_of(on_cpu) is None
    assert executor.Executor().admit(waits, busy[1:]) and executor.number_of(waits) == 1, (
        "that of the run which has ended"
    )


def test_a_share_is_set_by_a_variable_and_a_small_gpu_takes_one_run(monkeypatch):
    monkeypatch.setattr(executor, "gpus", lambda: (6_000.0,))
    first, second = create_run(small_run()), create_run(small_run())
    assert executor.Executor().admit(first, []) and not executor.Executor().admit(second, [first])
    monkeypatch.setenv("ATTENTION_LAB_LIMITS", "gpu_mb=3000")
    assert executor.Executor().admit(second, [first])


def test_a_run_that_was_deleted_takes_no_gpu(two, tmp_path):
    assert not executor.Executor().admit(Run(tmp_path / "gone"), [])


def test_a_machine_without_a_gpu_notes_none():
    run = create_run(small_run())
    before = (run.path / "run.json").read_bytes()
    assert executor.Executor().admit(run, []) and (run.path / "run.json").read_bytes() == before
    run.update_metadata(gpu=1)  # by another machine
    assert executor.number_of(run) is None


@pytest.mark.parametrize(
    ("visible", "number", "expected"),
    [("", 1, "1"), ("2,3", 1, "3"), ("GPU-a, GPU-b", 0, "GPU-a"), ("", None, None)],
)
def test_a_worker_sees_its_gpu_alone(monkeypatch, visible, number, expected):
    monkeypatch.setenv(executor.VISIBLE, visible)
    assert executor.environment(number).get(executor.VISIBLE) == expected


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


def test_the_worker_is_started_on_the_gpu_of_its_run(two, monkeypatch):
    started: list[dict[str, str]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda arguments, env, **more: started.append(env))
    executor.start_process(create_run(small_run(), gpu=1))
    assert started[0][executor.VISIBLE] == "1"


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
