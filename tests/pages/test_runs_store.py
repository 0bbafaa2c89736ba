"""The Runs page with a store: what it says of it, and a run of another server that is opened."""

import uuid

import pytest

from core.runs import store
from core.runs.runs import list_runs
from core.runs.store import copier, copy_now
from dashboard.server import jobs
from tests.pages.app import page_text
from tests.pages.test_runs import made, open_page


@pytest.fixture(autouse=True)
def _store(monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_STORE", f"memory://{uuid.uuid4().hex}/lab")
    monkeypatch.setattr(store, "_copiers", {})


def become(monkeypatch, tmp_path, name: str) -> None:
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path / name))
    monkeypatch.setenv("ATTENTION_LAB_STORE_NAME", name)


def test_a_run_of_another_server_is_fetched_and_its_link_opens_it(monkeypatch, tmp_path):
    become(monkeypatch, tmp_path, "red")
    first, second = made(name="first"), made(name="second")
    copy_now()
    become(monkeypatch, tmp_path, "blue")
    app = open_page()
    assert (
        "all are copied. 2 more runs are only there." in page_text(app)
        and len(app.dataframe[0].value) == 2
    )
    app.session_state["runs:stored"] = True
    app.run()
    (menu,) = [box for box in app.selectbox if box.key == "runs:stored:run"]
    assert menu.options[0].startswith("second · finished · red · ")
    app.button(key="runs:stored:go").click().run()
    assert [run.id for run in list_runs()] == [second.id] and "second" in app.dataframe[0].value[
        "name"
    ].tolist()
    app = open_page()
    app.switch_page("../pages/train.py")
    app.query_params["run"] = first.id
    app.run()
    assert {run.id for run in list_runs()} == {first.id, second.id}, "a link opens it, too"


def test_a_run_that_trains_elsewhere_does_not_continue_here(monkeypatch, tmp_path):
    become(monkeypatch, tmp_path, "red")
    run = made("running")
    with run.lock():
        copy_now()
    become(monkeypatch, tmp_path, "blue")
    store.bring(run.id)
    (copied,) = list_runs()
    with pytest.raises(OSError, match="red trains this run"):
        jobs.resume(copied)
    assert copied.status().state == "paused"


def test_a_store_that_does_not_answer_or_does_not_exist_says_so(monkeypatch, tmp_path):
    become(monkeypatch, tmp_path, "red")
    made()
    copies = copier()

    def refuse(*_args, **_more):
        raise ConnectionError("no route")

    monkeypatch.setattr(type(copies.place.files), "find", refuse)
    copy_now()
    assert "cannot be reached (ConnectionError). Training goes on here" in page_text(open_page())
    monkeypatch.setenv("ATTENTION_LAB_STORE", "nosuch://key:secret@host/lab")
    text = page_text(open_page())
    assert "The store nosuch://host/lab cannot be opened" in text and "secret" not in text
