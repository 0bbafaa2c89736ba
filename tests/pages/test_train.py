"""The pages Train and Fine-tune without a browser and without a worker: what each state of a run's folder looks like."""

import math
import re
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save
from streamlit.testing.v1 import AppTest

from core.attention import Choice, preset
from core.models import ModelConfig, sentence_spans
from core.pretrained.finetune import build, parse, usual
from core.pretrained.finetune_run import config_of, create
from core.runs import archive as validate
from core.runs.folder import Status
from core.runs.runs import Run, create_run, list_runs
from core.runs.sweeps import create_sweep
from core.runs.worker import work
from core.studies.decode import decodable_runs
from core.studies.runs import source_at
from core.tasks import METRICS, TASKS, Metric, Task, TaskConfig, make_task
from core.training import Bucket, Prediction, Record, SweepConfig, loop, nanogpt, recommended
from dashboard.draw import fine_tune as draw, tables
from dashboard.draw.figures import Ink, shade, text_on
from dashboard.draw.formats import number, percent
from dashboard.draw.tables import DocumentWeights, sentence_weights
from dashboard.fields.data import DATA
from dashboard.server import queue
from dashboard.ui import run_setup
from dashboard.ui.fine_tune import FINE_TUNED as TUNED
from dashboard.ui.run_setup import NextRun
from dashboard.ui.runs import EXAMPLE_RUN, load_run, summarize
from pages import train
from pages.compare_runs import sides
from pages.sweeps import own_runs
from pages.transformer import weights_on_offer
from tests.pages.app import (
    Case,
    assert_case,
    assert_says,
    assert_script,
    html_text,
    open_at,
    open_page,
    page_cases,
    page_text,
    pictures_of,
    set_control,
    set_state,
)
from tests.training.small import small_run

NAME = "train:reverse:transformer"
UNFOLD = ("session_state", f"{NAME}:axes", True)
FORMULA = [UNFOLD, ("selectbox", f"{NAME}:attention:position", "formula"), UNFOLD]
TYPED = f"{NAME}:attention:position:formula:formula"


def open_train(run: str | None = None) -> AppTest:
    return open_at("train", **{} if run is None else {"run": run})


def trained(app: AppTest, *moves: tuple[str, str, Any]) -> Run:
    assert_case(app, Case(do=[*moves, ("button", "train:train", None)]))
    return list_runs()[-1]


def primary(app: AppTest) -> list[str]:
    return [button.label for button in app.button if button.proto.type == "primary"]


def half_way(state: str = "running", **changes) -> Run:
    """A run at step 2 of 4, as its folder stands."""
    run = create_run(small_run(**changes))
    example = Prediction(("a", "b", "<b>"), ("<b>", "b", "a"), ("<b>", "a", "a"))
    maps = {f"{layer}:cross": np.full((1, 2, 4, 3), 1 / 3) for layer in (0, 1)}
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
    run.set_status(state)
    return run


def test_train_makes_a_run_with_the_settings_of_the_page():
    app = open_train()
    assert primary(app) == ["Train"]
    first = trained(app, ("number_input", "train:seed", 7), ("slider", "train:reverse:length", 12))
    assert (first.config().seed, first.config().task["length"]) == (7, 12)
    first.set_status("finished")
    app.run()
    app.selectbox(key="train:task").set_value("own_pairs").run()
    data = "\n".join(f"{n} x\t{n * n} y" for n in range(60))
    # with what has been read since the page was made, as when a file is still being read
    app.session_state["train:own_pairs:data"] = data
    run = trained(app)
    assert run.config().task["data"] == data and run.id in app.query_params["run"]


def test_what_is_picked_is_trained_with():
    typed = ("text_input", TYPED, "score - 0.25*abs(i - j)")
    ways = (
        [("selectbox", f"{NAME}:mechanism", "mistral")],
        [("button", "train:try:1", None)],
        [*FORMULA, typed],
    )
    config, none, own = (trained(open_train(), *way).config().model.attention for way in ways)
    assert config == preset("mistral").config(config.d_model, config.num_heads)
    assert none is None and own.position["formula"] == typed[2]


NO_ATTENTION = {"train:reverse:kind": "recurrent", "train:reverse:recurrent:mechanism": "none"}


def next_record(run: Run, step: int) -> None:
    run.append(
        replace(run.records()[-1], step=step, maps={"0:cross": np.full((1, 2, 4, 3), 1 / 3)})
    )


def test_figures_of_live_run_follow_until_step_is_picked():
    # Also where a browser that missed the first drawing of a widget sends the widget's default back.
    with (run := half_way()).lock():
        app = open_train(run.id)
        for toggle in app.toggle:
            toggle.set_value(toggle.proto.default)
        app.run()
        next_record(run, 3)
        assert_says(app.run(), "At step 3,")
        app.session_state[f"train:map:{run.id}:0:cross:view"]["frame"] = 0
        for step in (4, 5):
            assert_says(app.run(), "At step 0,")
            next_record(run, step)
        assert_says(app.button(key="train:follow").click().run(), "At step 5,")
        assert app.button(key="train:follow").disabled


def test_one_step_for_all_figures():
    # The map is of step 2, the last words of step 0, and step 4 has no map yet.
    run = create_run(small_run())
    maps = {"0:cross": np.full((1, 2, 4, 3), 1 / 3)}
    said = (Prediction(("a", "b"), ("b", "a"), ("a", "a")),)
    scores: Any = {"loss": 2.0, "expected": ((0.29, 0.1),), "even": 0.08, "held_out": 9}
    for step in (0, 2, 4):
        changes = {"W_q": 0.1 * step, "norms": 0.01 * step}
        run.append(
            Record(
                step,
                **scores,
                changes=changes,
                examples=() if step else said,
                maps=maps if step < 4 else {},
            )
        )
    with run.lock():
        run.set_status("running")
        app = open_train(run.id)
        text = page_text(app)
        assert "At step 2," in text and "Examples at step 0, the last" in text
        assert "W_q most, by **0.20** of its size at the start; norms least, by 0.020" in text
        assert not re.search(r"\bstep 4\b", text)


