"""The worker that trains any run also fine-tunes one, in a process of its own."""

import time

import pytest

from core.pretrained.finetune import FineTuneConfig
from core.pretrained.finetune_run import create, result
from core.runs import worker
from core.runs.runs import list_runs
from dashboard.runtime import jobs
from tests.training.small import run_command


@pytest.fixture
def config(encoder, colours) -> FineTuneConfig:
    return FineTuneConfig("classify", colours, str(encoder), epochs=2, batch_size=8)


def test_a_model_that_went_away_is_said(config, tmp_path, worker_here):
    run = create(config, tmp_path)
    run.update_metadata(finetune={**config.to_json(), "model": "/gone"})
    assert worker.main([str(run.path)]) == 1
    assert run.status().message.startswith("There is no model at /gone")


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
    log = (run.path / "worker.log").read_text(encoding="utf-8")
    assert result(run) is not None and "finished: Finished after 10 steps" in log


def test_the_command_for_people_learns_a_file_and_says_what_is_wrong_with_one(
    encoder, colours, tmp_path, worker_here, capsys
):
    (tmp_path / "rows.csv").write_text(colours, encoding="utf-8")
    command = ["core.pretrained.finetune_run", "classify", "--data", str(tmp_path / "rows.csv")]
    assert run_command(*command, str(tmp_path / "run"), "--model", str(encoder)) == 0
    printed = capsys.readouterr().out
    assert "Finished after 24 steps" in printed and "right" in printed and "Trained on " in printed
    (tmp_path / "rows.csv").write_text(colours + "\nthe sky is,", encoding="utf-8")
    assert run_command(*command, str(tmp_path / "other")) == 1
    assert "There is no label in line 46" in capsys.readouterr().err
