"""The pages Runs, Compare runs and Sweeps without a browser: what each button does to the folders."""

import json
import os
import re
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, cast, get_args
from unittest.mock import Mock

import msgspec
import numpy as np
import pytest
import torch
from scipy.stats import ttest_rel
from streamlit.testing.v1 import AppTest

from core.attention import AttentionConfig, Choice, ConfigError
from core.models import ModelConfig
from core.pretrained.export import export
from core.pretrained.load import load_folder
from core.runs import store
from core.runs.archive import pack, unpack
from core.runs.runs import Run, create_run, deleted_runs, find_run, list_runs
from core.runs.store import copier, copy_now
from core.runs.sweeps import Outcome, Sweep, create_sweep, list_sweeps
from core.studies.runs import (
    EXAMPLE_SWEEP,
    SweepData,
    compared_runs,
    differing,
    expected,
    heads,
    latest,
    load_sweep,
    maps_at,
    rival,
    settings as settings_by_name,
    source_at,
)
from core.tasks import TaskConfig, make_task
from core.tasks.base import Form
from core.training import Prediction, Record, prepare, recommended, sweeps as settings, train
from core.training.seed_stats import Line, SeedStats
from core.training.sweeps import SweepConfig, buildable, vary
from core.training.watch import WatchedModel, watch
from dashboard.draw import (
    compare_runs as draw_compared,
    curves as draw_sweeps,
    runs as draw_runs,
    sweeps as sweep_words,
)
from dashboard.draw.figures import CATEGORIES
from dashboard.server import limits, queue
from dashboard.ui.runs import (
    EXAMPLE_RUNS,
    find_any_run,
    list_summaries,
    load_board,
    longer,
    poll,
    summarize,
    summary_of,
)
from pages import runs
from pages.compare_runs import runs_to_compare, sides
from tests.cases import each, instance
from tests.pages.app import (
    Case,
    app_at,
    assert_case,
    assert_says,
    csv_rows,
    html_text,
    open_at,
    page_cases,
    page_text,
    query_value,
    script_of,
    set_control,
    set_state,
)
from tests.training.small import small_run


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


def test_first_sight_shows_examples_and_one_can_be_copied():
    app = open_page()
    assert len(listed(app)) == len(EXAMPLE_RUNS)
    assert app.text_input(key="runs:name:example_run").proto.disabled, "an example keeps its name"
    app = open_page("example_recurrent")
    app.button(key="runs:duplicate").click().run()
    (copied,) = list_runs()
    assert copied.records() == EXAMPLE_RUNS[1].records()
    assert copied.name == "Reverse: recurrent, dot product, copy"
    assert query_value(app, "run") == copied.id


def test_a_run_is_named_and_found_by_a_search():
    run = made()
    app = set_control("runs:name:", open_page(run.id), "text_input", run.id, "")
    assert "name" not in run.metadata()
    set_control("runs:name:", app, "text_input", run.id, "  <b>dear</b> ")
    assert run.name == listed(app)[0] == "<b>dear</b>"
    app = open_page(**{"runs:search": "dear"})
    assert listed(app) == ["<b>dear</b>"]
    nobody = [("text_input", "runs:search", "*nobody*")]
    assert_case(app, Case(do=nobody, says=["No run matches “*nobody*”"]))
    assert not app.dataframe


def test_a_long_list_has_pages_and_the_link_has_the_page(monkeypatch):
    monkeypatch.setattr("pages.runs.ROWS", 2)
    first, *_ = [made(name=f"run {number}") for number in range(3)]
    app, name = open_page(first.id), f"runs:name:{first.id}"
    assert listed(app) == ["run 2", "run 1"]
    assert_case(app, Case(controls={name: "run 0"}))  # a selected run may be on another page
    app = open_page(**{"runs:page": "2"})
    assert listed(app)[0] == "run 0" and len(listed(app)) == 2
    assert_case(app, Case(query={"runs:page": "2"}))
    assert listed(open_page(**{"runs:page": "99"})) == ["run 2", "run 1"]


def test_deleting_can_be_undone():
    delete, undo = (("button", f"runs:{name}", None) for name in ("delete:go", "undo"))
    run = made(name="dear")
    app = open_page(run.id)
    assert_case(app, Case(do=[delete], says=["Deleted dear"]))
    assert find_run(run.id) is None
    assert_case(app, Case(do=[undo], never=["Deleted"], query={"run": run.id}))
    assert find_run(run.id) == run and not deleted_runs()
    run = made(state="running")
    with run.lock():
        app = open_page(run.id)
        button = app.button(key="runs:delete:go")
        assert button.disabled and button.help == "Stop the run first."


@pytest.mark.parametrize("run", ["example_run", "example_recurrent"])
def test_a_run_is_given_to_other_programs_that_can_have_it(run):
    app = open_page(run)
    assert [button.proto.label for button in app.get("download_button")] == ["Download"]
    files = {
        button.proto.label: button.proto
        for button in set_state(app, "runs:formats").get("download_button")
    }
    refused = run == "example_recurrent"
    assert not files["TensorBoard"].disabled and files["Hugging Face"].disabled == refused
    assert ("A recurrent that reads tokens has no equivalent" in page_text(app)) == refused


def test_a_fork_goes_on_from_a_kept_step_for_as_long_again():
    fork, records = ("session_state", "runs:fork", True), EXAMPLE_RUNS[0].records()
    last = records[-1].step
    steps = ("number_input", f"runs:fork:example_run:steps:{last}", 300)
    assert_case(open_page("example_run"), Case(do=[fork, steps, ("button", "runs:fork:go", None)]))
    (forked,) = list_runs()
    assert forked.metadata()["parent"] == {"run": "example_run", "step": last}
    assert forked.config().steps == 300 and forked.records() == records
    config = small_run(max_seconds=60.0)
    assert longer(config, 9, 40.0) == {"steps": 9, "max_seconds": 100.0, "finish_early": False}