test_what_it_says = page_cases(
    "train",
    {
        name[:20]: Case({"run": name}, ["not on this machine"])
        for name in ("20200101-000000-abcdef", "../../etc/passwd", "<script>", "x" * 5000)
    }
    | {
        "no run": Case({"run": ""}, never=["not on this machine"]),
        "an encoder's kernel": Case(
            do=[("selectbox", f"{NAME}:mechanism", "linformer")],
            says=[
                "Linformer is used in the encoder; the decoder's self-attention uses the exact kernel"
            ],
        ),
        "a preset": Case(
            do=[("selectbox", f"{NAME}:mechanism", "mistral")],
            says=["Grouped-query · Scaled dot product · RoPE"],
        ),
        "no output attends without attention": Case(
            do=[("button", "train:try:1", None)],
            controls=NO_ATTENTION,
            never=["mirrored position"],
        ),
        "half a formula": Case(
            do=[*FORMULA, ("text_input", TYPED, "score - 0.25*abs(i"), UNFOLD],
            says=["Train (disabled)"],
        ),
        "a formula": Case(
            do=[*FORMULA, ("text_input", TYPED, "score - 0.25*abs(i - j)"), UNFOLD],
            controls={f"{NAME}:mechanism": "own"},
            never=["Train (disabled)"],
        ),
        "too few letters": Case(
            do=[("slider", "train:reverse:length", 2)], says=["too few", "Train (disabled)"]
        ),
        "a norm after the sum": Case(
            {f"{NAME}:residual": "attention"}, ["post-norm could take; take norm = pre"]
        ),
        "data of one row": Case(
            {"train:task": "own_pairs"},
            do=[("session_state", "train:own_pairs:data", "one\ttwo")],
            says=["Train (disabled)"],
        ),
    },
)


def test_a_run_that_waits_says_its_place_and_the_time(monkeypatch):
    monkeypatch.setattr(queue, "max_workers", lambda: 1)
    runs = [half_way(), *(create_run(small_run(max_seconds=50.0)) for _ in range(2))]
    with runs[0].lock():
        app = open_train(runs[2].id)
    (line,) = [bar.proto.text for bar in app.get("progress")]
    assert "Waiting for a free worker" in line and "number 2 in the queue, starts in about" in line
    assert_says(app, "This run waits for a free worker.** Below is the example run.", "At step 200")


def test_a_rate_that_is_too_small_is_told():
    run = create_run(small_run(steps=100, learning_rate=1e-6))
    for step in range(0, 60, 5):
        run.append(Record(step, 2.8, 2.8, 0.1, 0.0, gradient=0.5, rate=1e-6))
    run.set_status("stopped", "Stopped.")
    assert_says(open_train(run.id), "is small for AdamW: try ten times as much")


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
        (
            lambda run: (run.path / "metrics.jsonl").unlink(),
            "failed",
            "It broke.",
            "before its first measurement",
        ),
    ],
)
def test_an_ended_run_says_how(change, state, message, says):
    run = half_way()
    change(run)
    run.set_status(state, message)
    assert_says(open_train(run.id), says, message)


def test_a_link_brings_the_settings_of_its_run():
    first = half_way("finished", seed=41, learning_rate=1.7e-3)
    second, config = half_way("finished", seed=42), first.config()
    app = open_train(first.id)
    assert_case(app, Case(controls={"train:seed": 41}))
    again = trained(app).config()
    assert (again.seed, again.learning_rate) == (41, 1.7e-3)
    assert (again.model, again.task) == (config.model, config.task)
    app = open_train(first.id)
    moves = [("number_input", "train:seed", 7), ("query_params", "run", second.id)]
    assert_case(app, Case(do=moves, controls={"train:seed": 42}))
    assert trained(app, ("number_input", "train:seed", 8)).config().seed == 8
    assert_case(app, Case(controls={"train:seed": 8}))


def test_stop_and_pause_ask_the_worker():
    run = half_way()
    with run.lock():
        app = open_train(run.id)
        assert primary(app) == ["Stop"]
        for how in ("stop", "pause"):
            app.button(key=f"train:{how}").click().run()
            assert run.stop_request() == how
    run.set_status("paused", "Paused at step 2.")
    app = open_train(run.id)
    assert primary(app) == ["Continue"]
    assert_says(app, "Paused at step 2")
    app.button(key="train:continue").click().run()
    assert not run.stop_request() and not run.status().ended


def test_ended_run_trains_longer_from_its_last_checkpoint():
    run, unfold = create_run(small_run()), ("session_state", "train:longer", True)
    assert work(run.path) == "finished"
    more = ("number_input", f"train:more:{run.id}", 6)
    assert_case(
        open_train(run.id), Case(do=[unfold, more, unfold, ("button", "train:go-on", None)])
    )
    assert run.config().steps == 10 and not run.config().finish_early and not run.status().ended


def test_way_back_to_link_without_run_shows_example(monkeypatch):
    app = open_train(half_way().id)
    del app.query_params["run"]
    assert "example run" not in page_text(app.run()) and app.query_params["run"], (
        "as after a look at another page"
    )
    del app.query_params["run"]
    monkeypatch.setattr("dashboard.ui.runs.by_history", lambda: True)
    assert "example run" in page_text(app.run()) and "run" not in app.query_params


