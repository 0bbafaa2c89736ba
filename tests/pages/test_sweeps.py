"""The Sweeps page without a browser and without workers: what it shows, starts, stops and finds again."""

import re

import pytest
from streamlit.testing.v1 import AppTest

from core.training import create_run, list_runs
from core.training.sweep_files import list_sweeps
from dashboard import jobs
from tests.training.small import small_run


@pytest.fixture(autouse=True)
def no_workers(monkeypatch, tmp_path):
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path))
    monkeypatch.setattr(jobs, "warm_up", lambda: None)
    monkeypatch.setattr(jobs, "_give", lambda run: None)
    monkeypatch.setattr(jobs, "_watch", lambda folder: None)


def opened(**query: str) -> AppTest:
    app = AppTest.from_file("../../dashboard/app.py", default_timeout=60).switch_page("../pages/sweeps.py")
    for name, value in query.items():
        app.query_params[name] = value
    return app.run()


def said(app: AppTest) -> str:
    parts = [*app.markdown, *app.caption, *app.warning, *app.error]
    written = [str(element.value) for element in parts] + [element.proto.body for element in app.get("html")]
    return re.sub("<[^>]+>", "", "\n".join(written))


def test_first_sight_is_a_real_sweep():
    app = opened()
    assert not app.exception and not app.error
    assert len(app.get("vega_lite_chart")) == 2
    assert "reaches" in said(app) and "±" in said(app) and "5 seeds a value" in said(app)
    assert [b.label for b in app.button if b.proto.type == "primary"] == ["Start sweep"]


def test_start_queues_every_value_from_every_seed_and_the_link_finds_it():
    app = opened()
    app.selectbox(key="sweeps:axis").set_value("num_heads").run()
    app.slider(key="sweeps:seeds").set_value(2).run()
    app.button(key="sweeps:start").click().run()
    assert not app.exception
    (sweep,) = list_sweeps()
    assert sweep.id in app.query_params["sweep"] and len(list_runs()) == 8
    assert [run.config().model.num_heads for run in sweep.runs().values()] == [1, 2, 4, 8] * 2
    assert "0 of 8 runs done" in app.get("progress")[0].proto.text
    again = opened(sweep=sweep.id)
    assert not again.exception and again.button(key="sweeps:stop").label == "Stop"


def test_stop_and_continue():
    app = opened()
    app.selectbox(key="sweeps:axis").set_value("norm").run()
    app.button(key="sweeps:start").click().run()
    app.button(key="sweeps:stop").click().run()
    (sweep,) = list_sweeps()
    for run in sweep.runs().values():  # the workers, had there been any, would have said so
        run.set_status("stopped", "Stopped.")
    app.run()
    assert "0 of 6 runs have finished" in said(app)
    app.button(key="sweeps:continue").click().run()
    assert not app.exception and all(not run.status().ended for run in sweep.runs().values())


def test_equal_seconds_are_asked_for():
    app = opened()
    app.segmented_control(key="sweeps:equal").set_value("seconds").run()
    app.number_input(key="sweeps:seconds").set_value(2.0).run()
    app.button(key="sweeps:start").click().run()
    config = list_sweeps()[0].config()
    assert config.equal == "seconds" and config.run(0, 0).trained == 2.0


def test_a_run_of_ones_own_may_be_the_base():
    run = create_run(small_run(batch_size=9), name="nine at a time")
    app = opened()
    app.selectbox(key="sweeps:from").set_value(run.id).run()
    assert any("nine at a time" in label for label in app.selectbox(key="sweeps:from").options)
    app.button(key="sweeps:start").click().run()
    assert list_sweeps()[0].config().base.batch_size == 9


def test_too_few_values_are_refused_where_they_are_chosen():
    app = opened()
    app.selectbox(key="sweeps:axis").set_value("norm").run()
    app.multiselect[0].set_value(["post"]).run()
    assert "2 to 8 values" in said(app) and app.button(key="sweeps:start").disabled


def test_a_link_to_no_sweep_says_so():
    app = opened(sweep="../../etc/passwd")
    assert not app.exception and "not on this machine" in said(app)


def test_a_broken_file_says_so_and_the_page_stays():
    app = opened()
    app.button(key="sweeps:start").click().run()
    (sweep,) = list_sweeps()
    sweep.path.write_text('{"config": 3}')
    again = opened(sweep=sweep.id)
    assert not again.exception and "cannot be read" in said(again)


@pytest.mark.parametrize("measure", ["exact", "letters", "loss", "expected"])
@pytest.mark.parametrize("over", ["steps", "trained"])
def test_every_measure_is_drawn(measure, over):
    app = opened(**{"sweeps:measure": measure, "sweeps:over": over})
    assert not app.exception and len(app.get("vega_lite_chart")) == 2


def test_each_run_can_be_seen():
    app = opened()
    app.session_state["sweeps:runs"] = True
    app.run()
    assert not app.exception
    assert "QK\\-norm, seed 4" in said(app)