def test_an_upload_becomes_a_run_and_a_bad_one_says_why():
    app = open_page()
    app.file_uploader[0].set_value(("run.zip", pack(EXAMPLE_RUNS[0]), "application/zip")).run()
    (run,) = list_runs()
    assert run.records() == EXAMPLE_RUNS[0].records() and query_value(app, "run") == run.id
    app.file_uploader[0].set_value(("run.zip", b"nonsense", "application/zip")).run()
    assert_says(app, "The zip cannot be read")
    assert list_runs() == [run]


def test_a_run_whose_settings_are_broken_stands_in_the_list():
    run = made()
    (run.path / "run.json").write_text('{"config": {"task": 1}, "created": "x"}', encoding="utf-8")
    assert_says(open_page(run.id), "cannot be read")
    app, item = open_page("../../etc/passwd"), summarize(run)
    assert_says(app, "not on this machine")
    assert len(listed(app)) == 3 and "cannot be read" in item.trouble
    assert (item.created, item.name) == (0, "unreadable")
    assert runs.about_text(item) and draw_runs.result_text(item) and draw_runs.state_text(item)


def test_a_broken_run_can_be_compared():
    run = made()
    (run.path / "run.json").write_text('{"config": {"task": 1}}', encoding="utf-8")
    (side,) = compared_runs({"broken": run})
    assert side.config is None and "cannot be read" in side.trouble
    assert [record.step for record in side.records] == [0, 4] and not side.live
    run.set_status("running")
    assert compared_runs({"broken": run}) == [side], "equal while folder and steps with maps are"
    assert compared_runs({"another name": run}) != [side]


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


def test_a_run_of_another_server_is_fetched(
    become,
):
    become("red")
    first, second = made(name="first", state="running"), made(name="second")
    with first.lock():
        copy_now()
    become("blue")
    app = open_page()
    stored = [("session_state", "runs:stored", True)]
    assert_case(app, Case(says=["all are copied. 2 more runs are only there."], do=stored))
    assert len(listed(app)) == 2
    assert app.selectbox(key="runs:stored:run").options[0].startswith("second · finished · red · ")
    app.button(key="runs:stored:go").click().run()
    assert [run.id for run in list_runs()] == [second.id] and "second" in listed(app)
    open_at("train", run=first.id)
    assert {run.id for run in list_runs()} == {first.id, second.id}, "a link opens it, too"
    copied = instance(find_run(first.id), Run)
    pytest.raises(OSError, queue.resume, copied).match("red trains this run")
    assert copied.status().state == "paused"


def test_a_store_that_does_not_answer_says_so(become, monkeypatch):
    become("red")
    made()
    monkeypatch.setattr(
        type(copier().place.files), "find", Mock(side_effect=ConnectionError("no route"))
    )
    copy_now()
    assert_says(open_page(), "cannot be reached (ConnectionError). Training goes on here")
    monkeypatch.setenv("ATTENTION_LAB_STORE", "nosuch://key:secret@host/lab")
    assert_case(
        open_page(), Case(says=["The store nosuch://host/lab cannot be opened"], never=["secret"])
    )


# What the list of runs says of each, what a search finds, and what the link picks; and the runs that come along.


@pytest.mark.parametrize("example", EXAMPLE_RUNS, ids=lambda run: run.id)
def test_a_kept_example_has_learned_and_can_be_used(example):
    records = example.records()
    assert records[-1].final and records[-1].sequence_accuracy >= 0.99
    assert example.frame_steps() == sorted({record.step for record in records})
    model, task = example.model()
    batch = task.collate(task.held_out(50))
    with torch.no_grad():
        prediction = model(batch.source, batch.source_mask, batch.target_in).logits.argmax(-1)
    assert (prediction == batch.target_out)[batch.target_out != 0].float().mean() > 0.99, (
        "the kept weights still fit the code"
    )
    assert find_any_run(example.id) == example and find_any_run(f"{example.id}/..") is None
    assert example.status().ended


def test_a_summary_follows_its_folder():
    run = made(exact=0.5)
    first = summarize(run)
    assert (first.steps, first.last.sequence_accuracy, first.named) == (4, 0.5, False)
    assert (first.loss, first.curve) == (1.0, (2.0, 1.0))
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
    mine = [item for item in map(summary_of, load_board(query, ()).ids) if not item.example]
    assert {item.name for item in mine} == names


def test_the_fact_names_the_best_other_run_of_the_task():
    made("other task", 1.0, task=COPY)
    made("same settings", 1.0)
    made("worse", 0.25, seed=1)
    made("better", 0.75, seed=2)
    fact = draw_runs.fact_text([summarize(made("first", 0.5, trained=3.0))], list_summaries())
    assert "**50\u00a0% accuracy** after 4 steps, 3\u00a0s" in fact
    assert "**better** has 75" in fact
    alone = summarize(made("alone", task=TaskConfig.of("copy", length=5)))
    assert rival(alone, list_summaries()) is None


# Compare runs without a browser: what stands side by side, what is told of it, and what cannot be.


COPY = TaskConfig.of("copy", length=6, vocab=12)


def compared(
    name: str,
    speed: float = 1.0,
    kinds: Mapping[str, np.ndarray] | None = None,
    steps: Sequence[int] = (0, 2, 4),
    **changes,
) -> Run:
    """A run of three records, at 0, 2 and 4 steps, that takes `speed` seconds a step."""
    config = small_run(**changes)
    run, task = create_run(config, name=name), make_task(config.task)
    predictions = tuple(
        Prediction(*task.display_tokens(example), ()) for example in task.held_out(2)
    )
    for step in steps:
        weights = np.full((1, config.model.num_heads, 7, 6), (step + 1) / 10)
        by_kind = {"cross": weights} if kinds is None else kinds
        maps = {f"{i}:{kind}": value for kind, value in by_kind.items() for i in range(2)}
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


