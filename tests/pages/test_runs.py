"""The Runs page without a browser: what each button does to the folders."""

import io

from streamlit.testing.v1 import AppTest

from core.runs.archive import pack
from core.runs.runs import Run, create_run, deleted_runs, find_run, list_runs
from core.training import Record
from dashboard.ui.run_data import EXAMPLE_RUNS
from tests.pages.app import app_at, page_text, query_value
from tests.training.small import small_run

LAST = EXAMPLE_RUNS[0].records()[-1].step


def made(state: str = "finished", **more) -> Run:
    run = create_run(small_run(), **more)
    run.append(Record(2, loss=1.0, sequence_accuracy=0.5, held_out=11))
    run.set_status(state, "Finished after 2 steps.")
    return run


def open_page(picked: str | None = None, search: str | None = None) -> AppTest:
    app = app_at("runs")
    if picked is not None:
        app.query_params["run"] = picked
    if search is not None:
        app.query_params["runs:search"] = search
    return app.run()


def test_first_sight_shows_the_examples():
    app = open_page()
    assert len(app.dataframe[0].value) == len(EXAMPLE_RUNS)
    assert f"accuracy after {LAST} steps" in page_text(
        app
    ) and "No runs of your own yet" in page_text(app)
    assert app.text_input(key="runs:name:example_run").proto.disabled, "an example keeps its name"


def test_a_run_is_named():
    run = made()
    app = open_page(run.id)
    app.text_input(key=f"runs:name:{run.id}").set_value("  <b>dear</b> ").run()
    assert run.name == "<b>dear</b>" and "dear" in app.dataframe[0].value["name"].tolist()[0]
    app.text_input(key=f"runs:name:{run.id}").set_value("").run()
    assert "name" not in run.metadata()


def test_a_search_leaves_what_it_finds():
    made(name="dear")
    app = open_page(search="dear")
    assert app.dataframe[0].value["name"].tolist() == ["dear"]
    app.text_input(key="runs:search").set_value("*nobody*").run()
    assert not app.dataframe and "No run matches “*nobody*”" in page_text(app)


def test_a_long_list_has_pages_and_the_link_has_the_page(monkeypatch):
    monkeypatch.setattr("dashboard.ui.run_data.ROWS", 2)
    runs = [made(name=f"run {number}") for number in range(3)]
    app = open_page(runs[0].id)
    assert app.dataframe[0].value["name"].tolist() == ["run 2", "run 1"]
    assert app.text_input(key=f"runs:name:{runs[0].id}").value == "run 0", (
        "a selected run may be on another page"
    )
    app = app_at("runs")
    app.query_params["runs:page"] = "2"
    names = app.run().dataframe[0].value["name"].tolist()
    assert names[0] == "run 0" and len(names) == 2 and query_value(app, "runs:page") == "2"
    app = app_at("runs")
    app.query_params["runs:page"] = "99"
    assert app.run().dataframe[0].value["name"].tolist() == ["run 2", "run 1"]


def test_deleting_can_be_undone():
    run = made(name="dear")
    app = open_page(run.id)
    app.button(key="runs:delete:go").click().run()
    assert find_run(run.id) is None and "Deleted dear" in page_text(app)
    app.button(key="runs:undo").click().run()
    assert find_run(run.id) == run and not deleted_runs()
    assert query_value(app, "run") == run.id and "Deleted" not in page_text(app)


def test_a_run_under_way_is_not_deleted():
    run = made("running")
    with run.lock():
        app = open_page(run.id)
        (delete,) = [
            popover for popover in app.get("popover") if popover.proto.popover.label == "Delete"
        ]
        assert delete.proto.popover.disabled and delete.proto.popover.help == "Stop the run first."
        app.button(key="runs:delete:go").click().run()
    assert find_run(run.id) == run


def test_a_run_is_given_to_other_programs():
    app = open_page(EXAMPLE_RUNS[0].id)
    assert [button.proto.label for button in app.get("download_button")] == ["Download"]
    app.session_state["runs:formats"] = True
    files = {button.proto.label: button.proto for button in app.run().get("download_button")}
    assert not files["TensorBoard"].disabled and not files["Hugging Face"].disabled


def test_what_no_class_of_transformers_computes_says_so():
    app = open_page("example_recurrent")
    app.session_state["runs:formats"] = True
    files = {button.proto.label: button.proto for button in app.run().get("download_button")}
    assert files[
        "Hugging Face"
    ].disabled and "A recurrent that reads tokens has no equivalent" in page_text(app)


def test_a_copy_is_made_of_an_example():
    app = open_page("example_recurrent")
    app.button(key="runs:duplicate").click().run()
    (copied,) = list_runs()
    assert copied.records() == EXAMPLE_RUNS[1].records()
    assert copied.checkpoint_steps() == EXAMPLE_RUNS[1].checkpoint_steps()
    assert (
        copied.name == "Reverse: recurrent, dot product, copy"
        and query_value(app, "run") == copied.id
    )


def test_a_fork_goes_on_from_a_kept_step():
    app = open_page("example_run")
    app.session_state["runs:fork"] = True
    app.run()
    app.number_input(key=f"runs:fork:example_run:steps:{LAST}").set_value(300).run()
    app.button(key="runs:fork:go").click().run()
    (forked,) = list_runs()
    assert (
        forked.metadata()["parent"] == {"run": "example_run", "step": LAST}
        and forked.config().steps == 300
    )
    assert forked.records() == [r for r in EXAMPLE_RUNS[0].records() if r.step <= LAST]


def test_an_upload_becomes_a_run_and_a_bad_one_says_why():
    app = open_page()
    (field,) = app.file_uploader
    field.set_value(
        ("run.zip", io.BytesIO(pack(EXAMPLE_RUNS[0])).getvalue(), "application/zip")
    ).run()
    (run,) = list_runs()
    assert run.records() == EXAMPLE_RUNS[0].records() and query_value(app, "run") == run.id
    (field,) = app.file_uploader
    field.set_value(("run.zip", b"nonsense", "application/zip")).run()
    assert "The zip cannot be read" in page_text(app) and len(list_runs()) == 1


def test_a_link_to_no_run_says_so():
    app = open_page("../../etc/passwd")
    assert "not on this machine" in page_text(app) and len(app.dataframe[0].value) == 2


def test_a_run_whose_settings_are_broken_stands_in_the_list():
    run = made()
    (run.path / "run.json").write_text('{"config": {}}', encoding="utf-8")
    app = open_page(run.id)
    assert "cannot be read" in page_text(app)
