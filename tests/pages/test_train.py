"""The Train page, driven without a browser and without a worker: what each state of a run's folder looks like."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save
from streamlit.testing.v1 import AppTest

from core.attention import Choice, preset
from core.models import ModelConfig, sentence_spans
from core.runs import archive as validate
from core.runs.runs import Run, create_run, list_runs
from core.runs.worker import work
from core.studies.compare_runs import source_at
from core.tasks import TASKS, Task, TaskConfig, make_task
from core.training import Prediction, Record, RunConfig, loop, recommended
from dashboard.draw.formats import number, percent
from dashboard.draw.palette import Ink, rgb_of
from dashboard.draw.tables import DocumentWeights, lines
from dashboard.server import jobs
from dashboard.ui import layer_pattern, run_data, uploads
from dashboard.ui.run_data import EXAMPLE_RUN, load_run, summarize
from pages import train
from pages.compare_runs import sides
from pages.train import fits, of_model
from tests.pages.app import (
    assert_script,
    captions,
    contrast,
    html_text,
    open_at,
    page_text,
    query_value,
)
from tests.training.small import small_run


def open_page(run: str | None = None) -> AppTest:
    return open_at("train", **{} if run is None else {"run": run})


def trained(app: AppTest) -> Run:
    app.button(key="train:train").click().run()
    return list_runs()[-1]


def half_way(**changes) -> Run:
    """A run at step 2 of 4, as its folder stands."""
    run = create_run(small_run(**changes))
    example = Prediction(("a", "b", "<b>"), ("<b>", "b", "a"), ("<b>", "a", "a"))
    maps = {"0:cross": np.full((1, 2, 4, 3), 1 / 3), "1:cross": np.full((1, 2, 4, 3), 1 / 3)}
    for step in (0, 2):
        run.append(
            Record(
                step,
                1.0,
                2.0,
                0.76,
                0.03,
                expected=((0.29, 0.1),),
                even=0.08,
                gradient=0.5,
                tokens_per_second=9.0,
                elapsed=1.0,
                held_out=9,
                examples=(example, example),
                maps=maps,
            )
        )
    run.set_status("running")
    return run


def test_train_makes_a_run_with_the_settings_of_the_page():
    app = open_page()
    assert [b.label for b in app.button if b.proto.type == "primary"] == ["Train"]
    app.number_input(key="train:seed").set_value(7).run()
    app.slider(key="train:reverse:length").set_value(12).run()
    first = trained(app)
    assert first.config().seed == 7 and first.config().task["length"] == 12
    assert first.id in app.query_params["run"]
    # with what has been read since the page was made, as when a file is still being read
    first.set_status("finished")
    app.run()
    app.selectbox(key="train:task").set_value("own_pairs").run()
    data = "\n".join(f"{n} x\t{n * n} y" for n in range(60))
    app.session_state["train:own_pairs:data"] = data
    run = trained(app)
    assert run.config().task["data"] == data and run.id in app.query_params["run"]
    app.session_state["train:own_pairs:data"] = "one\ttwo"
    run.set_status("finished")
    app.run()
    assert app.button(key="train:train").disabled and len(list_runs()) == 2


def unfolded(app: AppTest, group: str) -> AppTest:
    """The page with a popover open: AppTest forgets what stands open."""
    app.session_state[group] = True
    return app.run()


def test_a_mechanism_is_picked_by_a_move_by_name_or_none():
    app, name = open_page(), "train:reverse:transformer"
    app.button(key="train:try:0").click().run()
    assert app.session_state[f"{name}:attention:now"].position.key == "none"
    assert "sinusoidal" not in query_value(app, f"{name}:attention:now")
    app.selectbox(key=f"{name}:mechanism").set_value("linformer").run()
    where = "Linformer is used in the encoder; the decoder's self-attention uses the exact kernel"
    assert where in page_text(app)
    app.selectbox(key=f"{name}:mechanism").set_value("mistral").run()
    assert "Grouped-query · Scaled dot product · RoPE" in page_text(app)
    config = trained(app).config().model.attention
    assert config == preset("mistral").config(config.d_model, config.num_heads)
    app = open_page()
    app.button(key="train:try:1").click().run()
    assert app.selectbox(key="train:reverse:kind").value == "recurrent"
    assert app.selectbox(key="train:reverse:recurrent:mechanism").value == "none"
    assert "mirrored position" not in page_text(app), "no output attends without attention"
    assert trained(app).config().model.attention is None


def test_a_typed_formula_can_be_trained_with_and_only_heads_that_divide():
    app, name = open_page(), "train:reverse:transformer"
    axes, position = f"{name}:axes", f"{name}:attention:position"
    unfolded(app, axes).selectbox(key=position).set_value("formula")
    unfolded(app, axes).text_input(key=f"{position}:formula:formula").set_value(
        "score - 0.25*abs(i"
    )
    assert unfolded(app, axes).button(key="train:train").disabled
    formula = "score - 0.25*abs(i - j)"
    app.text_input(key=f"{position}:formula:formula").set_value(formula)
    unfolded(app, axes)
    assert app.selectbox(key=f"{name}:mechanism").value == "own"
    run = trained(app)
    assert run.config().model.attention.position["formula"] == formula
    app = unfolded(open_page(), f"{name}:sizes")
    app.select_slider(key=f"{name}:d_model").set_value(96).run()
    heads = app.select_slider(key=f"{name}:heads:96")
    assert heads.options == ["1", "2", "3", "4", "6", "8", "12", "16"]
    app.slider(key="train:reverse:length").set_value(2).run()
    assert "too few" in page_text(app) and app.button(key="train:train").disabled


def next_record(run: Run, step: int) -> None:
    run.append(
        replace(run.records()[-1], step=step, maps={"0:cross": np.full((1, 2, 4, 3), 1 / 3)})
    )


def test_the_figures_of_a_live_run_follow_until_a_step_is_picked():
    """Also where a browser that missed the first drawing of a widget sends the widget's default back."""
    run = half_way()
    with run.lock():
        app = open_page(run.id)
        for toggle in app.toggle:
            toggle.set_value(toggle.proto.default)
        app.run()
        next_record(run, 3)
        assert "Examples at step 3" in page_text(app.run())
        app.session_state[f"train:map:{run.id}:0:cross:view"]["frame"] = 0
        for step in (4, 5):
            assert "Examples at step 0" in page_text(app.run())
            next_record(run, step)
        app.button(key="train:follow").click().run()
        assert "Examples at step 5" in page_text(app) and app.button(key="train:follow").disabled


