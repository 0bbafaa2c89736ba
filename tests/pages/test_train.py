"""The Train page, driven without a browser and without a worker: what each state of a run's folder looks like."""

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from core.attention import preset
from core.training import Record, create_run, list_runs
from core.training.record import Prediction
from core.training.runs import Run
from core.training.worker import work
from dashboard.runtime import jobs
from tests.pages.app import app_at, page_text
from tests.training.small import small_run


def open_page(run: str | None = None) -> AppTest:
    app = app_at("train")
    if run is not None:
        app.query_params["run"] = run
    return app.run()


def half_way(**changes) -> Run:
    """A run at step 2 of 4, as its folder stands."""
    run = create_run(small_run(**changes))
    example = Prediction(("a", "b", "<b>"), ("<b>", "b", "a"), ("<b>", "a", "a"))
    maps = {"0": np.full((1, 2, 4, 3), 1 / 3), "1": np.full((1, 2, 4, 3), 1 / 3)}
    for step in (0, 2):
        run.append(Record(step, 1.0, 2.0, 0.76, 0.03, expected=((0.29, 0.1),), even=0.08, gradient=0.5,
                          tokens_per_second=9.0, elapsed=1.0, held_out=9, examples=(example, example), maps=maps))
    run.set_status("running")
    return run


def test_first_sight_is_a_real_run():
    app = open_page()
    assert "example run" in page_text(app) and "even attention would give it" in page_text(app)
    assert [b.label for b in app.button if b.proto.type == "primary"] == ["Train"]


def test_train_makes_a_run_with_the_settings_of_the_page():
    app = open_page()
    app.number_input(key="train:seed").set_value(7).run()
    app.slider(key="train:reverse:length").set_value(12).run()
    app.button(key="train:train").click().run()
    (run,) = list_runs()
    assert run.config().seed == 7 and run.config().task["length"] == 12
    assert run.id in app.query_params["run"]


def test_train_takes_what_has_been_read_since_the_page_was_made():
    """As when a file is still being read while the page shows the data before it."""
    app = open_page()
    app.selectbox(key="train:task").set_value("own_pairs").run()
    data = "\n".join(f"{n} x\t{n * n} y" for n in range(60))
    app.session_state["train:own_pairs:data"] = data
    app.button(key="train:train").click().run()
    (run,) = list_runs()
    assert run.config().task["data"] == data and run.id in app.query_params["run"]
    app.session_state["train:own_pairs:data"] = "one\ttwo"
    run.set_status("finished")
    app.run()
    assert app.button(key="train:train").disabled and len(list_runs()) == 1


def unfolded(app: AppTest, group: str) -> AppTest:
    """The page with a popover open: AppTest forgets what stands open."""
    app.session_state[group] = True
    return app.run()


def test_no_attention_can_be_asked_for():
    app = open_page()
    app.selectbox(key="train:reverse:kind").set_value("recurrent").run()
    app.selectbox(key="train:reverse:recurrent:mechanism").set_value("none").run()
    app.button(key="train:train").click().run()
    assert list_runs()[0].config().model.attention is None


def test_a_published_mechanism_sets_all_six_axes():
    app = open_page()
    app.selectbox(key="train:reverse:transformer:mechanism").set_value("mistral").run()
    app.button(key="train:train").click().run()
    config = list_runs()[0].config().model.attention
    expected = preset("mistral").config(config.d_model, config.num_heads)
    assert config == expected
    assert "Grouped-query · Scaled dot product · RoPE" in page_text(app)


def test_a_typed_formula_can_be_trained_with():
    app, text = open_page(), "train:reverse:transformer:attention:position:formula:formula"
    axes = "train:reverse:transformer:axes"
    unfolded(app, axes).selectbox(key="train:reverse:transformer:attention:position").set_value("formula")
    unfolded(app, axes).text_input(key=text).set_value("score - 0.25*abs(i - j")
    assert unfolded(app, axes).button(key="train:train").disabled
    app.text_input(key=text).set_value("score - 0.25*abs(i - j)")
    unfolded(app, axes)
    assert app.selectbox(key="train:reverse:transformer:mechanism").value == "own"
    app.button(key="train:train").click().run()
    assert list_runs()[0].config().model.attention.position["formula"] == "score - 0.25*abs(i - j)"


def test_a_kernel_that_gives_way_says_where():
    app = open_page()
    app.selectbox(key="train:reverse:transformer:mechanism").set_value("linformer").run()
    assert "Linformer serves the encoder; the decoder's self-attention is exact" in page_text(app)


def test_only_heads_that_divide_are_offered():
    app = unfolded(open_page(), "train:reverse:transformer:sizes")
    app.select_slider(key="train:reverse:transformer:d_model").set_value(96).run()
    heads = app.select_slider(key="train:reverse:transformer:heads:96")
    assert heads.options == ["1", "2", "3", "4", "6", "8", "12", "16"]