@each(
    "make, says, never",
    [
        (
            lambda: (compared("fast"), compared("slow", 2.0)),
            [
                "At step 4, sequence accuracy: 100\u00a0% for fast, 100\u00a0% for slow",
                "After 4\u00a0s of training, it is 100\u00a0% and 50\u00a0%",
                "All settings are equal.",
            ],
            [],
        ),
        (lambda: map(compared, "abcde"), ["At most 4 runs", "for d"], ["for e"]),
        (  # another task has curves alone
            lambda: (compared("a"), compared("b"), compared("copier", task=COPY)),
            ["No map of copier", "for copier"],
            [],
        ),
        (
            lambda: [compared(one, kinds={}, model=ModelConfig.recurrent(8, None)) for one in "ab"],
            ["None of these runs has saved attention maps"],
            [],
        ),
        (
            lambda: [compared(one, steps=()) for one in "ab"],
            ["None of these runs has measured anything yet"],
            [],
        ),
    ],
)
def test_what_is_told_of_runs_side_by_side(make, says, never):
    app = open_at("compare_runs", runs=",".join(run.id for run in make()))
    assert_case(app, Case(says=says, never=never))


def test_measure_and_step_are_told_and_others_can_be_chosen():
    runs = [compared(name).id for name in "abc"]
    link = {"runs": ",".join(["../../etc/passwd", *runs[:2]]), "compare_runs:measure": "nothing"}
    app = open_at("compare_runs", step="../3", **link)
    assert_says(
        app, "1 of the runs in the link is not on this machine", "At step 4, sequence accuracy"
    )
    loss = [("button_group", "compare_runs:measure", "loss")]
    assert_case(app, Case(do=loss, says=["validation loss: 0.00 for a, 0.00 for b"]))
    slider = next(item for item in app.select_slider if item.label == "Training step")
    assert_says(slider.set_value(2).run(), "At step 2, validation loss: 2.00 for a, 2.00 for b")
    third = [("selectbox", "compare_runs:2", runs[2])]
    assert_case(app, Case(do=third, says=["for c"], query={"runs": ",".join(runs)}))


def test_a_measure_has_one_name_and_one_format():
    app = open_at("compare_runs", **{"compare_runs:measure": "expected"})
    (buttons,) = [one for one in app.button_group if one.key == "compare_runs:measure"]
    assert {"Sequence accuracy", "Expected weight, best head"} <= {*buttons.options}
    assert_says(app, "**Expected weight, best head**", "expected weight, best head: 0.85 for")
    assert_says(app, "0.85 (uniform 0.10)")  # in the table
    head, _ = draw_compared.results_table(sides([summarize(compared("a"))]))
    assert "sequence accuracy" in head and "accuracy" not in head


def test_a_script_finds_the_examples_wherever_the_lab_is():
    text = script_of(open_at("compare_runs")).text("")
    assert "open_run(lab_path('dashboard/examples/example_run'))" in text


def test_a_decoders_look_stands_beside_cross_attention():
    # six letters, the start mark and six letters in one line
    both = np.zeros((1, 2, 13, 13), np.float32)
    both[:, :, 6:, :6] = np.arange(42, dtype=np.float32).reshape(7, 6) / 50
    model = ModelConfig.transformer(8, 2, 1, 16, kind="decoder", position="learned")
    decoder = compared("one line", kinds={"causal": both}, model=model)
    both_sides = sides([summarize(compared("cross")), summarize(decoder)])
    read = [source_at(side, 4, 0)[1].weights for side in both_sides]
    assert read[0].shape == read[1].shape == (1, 2, 7, 6)
    np.testing.assert_allclose(read[1][0, 0], both[0, 0, 6:, :6], atol=1e-3)
    maps, rows, columns, other = maps_at(both_sides, 4, 0, ((0, 0), (0, 1)))
    assert [one.run.index for one in maps] == [0, 1] and not other
    assert (len(rows), len(columns)) == (7, 6)
    side = both_sides[0]  # a run shows what it saved at the step or last before
    assert [source_at(side, step, 0)[0] for step in (0, 3, 4, 99)] == [0, 2, 4, 4]
    np.testing.assert_allclose(source_at(side, 3, 1)[1].weights, 0.3, atol=1e-3)
    assert heads(side) == [(0, 1), (0, 0)], (
        "the head that looks best where the output comes from stands first"
    )


def test_settings_that_differ_are_named_once():
    recurrent = compared("b", learning_rate=1e-2, model=ModelConfig.recurrent(8, "additive"))
    runs = [compared("a"), recurrent]
    rows, equal = draw_compared.differences(sides(list(map(summarize, runs))))
    values = {row[0]: row[1:] for row in rows}
    differ = {
        "learning_rate": ["0.003", "0.01"],
        "kind": ["transformer", "recurrent"],
        "attention.score": ["scaled_dot", "additive"],
    }
    assert {name: values[name] for name in differ} == differ
    names = set().union(*(settings_by_name(run.config().to_json()) for run in runs))
    assert "attention.num_heads" not in values and equal == len(names) - len(rows) - 3


def test_names_leave_out_what_all_share_and_differ():
    items = [summarize(compared(name)) for name in ("a", "a", "x" * 99)]
    assert draw_compared.labels_of(items) == [
        *(f"a · {one.run.id[9:]}" for one in items[:2]),
        "x" * 29 + "…",
    ]
    examples, _ = runs_to_compare(list_summaries())
    assert [item.run for item in examples] == list(EXAMPLE_RUNS), "the first choice"
    assert draw_compared.labels_of(examples) == ["Transformer", "Recurrent, dot product"]


def test_equal_names_say_the_setting_that_differs():
    """By one setting of each kind: a choice, a number, and several at once; never by a number in brackets."""
    base = recommended(make_task(TaskConfig.of("reverse")))

    def named(**settings: Any) -> list[str]:
        other = vary(base, *settings.popitem())
        runs = [create_run(config, name="a") for config in (base, other)]
        items = [summarize(run) for run in runs]
        assert draw_compared.labels_of(items) == draw_runs.names_of(items)
        return draw_compared.labels_of(items)

    assert named(position=Choice("none")) == ["a · Sinusoidal", "a · without positions"]
    assert named(num_heads=1) == ["a · 2 heads", "a · 1 head"]
    assert named(score=Choice("dot")) == ["a · Scaled dot product", "a · Dot product"]
    assert named(learning_rate=0.05) == ["a · learning rate 0.005", "a · learning rate 0.05"]
    unlike = [create_run(config) for config in (base, vary(base, "position", Choice("none")))]
    for run in unlike:
        run.append(Record(0, loss=3.4, sequence_accuracy=0.0))
    ids = [run.id for run in unlike]
    page = page_text(open_at("compare_runs", runs=",".join(ids)))
    assert "They differ in **position** (sinusoidal, none)." in page
    assert "Transformer · without positions" in page and "(2)" not in page