@pytest.mark.parametrize(
    "name", ["20200101-000000-abcdef", "../../etc/passwd", "", "<script>", "x" * 5000]
)
def test_an_unknown_run_gets_a_sentence(name):
    app = open_page(name)
    assert ("not on this machine" in page_text(app)) == bool(name)


def test_a_run_that_waits_says_its_place():
    runs = [half_way(), create_run(small_run()), create_run(small_run())]
    with runs[0].lock():
        # more cores take more of the queue
        while len(jobs.queue()[0]) >= 2 and jobs.max_workers() > 1:
            jobs.tick()
        assert "Waiting for a free worker" in page_text(open_page(runs[2].id))


@pytest.mark.parametrize(
    "change, state, message, says",
    [
        (lambda run: None, "failed", "The loss is no longer a number", "no longer a number"),
        (lambda run: None, "stopped", "Stopped;", "Stopped;"),
        (
            lambda run: run.append(
                replace(run.records()[-1], step=3, sequence_accuracy=0.995, final=True)
            ),
            "finished",
            "Finished after 3 steps.",
            "ended before step 4, since at least 99\u00a0%",
        ),
        (
            lambda run: (run.path / "run.json").write_text(
                '{"config": {"steps": "many"}}', "utf-8"
            ),
            "finished",
            "",
            "cannot be read",
        ),
    ],
)
def test_an_ended_run_says_how(change, state, message, says):
    run = half_way()
    change(run)
    run.set_status(state, message)
    assert says in page_text(open_page(run.id))


def test_a_link_brings_the_settings_of_its_run_and_train_keeps_those_of_the_page():
    first, second = half_way(seed=41, learning_rate=1.7e-3), half_way(seed=42)
    for run in (first, second):
        run.set_status("finished")
    app = open_page(first.id)
    assert app.number_input(key="train:seed").value == 41
    config, again = first.config(), trained(app).config()
    assert (again.seed, again.learning_rate) == (41, 1.7e-3)
    assert (again.model, again.task) == (config.model, config.task)
    app = open_page(first.id)
    app.number_input(key="train:seed").set_value(7).run()
    app.query_params["run"] = second.id
    app.run()
    assert app.number_input(key="train:seed").value == 42
    app.number_input(key="train:seed").set_value(8).run()
    assert trained(app).config().seed == 8 and app.number_input(key="train:seed").value == 8


