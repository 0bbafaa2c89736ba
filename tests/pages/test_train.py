"""The Train page, driven without a browser and without a worker: what each state of a run's folder looks like."""

from dataclasses import replace

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from core.attention import preset
from core.runs.runs import Run, create_run, list_runs
from core.runs.worker import work
from core.training import Record
from core.training.record import Prediction
from dashboard.server import jobs
from dashboard.ui import run_data
from dashboard.ui.run_data import EXAMPLE_RUN, load_run
from pages import train
from tests.pages.app import app_at, page_text, query_value
from tests.training.small import small_run


def open_page(run: str | None = None) -> AppTest:
    app = app_at("train")
    if run is not None:
        app.query_params["run"] = run
    return app.run()


def trained(app: AppTest) -> Run:
    """The run that a press on Train starts."""
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


def test_first_sight_is_a_real_run():
    app = open_page()
    assert "example run" in page_text(app) and "uniform attention gives" in page_text(app)
    assert "╍ letter" in page_text(app), "names stand above the chart, where no curve crosses them"
    assert [b.label for b in app.button if b.proto.type == "primary"] == ["Train"]


def test_train_makes_a_run_with_the_settings_of_the_page():
    app = open_page()
    app.number_input(key="train:seed").set_value(7).run()
    app.slider(key="train:reverse:length").set_value(12).run()
    run = trained(app)
    assert run.config().seed == 7 and run.config().task["length"] == 12
    assert run.id in app.query_params["run"]


def test_train_takes_what_has_been_read_since_the_page_was_made():
    """As when a file is still being read while the page shows the data before it."""
    app = open_page()
    app.selectbox(key="train:task").set_value("own_pairs").run()
    data = "\n".join(f"{n} x\t{n * n} y" for n in range(60))
    app.session_state["train:own_pairs:data"] = data
    run = trained(app)
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
    assert trained(app).config().model.attention is None


def test_a_published_mechanism_sets_all_six_axes():
    app = open_page()
    app.selectbox(key="train:reverse:transformer:mechanism").set_value("mistral").run()
    config = trained(app).config().model.attention
    expected = preset("mistral").config(config.d_model, config.num_heads)
    assert config == expected
    assert "Grouped-query · Scaled dot product · RoPE" in page_text(app)


def test_a_typed_formula_can_be_trained_with():
    app, text = open_page(), "train:reverse:transformer:attention:position:formula:formula"
    axes = "train:reverse:transformer:axes"
    unfolded(app, axes).selectbox(key="train:reverse:transformer:attention:position").set_value(
        "formula"
    )
    unfolded(app, axes).text_input(key=text).set_value("score - 0.25*abs(i - j")
    assert unfolded(app, axes).button(key="train:train").disabled
    app.text_input(key=text).set_value("score - 0.25*abs(i - j)")
    unfolded(app, axes)
    assert app.selectbox(key="train:reverse:transformer:mechanism").value == "own"
    assert trained(app).config().model.attention.position["formula"] == "score - 0.25*abs(i - j)"


def test_a_kernel_that_gives_way_says_where():
    app = open_page()
    app.selectbox(key="train:reverse:transformer:mechanism").set_value("linformer").run()
    assert (
        "Linformer is used in the encoder; the decoder's self-attention uses the exact kernel"
        in page_text(app)
    )


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
    assert "the correct letter gets 0.29 of the weight" in page_text(app)
    assert "but sequence accuracy only 3\u00a0%" in page_text(app)


def next_record(run: Run, step: int) -> None:
    """The worker's next measurement, like its last one."""
    run.append(
        replace(run.records()[-1], step=step, maps={"0:cross": np.full((1, 2, 4, 3), 1 / 3)})
    )


def test_the_figures_of_a_live_run_follow_whatever_a_late_browser_sends():
    """A browser that missed the first drawing of a widget sends the widget's default back."""
    run = half_way()
    with run.lock():
        app = open_page(run.id)
        for toggle in app.toggle:
            toggle.set_value(toggle.proto.default)
        app.run()
        next_record(run, 3)
        assert "Examples at step 3" in page_text(app.run())