def test_latest_takes_the_last_measured():
    records = (
        Record(0, sequence_accuracy=0.1, train_seconds=0.0, expected=((0.1, 0.4), (0.3, 0.2))),
        Record(2, sequence_accuracy=None, train_seconds=1.0),
        Record(4, sequence_accuracy=0.9, train_seconds=2.0),
    )
    assert latest(records, lambda r: r.sequence_accuracy, lambda r: r.train_seconds <= 1.5) == 0.1
    assert latest(records, lambda r: r.bleu, lambda r: True) is None
    assert [expected(record) for record in records] == [0.4, None, None]


# Sweeps without workers: what the page shows, starts, stops and finds again.


@pytest.fixture(autouse=True)
def no_workers(monkeypatch):
    monkeypatch.setattr(queue, "_watch", lambda folder: None)
    monkeypatch.setattr(queue, "max_workers", lambda: 1)


open_sweeps = partial(open_at, "sweeps")


def test_first_sight_is_a_real_sweep():
    app = open_sweeps()
    assert [b.label for b in app.button if b.proto.type == "primary"] == ["Start sweep"]
    for measure, over in (
        ("sequence_accuracy", "steps"),
        ("token_accuracy", "train_seconds"),
        ("loss", "steps"),
        ("expected", "train_seconds"),
    ):
        app.selectbox(key="sweeps:measure").set_value(measure)
        set_control("sweeps:", app, "segmented_control", "over", over)
        assert len(app.get("vega_lite_chart")) == 2
    app.session_state["sweeps:claim"] = True
    assert_says(set_state(app, "sweeps:runs"), "QK-norm, seed 4")  # each run can be seen
    set_control("sweeps:", app, "number_input", "claim:bound:True", 5.0)
    first, second = (app.selectbox(key=f"sweeps:claim:{name}:6") for name in ("first", "second"))
    assert_says(
        app,
        f"With {first.options[0]} the share of whole answers is higher by more than 0.05 than with "
        f"{second.options[1]}.",
    )
    assert app.get("download_button")[-1].proto.label == "Download the claim"


def test_sweep_is_started_found_again_stopped_and_continued():
    # Every value is queued from every seed; a fresh page shows the sweep until the example is chosen.
    start = [("selectbox", "axis", "num_heads"), ("slider", "seeds", 2), ("button", "start", None)]
    app = open_sweeps()
    assert_case(app, Case(do=start), "sweeps:")
    (sweep,) = list_sweeps()
    runs = sweep.runs().values()
    assert [run.config().model.num_heads for run in runs] == [1, 2, 4, 8] * 2
    assert "0 of 8 runs done" in app.get("progress")[0].proto.text
    fresh = open_sweeps()
    links = [
        link.proto
        for link in set_state(fresh, "sweeps:runs").get("page_link")
        if "seed" in link.proto.label
    ]
    shown = {(link.page, link.query_string) for link in links}
    assert shown == {("train", f"run={run.id}") for run in list_runs()} and len(shown) == 8
    assert fresh.button(key="sweeps:stop")
    assert_case(fresh, Case(query={"sweep": sweep.id}))
    assert_case(fresh, Case(do=[("selectbox", "sweeps:shown", "")], query={"sweep": None}))
    assert fresh.run().button(key="sweeps:start")
    app = open_sweeps(sweep=sweep.id)
    app.button(key="sweeps:stop").click().run()
    for run in runs:  # the workers, had there been any, would have said so
        run.set_status("stopped", "Stopped.")
    assert_says(app.run(), "0 of 8 runs have finished")
    app.button(key="sweeps:continue").click().run()
    assert all(not run.status().ended for run in runs)
    sweep.path.write_text('{"config": 3}', encoding="utf-8")
    for link, says in ((sweep.id, "cannot be read"), ("../../etc/passwd", "not on this machine")):
        assert_says(open_sweeps(sweep=link), says)


def test_what_the_controls_ask_for_is_started():
    run, app = create_run(small_run(batch_size=9), name="nine at a time"), open_sweeps()
    moves = [
        ("selectbox", "from", run.id),
        ("segmented_control", "equal", "seconds"),
        ("number_input", "seconds", 2.0),
    ]
    assert_case(app, Case(do=moves), "sweeps:")
    assert any("nine at a time" in label for label in app.selectbox(key="sweeps:from").options)
    chosen = app.multiselect[0].value
    app.multiselect[0].set_value(chosen[:1]).run()
    assert_case(app, Case(says=["2 to 8 values", "Start sweep (disabled)"]))
    app.multiselect[0].set_value(chosen).run()
    app.session_state["sweeps:seeds"] = 2  # read since the page was made
    app.button(key="sweeps:start").click().run()
    config = list_sweeps()[0].config()
    assert (config.base.batch_size, config.equal, config.seeds) == (9, "seconds", (0, 1))
    assert config.run(0, 0).max_train_seconds == 2.0


def test_a_link_brings_back_what_was_chosen():
    link: dict[str, Any] = {
        "sweeps:values:reverse:transformer:score": ["Cosine", "Additive"],
        "sweeps:steps:reverse:transformer": "150",
    }
    app = open_sweeps(**link)
    assert app.multiselect[0].value == ["Cosine", "Additive"] and app.number_input[0].value == 150
    app.button(key="sweeps:start").click().run()
    config = list_sweeps()[0].config()
    assert [value.key for value in config.values] == ["cosine", "additive"]
    assert config.base.steps == 150


def test_two_settings_are_combined_and_come_back():
    link: dict[str, Any] = {
        "sweeps:values:reverse:transformer:score": ["Cosine", "Additive"],
        "sweeps:second:score": "learning_rate",
        "sweeps:values:reverse:transformer:score:learning_rate": ["0.001", "0.01"],
        "sweeps:paired": "true",
        "sweeps:early": "true",
    }
    app = open_sweeps(**link)
    assert_says(app, "10 runs, ", "on this machine, if all take as long as Cosine, 0.001")
    app.button(key="sweeps:start").click().run()
    (sweep,) = list_sweeps()
    config = sweep.config()
    assert config.names == ["Cosine, 0.001", "Additive, 0.01"] and config.early
    again = open_sweeps(sweep=sweep.id)
    assert not again.exception
    set_control("sweeps:", again, "toggle", "paired", False)
    assert_says(again, "20 runs, ")