def test_stop_and_pause_ask_the_worker_and_continue_queues_it_again():
    run = half_way()
    with run.lock():
        app = open_page(run.id)
        assert [b.label for b in app.button if b.proto.type == "primary"] == ["Stop"]
        assert "the correct letter gets 0.29 of the weight" in page_text(app)
        assert "but sequence accuracy only 3\u00a0%" in page_text(app)
        app.button(key="train:stop").click().run()
        assert run.stop_request() == "stop"
        app.button(key="train:pause").click().run()
    assert run.stop_request() == "pause"
    run.set_status("paused", "Paused at step 2.")
    app = open_page(run.id)
    assert [b.label for b in app.button if b.proto.type == "primary"] == ["Continue"]
    assert "Paused at step 2" in page_text(app)
    app.button(key="train:continue").click().run()
    assert not run.stop_request() and not run.status().ended


def test_an_ended_run_trains_longer_from_its_last_checkpoint():
    run = create_run(small_run())
    assert work(run.path) == "finished"
    app = unfolded(open_page(run.id), "train:longer")
    app.number_input(key=f"train:more:{run.id}").set_value(6)
    unfolded(app, "train:longer").button(key="train:go-on").click().run()
    assert run.config().steps == 10 and not run.config().finish_early and not run.status().ended


def test_what_goes_wrong_stands_on_the_page():
    empty = create_run(small_run())
    empty.set_status("failed", "It broke.")
    text = page_text(open_page(empty.id))
    assert "before its first measurement" in text and "It broke." in text
    run = create_run(small_run(steps=100, learning_rate=1e-6))
    for step in range(0, 60, 5):
        run.append(Record(step, 2.8, 2.8, 0.1, 0.0, gradient=0.5, rate=1e-6))
    run.set_status("stopped", "Stopped.")
    assert "is small for AdamW: try ten times as much" in page_text(open_page(run.id))


def test_the_way_back_to_a_link_without_a_run_shows_the_example(monkeypatch):
    app = open_page(half_way().id)
    del app.query_params["run"]
    assert "example run" not in page_text(app.run()) and app.query_params["run"], (
        "as after a look at another page"
    )
    del app.query_params["run"]
    monkeypatch.setattr(run_data, "by_history", lambda: True)
    assert "example run" in page_text(app.run()) and "run" not in app.query_params


def test_the_right_option_is_the_value_that_reaches_one_half_first():
    records, question = EXAMPLE_RUN.records(), train.run_question(load_run(EXAMPLE_RUN))
    steps = {
        "Letter accuracy": next(r.step for r in records if r.token_accuracy >= 0.5),
        "The weight on the correct position": next(
            r.step for r in records if max(map(max, r.expected)) >= 0.5
        ),
    }
    first = min(steps, key=steps.get)
    assert (question.options, question.options[question.answer]) == (tuple(steps), first)


# The setup of the Train page alone: every task, every kind of model, every option, and a reader's own data.


TASKS_READY = [
    entry.key for entry in TASKS if not any(param.key == uploads.DATA for param in entry.params)
]
SORTS = [(key, kind) for key in TASKS_READY for kind in make_task(TaskConfig.of(key)).recommended]


def script():
    import streamlit as st

    from pages.train import adopt, controls

    if st.session_state.get("bring") is not None:
        adopt(st.session_state.pop("bring"))
    st.session_state["asked"] = controls()


def controls_of(**state) -> tuple[RunConfig | None, AppTest]:
    app = AppTest.from_function(script, default_timeout=60)
    for key, value in state.items():
        app.session_state[key] = value
    app.run()
    return app.session_state["asked"], app


@pytest.mark.parametrize("task, kind", SORTS)
def test_every_task_and_model_asks_for_its_recipe_and_draws_every_option(task, kind):
    name, base = f"train:{task}:{kind}", recommended(make_task(TaskConfig.of(task)), kind)
    panels = {f"{name}:sizes": task == "reverse", f"{name}:training": task == "reverse"}
    config, app = controls_of(**{"train:task": task, f"train:{task}:kind": kind}, **panels)
    assert not app.error and config == base
    if task != "reverse":
        return
    widgets = (app.slider, app.number_input, app.selectbox, app.toggle)
    drawn = {element.key for group in widgets for element in group}
    groups = train.of_training(base, "pairs")
    params = [*train.of_model(base.model), *(p for group in groups.values() for p in group)]
    assert {train.setting_key(name, param) for param in params} <= drawn


