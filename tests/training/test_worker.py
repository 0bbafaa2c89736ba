"""The worker as a process of its own: the same numbers, an end for every way to end, and words for each."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from core.runs import worker
from core.runs.runs import Run, create_run, find_run
from core.training import loop, train
from core.training.loop import FINAL
from tests.training.small import SAME_LAST_BIT, record_numbers, run_command, small_run

ROOT = Path(__file__).resolve().parents[2]
LONG = dict(steps=20_000, seconds=300, record_every=20, finish_early=False)


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


def wait_for(what, seconds: float = 120):
    end = time.time() + seconds
    while not what():
        assert time.time() < end, "waited too long"
        time.sleep(0.01)


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
    run = create_run(small_run(**LONG), root=tmp_path)
    process = command(str(run.path))
    wait_for(lambda: len(run.records()) >= 2)
    assert run.alive() and run.status().pid == process.pid
    process.send_signal(signal.SIGTERM)
    wait_for(lambda: run.status().ended)
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
    monkeypatch.setattr(
        sys, "stdin", io.StringIO()
    )  # at its end, as when the other end of the pipe is closed
    assert worker.main(["--spare"]) == 0
    assert capsys.readouterr().out == "ready\n"


def test_too_much_memory_ends_in_words(tmp_path):
    run = create_run(small_run(**LONG), root=tmp_path)
    command(str(run.path), ATTENTION_LAB_MEMORY_MB="20").communicate(timeout=120)
    assert run.status().state == "failed" and "20 MB" in run.status().message


@pytest.mark.skipif(sys.platform != "linux", reason="oom_score_adj is Linux's")
def test_a_worker_is_ended_before_its_server_where_memory_runs_out(tmp_path):
    run = create_run(small_run(**LONG), root=tmp_path)
    process = command(str(run.path))
    wait_for(lambda: run.status().state == "running")
    adjusted = Path(f"/proc/{process.pid}/oom_score_adj").read_text(encoding="utf-8")
    run.request_stop()
    process.communicate(timeout=120)
    assert (
        int(adjusted) == 500
        and int(Path("/proc/self/oom_score_adj").read_text(encoding="utf-8")) < 500
    )


def test_a_config_that_cannot_run_ends_in_words(run, worker_here):
    (run.path / "run.json").write_text('{"config": {"steps": 3}}', encoding="utf-8")
    assert worker.main([str(run.path)]) == 1
    assert run.status() and "A run needs model and task" in run.status().message


def test_a_crash_is_told_and_costs_this_run_alone(run, monkeypatch, worker_here):
    monkeypatch.setattr(worker, "prepare", lambda config: 1 / 0)
    assert worker.work(run.path) == "failed"
    assert "ZeroDivisionError" in run.status().message


def test_a_run_that_was_killed_at_its_beginning_measures_it_once(run, monkeypatch, worker_here):
    session = worker.prepare(run.config())
    run.append(next(train(run.config(), session)))
    run.save_checkpoint(session, run.config())
    assert run.checkpoint_steps() == [0]
    assert worker.work(run.path) == "finished"
    assert [record.step for record in run.records() if not record.final] == [0, 2, 4]


def test_the_log_is_whole_before_the_final_status_shows(run, monkeypatch, worker_here, capsys):
    logs = {}
    set_status = Run.set_status
    monkeypatch.setattr(
        Run,
        "set_status",
        lambda self, state, *words, **more: (
            logs.update({state: capsys.readouterr().out}),
            set_status(self, state, *words, **more),
        ),
    )
    assert worker.work(run.path) == "finished"
    assert logs["finished"] == f"finished: {run.status().message}\n"


def test_windows_has_no_memory_limit(monkeypatch):
    assert not hasattr(worker, "resource") and worker.resident_mb() > 1
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setitem(sys.modules, "resource", None)
    assert worker.resident_mb() == 0