FEW_OF_MANY = tuple(range(3, 13))
SHOWN_SWEEPS: dict[str, dict[str, Any]] = {  # what a shell can start, by its kind
    "values": {
        "axis": "normalizer",
        "values": ("sparsemax", {"key": "softmax", "temperature": 2.0}),
    },
    "grid": {"second": "learning_rate", "second_values": (1e-3, 4e-4)},
    "rates first": {
        "axis": "learning_rate",
        "values": (1e-3, 4e-4),
        "second": "normalizer",
        "second_values": ({"key": "softmax", "temperature": 2.0}, "sparsemax", "entmax"),
    },
    "paired": {"second": "learning_rate", "second_values": (1e-3, 4e-4), "paired": True},
    "a value twice": {
        "values": ("dot", "dot", "general"),
        "second": "learning_rate",
        "second_values": (1e-3, 4e-4, 1e-3),
        "paired": True,
    },
    "ten pairs": {
        "axis": "d_ff",
        "values": FEW_OF_MANY,
        "second": "warmup",
        "second_values": FEW_OF_MANY,
        "paired": True,
    },
    "mechanisms": {
        "axis": "attention",
        "values": (AttentionConfig(8, 2), AttentionConfig(8, 2, score="general")),
    },
    "of the task": {"axis": "task.length", "values": (5, 7)},
}


@pytest.mark.parametrize("name", SHOWN_SWEEPS)
def test_every_sweep_is_shown_by_its_link_and_from_the_list(name):
    config = sweep_config(**SHOWN_SWEEPS[name])
    running, done = queue.start_sweep(config), queue.start_sweep(config)
    measured = asdict(
        Outcome("finished", "", (0, 4), (0.0, 2.0), {"loss": (1.0, 0.5)}, 100, elapsed=3.0)
    )
    data = done.data() | {"outcomes": dict.fromkeys(done.data()["runs"], measured)}
    done.path.write_text(json.dumps(data), encoding="utf-8")
    listed = open_sweeps()
    for sweep in (running, done):
        by_link = open_sweeps(sweep=sweep.id)
        listed.selectbox(key="sweeps:shown").set_value(sweep.id).run()
        for app in (by_link, listed):
            assert not app.exception and not app.error, (app.exception, app.error)
            assert_says(app, f"{len(config.cells)} runs, ")  # another one of the same settings


test_what_a_link_opens = page_cases(
    "sweeps",
    {
        "as older links": Case(
            {"measure": "letters", "over": "trained"},
            controls={"measure": "token_accuracy", "over": "train_seconds"},
        ),
    }
    | {  # as links hold it, and as they did
        text: Case({"axis": text}, controls={"axis": "norm"}, query={"sweeps:axis": "norm"})
        for text in ("norm", "Place of the norm")
    }
    | {  # what cannot be leaves the page whole
        f"bad {name}": Case({name: value}, ["Start sweep"])
        for name, value in {
            "from": "20200101-000000-000000",
            "kind:reverse": "nonsense",
            "values:reverse:transformer:score": "nonsense",
            "steps:reverse:transformer": "1e9",
        }.items()
    },
    prefix="sweeps:",
)


# A sweep in the queue, what is offered to vary, and what the page says of numbers and their spread.


UNEQUAL = [[0.98, 0.99, 0.97], [0.05, 0.99, 0.9]]
HALF = Outcome("running", "", (0, 2), (0.0, 1.0), {"sequence_accuracy": (0.0, 0.3)})


def sweep_config(**changes) -> SweepConfig:
    usual = dict(base=small_run(), axis="score", values=("dot", "general"), seeds=(0, 1))
    return SweepConfig(**{**usual, **changes})


def shown_with(
    exact: list[list[float]], measure: str = "sequence_accuracy", **changes
) -> SweepData:
    """A sweep whose runs ended with these measurements, a list a value."""
    config = sweep_config(seeds=tuple(range(len(exact[0]))), **changes)
    outcomes = {
        (place, seed): Outcome(
            "finished", "", (0, 4), (0.0, 2.0), {measure: (0.0, value)}, 1000, elapsed=3.0
        )
        for place, row in enumerate(exact)
        for seed, value in enumerate(row)
    }
    return SweepData(EXAMPLE_SWEEP, config, outcomes)


def test_runs_wait_in_order_stop_leaves_none_waiting(monkeypatch):
    def states(runs: Iterable[Run]) -> list[str]:
        return [run.status().state for run in runs]

    sweep = queue.start_sweep(sweep_config())
    assert list(sweep.runs()) == list(sweep.config().cells)
    first, *others = sweep.runs().values()
    assert states([first, *others]) == ["starting", "queued", "queued", "queued"]
    assert {run.metadata()["sweep"]["id"] for run in list_runs()} == {sweep.id}
    queue.stop_sweep(sweep)
    assert set(states(others)) == {"stopped"} and first.stop_request() == "stop"
    first.set_status("finished", "Finished.")
    assert len(sweep.missing()) == 3
    queue.resume_sweep(sweep)
    assert set(states(others)) == {"starting", "queued"}
    assert sweep.runs()[0, 0] == first, "what had finished is left alone"
    for run in others:
        run.set_status("failed" if run == others[0] else "finished", "As a worker says.")
    assert sweep.outcomes()[1, 0].state == "failed"
    queue.resume_sweep(sweep)  # a failed run begins anew in a folder of its own
    assert sweep.runs()[1, 0] != others[0]
    assert sweep.outcomes()[1, 0].state in ("starting", "queued")
    monkeypatch.setattr(queue, "QUEUE", 3)
    pytest.raises(limits.QueueFull, queue.start_sweep, sweep_config())
    assert len(list_runs()) == 5 and list_sweeps() == [sweep], "no room leaves nothing behind"