def test_what_is_chosen_in_a_popover_is_asked_for_when_it_is_closed():
    config, app = controls_of(
        **{
            "train:reverse:kind": "decoder",
            "train:reverse:decoder:layers": 3,
            "train:reverse:decoder:normalization": "rms",
            "train:reverse:decoder:dropout": 0.1,
            "train:reverse:decoder:optimizer": "sgd",
            "train:reverse:decoder:patience": 7,
        }
    )
    assert config is not None
    assert (config.model.layers, config.model.normalization) == (3, "rms")
    assert (config.optimizer, config.patience) == ("sgd", 7)
    assert config.model.dropout == config.model.attention.dropout == 0.1
    changed = captions(app)  # a closed popover says what differs from the recipe
    assert "layers 3" in changed and "SGD" in changed


@pytest.mark.parametrize(
    "task, kind", [("reverse", "transformer"), ("numbers", "recurrent"), ("recall", "decoder")]
)
def test_the_settings_of_a_run_come_back_whole(task, kind):
    changes = {"optimizer": "rmsprop", "weight_decay": 0.2, "warmup": 7, "seed": 5, "steps": 333}
    changes |= {"schedule": "inverse_sqrt", "label_smoothing": 0.1, "patience": 3}
    base = recommended(make_task(TaskConfig.of(task)), kind, learning_rate=1.7e-3, **changes)
    config, app = controls_of(bring=base)
    assert not app.error and config == base


def test_a_model_that_a_task_cannot_have_says_why_and_is_not_asked_for():
    usual = recommended(make_task(TaskConfig.of("reverse"))).model.attention
    short = usual.with_(position=Choice.of("learned", max_len=3))
    config, app = controls_of(**{"train:reverse:transformer:attention:now": short})
    assert config is None and "max\\_len" in app.error[0].value


def data_app():
    import streamlit as st

    from core.tasks import task_entry
    from dashboard.ui.uploads import data_widget

    st.session_state.setdefault("k", "left\tright\n")
    data_widget(
        next(param for param in task_entry(st.session_state["task"]).params if param.key == "data"),
        "k",
    )


@pytest.mark.parametrize("task", ["own_text", "own_pairs", "own_table"])
def test_the_file_of_a_reader_becomes_the_text_and_windows_1252_is_one_click_away(task):
    app = AppTest.from_function(data_app, default_timeout=60)
    state, good = app.session_state, "a,b\nü,2\n"
    state["task"] = task
    app.run()
    errors = []
    for data in (good.encode(), good.encode("latin-1"), b"a,b\n\x81,2\n", "é €\n".encode("cp1252")):
        app.file_uploader(key="k:file").set_value(("mine.csv", data, "text/csv")).run()
        errors.append(
            (state["k"], "k:trouble" in state, "k:windows" in state and state["k:windows"])
        )
    # what was there stays; Windows-1252 leaves out a byte
    assert errors == [
        (good, False, False),
        (good, True, True),
        (good, True, False),
        (good, True, True),
    ]
    assert "Line 1 is not UTF" in app.markdown[0].value
    app.button(key="k:as-windows").click().run()
    assert state["k"] == "é €\n" and "k:as-windows" not in {b.key for b in app.button}


COLUMNS = "id,size,day,country,kind\n" + "".join(
    f"{7 * i},{i % 5},{1 + i % 28}.3.2020,DE,{'ab'[i % 2]}\n" for i in range(40)
)


def test_what_is_left_out_is_said_before_training_and_can_be_put_back():
    _, app = controls_of(**{"train:task": "own_table", "train:own_table:data": COLUMNS})
    left_out = (
        "Left out: id (identifiers, 40 different whole numbers), day (dates), country (always DE)."
    )
    assert left_out in captions(app).replace("\\", "")
    (columns,) = app.multiselect
    assert columns.value == ["size"] and columns.options == ["id", "size", "day", "country"]
    columns.set_value(["size", "id"]).run()
    assert app.session_state["asked"].task["columns"] == "size,id"
    app.selectbox(key="train:own_table:dates").set_value("numbers").run()
    assert app.multiselect[0].value == ["size", "id"], "what a person took stays"
    app.multiselect[0].set_value(["size", "day"]).run()
    assert app.session_state["asked"].task["columns"] == ""
    assert "Dates as numbers" in captions(app)