def test_right_option_is_value_that_reaches_one_half_first():
    records, question = EXAMPLE_RUN.records(), train.run_question(load_run(EXAMPLE_RUN))
    steps = {
        "Letter accuracy": next(r.step for r in records if r.token_accuracy >= 0.5),
        "The weight on the correct position": next(
            r.step for r in records if max(map(max, r.expected)) >= 0.5
        ),
    }
    assert question.options == tuple(steps)
    assert question.options[question.answer] == min(steps, key=steps.get)


# The setup of the Train page alone: every task, every kind of model, every option, and a reader's own data.


TASKS_READY = [entry.key for entry in TASKS if not any(param.key == DATA for param in entry.params)]


def script():
    import streamlit as st

    from dashboard.ui.run_setup import adopt_run, next_run

    if st.session_state.get("bring") is not None:
        adopt_run(st.session_state.pop("bring"))
    st.session_state["asked"] = next_run()


def controls_of(**state) -> tuple[Any, AppTest]:
    """What the controls ask for, a config or None, and their page."""
    app = AppTest.from_function(script, default_timeout=60)
    for key, value in state.items():
        app.session_state[key] = value
    app.run()
    return app.session_state["asked"], app


@pytest.mark.parametrize("task", TASKS_READY)
def test_every_task_and_model_asks_for_its_recipe(task):
    for kind in make_task(TaskConfig.of(task)).recommended:
        name, base = f"train:{task}:{kind}", recommended(make_task(TaskConfig.of(task)), kind)
        panels = dict.fromkeys((f"{name}:sizes", f"{name}:training"), task == "reverse")
        config, app = controls_of(**{"train:task": task, f"train:{task}:kind": kind}, **panels)
        assert not app.error and config == base
        if task == "reverse":
            groups = run_setup.of_training(base, "pairs").values()
            params = [
                *run_setup.of_model(base.model),
                *(param for group in groups for param in group),
            ]
            widgets = (*app.slider, *app.number_input, *app.selectbox, *app.toggle)
            settings, c = NextRun.settings, NextRun(task=task, kind=kind)
            keys = {settings.param_key(c, one.key) for one in params}
            assert keys <= {one.key for one in widgets}


def test_what_is_chosen_in_a_popover_is_asked_for():
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
    model, dropout = config.model, [config.model.dropout, config.model.attention.dropout]
    assert [model.layers, model.normalization, config.optimizer, config.patience, *dropout] == [
        *(3, "rms", "sgd", 7),
        *(0.1, 0.1),
    ]
    assert_says(app, "layers 3", "SGD")  # a closed popover says what differs from the recipe


@pytest.mark.parametrize("size", run_setup.DIAL)
def test_the_dial_sets_what_was_not_set_by_hand(size):
    base, app = controls_of(**{f"{NAME}:sizes": True})  # so that its widgets hold the recipe
    heads = ("select_slider", f"{NAME}:heads:32", 4)
    dial = ("select_slider", f"{NAME}:size", size)
    assert_case(app, Case(do=[("number_input", f"{NAME}:d_ff", 80), heads, dial]))
    made, sizes = app.session_state["asked"], run_setup.sizes_of(base, size)
    assert (made.model.d_model, made.model.layers) == (sizes["d_model"], sizes["layers"])
    assert (made.steps, made.model.d_ff, made.model.num_heads) == (sizes["steps"], 80, 4)


def test_the_largest_model_of_the_dial_can_be_built():
    base = recommended(make_task(TaskConfig.of("reverse")), "transformer")
    wide = replace(base, model=ModelConfig.transformer(384, 4, 12, 4096))
    sizes: Any = run_setup.sizes_of(wide, "largest")
    del sizes["steps"]
    attention = wide.model.attention.with_(d_model=sizes["d_model"])
    assert replace(wide.model, attention=attention, **sizes).d_model == 512


@pytest.mark.parametrize(
    "task, kind", [("reverse", "transformer"), ("numbers", "recurrent"), ("recall", "decoder")]
)
def test_the_settings_of_a_run_come_back_whole(task, kind):
    changes: dict[str, Any] = dict(
        optimizer="rmsprop",
        weight_decay=0.2,
        warmup=7,
        seed=5,
        steps=333,
        schedule="inverse_sqrt",
        label_smoothing=0.1,
        patience=3,
    )
    base = recommended(make_task(TaskConfig.of(task)), kind, learning_rate=1.7e-3, **changes)
    config, app = controls_of(bring=base)
    assert not app.error and config == base


def test_nanogpts_recipe_is_a_press():
    _, app = controls_of(**{"train:task": "own_text"})
    app.button(key="train:nanogpt").click().run()
    assert not app.error and app.session_state["asked"] == nanogpt(TaskConfig.of("own_text"))
    assert not controls_of(**{"train:task": "copy"})[1].get("button")


def test_a_model_that_a_task_cannot_have_says_why():
    short = recommended(make_task(TaskConfig.of("reverse"))).model.attention.with_(
        position=Choice.of("learned", max_len=3)
    )
    config, app = controls_of(**{"train:reverse:transformer:attention:now": short})
    assert config is None and "max\\_len" in app.error[0].value


