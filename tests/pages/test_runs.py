"""The Runs page without a browser: what each button does to the folders."""

import io
import json
import os
import time
import uuid
from dataclasses import replace
from typing import Any

import pytest
import torch
from streamlit.testing.v1 import AppTest

from core.models import ModelConfig
from core.runs import store
from core.runs.archive import pack, unpack
from core.runs.runs import Run, create_run, deleted_runs, find_run, list_runs
from core.runs.store import copier, copy_now
from core.tasks import TaskConfig
from core.training import Record
from dashboard.server import jobs
from dashboard.ui.run_data import (
    EXAMPLE_RUNS,
    find_any_run,
    list_summaries,
    load_board,
    rival,
    status_of,
    summarize,
)
from pages import runs
from pages.runs import longer
from tests.cases import each
from tests.pages.app import open_at, page_text, query_value
from tests.training.small import small_run

LAST = EXAMPLE_RUNS[0].records()[-1].step


def made(
    name: str = "", exact: float = 0.5, trained: float = 1.0, state: str = "finished", **changes
) -> Run:
    run = create_run(small_run(**changes), **dict[str, Any](name=name) if name else {})
    run.append(Record(0, loss=2.0))
    run.append(Record(4, loss=1.0, sequence_accuracy=exact, train_seconds=trained, held_out=11))
    run.set_status(state, "Finished.")
    return run


def open_page(picked: str | None = None, **link: str) -> AppTest:
    return open_at("runs", **({} if picked is None else {"run": picked}), **link)


def listed(app: AppTest) -> list[str]:
    return app.dataframe[0].value["name"].tolist()


def test_first_sight_shows_the_examples_and_one_can_be_copied():
    app = open_page()
    assert len(listed(app)) == len(EXAMPLE_RUNS)
    assert f"accuracy after {LAST} steps" in page_text(app)
    assert "No runs of your own yet" in page_text(app)
    assert app.text_input(key="runs:name:example_run").proto.disabled, "an example keeps its name"
    app = open_page("example_recurrent")
    app.button(key="runs:duplicate").click().run()
    (copied,) = list_runs()
    assert copied.records() == EXAMPLE_RUNS[1].records()
    assert copied.checkpoint_steps() == EXAMPLE_RUNS[1].checkpoint_steps()
    assert copied.name == "Reverse: recurrent, dot product, copy"
    assert query_value(app, "run") == copied.id


def test_a_run_is_named_and_found_by_a_search():
    run = made()
    app, name = open_page(run.id), f"runs:name:{run.id}"
    app.text_input(key=name).set_value("").run()
    assert "name" not in run.metadata()
    app.text_input(key=name).set_value("  <b>dear</b> ").run()
    assert run.name == listed(app)[0] == "<b>dear</b>"
    app = open_page(**{"runs:search": "dear"})
    assert listed(app) == ["<b>dear</b>"]
    app.text_input(key="runs:search").set_value("*nobody*").run()
    assert not app.dataframe and "No run matches “*nobody*”" in page_text(app)


def test_a_long_list_has_pages_and_the_link_has_the_page(monkeypatch):
    monkeypatch.setattr("dashboard.ui.run_data.ROWS", 2)
    runs = [made(name=f"run {number}") for number in range(3)]
    app = open_page(runs[0].id)
    assert listed(app) == ["run 2", "run 1"]
    name = app.text_input(key=f"runs:name:{runs[0].id}")
    assert name.value == "run 0", "a selected run may be on another page"
    app = open_page(**{"runs:page": "2"})
    assert listed(app)[0] == "run 0" and len(listed(app)) == 2
    assert query_value(app, "runs:page") == "2"
    assert listed(open_page(**{"runs:page": "99"})) == ["run 2", "run 1"]


