"""What a person sees: two tabs on one run, a run or a model that is deleted while it is open, a full disk."""

import errno
import shutil

import pytest
from streamlit.testing.v1 import AppTest

from core.runs.runs import Run, create_run, discard, list_runs, restore
from dashboard.server import jobs
from tests.pages.app import open_at, page_text
from tests.pages.test_train import half_way
from tests.tiny_models import save


@pytest.fixture(autouse=True)
def given(monkeypatch) -> list[Run]:
    """The runs that were given to a worker; none is started."""
    runs: list[Run] = []
    monkeypatch.setattr(jobs, "warm_up", lambda: None)
    monkeypatch.setattr(jobs, "_give", runs.append)
    return runs


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
def test_stop_in_a_tab_whose_run_is_gone_says_so(name):
    run = half_way()
    with run.lock():
        app = open_at("train", run=run.id)
    shutil.rmtree(run.path)
    press(app, name)
    assert "not on this machine, or was deleted" in page_text(app) and not run.path.exists()


def test_a_name_given_to_a_run_that_is_gone_makes_no_folder():
    run = paused()
    app = open_at("runs", run=run.id)
    shutil.rmtree(run.path)
    app.text_input(key=f"runs:name:{run.id}").set_value("a").run()
    assert not app.exception and list_runs() == [] and not run.path.exists()


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