@pytest.mark.parametrize("task", ["own_text", "own_pairs", "own_table"])
def test_a_readers_file_becomes_the_text(task):
    app = controls_of(**{"train:task": task})[1]
    state, good, key = app.session_state, "a,b\nü,2\n", f"train:{task}:data"
    errors = []
    for data in (good.encode(), good.encode("latin-1"), b"a,b\n\x81,2\n", "é €\n".encode("cp1252")):
        app.file_uploader(key=f"{key}:file").set_value(("mine.csv", data, "text/csv")).run()
        windows = f"{key}:windows" in state and state[f"{key}:windows"]
        errors.append((state[key], f"{key}:trouble" in state, windows))
    # what was there stays; Windows-1252 leaves out a byte
    assert errors == [
        (good, False, False),
        (good, True, True),
        (good, True, False),
        (good, True, True),
    ]
    button = ("button", f"{key}:as-windows", None)
    assert_says(app, "Line 1 is not UTF")
    assert_case(app, Case(do=[button], controls={key: "é €\n"}))
    assert button[1] not in {one.key for one in app.button}


COLUMNS = "id,size,day,country,kind\n" + "".join(
    f"{7 * i},{i % 5},{1 + i % 28}.3.2020,DE,{'ab'[i % 2]}\n" for i in range(40)
)


def test_what_is_left_out_is_said_before_training():
    app = controls_of(**{"train:task": "own_table", "train:own_table:data": COLUMNS})[1]
    assert_says(
        app,
        "Left out: id (identifiers, 40 different whole numbers), day (dates), country (always DE).",
    )
    (columns,) = app.multiselect
    assert columns.value == ["size"] and columns.options == ["id", "size", "day", "country"]
    columns.set_value(["size", "id"]).run()
    assert app.session_state["asked"].task["columns"] == "size,id"
    app.selectbox(key="train:own_table:dates").set_value("numbers").run()
    assert app.multiselect[0].value == ["size", "id"], "what a person took stays"
    app.multiselect[0].set_value(["size", "day"]).run()
    assert app.session_state["asked"].task["columns"] == ""
    assert_says(app, "Dates as numbers")


@pytest.mark.parametrize(
    ("given", "columns"),
    [({"columns": "4,ID"}, "country,id"), ({"columns": "*", "dates": "categories"}, "id,size")],
)
def test_the_columns_of_a_link_come_back(given, columns):
    config, app = controls_of(
        bring=recommended(make_task(TaskConfig.of("own_table", data=COLUMNS, **given)))
    )
    assert ",".join(app.multiselect[0].value) == config.task["columns"] == columns


def test_mask_from_another_page_finds_model_that_reads_it():
    kinds = dict(recall="decoder", iris="classifier", numbers="transformer", series="forecaster")
    assert [run_setup._stacked_model(task) for task in kinds] == [*kinds.items()]


def test_model_follows_data_until_person_takes_another():
    sentences = "\n".join(
        f"the {a} saw {n} cats\tder {a} sah {n} katzen" for a in "abcdef" for n in range(10)
    )
    numerals = "\n".join(f"{n}\t{n * n}" for n in range(60))
    config, app = controls_of(**{"train:task": "own_pairs"})
    assert config.model.kind == "recurrent", "numerals, character by character"
    data, taken = "train:own_pairs:data", ("selectbox", "train:own_pairs:kind", "hybrid")
    for moves, kind in (
        ([("session_state", data, sentences)], "transformer"),  # sentences, word by word
        ([taken, ("session_state", data, numerals)], "hybrid"),
    ):
        assert_case(app, Case(do=moves))
        assert app.session_state["asked"].model.kind == kind
    base = recommended(make_task(TaskConfig.of("own_pairs", data=sentences)), "recurrent")
    assert controls_of(bring=base)[0].model.kind == "recurrent"