@pytest.mark.parametrize(
    ("given", "columns"),
    [({"columns": "4,ID"}, "country,id"), ({"columns": "*", "dates": "categories"}, "id,size")],
)
def test_the_columns_of_a_link_come_back(given, columns):
    base = recommended(make_task(TaskConfig.of("own_table", data=COLUMNS, **given)))
    config, app = controls_of(bring=base)
    assert ",".join(app.multiselect[0].value) == config.task["columns"] == columns


def test_a_mask_from_another_page_finds_a_model_that_reads_it():
    kinds = {
        "recall": "decoder",
        "iris": "classifier",
        "numbers": "transformer",
        "series": "forecaster",
    }
    assert {task: layer_pattern._stacked_model(task) for task in kinds} == {
        task: (task, kind) for task, kind in kinds.items()
    }


def test_the_model_follows_the_data_until_a_person_takes_another():
    sentences = "\n".join(
        f"the {a} saw {n} cats\tder {a} sah {n} katzen" for a in "abcdef" for n in range(10)
    )
    config, app = controls_of(**{"train:task": "own_pairs"})
    assert config.model.kind == "recurrent", "numerals, character by character"
    app.session_state["train:own_pairs:data"] = sentences
    app.run()
    assert app.session_state["asked"].model.kind == "transformer", "sentences, word by word"
    app.selectbox(key="train:own_pairs:kind").set_value("hybrid").run()
    app.session_state["train:own_pairs:data"] = "\n".join(f"{n}\t{n * n}" for n in range(60))
    app.run()
    assert app.session_state["asked"].model.kind == "hybrid"
    base = recommended(make_task(TaskConfig.of("own_pairs", data=sentences)), "recurrent")
    assert controls_of(bring=base)[0].model.kind == "recurrent"