@each(
    "model",
    [ModelConfig.transformer(8, 2), ModelConfig.recurrent(8), ModelConfig.recurrent(8, score=None)],
)
def test_whatever_is_offered_can_be_built(model):
    base = small_run(model=model)
    axes = settings.axes_of(base)
    assert {"d_model", "learning_rate", "task.length"} <= set(axes)
    assert ("position" in axes) == (model.kind == "transformer")
    assert ("score" in axes) == (model.attention is not None)
    generator = torch.get_rng_state()
    for axis in axes:
        for value in settings.offered(base, axis).values():
            buildable(vary(base, axis, value))
        assert set(settings.first_values(base, axis)) <= set(settings.offered(base, axis))
    assert torch.equal(torch.get_rng_state(), generator), "no random number is drawn"


@each("task", ["iris", "digits", "series", "topics"])
def test_tasks_of_every_form_can_be_swept(task):
    base = recommended(make_task(TaskConfig.of(task)))
    for axis in ("score", "learning_rate"):
        chosen = tuple(
            settings.value_of_text(base, axis, name) for name in settings.first_values(base, axis)
        )
        sweep = SweepConfig(base, axis, chosen)
        sweep.try_models()
        runs = [sweep.run(index, seed) for index, seed in sweep.cells[: len(chosen)]]
        places = [run.model.attention if axis == "score" else run for run in runs]
        assert [getattr(place, axis) for place in places] == list(chosen)
        assert {run.task for run in runs} == {base.task}


def test_values_are_read_as_offered_or_as_typed():
    read = partial(settings.value_of_text, small_run())
    assert (
        read("score", "Cosine").key == "cosine" and read("mask", "local(window=3)")["window"] == 3
    )
    for axis, text, value in (("d_model", "24", 24), ("learning_rate", "1", 1.0)):
        assert read(axis, text) == value and type(read(axis, text)) is type(value)
    for axis, name in (("score", "nonsense"), ("d_model", "wide")):
        pytest.raises(ConfigError, read, axis, name)


@each(
    "exact, changes, says",
    [
        (
            [[0.9, 0.92, 0.94], [0.11, 0.12, 0.13]],
            {},
            [
                "**Dot product** reaches **92.0\u00a0[85.4–95.8]**",
                "**General** reaches **12.0",
                "p < .001",
                "+80.0 (95\u00a0% interval +77.4 to +82.4",
                "is significant",
            ],
        ),
        (
            UNEQUAL,
            {},
            [
                "is not significant, which does not prove that they are equal.",
            ],
        ),
        (
            [*UNEQUAL, [0.1, 0.11, 0.12]],
            {"values": ("dot", "general", "cosine")},
            [
                "**Dot product** differs significantly from Cosine; no difference from General is significant",
            ],
        ),
    ],
)
def test_the_fact_tests_the_best_against_the_worst(exact, changes, says):
    shown = shown_with(exact, **changes)
    sentence = sweep_words.fact_text(shown, "sequence_accuracy")
    assert [one for one in says if one not in sentence] == []
    assert ("p < .001" in sentence) == (ttest_rel(*exact[:2]).pvalue < 0.001)
    rows = sweep_words.pairs(shown, "sequence_accuracy")[1]
    assert len(rows) == len(exact) * (len(exact) - 1) / 2
    assert not changes or (rows[0][0], rows[0][-1]) == ("Dot product − Cosine", "significant")


def test_nothing_is_tested_while_runs_go_on_or_on_one_seed():
    shown = shown_with([[0.9, 0.92, 0.94, 0.0], [0.11, 0.12, 0.13, 0.0]])
    shown.outcomes[0, 3] = replace(shown.outcomes[0, 3], state="running")
    going = replace(shown, sweep=Sweep(Path("one.json")))
    assert going.live and going.comparisons("sequence_accuracy") == []
    assert "tested when all runs have ended" in sweep_words.fact_text(going, "sequence_accuracy")
    shown = shown_with([[0.9, 0.8], [0.1, 0.2]])
    for cell in ((0, 1), (1, 1)):
        shown.outcomes[cell] = replace(shown.outcomes[cell], state="running")
    assert "**2** of 4 runs have finished" in sweep_words.fact_text(shown, "sequence_accuracy")
    assert sweep_words.fact_text(
        shown_with([[0.9, 0.8], [0.1, 0.2]], measure="loss"), "loss"
    ).startswith("**General**")


def test_the_table_counts_what_finished_and_failed():
    shown, message = shown_with([[0.5, 0.7], [0.1, 0.2]]), "The loss is no longer a number."
    shown.outcomes[1, 1] = Outcome("failed", message)
    assert sweep_words.table_text(shown, "loss") == (
        ["score", "sequence accuracy %", "seconds", "seeds"],
        [
            ["Dot product", "60\u00a0[1–100]", "2.0\u00a0[2.0–2.0]", "2"],
            ["General", "10.0", "2.0", "1 of 2, 1 failed"],
        ],
    )
    assert sweep_words.failures(shown) == [f"General, seed 1: {message}"]
    shown.outcomes[1, 1] = HALF
    shown.outcomes[1, 0] = Outcome("queued")
    left = "2 of 4 runs done, 1 training, about 4\u00a0s left"  # 1.5 runs of 3 s
    assert sweep_words.progress(shown, 1) == (0.625, left)


def test_lines_follow_the_seeds_that_finished():
    shown = shown_with([[0.5, 0.7], [0.1, 0.2]])
    for change, mean in (
        ({}, (0.0, 0.6)),
        # half a run does not bend the mean
        ({(0, 1): replace(shown.outcomes[0, 1], state="running")}, (0.0, 0.5)),
        ({(0, 0): HALF}, (0.0, 0.7)),
    ):
        shown.outcomes.update(change)
        assert shown.lines("sequence_accuracy", "steps")[0].mean == mean


def test_figures_stay_within_their_scale():
    results = {0: SeedStats((97.0, 99.0, 60.0)), 1: SeedStats((5.0,))}
    spec = draw_sweeps.seeds(
        "Title", ["a", "b"], results, draw_sweeps.Scale.around([0.0, 99.0], 100.0), "light"
    )
    rows = {
        kind: [one["data"]["values"] for one in spec["layer"] if one["mark"]["type"] == kind]
        for kind in ("rule", "point")
    }
    (first,), (second,) = rows["rule"]
    assert first["high"] == 100.0 and first["low"] > 0 and second["low"] == second["high"] == 5.0
    assert [len(values) for values in rows["point"]] == [3, 1], "every seed is drawn"
    assert isinstance(spec["padding"], dict), "Streamlit writes into it"


