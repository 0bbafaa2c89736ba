"""The worker that trains any run also fine-tunes one, in a process of its own."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from core.finetune.config import FineTuneConfig
from core.finetune.run import create, result
from core.training.runs import list_runs
from dashboard.runtime import jobs

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def config(encoder, colours) -> FineTuneConfig:
    return FineTuneConfig("classify", colours, str(encoder), epochs=2, batch_size=8)


def test_a_model_that_went_away_is_said(config, tmp_path):
    run = create(config, tmp_path)
    run.update_metadata(finetune={**config.to_json(), "model": "/gone"})
    done = subprocess.run([sys.executable, "-m", "core.training.worker", str(run.path)], cwd=ROOT, text=True,
                          capture_output=True, timeout=120)
    assert done.returncode == 1 and run.status().message.startswith("There is no model at /gone")


def test_it_waits_its_turn_pauses_and_goes_on_as_any_run(config, monkeypatch):
    monkeypatch.setattr(jobs, "max_workers", lambda: 0)
    run = jobs.fine_tune(config, name="colours")
    assert [other.id for other in jobs.waiting()] == [run.id] == [other.id for other in list_runs()]
    jobs.stop(run, "pause")
    assert run.status().state == "paused"
    monkeypatch.setattr(jobs, "max_workers", lambda: 1)
    jobs.resume(run)
    end = time.time() + 60
    while not run.status().ended:
        assert time.time() < end
        time.sleep(0.05)
    assert run.status().state == "finished", run.status().message
    assert run.name == "colours" and run.records()[-1].step == 10 and run.records()[-1].final
    assert result(run) is not None and "finished: Finished after 10 steps" in (run.path / "worker.log").read_text()


def test_the_command_for_people_learns_a_file_and_says_what_is_wrong_with_one(encoder, colours, tmp_path):
    (tmp_path / "rows.csv").write_text(colours)
    command = [sys.executable, "-m", "core.finetune", "classify", str(tmp_path / "run"), "--model", str(encoder)]
    done = subprocess.run([*command, "--data", str(tmp_path / "rows.csv")], cwd=ROOT, text=True, capture_output=True,
                          timeout=120)
    assert "Finished after 24 steps" in done.stdout and "right" in done.stdout, done.stderr
    assert "Trained on " in done.stdout
    (tmp_path / "rows.csv").write_text(colours + "\nthe sky is,")
    wrong = subprocess.run([*command[:4], str(tmp_path / "other"), "--data", str(tmp_path / "rows.csv")], cwd=ROOT,
                           text=True, capture_output=True, timeout=120)
    assert wrong.returncode == 2 and "There is no label in line 46" in wrong.stderr