def test_a_small_server_says_that_runs_start_later(monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_LIMITS", "server_mb=1000")
    assert "a run starts a few seconds after Train is pressed" in page_text(open_page())


# The way from an ended run of Train to the example run beside it.


def test_an_ended_run_of_the_same_task_leads_to_the_example_beside_it():
    ids: list[str | None] = [None]
    for changes in ({}, {"task": TaskConfig.of("copy")}):
        run = half_way(**changes)
        run.set_status("finished")
        ids.append(run.id)
    example, same, other = (
        [
            part.proto.query_string
            for part in open_page(name).get("page_link")
            if part.proto.label == "Compare with the example run"
        ]
        for name in ids
    )
    assert not example and not other
    assert "example_run" in same[0] and str(ids[1]) in same[0]


# A run of every form and input, trained for two steps, drawn whole: maps, examples as what they are, and the fact.


DATA = {
    "own_text": "So it goes on, and on it goes, as before; and so on.\n" * 30
    + "At last it ends. Or not. " * 9,
    "own_pairs": "".join(f"{n}\t{n:b}\n" for n in range(80)),
    "own_table": "size,shape,kind\n"
    + "".join(f"{n % 7},{'ab'[n % 2]},{'xy'[n % 2]}\n" for n in range(60)),
}
# One row in twelve is rare, and nothing but chance tells which.
LOPSIDED = "a,b,kind\n" + "".join(
    f"{n * 37 % 101},{n * 53 % 97},{'rare' if n % 12 == 0 else 'common'}\n" for n in range(240)
)
FORMS = [
    ("recall", "decoder"),
    ("sort", "hybrid"),
    ("language", "classifier"),
    ("iris", "classifier"),
    ("documents", "hierarchical"),
    ("documents", "classifier"),
    ("iris", "one_token"),
    ("digits", "classifier"),
    ("pictures", "transformer"),
    ("series", "forecaster"),
    ("own_text", "decoder"),
    ("own_pairs", "transformer"),
    ("own_table", "classifier"),
]
KINDS = {
    "transformer": ["cross", "causal", "self"],
    "hybrid": ["cross", "self"],
    "hierarchical": ["sentences", "words"],
}


def draw_run():
    import streamlit as st

    from core.runs.runs import find_run
    from dashboard.ui.run_data import load_run
    from pages.train import draw

    draw(load_run(find_run(st.session_state["id"])))


def drawn(config: TaskConfig, kind: str | None = None, **changes: Any) -> tuple[Task, Run, AppTest]:
    task = make_task(config)
    changes = {"steps": 2, "record_every": 1, "batch_size": 4, **changes}
    run = create_run(recommended(task, kind, **changes))
    assert work(run.path) == "finished", run.status().message
    app = AppTest.from_function(draw_run, default_timeout=60)
    app.session_state["id"] = run.id
    app.run()
    assert not app.error and not app.exception
    return task, run, app


@pytest.mark.parametrize("task, kind", FORMS)
def test_a_run_is_drawn_as_what_it_is(task, kind):
    given: dict[str, Any] = {"data": DATA[task]} if task in DATA else {}
    made, run, app = drawn(TaskConfig.of(task, **given), kind, held_out=12, num_examples=3)
    assert_script(app)
    assert "At step" in page_text(app) and app.selectbox(key="train:example").options
    if made.input == "patches":
        assert html_text(app).count("data:image/png") >= 3
    for other in KINDS.get(kind, ()):
        picker = app.selectbox(key=f"train:kind:{run.id}")
        assert len(picker.options) == len(KINDS[kind])
        picker.set_value(other).run()
        assert_script(app)


@pytest.mark.parametrize(
    "task, data", [("own_table", LOPSIDED), ("iris", ""), ("digits", ""), ("language", "")]
)
def test_a_class_is_told_beside_the_majority_class(task, data, monkeypatch):
    monkeypatch.setattr(loop, "FINAL", 60)
    config = TaskConfig.of(task, **({"data": data} if data else {}))
    made, run, app = drawn(config, held_out=60, num_examples=1)
    last = run.records()[-1]
    held_out = made.held_out(60)
    confusion = last.confusion
    rows = [sum(row) for row in confusion]
    assert sum(rows) == len(held_out) == last.held_out and len(rows) == len(made.classes)
    assert sum(row[i] for i, row in enumerate(confusion)) / sum(rows) == pytest.approx(
        last.token_accuracy
    )
    name, share = made.majority(60)
    assert share == rows[made.classes.index(name)] / sum(rows)
    html = " ".join(element.proto.body for element in app.get("html"))
    text = re.sub("<[^>]+>|\\\\", "", html)
    assert "guessing" not in text and html.count('aria-label="Confusion matrix"') == 1
    assert f"the majority class “{name}” reaches {percent(share)}" in text
    assert f"balanced accuracy {percent(last.balanced)}" in text
    if task == "own_table":
        assert (name, round(share, 2)) == ("common", 0.92) and "logistic regression reaches" in text
        assert made.baseline_loss == pytest.approx(0.287, abs=0.01), "not log 2 = 0.693"


# Documents on Train: the drawing of both levels, its numbers, and the controls of the hierarchical model.


TOKENS = ("it", "rained", ".", "he", "<b>", "was", "not", ".", "so")


def documents(kind):
    return drawn(TaskConfig.of("documents", sentences=4), kind, held_out=12, num_examples=3)


def document_html(app):
    bodies = [element.proto.body for element in app.get("html")]
    return next(body for body in bodies if 'aria-label="Weights of sentences and words"' in body)


@pytest.mark.parametrize("kind", ["hierarchical", "classifier"])
def test_a_document_is_drawn_with_the_weights_of_the_run(kind):
    task, run, app = documents(kind)
    example = task.held_out(3)[1]
    app.selectbox(key="train:example").set_value(1).run()
    html, frame = document_html(app), run.frame(2)
    spans = sentence_spans(example.source)
    rows = re.findall(r"<tr style=.*?</tr>", html)
    assert len(rows) == len(spans)
    span, words = task.deciding(example)
    assert [i for i, row in enumerate(rows) if "outline" in row] == [spans.index(span)]
    assert [
        re.sub("<[^>]+>", "", row.split("<td")[3]).split(">", 1)[1].removesuffix(" decides")
        for row in rows
    ] == [" ".join(example.source[i] for i in span) for span in spans]
    shown = [re.search(r'text-align:right[^>]*">([^<]*)<', row)[1] for row in rows]
    if kind == "hierarchical":
        by_sentence, by_word = frame["1:sentences"][0, 0, 0], frame["1:words"][0, 0].sum(0)
    else:
        layer, head = app.selectbox(key=f"train:head:{run.id}:self").value
        whole = frame["1:self"][layer, head].mean(0)
        by_sentence = np.array([whole[s.start : s.stop].sum() for s in spans])
        by_word = np.concatenate(
            [whole[s.start : s.stop] / whole[s.start : s.stop].sum() for s in spans]
        )
    assert shown == [number(share) for share in by_sentence]
    assert by_sentence.sum() == pytest.approx(1, abs=0.01)
    text = page_text(app)
    for sentence in (
        f"it gets {number(by_sentence[spans.index(span)])} of the weight",
        f"{number(sum(by_word[i] for i in words))} of the weight within it",
        f"The class is **{example.target[0]}**",
        "the deciding sentence gets",
    ):
        assert sentence in text


def test_by_hand_a_drawing():
    """A sentence has what its words have; words are escaped, and readable on every colour of the scale."""
    weights = np.array([0.1, 0.1, 0, 0.0, 0.3, 0, 0, 0.3, 0.2], dtype=np.float32)
    levels = DocumentWeights.of_words(TOKENS, weights)
    assert levels.sentences == pytest.approx([0.2, 0.6, 0.2]) and levels.words == pytest.approx(
        [0.5, 0.5, 0, 0, 0.5, 0, 0, 0.5, 1]
    )
    html = lines(levels, range(3, 8), "light", Ink.of("light"))
    assert (
        html.count("<tr style") == 3
        and html.count("decides") == 1
        and "&lt;b&gt;" in html
        and "<b>" not in html
    )
    assert "0.50 of its sentence, 0.30 of the document" in html
    none = DocumentWeights.of_words(TOKENS, np.zeros(9, dtype=np.float32))
    assert not none.words.any(), "a sentence without weight"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_words_are_readable_on_every_weight(theme):
    for weight in np.linspace(0, 1, 41):
        levels = DocumentWeights(("a",), np.array([weight]), np.array([1.0]))
        html = lines(levels, None, theme, Ink.of(theme))
        colors = re.search(r"background:(#\w{6});color:(#\w{6})", html).groups()
        assert contrast(*map(rgb_of, colors)) >= 4.5, (weight, colors)


def test_both_levels_have_names_pass_the_checks_of_an_upload_and_stand_beside_another_model():
    """The product of both levels stands beside the Transformer's row of the class, on the same words."""
    (_, run, app), (task, other, _) = documents("hierarchical"), documents("classifier")
    picker = app.selectbox(key=f"train:kind:{run.id}")
    assert picker.options == ["Sentences of the document", "Words of each sentence"]
    picker.set_value("words").run()
    assert document_html(app)
    assert train.run_question(load_run(run)) is None, "where guessing reaches one half"
    example, frame = task.held_out(3)[2], run.frame(2)
    both = sides([summarize(run), summarize(other)])
    levels, row = (source_at(side, 2, 2)[1] for side in both)
    assert levels.rows == row.rows == ("class",) and levels.columns == row.columns == example.source
    words, sentences = frame["2:words"][0, 0], frame["2:sentences"][0, 0, 0]
    spans = sentence_spans(example.source)
    by_hand = [words[n, i] * sentences[n] for n, span in enumerate(spans) for i in span]
    assert levels.weights[0, 0, 0] == pytest.approx(by_hand, abs=1e-5)
    assert row.weights.sum(-1) == pytest.approx(np.ones((2, 4, 1)), abs=0.01)
    validate.frames(run, run.config())
    halves = {name: value.astype(np.float16) for name, value in frame.items()}
    run.frame_path(2).write_bytes(save(halves | {"0:words": halves["0:words"][..., :-1].copy()}))
    with pytest.raises(ValueError, match="0:words is F16"):
        validate.frames(run, run.config())


def test_the_controls_of_a_hierarchical_model():
    """Neither positions nor what a decoder reads are on offer; the mechanisms are those of one learned query."""
    start = ModelConfig.from_json(
        make_task(TaskConfig.of("documents")).recommended["hierarchical"].model
    )
    keys = [param.key for param in of_model(start)]
    assert keys == ["layers", "cell", "bidirectional", "dropout"]
    names = ("bahdanau", "luong_general", "luong_local_m", "vaswani", "linear_transformer")
    assert [fits(key, "hierarchical", (32, 1)) for key in names] == [True] * 2 + [False] * 3
