"""The setup of the Train page alone: every task, every kind of model, every option, and a reader's own data."""

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from core.entries import Choice
from core.tasks import TASKS, TaskConfig, make_task
from core.training import RunConfig, recommended
from dashboard.ui import layer_pattern, uploads
from pages import train
from tests.pages.app import app_at, captions, page_text

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
    """What the setup asks for when the session holds `state`."""
    app = AppTest.from_function(script, default_timeout=60)
    for key, value in state.items():
        app.session_state[key] = value
    app.run()
    return app.session_state["asked"], app


@pytest.mark.parametrize("task, kind", SORTS)
def test_every_task_and_model_asks_for_its_recipe(task, kind):
    config, app = controls_of(**{"train:task": task, f"train:{task}:kind": kind})
    assert not app.error
    assert config == recommended(make_task(TaskConfig.of(task)), kind)


@pytest.mark.parametrize("kind", ["transformer", "decoder", "recurrent", "hybrid"])
def test_every_option_is_drawn_and_asked_for(kind):
    name = f"train:reverse:{kind}"
    base = recommended(make_task(TaskConfig.of("reverse")), kind)
    app = AppTest.from_function(script, default_timeout=60)
    for key, value in {
        "train:reverse:kind": kind,
        f"{name}:sizes": True,
        f"{name}:training": True,
    }.items():
        app.session_state[key] = value
    app.run()
    assert not app.error
    drawn = {
        element.key
        for group in (app.slider, app.number_input, app.selectbox, app.toggle)
        for element in group
    }
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
    assert (config.model.layers, config.model.normalization, config.optimizer, config.patience) == (
        3,
        "rms",
        "sgd",
        7,
    )
    assert config.model.dropout == config.model.attention.dropout == 0.1
    caption_text = captions(app)
    assert "layers 3" in caption_text and "SGD" in caption_text, (
        "a closed popover says what differs from the recipe"
    )


@pytest.mark.parametrize(
    "task, kind", [("reverse", "transformer"), ("numbers", "recurrent"), ("recall", "decoder")]
)
def test_the_settings_of_a_run_come_back_whole(task, kind):
    base = recommended(
        make_task(TaskConfig.of(task)),
        kind,
        optimizer="rmsprop",
        weight_decay=0.2,
        warmup=7,
        seed=5,
        schedule="inverse_sqrt",
        label_smoothing=0.1,
        patience=3,
        steps=333,
        learning_rate=1.7e-3,
    )
    config, app = controls_of(bring=base)
    assert not app.error and config == base


def test_a_model_that_a_task_cannot_have_says_why_and_is_not_asked_for():
    usual = recommended(make_task(TaskConfig.of("reverse"))).model.attention
    short = usual.with_(position=Choice.of("learned", max_len=3))
    config, app = controls_of(**{"train:reverse:transformer:attention:now": short})
    assert config is None and "max\\_len" in app.error[0].value


def test_the_file_of_a_reader_becomes_the_text(monkeypatch):
    class File:
        name = "mine.csv"

        def __init__(self, data: bytes) -> None:
            self.getvalue = lambda: data

    state: dict = {}
    monkeypatch.setattr(st, "session_state", state)
    state["k:file"] = File("a,b\nü,2\n".encode())
    uploads._take_file("k")
    assert state["k"] == "a,b\nü,2\n" and "k:trouble" not in state
    state["k:file"] = File("a,b\nü,2\n".encode("latin-1"))
    uploads._take_file("k")
    assert "Line 2" in state["k:trouble"] and state["k"] == "a,b\nü,2\n", "what was there stays"
    state["k:file"] = File("a,b\nÄh €,2\n".encode("cp1252"))
    uploads._take_file("k")
    assert state["k:windows"] and "k:trouble" in state
    uploads._take_file("k", "cp1252")
    assert state["k"] == "a,b\nÄh €,2\n" and "k:trouble" not in state and "k:windows" not in state
    state["k:file"] = File(b"a,b\n\x81\xe9,2\n")
    uploads._take_file("k")
    assert not state["k:windows"], "a byte that Windows-1252 leaves out"


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
def test_windows_1252_is_one_click_away(task):
    app = AppTest.from_function(data_app, default_timeout=60)
    app.session_state["task"] = task
    app.run()
    app.file_uploader(key="k:file").set_value(
        ("mine.csv", "naïve;€\n".encode("cp1252"), "text/csv")
    ).run()
    assert (
        "Line 1 is not UTF" in app.markdown[0].value and app.session_state["k"] == "left\tright\n"
    )
    app.button(key="k:as-windows").click().run()
    assert app.session_state["k"] == "naïve;€\n" and not [
        b for b in app.button if b.key == "k:as-windows"
    ]


COLUMNS = "id,size,day,country,kind\n" + "".join(
    f"{7 * i},{i % 5},{1 + i % 28}.3.2020,DE,{'ab'[i % 2]}\n" for i in range(40)
)


def test_what_is_left_out_is_said_before_training_and_can_be_put_back():
    config, app = controls_of(**{"train:task": "own_table", "train:own_table:data": COLUMNS})
    caption_text = captions(app).replace("\\", "")
    assert (
        "Left out: id (identifiers, 40 different whole numbers), day (dates), country (always DE)."
        in caption_text
    )
    (columns,) = app.multiselect
    assert columns.value == ["size"] and columns.options == ["id", "size", "day", "country"]
    columns.set_value(["size", "id"]).run()
    assert app.session_state["asked"].task["columns"] == "size,id"
    app.selectbox(key="train:own_table:dates").set_value("numbers").run()
    assert app.multiselect[0].value == ["size", "id"], "what a person took stays"
    app.multiselect[0].set_value(["size", "day"]).run()
    assert app.session_state["asked"].task["columns"] == ""
    assert "Dates as numbers" in captions(app)


def test_the_columns_of_a_link_come_back():
    base = recommended(make_task(TaskConfig.of("own_table", data=COLUMNS, columns="4,ID")))
    config, app = controls_of(bring=base)
    assert app.multiselect[0].value == ["country", "id"] and config.task["columns"] == "country,id"
    older = recommended(
        make_task(TaskConfig.of("own_table", data=COLUMNS, columns="*", dates="categories"))
    )
    config, app = controls_of(bring=older)
    assert app.multiselect[0].value == ["id", "size"] and config.task["columns"] == "id,size"


@pytest.mark.parametrize(
    "task, expected",
    [
        ("recall", ("recall", "decoder")),
        ("iris", ("iris", "classifier")),
        ("numbers", ("numbers", "transformer")),
        ("series", ("series", "forecaster")),
    ],
)
def test_a_mask_from_another_page_finds_a_model_that_reads_it(task, expected):
    assert layer_pattern._stacked_model(task) == expected


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
    brought, _ = controls_of(
        bring=recommended(make_task(TaskConfig.of("own_pairs", data=sentences)), "recurrent")
    )
    assert brought.model.kind == "recurrent"


def test_a_small_server_says_that_runs_start_later(monkeypatch):
    assert "Memory is short" not in page_text(app_at("train").run())
    monkeypatch.setenv("ATTENTION_LAB_LIMITS", "server_mb=1000")
    assert "a run starts a few seconds after Train is pressed" in page_text(app_at("train").run())
