"""The Runs page without a browser: what each button does to the folders."""

import io
import json
import os
import time
import uuid
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest

from core.models import ModelConfig
from core.runs import store
from core.runs.archive import pack, unpack
from core.runs.runs import Run, create_run, deleted_runs, find_run, list_runs
from core.runs.store import copier, copy_now
from core.studies import compare_runs as compute
from core.studies.compare_runs import expected, latest
from core.tasks import TaskConfig, make_task
from core.training import Record
from core.training.record import Prediction
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
from pages import compare_runs, runs
from pages.compare_runs import names, runs_to_compare, sides
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

    refuse = Mock(side_effect=ConnectionError("no route"))
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


# Compare runs without a browser: what stands side by side, what is told of it, and what cannot be.


def compared(
    name: str, speed: float = 1.0, kinds: dict[str, np.ndarray] | None = None, **changes
) -> Run:
    """A run of three records, at 0, 2 and 4 steps, that takes `speed` seconds a step."""
    config = small_run(**changes)
    run, task = create_run(config, name=name), make_task(config.task)
    predictions = tuple(
        Prediction(*task.display_tokens(example), ()) for example in task.held_out(2)
    )
    for step in (0, 2, 4):
        weights = np.full((1, config.model.num_heads, 7, 6), (step + 1) / 10)
        maps = {
            f"{i}:{kind}": value
            for kind, value in (kinds or {"cross": weights}).items()
            for i in range(2)
        }
        run.append(
            Record(
                step,
                loss=4.0 - step,
                token_accuracy=0.9,
                sequence_accuracy=step / 4,
                train_seconds=speed * step,
                held_out=11,
                expected=((0.1, 0.2 + step / 10),),
                even=0.17,
                examples=predictions,
                maps=maps,
            )
        )
    run.set_status("finished", "Finished.")
    return run


def open_compared(*runs: str, **link: str) -> AppTest:
    return open_at("compare_runs", **({"runs": ",".join(runs)} if runs else {}), **link)


def test_runs_are_compared_at_equal_steps_and_at_equal_seconds_and_others_can_be_chosen():
    fast, slow, third = compared("fast", 1.0), compared("slow", 2.0), compared("third")
    app = open_compared(fast.id, slow.id)
    page = page_text(app)
    assert "At step 4, sequence accuracy: 100\u00a0% for fast, 100\u00a0% for slow" in page
    assert "After 4\u00a0s of training, it is 100\u00a0% and 50\u00a0%" in page
    assert "All settings are equal." in page
    app.selectbox(key="compare_runs:2").set_value(third.id).run()
    assert query_value(app, "runs") == ",".join((fast.id, slow.id, third.id))
    assert "for third" in page_text(app)


def test_measure_and_step_are_told_and_in_the_link():
    ids = compared("a").id, compared("b").id
    app = open_compared(*ids, **{"step": "2", "compare_runs:measure": "Loss"})
    assert "At step 2, validation loss: 2.00 for a, 2.00 for b" in page_text(app)
    app = open_compared(*ids, **{"step": "../3", "compare_runs:measure": "nothing"})
    assert "At step 4, sequence accuracy" in page_text(app)
    app.button_group(key="compare_runs:measure").set_value("loss").run()
    assert "validation loss: 0.00 for a, 0.00 for b" in page_text(app)
    slider = next(item for item in app.select_slider if item.label == "Training step")
    slider.set_value(2).run()
    assert "At step 2, validation loss: 2.00 for a" in page_text(app)


def test_of_five_runs_four_are_compared_and_one_that_is_not_here_is_told():
    runs = [compared(name).id for name in "abcde"]
    page = page_text(open_compared(*runs))
    assert "At most 4 runs" in page and "for d" in page and "for e" not in page
    page = page_text(open_compared("../../etc/passwd", runs[0]))
    assert "1 of the runs in the link is not on this machine" in page