def test_deleting_can_be_undone_and_a_run_under_way_is_not_deleted():
    run = made(name="dear")
    app = open_page(run.id)
    app.button(key="runs:delete:go").click().run()
    assert find_run(run.id) is None and "Deleted dear" in page_text(app)
    app.button(key="runs:undo").click().run()
    assert find_run(run.id) == run and not deleted_runs()
    assert query_value(app, "run") == run.id and "Deleted" not in page_text(app)
    run = made(state="running")
    with run.lock():
        app = open_page(run.id)
        panels = [panel.proto.popover for panel in app.get("popover")]
        (delete,) = [panel for panel in panels if panel.label == "Delete"]
        assert delete.disabled and delete.help == "Stop the run first."
        app.button(key="runs:delete:go").click().run()
    assert find_run(run.id) == run


@pytest.mark.parametrize("run", ["example_run", "example_recurrent"])
def test_a_run_is_given_to_other_programs_that_can_have_it(run):
    app = open_page(run)
    assert [button.proto.label for button in app.get("download_button")] == ["Download"]
    app.session_state["runs:formats"] = True
    files = {button.proto.label: button.proto for button in app.run().get("download_button")}
    refused = run == "example_recurrent"
    assert not files["TensorBoard"].disabled and files["Hugging Face"].disabled == refused
    assert ("A recurrent that reads tokens has no equivalent" in page_text(app)) == refused


def test_a_fork_goes_on_from_a_kept_step_for_as_long_again():
    app = open_page("example_run")
    app.session_state["runs:fork"] = True
    app.run()
    app.number_input(key=f"runs:fork:example_run:steps:{LAST}").set_value(300).run()
    app.button(key="runs:fork:go").click().run()
    (forked,) = list_runs()
    assert forked.metadata()["parent"] == {"run": "example_run", "step": LAST}
    assert forked.config().steps == 300
    assert forked.records() == [r for r in EXAMPLE_RUNS[0].records() if r.step <= LAST]
    config = small_run(max_seconds=60.0)
    changes: Any = {"steps": 9, "max_seconds": 100.0, "learning_rate": 1e-3, "finish_early": False}
    assert longer(config, 9, 20.0, learning_rate=1e-3) == replace(config, **changes)


def test_an_upload_becomes_a_run_and_a_bad_one_says_why():
    app = open_page()
    zipped = io.BytesIO(pack(EXAMPLE_RUNS[0])).getvalue()
    app.file_uploader[0].set_value(("run.zip", zipped, "application/zip")).run()
    (run,) = list_runs()
    assert run.records() == EXAMPLE_RUNS[0].records() and query_value(app, "run") == run.id
    app.file_uploader[0].set_value(("run.zip", b"nonsense", "application/zip")).run()
    assert "The zip cannot be read" in page_text(app) and len(list_runs()) == 1


def test_a_run_whose_settings_are_broken_stands_in_the_list_and_a_link_to_none_says_so():
    run = made()
    data = {"config": {"task": 1}, "created": "x"}
    (run.path / "run.json").write_text(json.dumps(data), encoding="utf-8")
    assert "cannot be read" in page_text(open_page(run.id))
    app = open_page("../../etc/passwd")
    assert "not on this machine" in page_text(app) and len(listed(app)) == 3
    item = summarize(run)
    assert "cannot be read" in item.trouble
    assert (item.created, item.name) == (0, "unreadable")
    assert runs.about_text(item) and runs.result_text(item) and runs.state(item)


# The Runs page with a store: what it says of it, and a run of another server that is opened.


@pytest.fixture
def become(monkeypatch, tmp_path):
    """With a store: makes this process the server of a name."""
    monkeypatch.setenv("ATTENTION_LAB_STORE", f"memory://{uuid.uuid4().hex}/lab")
    monkeypatch.setattr(store, "_copiers", {})

    def become(name: str) -> None:
        monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path / name))
        monkeypatch.setenv("ATTENTION_LAB_STORE_NAME", name)

    return become