def test_a_step_picked_while_a_run_trains_stays_until_the_latest_is_wanted():
    run = half_way()
    with run.lock():
        app = open_page(run.id)
        app.session_state[f"train:map:{run.id}:0:cross:view"]["frame"] = 0
        for step in (3, 4):
            assert "Examples at step 0" in page_text(app.run())
            next_record(run, step)
        app.button(key="train:follow").click().run()
        assert "Examples at step 4" in page_text(app) and app.button(key="train:follow").disabled


def test_stop_asks_the_worker():
    run = half_way()
    with run.lock():
        open_page(run.id).button(key="train:stop").click().run()
    assert run.stop_request()


@pytest.mark.parametrize(
    "name", ["20200101-000000-abcdef", "../../etc/passwd", "", "<script>", "x" * 5000]
)
def test_an_unknown_run_gets_a_sentence(name):
    app = open_page(name)
    assert ("not on this machine" in page_text(app)) == bool(name)


def test_a_run_that_waits_says_its_place():
    runs = [half_way(), create_run(small_run()), create_run(small_run())]
    with runs[0].lock():
        while (
            len(jobs.queue()[0]) >= 2 and jobs.max_workers() > 1
        ):  # more cores take more of the queue
            jobs.tick()
        open_page(runs[2].id)


@pytest.mark.parametrize(
    "state, message", [("failed", "The loss is no longer a number"), ("stopped", "Stopped;")]
)
def test_an_ended_run_says_how(state, message):
    run = half_way()
    run.set_status(state, message)
    app = open_page(run.id)
    assert message in page_text(app)


def test_a_run_that_ended_before_its_last_step_says_why():
    run = half_way()
    run.append(replace(run.records()[-1], step=3, sequence_accuracy=0.995, final=True))
    run.set_status("finished", "Finished after 3 steps.")
    assert "ended before step 4, since at least 99\u00a0%" in page_text(open_page(run.id))


def test_a_run_that_ended_before_its_first_measurement():
    run = create_run(small_run())
    run.set_status("failed", "It broke.")
    app = open_page(run.id)
    assert "before its first measurement" in page_text(app) and "It broke." in page_text(app)


def test_a_run_without_readable_settings():
    run = half_way()
    (run.path / "run.json").write_text('{"config": {"steps": "many"}}', encoding="utf-8")
    run.set_status("finished")
    app = open_page(run.id)
    assert "cannot be read" in page_text(app)


def test_a_link_brings_the_settings_of_its_run():
    run = half_way(seed=41, learning_rate=1.7e-3)
    run.set_status("finished")
    app = open_page(run.id)
    assert app.number_input(key="train:seed").value == 41
    config, again = run.config(), trained(app).config()
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
    assert trained(app).config().seed == 8 and app.number_input(key="train:seed").value == 8


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


def test_a_move_sets_the_controls():
    app = open_page()
    app.button(key="train:try:0").click().run()
    assert app.session_state["train:reverse:transformer:attention:now"].position.key == "none"
    assert "sinusoidal" not in query_value(app, "train:reverse:transformer:attention:now")
    app.button(key="train:try:1").click().run()
    assert app.selectbox(key="train:reverse:kind").value == "recurrent"
    assert app.selectbox(key="train:reverse:recurrent:mechanism").value == "none"
    assert "mirrored position" not in page_text(app), (
        "no output attends to a letter without attention"
    )


def test_the_right_option_is_the_value_that_reaches_one_half_first():
    data = load_run(EXAMPLE_RUN)
    question = train.run_question(data)
    steps = {
        "Letter accuracy": next(r.step for r in data.records if r.token_accuracy >= 0.5),
        "The weight on the correct position": next(
            r.step for r in data.records if max(map(max, r.expected)) >= 0.5
        ),
    }
    assert question.options == tuple(steps) and question.options[question.answer] == min(
        steps, key=steps.get
    )