def test_each_of_most_values_of_sweep_has_its_own_colour():
    names, scale = list("abcdefgh"), draw_sweeps.Scale.around([0.0, 1.0], 1.0)
    line = Line((0, 1), (0.0, 0.5), (0.0, 0.4), (0.0, 0.6))
    means, stats = dict.fromkeys(range(8), line), dict.fromkeys(range(8), SeedStats((0.5, 0.6)))
    for spec in (
        draw_sweeps.lines("Title", "step", 1, names, means, scale, "light"),
        draw_sweeps.seeds("Title", names, stats, scale, "light"),
    ):
        colours = {layer["mark"].get("color") for layer in spec["layer"]}
        assert len(set(CATEGORIES["light"][:8]) & colours) == 8


def test_the_kept_sweep_is_whole():
    shown = instance(load_sweep(EXAMPLE_SWEEP), SweepData)
    assert shown.finished == len(shown.config.cells) == 30
    assert {o.held_out for o in shown.outcomes.values()} == {1000}
    assert {o.steps[-1] for o in shown.outcomes.values()} == {shown.config.base.steps}
    rows = csv_rows(sweep_words.numbers_csv(shown))
    assert len(rows) == 30 and {row["state"] for row in rows} == {"finished"}
    assert all(0 <= float(row["sequence_accuracy"]) <= 1 for row in rows)


def test_scripts_open_what_is_here_by_name():
    """No page of runs writes the folder of this machine: into its words, or into its script."""
    config = SweepConfig(small_run(steps=4), "score", ("dot", "general"), (0, 1))
    sweep, run = create_sweep(config), create_run(small_run())
    for step in (0, 2):
        run.append(Record(step, loss=3.4, sequence_accuracy=0.0, held_out=9))
    run.set_status("finished", "Finished.")
    sweep.add_runs({(0, 0): run})
    links = {"train": {"run": run.id}, "compare_runs": {"runs": run.id}, "runs": {"run": run.id}}
    for page, link in (links | {"sweeps": {"sweep": sweep.id}}).items():
        app = open_at(page, **link)
        text = page_text(app) + script_of(app).text("")
        assert str(run.path.parent) not in text, page
        assert f"find_sweep('{sweep.id}')" in text or f"'{run.id}'" in text, page


def watched(tokens: Sequence[str] = (), state: str = "finished", **options: Any) -> Run:
    """A training of four steps in a loop of one's own, with two heads of four tokens."""
    torch.manual_seed(0)
    model, x = torch.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True), torch.rand(2, 4, 8)
    options = {"inputs": x, **options}
    with watch(model, 2, tokens=tokens, **options) as watcher:
        for _ in range(4):
            loss = model(x).square().mean()
            loss.backward()
            watcher.step(loss)
        watcher.close(state, "Ended.")
    return watcher.run


def test_a_watched_run_shows_its_curves_and_maps():
    run = watched(("the", "cat", "sat", "down"), name="mine")
    app = open_page(run.id)
    says = [
        "Training loss of mine",
        "mine has a training loss of",
        "Gradient norm by part, step 4",
        "Ended",
        "self_attn, head 0",
    ]
    assert_case(app, Case(says=says, never=["Validation accuracy", "No maps"]))
    head = f"runs:head:{run.id}:(0, 0)"
    app = set_control("", app, "selectbox", head, 1)
    assert_case(app, Case(says=["self_attn, head 1"], query={head: "1"}))
    assert_case(open_page(run.id, **{head: "1"}), Case(says=["self_attn, head 1"]))
    for button in (*app.get("button"), *app.get("download_button")):
        if re.search("duplicate$", button.proto.id):
            assert button.proto.disabled and button.proto.help.startswith("This run is watched")
        if re.search("download:", button.proto.id):
            assert (
                not button.proto.disabled and button.proto.help == "A zip file of records and maps"
            )
    assert [one.proto.disabled for one in app.get("page_link") if one.proto.label == "Open"] == [
        True
    ]
    assert draw_runs.names_of([summarize(run)]) == ["mine"]


def test_a_watched_run_comes_back_from_its_zip():
    run = watched(name="mine")
    again = unpack(pack(run))
    assert again.id != run.id and again.name == "mine" and again.job == "watched"
    assert (again.records(), again.status().state) == (run.records(), "finished")
    assert WatchedModel.of(again) == (model := WatchedModel.of(run))
    assert again.frame_steps() == run.frame_steps() == [0, 2, 4]
    assert np.array_equal(again.frame(4)["0:self"], run.frame(4)["0:self"])
    assert_case(open_page(again.id), Case(says=["Gradient norm by part", "self_attn, head 0"]))
    for groups, why in (
        ((replace(model.groups[0], heads=(0,)),), "expected F16 (1, 1, 4, 4)"),
        (cast(Any, ["x"]), "groups"),
    ):
        run.update_metadata(watched=msgspec.to_builtins(replace(model, groups=groups)))
        with pytest.raises(ValueError, match=re.escape(why)):
            unpack(pack(run))
    run.update_metadata(watched=msgspec.to_builtins(model))
    run.checkpoint_path(4).parent.mkdir()
    run.checkpoint_path(4).write_bytes(b"weights")
    with pytest.raises(ValueError):
        unpack(pack(run))


def test_a_watched_run_without_maps_says_why():
    with pytest.warns(RuntimeWarning):
        run = watched(inputs=torch.rand(2, 4, 3))
    says = ["No maps are saved", "The maps of this training are not watched: "]
    assert_case(open_page(run.id), Case(says=says))


def test_a_live_watched_run_is_followed():
    with watch(torch.nn.Linear(2, 2), 1) as watcher:
        watcher.step(3.0)
        app = open_page(watcher.run.id)
        assert_case(app, Case(says=["a training loss of 3.00 after 1 step,"]))
        watcher.step(2.0)
        assert_case(app.run(), Case(says=["a training loss of 2.00 after 2 steps"]))
        assert watcher.run.status().state == "running"