def test_what_cannot_be_says_so_and_cannot_be_trained():
    app = open_page()
    app.slider(key="train:reverse:length").set_value(2).run()
    assert "too few" in page_text(app)
    assert app.button(key="train:train").disabled


def test_a_run_under_way_shows_stop_and_its_numbers():
    run = half_way()
    with run.lock():
        app = open_page(run.id)
    assert [b.label for b in app.button if b.proto.type == "primary"] == ["Stop"]
    assert "the right letter gets 0.29 of the weight" in page_text(app)
    assert "but only 3\u00a0% of whole" in page_text(app)
    assert app.toggle(key="train:follow").value


def test_stop_asks_the_worker():
    run = half_way()
    with run.lock():
        open_page(run.id).button(key="train:stop").click().run()
    assert run.stop_request()


@pytest.mark.parametrize("name", ["20200101-000000-abcdef", "../../etc/passwd", "", "<script>", "x" * 5000])
def test_an_unknown_run_gets_a_sentence(name):
    app = open_page(name)
    assert ("not on this machine" in page_text(app)) == bool(name)


def test_a_run_that_waits_says_its_place():
    runs = [half_way(), create_run(small_run()), create_run(small_run())]
    with runs[0].lock():
        while len(jobs.waiting()) >= 2 and jobs.max_workers() > 1:  # more cores take more of the queue
            jobs.tick()
        open_page(runs[2].id)


@pytest.mark.parametrize("state, message", [("failed", "The loss is no longer a number"), ("stopped", "Stopped;")])
def test_an_ended_run_says_how(state, message):
    run = half_way()
    run.set_status(state, message)
    app = open_page(run.id)
    assert message in page_text(app)


def test_a_run_that_ended_before_its_first_measurement():
    run = create_run(small_run())
    run.set_status("failed", "It broke.")
    app = open_page(run.id)
    assert "before its first measurement" in page_text(app) and "It broke." in page_text(app)


def test_a_run_without_readable_settings():
    run = half_way()
    (run.path / "run.json").write_text('{"config": {"steps": "many"}}')
    run.set_status("finished")
    app = open_page(run.id)
    assert "cannot be read" in page_text(app)


def test_a_link_brings_the_settings_of_its_run():
    run = half_way(seed=41, learning_rate=1.7e-3)
    run.set_status("finished")
    app = open_page(run.id)
    assert app.number_input(key="train:seed").value == 41
    app.button(key="train:train").click().run()
    config, again = run.config(), list_runs()[-1].config()
    assert (again.seed, again.learning_rate) == (41, 1.7e-3)
    assert (again.model, again.task) == (config.model, config.task)


def test_another_link_brings_its_own_settings_and_train_keeps_those_of_the_page():
    first, second = half_way(seed=41), half_way(seed=42)
    for run in (first, second):
        run.set_status("finished")
    app = open_page(first.id)
    app.number_input(key="train:seed").set_value(7).run()
    app.query_params["run"] = second.id
    app.run()
    assert app.number_input(key="train:seed").value == 42
    app.number_input(key="train:seed").set_value(8).run()
    app.button(key="train:train").click().run()
    assert list_runs()[-1].config().seed == 8 and app.number_input(key="train:seed").value == 8


def test_pause_asks_the_worker_and_continue_queues_it_again():
    run = half_way()
    with run.lock():
        open_page(run.id).button(key="train:pause").click().run()
    assert run.stop_request() == "pause"
    run.set_status("paused", "Paused at step 2.")
    app = open_page(run.id)
    assert [b.label for b in app.button if b.proto.type == "primary"] == ["Continue"]
    assert "Paused at step 2" in page_text(app)
    app.button(key="train:continue").click().run()
    assert not run.stop_request() and not run.status().ended


def test_an_ended_run_trains_longer_from_its_last_checkpoint(monkeypatch):
    run = create_run(small_run())
    assert work(run.path) == "finished"
    app = unfolded(open_page(run.id), "train:longer")
    app.number_input(key=f"train:more:{run.id}").set_value(6)
    unfolded(app, "train:longer").button(key="train:go-on").click().run()
    assert run.config().steps == 10 and not run.config().finish_early and not run.status().ended


def test_what_goes_wrong_stands_on_the_page():
    run = create_run(small_run(steps=100, learning_rate=1e-6))
    for step in range(0, 60, 5):
        run.append(Record(step, 2.8, 2.8, 0.1, 0.0, gradient=0.5, rate=1e-6))
    run.set_status("stopped", "Stopped.")
    assert "moves AdamW very little: try ten times as much" in page_text(open_page(run.id))