def test_a_small_server_says_that_runs_start_later(monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_LIMITS", "server_mb=1000")
    monkeypatch.setattr("core.memory.free_bytes", lambda: 1e9)  # whatever the tests before hold
    assert_says(open_train(), "a run starts a few seconds after Train is pressed")


# The way from an ended run of Train to the example run beside it.


def test_ended_run_of_same_task_leads_to_example_beside_it():
    same, other = half_way("finished"), half_way("finished", task=TaskConfig.of("copy"))
    links: list[Any] = [
        [part.proto for part in open_train(name).get("page_link")]
        for name in (None, same.id, other.id)
    ]
    queries = [
        [link.query_string for link in page if link.label == "Compare with the example run"]
        for page in links
    ]
    assert [len(found) for found in queries] == [0, 1, 0]
    assert "example_run" in queries[1][0] and same.id in queries[1][0]


# A run of every form and input, trained for two steps, drawn whole: maps, examples as what they are, and the fact.


TEXTS = {
    "own_text": "So it goes on, and on it goes, as before; and so on.\n" * 30
    + "At last it ends. Or not. " * 9,
    "own_pairs": "".join(f"{n}\t{n:b}\n" for n in range(80)),
}
# One row in twelve is rare, and nothing but chance tells which.
LOPSIDED = "a,b,kind\n" + "".join(
    f"{n * 37 % 101},{n * 53 % 97},{'rare' if n % 12 == 0 else 'common'}\n" for n in range(240)
)
FORMS = [
    ("recall", "decoder"),
    ("sort", "hybrid"),
    ("iris", "one_token"),
    ("pictures", "transformer"),
    ("series", "forecaster"),
    ("own_text", "decoder"),
    ("own_pairs", "transformer"),
]
KINDS = {
    "transformer": ["causal", "self", "cross"],
    "hybrid": ["self", "cross"],
    "hierarchical": ["words", "sentences"],
}


def draw_run():
    import streamlit as st

    from core.runs.runs import find_run
    from dashboard.server.calls import recording
    from dashboard.ui.runs import load_run
    from pages.train import draw_run

    with recording():
        draw_run(load_run(find_run(st.session_state["id"])))


def drawn(config: TaskConfig, kind: str | None = None, **changes: Any) -> tuple[Task, Run, AppTest]:
    """A run of two steps and its page, which draws each kind of its maps, with the script of each."""
    task = make_task(config)
    run = create_run(recommended(task, kind, steps=2, record_every=1, batch_size=4, **changes))
    assert work(run.path) == "finished", run.status().message
    app = AppTest.from_function(draw_run, default_timeout=60)
    set_state(app, "id", run.id)
    assert_script(app)
    assert_says(app, "At step")
    assert app.selectbox(key="train:example").options and not app.error
    if task.input == "patches":
        assert html_text(app).count("data:image/png") >= 3
    if kinds := KINDS.get(run.config().model.kind):
        assert len(app.selectbox(key=f"train:kind:{run.id}").options) == len(kinds)
        for other in kinds:
            assert_script(set_control("train:kind:", app, "selectbox", run.id, other))
    return task, run, app


@pytest.mark.parametrize("task, kind", FORMS)
def test_a_run_is_drawn_as_what_it_is(task, kind):
    given: dict[str, Any] = {"data": TEXTS[task]} if task in TEXTS else {}
    drawn(TaskConfig.of(task, **given), kind, held_out=12, num_examples=3)


def test_a_run_without_the_plain_sum_has_its_map_over_depth():
    model = ModelConfig.transformer(8, 2, 2, 16, norm="pre", position="rope", residual="hyper")
    run = create_run(small_run(model=model, steps=2, record_every=1))
    assert work(run.path) == "finished", run.status().message
    app = AppTest.from_function(draw_run, default_timeout=60)
    app.session_state["train:over_depth"] = True
    assert_says(
        set_state(app, "id", run.id),
        "Between layers stands no plain sum here.",
        "with a plain sum, would be",
    )
    stack = app.selectbox(key=f"train:stack:{run.id}")
    assert stack.options == ["encoder", "decoder"] and not app.exception and not app.error
    token = app.selectbox(key=f"train:token:{run.id}:encoder")
    assert token.options[0] == "mean over all" and len(token.options) == 7
    assert not token.set_value(2).run().exception and not stack.set_value("decoder").run().exception


@pytest.mark.parametrize(
    "task, given",
    [("own_table", {"data": LOPSIDED}), ("iris", {}), ("digits", {}), ("language", {})],
)
def test_a_class_is_told_beside_the_majority_class(task, given, monkeypatch):
    monkeypatch.setattr(loop, "FINAL", 60)
    made, run, app = drawn(TaskConfig.of(task, **given), held_out=60, num_examples=3)
    last = run.records()[-1]
    confusion = np.array(last.confusion)
    rows = confusion.sum(1)
    assert rows.sum() == len(made.held_out(60)) == last.held_out and len(rows) == len(made.classes)
    assert confusion.trace() / rows.sum() == pytest.approx(last.token_accuracy)
    name, share = made.majority(60)
    assert share == rows[made.classes.index(name)] / rows.sum()
    assert html_text(app).count('aria-label="Confusion matrix"') == 1
    says = [
        f"the majority class “{name}” reaches {percent(share)}",
        f"balanced accuracy {percent(last.balanced)}",
    ]
    assert_case(app, Case(says=says, never=["guessing"]))
    if task == "own_table":
        assert (name, round(share, 2)) == ("common", 0.92)
        assert_says(app, "logistic regression reaches")
        assert made.baseline_loss == pytest.approx(0.287, abs=0.01), "not log 2 = 0.693"


# Documents on Train: the drawing of both levels, its numbers, and the controls of the hierarchical model.


TOKENS = ("it", "rained", ".", "he", "<b>", "was", "not", ".", "so")


def document_html(app):
    bodies = [element.proto.body for element in app.get("html")]
    return next(body for body in bodies if 'aria-label="Weights of sentences and words"' in body)


def html_words(text: str) -> list[str]:
    return re.sub("<[^>]+>", " ", text).split()


def assert_document(task: Task, run: Run, app: AppTest) -> None:
    example, frame = task.held_out(3)[1], run.frame(2)
    app.selectbox(key="train:example").set_value(1).run()
    spans = sentence_spans(example.source)
    rows = re.findall(r"<tr style=.*?</tr>", document_html(app), re.DOTALL)
    span, words = task.deciding(example)
    assert [i for i, row in enumerate(rows) if "outline" in row] == [spans.index(span)]
    assert [
        " ".join(html_words(row.split("<td")[3].split(">", 1)[1])).removesuffix(" decides")
        for row in rows
    ] == [" ".join(example.source[i] for i in span) for span in spans]
    if run.config().model.kind == "hierarchical":
        by_sentence, by_word = frame["1:sentences"][0, 0, 0], frame["1:words"][0, 0].sum(0)
    else:
        layer, head = app.selectbox(key=f"train:head:{run.id}:self").value
        whole = frame["1:self"][layer, head].mean(0)
        by_sentence = np.array([whole[s.start : s.stop].sum() for s in spans])
        by_word = np.concatenate(
            [whole[s.start : s.stop] / whole[s.start : s.stop].sum() for s in spans]
        )
    assert [re.search(r'text-align:right[^>]*">([^<]*)<', row)[1] for row in rows] == [
        number(share) for share in by_sentence
    ]
    assert by_sentence.sum() == pytest.approx(1, abs=0.01)
    assert_says(
        app,
        f"it gets {number(by_sentence[spans.index(span)])} of the weight",
        f"{number(sum(by_word[i] for i in words))} of the weight within it",
        f"The class is **{example.target[0]}**",
        "the deciding sentence gets",
    )


def test_a_document_is_drawn_at_both_levels():
    # The product of both levels stands beside the Transformer's row of the class, on the same words.
    config, sizes = TaskConfig.of("documents", sentences=4), dict(held_out=12, num_examples=3)
    (_, run, app), (task, other, other_app) = (
        drawn(config, kind, **sizes) for kind in ("hierarchical", "classifier")
    )
    assert_document(task, run, app)
    assert_document(task, other, other_app)
    picker = app.selectbox(key=f"train:kind:{run.id}")
    assert picker.options == ["Sentences of the document", "Words of each sentence"]
    assert document_html(picker.set_value("words").run())
    assert train.run_question(load_run(run)) is None, "where guessing reaches one half"
    example, frame = task.held_out(3)[2], run.frame(2)
    both = sides([summarize(run), summarize(other)])
    levels, row = (source_at(side, 2, 2)[1] for side in both)
    assert levels.rows == row.rows == ("class",) and levels.columns == row.columns == example.source
    words, sentences = frame["2:words"][0, 0], frame["2:sentences"][0, 0, 0]
    spans = sentence_spans(example.source)
    assert levels.weights[0, 0, 0] == pytest.approx(
        [words[n, i] * sentences[n] for n, span in enumerate(spans) for i in span], abs=1e-5
    )
    assert row.weights.sum(-1) == pytest.approx(np.ones((2, 4, 1)), abs=0.01)
    validate.frames(run, run.config())
    halves = {name: value.astype(np.float16) for name, value in frame.items()}
    run.frame_path(2).write_bytes(save(halves | {"0:words": halves["0:words"][..., :-1].copy()}))
    pytest.raises(ValueError, validate.frames, run, run.config()).match("0:words is F16")


def test_by_hand_a_drawing():
    # A sentence has what its words have; words are escaped, and readable on every colour of the scale.
    levels = DocumentWeights.of_words(
        TOKENS, np.array([0.1, 0.1, 0, 0.0, 0.3, 0, 0, 0.3, 0.2], dtype=np.float32)
    )
    assert levels.sentences == pytest.approx([0.2, 0.6, 0.2])
    assert levels.words == pytest.approx([0.5, 0.5, 0, 0, 0.5, 0, 0, 0.5, 1])
    html = sentence_weights(levels, range(3, 8), "light", Ink.of("light"))
    counts = {"<tr style": 3, "decides": 1, "&lt;b&gt;": 1, "<b>": 0}
    assert {text: html.count(text) for text in counts} == counts
    assert "0.50 of its sentence, 0.30 of the document" in html
    fills = [shade(float(weight), "light") for weight in levels.words]
    assert re.findall(r"background:(#\w{6});color:(#\w{6})", html) == [
        (fill, text_on(fill, "light")) for fill in fills
    ]
    assert not DocumentWeights.of_words(TOKENS, np.zeros(9, dtype=np.float32)).words.any(), (
        "a sentence without weight"
    )


def test_the_controls_of_a_hierarchical_model():
    # Neither positions nor what a decoder reads are on offer; the mechanisms are those of one learned query.
    start = make_task(TaskConfig.of("documents")).recommended["hierarchical"].model
    keys = [param.key for param in run_setup.of_model(ModelConfig.from_json(start))]
    assert keys == ["layers", "cell", "bidirectional", "dropout", "scaled_embedding"]
    names = ("bahdanau", "luong_general", "luong_local_m", "vaswani", "linear_transformer")
    assert [run_setup.trainable(key, "hierarchical", (32, 1)) for key in names] == [True] * 2 + [
        False
    ] * 3


# The page Fine-tune.


def tuned(*records: Record, task: str = "classify", says: tuple[str, str], **changes) -> Run:
    run = create(usual(task, **changes))
    for record in records:
        run.append(record)
    run.set_status(*says)
    return run


def test_first_sight_is_the_kept_run_beside_what_it_beats():
    records, app = TUNED["classify"].records(), open_at("fine_tune")
    assert records[-1].sequence_accuracy > 0.8 and records[0].sequence_accuracy < 0.5
    assert len(app.selectbox(key="fine_tune:head").options) == 72
    slider = next(one for one in app.select_slider if one.label == "Training step")
    assert_case(slider.set_value(0).run(), Case(says=["At step 0,"], never=["has moved"]))
    set_control("fine_tune:", app, "selectbox", "task", "pairs")
    assert len(app.selectbox(key="fine_tune:head").options) == 8, "of cross-attention"


def test_wrong_predictions_are_struck_out():
    rows = [Prediction(("a & b",), ("x",), ("<y>",)), Prediction(("c",), ("x",), ("x",))]
    text = draw.table(rows, rows, ("text", "label", "before", "now"), Ink.of("light"))
    assert text.count("line-through") == 2 and "&lt;span" not in text
    assert text.count("&lt;y&gt;") == 2 and "a &amp; b" in text


def test_the_button_asks_for_what_the_controls_say():
    app = open_page("fine_tune", {}, {"fine_tune:sentence": "is the library open"})
    assert_says(app, "did not record your sentence")
    app.session_state["fine_tune:seed:classify"] = 5  # read since the page was made
    app.button(key="fine_tune:start").click().run()
    (run,) = list_runs()
    assert config_of(run) == usual("classify", logged_example="is the library open", seed=5)
    assert "fine_tune:start" not in {button.key for button in app.button}
    assert_case(app, Case(do=[("button", "fine_tune:stop", None)], query={"run": run.id}))
    assert run.stop_request() == "stop"


def test_any_sentence_is_read_by_the_model_before_and_after(monkeypatch):
    # A run whose encoder stayed as it was, so that before and after are the same, and a head that was drawn anew.
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    records = (
        Record(0, loss=1.4, sequence_accuracy=0.25, held_out=28),
        Record(6, loss=1.3, sequence_accuracy=0.5, held_out=28, final=True),
    )
    run = tuned(*records, says=("finished", "Finished."))
    build(config_of(run), parse("classify", config_of(run).data)).save(run.path)
    app = open_page("fine_tune", {"run": run.id}, {"fine_tune:sentence": "is the library open"})
    labels = r"(?:question|request|praise|complaint) \*\*(0\.\d\d)\*\*"
    shares = [float(share) for share in re.findall(labels, page_text(app))]
    assert len(shares) == 4 and shares == sorted(shares, reverse=True)
    assert abs(sum(shares) - 1) < 0.03
    assert_case(app, Case(says=["At step 6, accuracy is 50"], never=["has moved"]))
    links: Any = app.get("page_link")
    assert {"Pretrained models", "Why this answer", "Use a model"} <= {link.label for link in links}
    assert_script(app)


def labelled(rows: int, labels: str, more: str = "") -> list[tuple[str, str, str]]:
    lines = "".join(f"{row},{labels[row % len(labels)]}\n" for row in range(rows))
    return [("session_state", "fine_tune:data:classify", f"text,label\n{lines}{more}")]


test_what_fine_tune_says = page_cases(
    "fine_tune",
    {
        "a row without a label": Case(
            do=labelled(9, "a", "x,"), says=["There is no label in line 11", "Fine-tune (disabled)"]
        ),
        "rows": Case(
            do=labelled(16, "ab"),
            says=["The next run trains on 12 of your rows and holds out 4."],
            never=["Fine-tune (disabled)"],
        ),
        "no run": Case({"run": "20200101-000000-abcdef"}, ["not on this machine"]),
    },
)


def test_a_link_to_a_run_of_pairs_brings_its_task():
    record = Record(0, loss=9.0, sequence_accuracy=0.0, token_accuracy=0.1, held_out=100)
    run = tuned(record, task="pairs", says=("failed", "It had no room."))
    case = Case(says=["It had no room."], controls={"fine_tune:task": "pairs"})
    assert_case(open_at("fine_tune", run=run.id), case)


def test_runs_lists_it_and_opens_it_here():
    records = (
        Record(0, loss=1.4, sequence_accuracy=0.25, held_out=28),
        Record(48, loss=0.3, sequence_accuracy=0.9, held_out=28, final=True),
    )
    run = tuned(*records, says=("finished", "Finished after 48 steps."))
    app = open_at("runs", run=run.id)
    assert_says(
        app,
        "all-MiniLM-L6-v2, fine-tuned on labels has 90\u00a0% accuracy after 48 steps",
    )
    assert app.button(key="runs:duplicate").disabled
    assert not {run.id} & {*decodable_runs(()), *weights_on_offer(), *own_runs()}


# The settings in sight and those of the picture: where they differ, the page says which, and dims the picture.


OTHER = "Trained with other settings:"


@pytest.mark.parametrize(
    ("page", "key", "before", "value", "says"),
    [
        ("train", f"{NAME}:heads:32", 2, 4, "heads 2, not 4"),
        ("train", "train:task", "reverse", "copy", "task reverse, not copy"),
        ("train", f"{NAME}:rate", 0.005, 0.05, "learning rate 0.005, not 0.05"),
        ("train", "train:seed", 0, 3, "seed 0, not 3"),
        ("train", "train:reverse:length", 10, 12, "length 10, not 12"),
        ("sweeps", "sweeps:seeds", 5, 3, "seeds"),
        ("sweeps", "sweeps:axis", "score", "position", "varied setting score, not position"),
        ("fine_tune", "fine_tune:epochs:classify", 8, 3, "epochs 8, not 3"),
    ],
)
def test_a_picture_of_other_settings_is_dimmed(page, key, before, value, says):
    app = open_at(page)
    assert OTHER not in page_text(app)
    assert f"{OTHER} {says}" in page_text(set_state(app, key, value)).replace("**", "")
    assert any(f"-key-{page}-now [data-testid" in one.proto.body for one in app.get("html"))
    assert OTHER not in page_text(set_state(app, key, before))


@pytest.mark.parametrize("state", ["running", "paused", "finished"])
def test_other_settings_name_the_button_that_is_there(state):
    run = half_way(state, seed=5)
    with run.lock():
        app = set_state(open_train(run.id), "train:seed", 7)
    button = "Train" if state == "finished" else ":material/replay:"
    assert_says(app, f"{OTHER} **seed 5**, not 7. Press **{button}**.")
    key = "train:train" if state == "finished" else "train:again"
    assert not app.button(key=key).disabled


def test_a_link_brings_no_other_settings():
    config = SweepConfig(small_run(steps=30, record_every=1), "position", ("none", "rope"), (0, 1))
    records = [Record(0, loss=1.4, sequence_accuracy=0.25, held_out=28)]
    for page, link in {
        "train": {"run": half_way("finished", seed=41, learning_rate=1.7e-3).id},
        "sweeps": {"sweep": create_sweep(config).id},
        "fine_tune": {"run": tuned(*records, says=("stopped", ""), epochs=3, seed=4).id},
    }.items():
        assert OTHER not in page_text(open_at(page, **link)), page


def folded(app: AppTest) -> set[str | None]:
    """The keys of the controls in popovers, which a press opens."""
    return {
        one.key for each in app.get("popover") for one in [*each.selectbox, *each.select_slider]
    }


def test_what_is_tried_says_where_it_acted():
    texts = ("position sinusoidal, not none", "model", "0.005, not 0.05")
    keys = (f"{NAME}:attention:position", "train:reverse:kind", f"{NAME}:rate")
    for index, (says, key) in enumerate(zip(texts, keys, strict=True)):
        app = open_train()
        app.button(key=f"train:try:{index}").click().run()
        assert re.search(f"{OTHER}.*{re.escape(says)}", page_text(app).replace("**", ""))
        assert key in {one.key for one in [*app.selectbox, *app.select_slider]} - folded(app)
    app.button(key="train:close").click().run()
    assert f"{NAME}:rate" in folded(app)


def test_try_this_follows_the_run():
    with (run := half_way(seed=41)).lock():
        app = open_train(run.id)
        app.button(key="train:try:2").click().run()
        assert_says(app, "ten times as large. Another run is open")
        assert "Press **Train**" not in page_text(app)
    app = open_train()
    app.button(key="train:try:2").click().run()
    assert_says(app, "ten times as large. Press **Train**. Does the loss fall?")
    run = trained(app)
    with run.lock():
        assert_says(app.run(), "ten times as large. It trains now.")
    run.set_status("finished")
    assert_says(app.run(), "ten times as large. It is trained.")


# The words of a task: what its figures call a guess, an output and a score.


@pytest.mark.parametrize("entry", TASKS, ids=lambda entry: entry.key)
def test_the_line_of_chance_says_what_it_guesses(entry):
    task = make_task(TaskConfig.of(entry.key))
    words = train.draw.loss_chart(task, [Record(0, loss=1.0)])[2]["guess"][1]
    numbers = [int(one.replace(",", "")) for one in re.findall(r"\b\d[\d,]*(?= )", words)]
    if words.startswith("one of"):
        assert words.endswith(f": {number(math.log(sum(numbers)))}"), words
        assert math.isclose(task.baseline_loss, math.log(sum(numbers)))
    else:
        assert words.startswith("the mean" if task.form == "series" else "class frequencies")


def test_scores_of_classes_have_no_sequences():
    for key, says in (
        ("iris", "Accuracy is 97\u00a0% on 30 held-out rows"),
        ("reverse", "Sequence"),
    ):
        config = recommended(make_task(TaskConfig.of(key)))
        records = [Record(9, sequence_accuracy=0.97, held_out=30)]
        text = train.draw.ending_text(Status("finished", "Done."), records, config)
        assert says in text and ("Sequence" in text) == (key == "reverse")


def test_metrics_of_a_plug_in_are_drawn(monkeypatch):
    known = {
        "hits": Metric("hits", "hits", lambda *_: 1.0),
        "far": Metric("far", "distance", lambda *_: 3.0, unit="positive", lower_is_better=True),
    }
    for key, metric in known.items():
        monkeypatch.setitem(METRICS, key, metric)
    task = make_task(TaskConfig.of("reverse"))
    scores = {"hits": 0.5, "far": 3.0, "of an older plug-in": 1.0}
    records = [Record(9, token_accuracy=0.7, sequence_accuracy=0.2, scores=scores)]
    curves = {curve.name: curve.points for curve in train.draw.score_chart(task, records, ())[1]}
    assert curves["hits"] == [(9, 50.0)] and "distance" not in curves
    title, (far,), _ = train.draw.single_chart("far", records, 1.0)
    assert (title, far.points) == ("distance", [(9, 3.0)])
    rows = [Bucket("1–8", 5, 0.2, scores=scores), Bucket("9–16", 5, 0.1)]
    assert "hits" in (html := tables.lengths(rows, "#ccc")) and "50\u00a0%" in html  # as the chart
    assert train.draw.score_chart(task, records, ())[2]["percent"]
    monkeypatch.setitem(METRICS, "hits", replace(known["hits"], unit="score"))
    assert not train.draw.score_chart(task, records, ())[2]["percent"]


def test_an_early_end_is_said_where_nothing_is_wholly_right():
    config = recommended(make_task(TaskConfig.of("topics")))
    last = Record(9, loss=2.0, held_out=30)
    text = partial(train.draw.ending_text, records=[last], config=config)
    assert text(Status("finished", "Done.")).endswith("since the validation loss no longer fell.")
    assert text(Status("stopped", "Stopped.")) == "Stopped."


def test_rows_of_a_map_are_the_target():
    app = open_train()
    (picture,) = (one for one in pictures_of(app).values() if hasattr(one, "reads"))
    assert picture.reads == "target (row) takes from → input (column)"


def test_number_words_are_translated():
    for language, word in (("de", "five and nine tens"), ("fr", "four twenties, fifteen")):
        assert word in train.draw.task_text(make_task(TaskConfig.of("numbers", language=language)))
    assert train.draw.task_text(make_task(TaskConfig.of("copy"))).endswith("letters again.")


def test_training_moves_every_part():
    first, *_, last = EXAMPLE_RUN.records()
    changes = last.changes
    assert [*changes][:4] == ["W_q", "W_k", "W_v", "W_o"] and "output layer" in changes
    session = loop.prepare(replace(EXAMPLE_RUN.config(), device="cpu"))
    loop.load_weights(session.model, EXAMPLE_RUN.checkpoint(200)[0])
    assert loop.weight_changes(session) == pytest.approx(changes, rel=1e-4)
    assert not any(first.changes.values())
    most = max(changes, key=lambda part: changes[part])
    assert_says(open_train(), f"{most} most, by **{number(changes[most])}** of its size")
    moved = open_at("train", **{"train:step:example_run": "0"})
    assert_says(moved, "Before the first step nothing has moved")
    app = open_at("train", run=half_way("finished").id)  # of an older version
    assert "of its size" not in page_text(app)