def test_runs_without_maps_or_measurements_say_so():
    other = compared("copier", task=TaskConfig.of("copy", length=6, vocab=12))
    page = page_text(open_compared(compared("a").id, compared("b").id, other.id))
    assert "No map of copier" in page and "for copier" in page, "another task has curves alone"
    kinds = {"none": np.zeros((1, 1, 1, 1))}
    runs = [compared(name, kinds=kinds, model=ModelConfig.recurrent(8, None)) for name in "ab"]
    for run in runs:
        for step in run.frame_steps():
            run.frame_path(step).unlink()
    app = open_compared(*(run.id for run in runs))
    assert "None of these runs has saved attention maps" in page_text(app)
    runs = [create_run(small_run(seed=seed)) for seed in (1, 2)]
    for run in runs:
        run.set_status("stopped")
    app = open_compared(*(run.id for run in runs))
    assert "None of these runs has measured anything yet" in page_text(app)


def test_a_decoders_look_at_its_source_stands_beside_cross_attention():
    both = np.zeros(
        (1, 2, 13, 13), np.float32
    )  # six letters, the start mark and six letters in one line
    both[:, :, 6:, :6] = np.arange(42, dtype=np.float32).reshape(7, 6) / 50
    decoder = compared(
        "one line",
        kinds={"causal": both},
        model=ModelConfig.transformer(8, 2, 1, 16, kind="decoder", position="learned"),
    )
    both_sides = sides([summarize(compared("cross")), summarize(decoder)])
    read = [compute.source_at(side, 4, 0)[1] for side in both_sides]
    assert read[0].weights.shape == read[1].weights.shape == (1, 2, 7, 6)
    np.testing.assert_allclose(read[1].weights[0, 0], both[0, 0, 6:, :6], atol=1e-3)
    maps, rows, columns, other = compute.maps_at(both_sides, 4, 0, ((0, 0), (0, 1)))
    assert [one.run.index for one in maps] == [0, 1] and not other
    assert (len(rows), len(columns)) == (7, 6)
    side = both_sides[0]  # a run shows what it saved at the step or last before
    assert [compute.source_at(side, step, 0)[0] for step in (0, 3, 4, 99)] == [0, 2, 4, 4]
    np.testing.assert_allclose(compute.source_at(side, 3, 1)[1].weights, 0.3, atol=1e-3)
    assert compute.heads(side) == [(0, 1), (0, 0)], (
        "the head that looks best where the output comes from stands first"
    )


def test_settings_that_differ_are_named_once():
    runs = [
        compared("a"),
        compared("b", learning_rate=1e-2, model=ModelConfig.recurrent(8, "additive")),
    ]
    rows, equal = compare_runs.differences(sides(list(map(summarize, runs))))
    values = {row[0]: row[1:] for row in rows}
    assert values["learning_rate"] == ["0.003", "0.01"]
    assert values["kind"] == ["transformer", "recurrent"]
    assert values["attention.score"] == ["scaled_dot", "additive"]
    names = set().union(*(compare_runs.settings(run.config().to_json()) for run in runs))
    assert "attention.num_heads" not in values and equal == len(names) - len(rows) - 3


def test_names_leave_out_what_all_share_and_differ():
    items = [summarize(compared("a")), summarize(compared("a")), summarize(compared("x" * 99))]
    assert names(items) == ["a", "a (2)", "x" * 29 + "…"]
    examples, _ = runs_to_compare(list_summaries())
    assert [item.run for item in examples] == list(EXAMPLE_RUNS), "the first choice"
    assert names(examples) == ["Transformer", "Recurrent, dot product"]


def test_latest_takes_the_last_measured():
    records = (
        Record(0, sequence_accuracy=0.1, train_seconds=0.0),
        Record(2, sequence_accuracy=None, train_seconds=1.0),
        Record(4, sequence_accuracy=0.9, train_seconds=2.0),
    )
    assert latest(records, lambda r: r.sequence_accuracy, lambda r: r.train_seconds <= 1.5) == 0.1
    assert latest(records, lambda r: r.bleu, lambda r: True) is None
    assert (
        expected(Record(0, expected=((0.1, 0.4), (0.3, 0.2)))) == 0.4
        and expected(Record(0)) is None
    )
