"""The Sweeps page without a browser and without workers: what it shows, starts, stops and finds again."""

from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from core.runs.runs import create_run, list_runs
from core.runs.sweeps import Sweep, list_sweeps
from dashboard.server import jobs
from tests.pages.app import app_at, page_text
from tests.training.small import small_run


@pytest.fixture(autouse=True)
def no_workers(monkeypatch):
    monkeypatch.setattr(jobs, "_watch", lambda folder: None)


def open_page(**query: Any) -> AppTest:
    return app_at("sweeps", **query).run()


def started() -> tuple[AppTest, Sweep]:
    """The page after a press on Start sweep, and the sweep."""
    app = open_page()
    app.selectbox(key="sweeps:axis").set_value("norm").run()
    app.button(key="sweeps:start").click().run()
    (sweep,) = list_sweeps()
    return app, sweep


def test_first_sight_is_a_real_sweep():
    app = open_page()
    assert not app.error
    assert len(app.get("vega_lite_chart")) == 2
    words = page_text(app)
    assert (
        "reaches" in words and "95 % confidence interval" in words and "5 seeds per value" in words
    )
    assert [b.label for b in app.button if b.proto.type == "primary"] == ["Start sweep"]
    app.session_state["sweeps:claim"] = app.session_state["sweeps:runs"] = True
    app.run()
    assert "QK-norm, seed 4" in page_text(app), "each run can be seen"
    app.number_input(key="sweeps:claim:bound:True").set_value(5.0).run()
    first, second = (app.selectbox(key=f"sweeps:claim:{name}:6") for name in ("first", "second"))
    sentence = (
        f"With {first.options[0]} the share of whole answers is higher by more than 0.05 than with "
        f"{second.options[1]}."
    )
    assert (
        sentence in page_text(app)
        and app.get("download_button")[-1].proto.label == "Download the claim"
    )


def test_start_queues_every_value_from_every_seed_and_the_link_finds_it():
    app = open_page()
    app.selectbox(key="sweeps:axis").set_value("num_heads").run()
    app.slider(key="sweeps:seeds").set_value(2).run()
    app.button(key="sweeps:start").click().run()
    (sweep,) = list_sweeps()
    assert sweep.id in app.query_params["sweep"] and len(list_runs()) == 8
    assert [run.config().model.num_heads for run in sweep.runs().values()] == [1, 2, 4, 8] * 2
    assert "0 of 8 runs done" in app.get("progress")[0].proto.text
    again = open_page(sweep=sweep.id)
    assert again.button(key="sweeps:stop").label == "Stop"


def test_start_takes_what_has_been_read_since_the_page_was_made():
    app = open_page()
    app.session_state["sweeps:seeds"] = 2
    app.button(key="sweeps:start").click().run()
    (sweep,) = list_sweeps()
    assert sweep.config().seeds == (0, 1)


def test_stop_and_continue():
    app, sweep = started()
    app.button(key="sweeps:stop").click().run()
    for run in sweep.runs().values():  # the workers, had there been any, would have said so
        run.set_status("stopped", "Stopped.")
    app.run()
    assert "0 of 10 runs have finished" in page_text(app)
    app.button(key="sweeps:continue").click().run()
    assert all(not run.status().ended for run in sweep.runs().values())


def test_equal_seconds_are_asked_for():
    app = open_page()
    app.segmented_control(key="sweeps:equal").set_value("seconds").run()
    app.number_input(key="sweeps:seconds").set_value(2.0).run()
    app.button(key="sweeps:start").click().run()
    config = list_sweeps()[0].config()
    assert config.equal == "seconds" and config.run(0, 0).max_train_seconds == 2.0


def test_a_run_of_ones_own_may_be_the_base():
    run = create_run(small_run(batch_size=9), name="nine at a time")
    app = open_page()
    app.selectbox(key="sweeps:from").set_value(run.id).run()
    assert any("nine at a time" in label for label in app.selectbox(key="sweeps:from").options)
    app.button(key="sweeps:start").click().run()
    assert list_sweeps()[0].config().base.batch_size == 9


def test_too_few_values_are_refused_where_they_are_chosen():
    app = open_page()
    app.selectbox(key="sweeps:axis").set_value("norm").run()
    app.multiselect[0].set_value(["post"]).run()
    assert "2 to 8 values" in page_text(app) and app.button(key="sweeps:start").disabled


def test_a_link_to_no_sweep_says_so():
    app = open_page(sweep="../../etc/passwd")
    assert "not on this machine" in page_text(app)


def test_a_broken_file_says_so_and_the_page_stays():
    _, sweep = started()
    sweep.path.write_text('{"config": 3}', encoding="utf-8")
    again = open_page(sweep=sweep.id)
    assert "cannot be read" in page_text(again)


@pytest.mark.parametrize("measure", ["sequence_accuracy", "token_accuracy", "loss", "expected"])
@pytest.mark.parametrize("over", ["steps", "train_seconds"])
def test_every_measure_is_drawn(measure, over):
    app = open_page(**{"sweeps:measure": measure, "sweeps:over": over})
    assert len(app.get("vega_lite_chart")) == 2


def test_old_link():
    app = open_page(**{"sweeps:measure": "letters", "sweeps:over": "trained"})
    assert app.selectbox(key="sweeps:measure").value == "token_accuracy"
    assert app.segmented_control(key="sweeps:over").value == "train_seconds"


def test_each_run_of_ones_own_is_a_link_to_it():
    app, _ = started()
    app.session_state["sweeps:runs"] = True
    app.run()
    links = [link.proto for link in app.get("page_link") if "seed" in link.proto.label]
    assert {link.query_string.removeprefix("run=") for link in links} == {
        run.id for run in list_runs()
    }
    assert {link.page for link in links} == {"train"}


def test_a_fresh_page_shows_the_sweep_that_runs_until_the_kept_one_is_chosen():
    _, sweep = started()
    fresh = open_page()
    assert fresh.query_params["sweep"] == sweep.id and fresh.button(key="sweeps:stop")
    fresh.selectbox(key="sweeps:shown").set_value("").run()
    assert "sweep" not in fresh.query_params and fresh.run().button(key="sweeps:start")


def test_a_link_brings_back_what_was_chosen():
    again = open_page(
        **{
            "sweeps:values:reverse:transformer:score": ["Cosine", "Additive"],
            "sweeps:steps:reverse:transformer": "150",
        }
    )
    assert (
        again.multiselect[0].value == ["Cosine", "Additive"] and again.number_input[0].value == 150
    )
    again.button(key="sweeps:start").click().run()
    config = list_sweeps()[0].config()
    assert [value.key for value in config.values] == [
        "cosine",
        "additive",
    ] and config.base.steps == 150
    for text in ("norm", "Place of the norm"):  # as links hold it, and as they did
        app = open_page(**{"sweeps:axis": text})
        assert (
            app.selectbox(key="sweeps:axis").value == "norm"
            and app.query_params["sweeps:axis"] == "norm"
        )


@pytest.mark.parametrize(
    "query",
    [
        {"sweeps:from": "20200101-000000-000000"},
        {"sweeps:kind:reverse": "nonsense"},
        {"sweeps:values:reverse:transformer:score": "nonsense"},
        {"sweeps:steps:reverse:transformer": "1e9"},
    ],
    ids=lambda query: next(iter(query)),
)
def test_a_link_that_says_what_cannot_be_leaves_the_page_whole(query):
    app = open_page(**query)
    assert not app.exception and app.button(key="sweeps:start").label == "Start sweep"