def test_a_run_of_another_server_is_fetched_and_its_link_opens_it(become):
    become("red")
    first, second = made(name="first"), made(name="second")
    copy_now()
    become("blue")
    app = open_page()
    assert "all are copied. 2 more runs are only there." in page_text(app) and len(listed(app)) == 2
    app.session_state["runs:stored"] = True
    app.run()
    menu = app.selectbox(key="runs:stored:run")
    assert menu.options[0].startswith("second · finished · red · ")
    app.button(key="runs:stored:go").click().run()
    assert [run.id for run in list_runs()] == [second.id] and "second" in listed(app)
    open_at("train", run=first.id)
    assert {run.id for run in list_runs()} == {first.id, second.id}, "a link opens it, too"


def test_a_run_that_trains_elsewhere_does_not_continue_here(become):
    become("red")
    run = made(state="running")
    with run.lock():
        copy_now()
    become("blue")
    store.bring(run.id)
    (copied,) = list_runs()
    with pytest.raises(OSError, match="red trains this run"):
        jobs.resume(copied)
    assert copied.status().state == "paused"


def test_a_store_that_does_not_answer_or_does_not_exist_says_so(become, monkeypatch):
    become("red")
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


# What the list of runs says of each, what a search finds, and what the link picks; and the runs that come along.


@pytest.mark.parametrize("example", EXAMPLE_RUNS, ids=lambda run: run.id)
def test_a_kept_example_has_learned_and_can_be_used(example, tmp_path):
    records = example.records()
    assert records[-1].final and records[-1].sequence_accuracy >= 0.99
    assert example.frame_steps() == sorted({record.step for record in records})
    model, task = example.model()
    batch = task.collate(task.held_out(50))
    with torch.no_grad():
        prediction = model(batch.source, batch.source_mask, batch.target_in).logits.argmax(-1)
    right = (prediction == batch.target_out)[batch.target_out != 0].float().mean()
    assert right > 0.99, "the kept weights still fit the code"
    assert unpack(pack(example), tmp_path).records() == records
    assert find_any_run(example.id) == example and find_any_run(f"{example.id}/..") is None
    assert status_of(example).ended
    first, second = (one.config() for one in EXAMPLE_RUNS)
    assert first.task == second.task and first.model != second.model


def test_a_summary_follows_its_folder():
    run = made(exact=0.5)
    first = summarize(run)
    assert (first.steps, first.loss, first.curve, first.named) == (4, 1.0, (2.0, 1.0), False)
    assert first.last.sequence_accuracy == 0.5
    assert first is summarize(run), "nothing changed, so nothing is read again"
    run.append(Record(8, loss=0.5, sequence_accuracy=0.75))
    run.update_metadata(name="mine")
    os.utime(run.path / "metrics.jsonl", (time.time() + 1,) * 2)
    second = summarize(run)
    assert (second.steps, second.name, second.named) == (8, "mine", True)
    assert second.bytes > first.bytes


@each(
    "query, names",
    [
        ("", {"dear", "slow", "no"}),
        ("DEAR", {"dear"}),
        ("recurrent", {"slow", "no"}),
        ("recurrent additive", {"slow"}),
        ("reverse no attention", {"no"}),
        ("finished", {"dear", "slow", "no"}),
        ("seed 7", {"dear"}),
        ("nothing", set()),
    ],
)
def test_a_search_wants_every_word(query, names):
    made("dear", seed=7)
    made("slow", model=ModelConfig.recurrent(8, "additive"))
    made("no", model=ModelConfig.recurrent(8, None))
    mine = [item for item in load_board(query, ()).rows(1) if not item.example]
    assert {item.name for item in mine} == names


def test_the_fact_names_the_best_other_run_of_the_task():
    made("other task", 1.0, task=TaskConfig.of("copy", length=6, vocab=12))
    made("same settings", 1.0)
    made("worse", 0.25, seed=1)
    made("better", 0.75, seed=2)
    fact = runs.fact_text([summarize(made("first", 0.5, trained=3.0))], list_summaries())
    assert "**50\u00a0% accuracy** after 4 steps, 3\u00a0s" in fact
    assert "**better** reaches 75" in fact
    alone = summarize(made("alone", task=TaskConfig.of("copy", length=5)))
    assert rival(alone, list_summaries()) is None
