"""How runs share GPUs, with numbers and memories that this machine does not have; no GPU is used."""

import subprocess

import pytest

from core.runs import executor, machine
from core.runs.runs import Run, create_run
from dashboard.runtime import jobs
from tests.training.small import small_run


@pytest.fixture
def two(monkeypatch):
    """One GPU of 16 GB and one of 24 GB, of which a run has 8."""
    monkeypatch.setattr(machine, "gpus", lambda: (16_400.0, 24_600.0))


def test_the_gpu_with_the_most_room_comes_first_until_both_are_full(two):
    busy: list[Run] = []
    for expected in (1, 0, 1, 0, 1):
        run = create_run(small_run(device="cuda" if expected else "auto"))
        assert machine.admit(run, busy) and machine.number_of(run) == expected
        busy.append(run)
    waits, on_cpu = create_run(small_run(device="auto")), create_run(small_run(device="cpu"))
    assert not machine.admit(waits, busy) and machine.number_of(waits) is None
    assert machine.admit(on_cpu, busy) and machine.number_of(on_cpu) is None
    assert machine.admit(waits, busy[1:]) and machine.number_of(waits) == 1, (
        "that of the run which has ended"
    )


def test_a_share_is_set_by_a_variable_and_a_small_gpu_takes_one_run(monkeypatch):
    monkeypatch.setattr(machine, "gpus", lambda: (6_000.0,))
    first, second = create_run(small_run()), create_run(small_run())
    assert machine.admit(first, []) and not machine.admit(second, [first])
    monkeypatch.setenv("ATTENTION_LAB_GPU_MB", "3000")
    assert machine.admit(second, [first])


def test_a_run_that_was_deleted_takes_no_gpu(two, tmp_path):
    assert not machine.admit(Run(tmp_path / "gone"), [])


def test_a_machine_without_a_gpu_notes_none():
    run = create_run(small_run())
    before = (run.path / "run.json").read_bytes()
    assert machine.admit(run, []) and (run.path / "run.json").read_bytes() == before
    run.update_metadata(gpu=1)  # by another machine
    assert machine.number_of(run) is None


@pytest.mark.parametrize(
    ("visible", "number", "expected"),
    [("", 1, "1"), ("2,3", 1, "3"), ("GPU-a, GPU-b", 0, "GPU-a"), ("", None, None)],
)
def test_a_worker_sees_its_gpu_alone(monkeypatch, visible, number, expected):
    monkeypatch.setenv(machine.VISIBLE, visible)
    assert machine.environment(number).get(machine.VISIBLE) == expected


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
    assert given[-1] == runs[5] and machine.number_of(runs[5]) == 1


def test_the_worker_is_started_on_the_gpu_of_its_run(two, monkeypatch):
    started: list[dict[str, str]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda arguments, env, **more: started.append(env))
    run = create_run(small_run(), gpu=1)
    executor.start_process(run)
    assert started[0][machine.VISIBLE] == "1"