def test_a_loss_that_is_nan_is_said_with_its_steps():
    model, x = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), torch.rand(2, 4, 8)
    with watch(model, 2, inputs=x) as watcher:
        for _ in range(7):
            if watcher.steps == 4:
                torch.nn.init.constant_(model.self_attn.in_proj_weight, torch.nan)
            loss = model(x).square().mean()
            loss.backward()
            watcher.step(loss)
    assert WatchedModel.of(watcher.run).diverged == (4, 6)
    app = open_page(watcher.run.id)
    says = [
        "a loss that is NaN or infinite from between steps 4 and 6 after 7 steps",
        "not watched from step 6 on: self_attn is not read: its result is NaN or infinite",
        "self_attn, head 0",
    ]
    assert_case(app, Case(says=says, never=["another size"]))
    for chart in app.get("vega_lite_chart"):
        json.loads(chart.proto.spec, parse_constant=pytest.fail)
    assert app.get("vega_lite_chart")


@pytest.mark.parametrize(
    ("live", "idle", "every"), [(True, None, 1.0), (False, 5.0, 5.0), (False, None, None)]
)
def test_an_idle_page_looks_for_what_others_begin(monkeypatch, live, idle, every):
    asked, begun = list[Any](), Mock(live=not live)

    def fragment(work, **given):
        asked.append(given)
        return work

    monkeypatch.setattr("streamlit.fragment", fragment)
    monkeypatch.setattr("streamlit.rerun", lambda: asked.append("rerun"))
    poll(lambda: begun, lambda data: None, live, "runs:board", interval=1.0, idle=idle)
    assert [one["run_every"] for one in asked[:1]] == [every]
    assert asked[1:] == ["rerun"] * (live or idle is not None)


def test_compare_opens_with_the_runs_that_are_selected():
    first, second = watched(name="first"), watched(name="second")
    app = open_page(f"{first.id},{second.id}")
    assert app.session_state["compare_runs:runs"].split(",") == [second.id, first.id]
    app = set_state(app_at("compare_runs"), "compare_runs:runs", f"{second.id},{first.id}")
    assert [app.selectbox(key=f"compare_runs:{at}").value for at in (0, 1)] == [second.id, first.id]


def test_watched_runs_are_compared_on_the_same_inputs():
    first, second = watched(name="first"), watched(name="second")
    other = watched(name="other", inputs=torch.ones(2, 4, 8))
    both = compared_runs({"first": first, "second": second, "other": other})
    assert [len(heads(one)) for one in both] == [2, 2, 2]
    link = {"runs": f"{first.id},{second.id}"}
    says = ["The settings of a watched run", "Attention of 2 runs at step 4", "first minus second"]
    assert_case(open_at("compare_runs", **link), Case(says=says, never=["decoder reads"]))
    link = {"runs": f"{first.id},{other.id}"}
    assert_case(open_at("compare_runs", **link), Case(says=["No map of other"]))
    link = {"runs": f"{first.id},{EXAMPLE_RUNS[0].id}"}
    assert_case(open_at("compare_runs", **link), Case(says=["Training loss", "No map of"]))


def test_what_differs_of_two_sweeps_is_in_words():
    base = small_run(steps=4)
    plain_one = SweepConfig(base, "score", ("dot", "general"), (0, 1))
    both = replace(plain_one, second="learning_rate", second_values=(0.01, 0.1), paired=True)
    apart = differing([plain_one, both])
    assert apart["second setting"] == ("none", "learning_rate")
    assert {
        "one for each value",
        "values of the second setting",
    } <= apart.keys() and "" not in apart


def test_train_stops_no_watched_run():
    with watch(torch.nn.Linear(2, 2), 1, inputs=torch.rand(1, 2)) as watcher:
        watcher.step(3.0)
        app = open_at("train", run=watcher.run.id)
        assert not app.exception and "Stop" not in [one.label for one in app.button]
        app.button(key="train:train").click().run()
        assert not app.exception and not watcher.run.stop_request()


@pytest.mark.parametrize("page, name", [("train", "run"), ("decode", "run"), ("why", "why:runs")])
def test_other_pages_refuse_a_watched_run(page, name):
    run = watched()
    app = open_at(page, **{name: run.id})
    assert not app.exception
    if page == "train":
        assert_case(app, Case(says=["it is watched in a loop of its own"]))
    assert run.status().state == "finished"


# A run of each form of task, on every page that opens a run.

OF_FORM = {
    "pairs": "reverse",
    "text": "repeats",
    "label": "iris",
    "series": "series",
    "marked": "depo",
}


@each("form", get_args(Form))
def test_a_run_of_each_form_opens_on_every_page(form, tmp_path):
    config = recommended(
        make_task(TaskConfig.of(OF_FORM[form])),
        steps=2, record_every=1, batch_size=4, held_out=4, num_examples=2,
    )  # fmt: skip
    run, session = create_run(config), prepare(config)
    for record in train(config, session):
        run.append(record)
        run.save_checkpoint(session, config)
    run.set_status("finished", "Finished.")
    links = {
        "train": {"run": run.id},
        "runs": {"run": run.id},
        "compare_runs": {"runs": f"{run.id},example_run"},
        "transformer": {"run": run.id},
        "decode": {"run": run.id},
        "sweeps": {"sweeps:from": run.id},
    }
    pages = {page: open_at(page, **link) for page, link in links.items()}
    for page, app in pages.items():
        assert not app.error, (page, [one.value for one in app.error])
    assert pages["sweeps"].selectbox(key="sweeps:from").value == run.id
    assert ("input → answer" in html_text(pages["train"])) == (form == "marked"), (
        "answers at their places"
    )
    writes = form in ("pairs", "text")
    assert ("writes no outputs" in page_text(pages["decode"])) != writes
    if not runs.hf_problem(summary_of(run.id)):
        folder = export(run, tmp_path / form)
        assert "pipeline_tag" in (folder / "README.md").read_text(encoding="utf-8")
        assert load_folder(folder, "exported").recordable
    assert (tmp_path / form).exists() == (writes or form == "marked")
