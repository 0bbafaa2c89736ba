"""The Sweeps page without a browser and without workers: what it shows, starts, stops and finds again."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.stats import ttest_rel

from core.attention import ConfigError
from core.models import ModelConfig
from core.runs.runs import create_run, list_runs
from core.runs.sweeps import Outcome, Sweep, list_sweeps
from core.studies.sweeps import EXAMPLE_SWEEP, SweepData, load_sweep
from core.tasks import TaskConfig, make_task
from core.training import recommended
from core.training.seed_stats import Line, SeedStats
from core.training.sweeps import SweepConfig, buildable, vary
from dashboard.draw import curves as draw_sweeps
from dashboard.draw.palette import CATEGORIES
from dashboard.server import jobs
from pages import sweeps
from tests.cases import each, instance
from tests.pages.app import csv_rows, open_at, page_text
from tests.training.small import small_run


@pytest.fixture(autouse=True)
def no_workers(monkeypatch):
    monkeypatch.setattr(jobs, "_watch", lambda folder: None)
    monkeypatch.setattr(jobs, "max_workers", lambda: 1)


open_page = partial(open_at, "sweeps")


def test_first_sight_is_a_real_sweep_of_which_every_measure_is_drawn():
    app = open_page()
    assert [b.label for b in app.button if b.proto.type == "primary"] == ["Start sweep"]
    for measure in ("sequence_accuracy", "token_accuracy", "loss", "expected"):
        app.selectbox(key="sweeps:measure").set_value(measure)
        for over in ("steps", "train_seconds"):
            app.segmented_control(key="sweeps:over").set_value(over).run()
            assert len(app.get("vega_lite_chart")) == 2
    app.session_state["sweeps:claim"] = app.session_state["sweeps:runs"] = True
    app.run()
    assert "QK-norm, seed 4" in page_text(app), "each run can be seen"
    app.number_input(key="sweeps:claim:bound:True").set_value(5.0).run()
    first, second = (app.selectbox(key=f"sweeps:claim:{name}:6") for name in ("first", "second"))
    sentence = (
        f"With {first.options[0]} the share of whole answers is higher by more than 0.05 than with "
        f"{second.options[1]}."
    )
    assert sentence in page_text(app)
    assert app.get("download_button")[-1].proto.label == "Download the claim"


def test_a_sweep_is_started_found_again_stopped_and_continued():
    """Every value is queued from every seed; a fresh page shows the sweep until the example is chosen."""
    app = open_page()
    app.selectbox(key="sweeps:axis").set_value("num_heads").run()
    app.slider(key="sweeps:seeds").set_value(2).run()
    app.button(key="sweeps:start").click().run()
    (sweep,) = list_sweeps()
    runs = sweep.runs().values()
    assert sweep.id in app.query_params["sweep"] and len(list_runs()) == 8
    assert [run.config().model.num_heads for run in runs] == [1, 2, 4, 8] * 2
    assert "0 of 8 runs done" in app.get("progress")[0].proto.text
    fresh = open_page()
    fresh.session_state["sweeps:runs"] = True
    links = [link.proto for link in fresh.run().get("page_link") if "seed" in link.proto.label]
    assert {link.query_string for link in links} == {f"run={run.id}" for run in list_runs()}
    assert {link.page for link in links} == {"train"}
    assert fresh.query_params["sweep"] == sweep.id and fresh.button(key="sweeps:stop")
    fresh.selectbox(key="sweeps:shown").set_value("").run()
    assert "sweep" not in fresh.query_params and fresh.run().button(key="sweeps:start")
    app = open_page(sweep=sweep.id)
    app.button(key="sweeps:stop").click().run()
    for run in runs:  # the workers, had there been any, would have said so
        run.set_status("stopped", "Stopped.")
    app.run()
    assert "0 of 8 runs have finished" in page_text(app)
    app.button(key="sweeps:continue").click().run()
    assert all(not run.status().ended for run in runs)
    sweep.path.write_text('{"config": 3}', encoding="utf-8")
    assert "cannot be read" in page_text(open_page(sweep=sweep.id))
    assert "not on this machine" in page_text(open_page(sweep="../../etc/passwd"))


def test_what_the_controls_ask_for_is_started_and_too_few_values_are_refused():
    run = create_run(small_run(batch_size=9), name="nine at a time")
    app = open_page()
    app.selectbox(key="sweeps:from").set_value(run.id).run()
    assert any("nine at a time" in label for label in app.selectbox(key="sweeps:from").options)
    app.segmented_control(key="sweeps:equal").set_value("seconds").run()
    app.number_input(key="sweeps:seconds").set_value(2.0).run()
    chosen = app.multiselect[0].value
    app.multiselect[0].set_value(chosen[:1]).run()
    assert "2 to 8 values" in page_text(app) and app.button(key="sweeps:start").disabled
    app.multiselect[0].set_value(chosen).run()
    app.session_state["sweeps:seeds"] = 2  # read since the page was made
    app.button(key="sweeps:start").click().run()
    config = list_sweeps()[0].config()
    assert (config.base.batch_size, config.equal, config.seeds) == (9, "seconds", (0, 1))
    assert config.run(0, 0).max_train_seconds == 2.0


def test_a_link_brings_back_what_was_chosen():
    app = open_page(**{"sweeps:measure": "letters", "sweeps:over": "trained"})
    assert app.selectbox(key="sweeps:measure").value == "token_accuracy"
    assert app.segmented_control(key="sweeps:over").value == "train_seconds"
    link: dict[str, Any] = {
        "sweeps:values:reverse:transformer:score": ["Cosine", "Additive"],
        "sweeps:steps:reverse:transformer": "150",
    }
    again = open_page(**link)
    assert again.multiselect[0].value == ["Cosine", "Additive"]
    assert again.number_input[0].value == 150
    again.button(key="sweeps:start").click().run()
    config = list_sweeps()[0].config()
    assert [value.key for value in config.values] == ["cosine", "additive"]
    assert config.base.steps == 150
    for text in ("norm", "Place of the norm"):  # as links hold it, and as they did
        app = open_page(**{"sweeps:axis": text})
        assert app.selectbox(key="sweeps:axis").value == app.query_params["sweeps:axis"] == "norm"


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
    assert open_page(**query).button(key="sweeps:start").label == "Start sweep"


# A sweep in the queue, what is offered to vary, and what the page says of numbers and their spread.


def sweep_config(**changes) -> SweepConfig:
    usual = dict(base=small_run(), axis="score", values=("dot", "general"), seeds=(0, 1))
    return SweepConfig(**{**usual, **changes})


def shown_with(exact: list[list[float]], state: str = "finished", **changes) -> SweepData:
    """A sweep whose runs ended with these shares of whole sequences, a list a value."""
    config = sweep_config(seeds=tuple(range(len(exact[0]))), **changes)
    outcomes = {
        (place, seed): Outcome(
            state, "", (0, 4), (0.0, 2.0), {"sequence_accuracy": (0.0, value)}, 1000, elapsed=3.0
        )
        for place, row in enumerate(exact)
        for seed, value in enumerate(row)
    }
    return SweepData(EXAMPLE_SWEEP, config, outcomes)


def test_runs_wait_in_order_stop_leaves_none_waiting_and_continue_begins_where_it_was(monkeypatch):
    sweep = sweeps.start(sweep_config())
    assert list(sweep.runs()) == list(sweep.config().cells)
    first, *others = sweep.runs().values()
    states = [run.status().state for run in sweep.runs().values()]
    assert states == ["starting", "queued", "queued", "queued"]
    assert {run.metadata()["sweep"]["id"] for run in list_runs()} == {sweep.id}
    sweeps.stop(sweep)
    assert {run.status().state for run in others} == {"stopped"} and first.stop_request() == "stop"
    first.set_status("finished", "Finished.")
    assert len(sweep.missing()) == 3
    sweeps.resume(sweep)
    assert {run.status().state for run in others} == {"starting", "queued"}
    assert sweep.runs()[0, 0] == first, "what had finished is left alone"
    others[0].set_status("failed", "The worker ended without a message.")
    for run in others[1:]:
        run.set_status("finished")
    assert sweep.outcomes()[1, 0].state == "failed"
    sweeps.resume(sweep)  # a failed run begins anew in a folder of its own
    assert sweep.runs()[1, 0] != others[0]
    assert sweep.outcomes()[1, 0].state in ("starting", "queued")
    monkeypatch.setattr(jobs, "QUEUE", 3)
    with pytest.raises(jobs.QueueFull):
        sweeps.start(sweep_config())
    assert len(list_runs()) == 5 and list_sweeps() == [sweep], "no room leaves nothing behind"


@each(
    "model",
    [ModelConfig.transformer(8, 2), ModelConfig.recurrent(8), ModelConfig.recurrent(8, score=None)],
)
def test_whatever_is_offered_can_be_built(model):
    base = small_run(model=model)
    axes = sweeps.values_axes(base)
    assert {"d_model", "learning_rate", "task.length"} <= set(axes)
    assert ("position" in axes) == (model.kind == "transformer")
    assert ("score" in axes) == (model.attention is not None)
    generator = torch.get_rng_state()
    for axis in axes:
        for value in sweeps.offered(base, axis).values():
            buildable(vary(base, axis, value))
        assert set(sweeps.first(base, axis)) <= set(sweeps.offered(base, axis))
    assert torch.equal(torch.get_rng_state(), generator), "no random number is drawn"


@each("task", ["iris", "digits", "series", "topics"])
def test_tasks_of_every_form_can_be_swept(task):
    base = recommended(make_task(TaskConfig.of(task)))
    for axis in ("score", "learning_rate"):
        chosen = tuple(sweeps.read(base, axis, name) for name in sweeps.first(base, axis))
        sweep = SweepConfig(base, axis, chosen)
        sweep.try_models()
        runs = [sweep.run(index, seed) for index, seed in sweep.cells[: len(chosen)]]
        places = [run.model.required_attention if axis == "score" else run for run in runs]
        assert [getattr(place, axis) for place in places] == list(chosen)
        assert {run.task for run in runs} == {base.task}


def test_values_are_read_as_offered_or_as_typed():
    base = small_run()
    assert sweeps.read(base, "score", "Cosine").key == "cosine"
    assert sweeps.read(base, "mask", "local(window=3)")["window"] == 3
    assert sweeps.read(base, "d_model", "24") == 24 and isinstance(
        sweeps.read(base, "d_model", "24"), int
    )
    assert sweeps.read(base, "learning_rate", "1") == 1.0 and isinstance(
        sweeps.read(base, "learning_rate", "1"), float
    )
    for axis, name in (("score", "nonsense"), ("d_model", "wide")):
        with pytest.raises(ConfigError):
            sweeps.read(base, axis, name)


def test_the_fact_tests_the_best_against_the_worst_and_never_calls_values_equal():
    sentence = sweeps.fact_text(
        shown_with([[0.9, 0.92, 0.94], [0.11, 0.12, 0.13]]), "sequence_accuracy"
    )
    assert "**Dot product** reaches **92.0\u00a0[85.4–95.8]**" in sentence
    assert "**General** reaches **12.0" in sentence and "p < .001" in sentence
    assert ttest_rel([0.9, 0.92, 0.94], [0.11, 0.12, 0.13]).pvalue < 0.001
    assert "+80.0 (95\u00a0% interval +77.4 to +82.4" in sentence
    assert "is significant" in sentence and "paired t test, n = 3" in sentence
    assert sentence.endswith("The seeds of Dot product range from 90.0 to 94.0.")
    unequal = [[0.98, 0.99, 0.97], [0.05, 0.99, 0.9]]
    sentence = sweeps.fact_text(shown_with(unequal), "sequence_accuracy")
    assert "is not significant, which does not prove that they are equal." in sentence
    assert sentence.endswith("The seeds of General range from 5.0 to 99.0.")
    three = shown_with([*unequal, [0.1, 0.11, 0.12]], values=("dot", "general", "cosine"))
    sentence = sweeps.fact_text(three, "sequence_accuracy")
    most = "**Dot product** differs significantly from Cosine; no difference from General is significant"
    assert most in sentence and "3 pairs, Bonferroni's correction" in sentence
    head, rows = sweeps.pairs(three, "sequence_accuracy")
    assert len(rows) == 3 and rows[0][0] == "Dot product − Cosine" and rows[0][-1] == "significant"


def test_nothing_is_tested_while_runs_go_on_or_on_one_seed_and_a_smaller_loss_is_better():
    shown = shown_with([[0.9, 0.92, 0.94, 0.0], [0.11, 0.12, 0.13, 0.0]])
    shown.outcomes[0, 3] = replace(shown.outcomes[0, 3], state="running")
    going = replace(shown, sweep=Sweep(Path("one.json")))
    assert going.live and going.comparisons("sequence_accuracy") == []
    assert "tested when all runs have ended" in sweeps.fact_text(going, "sequence_accuracy")
    shown = shown_with([[0.9, 0.8], [0.1, 0.2]])
    loss = {
        cell: replace(o, measures={"loss": o.measures["sequence_accuracy"]})
        for cell, o in shown.outcomes.items()
    }
    assert sweeps.fact_text(replace(shown, outcomes=loss), "loss").startswith("**General**")
    half = {
        cell: replace(o, state="running" if cell[1] else o.state)
        for cell, o in shown.outcomes.items()
    }
    fact = sweeps.fact_text(replace(shown, outcomes=half), "sequence_accuracy")
    assert "**2** of 4 runs have finished" in fact


def test_the_table_and_the_progress_count_what_finished_and_what_failed():
    shown = shown_with([[0.5, 0.7], [0.1, 0.2]])
    shown.outcomes[1, 1] = Outcome(
        "failed", "The loss is no longer a number at step 3; take a smaller rate."
    )
    head, rows = sweeps.table_text(shown)
    assert head == ["score", "sequence accuracy %", "seconds", "seeds"]
    assert rows[0] == ["Dot product", "60\u00a0[1–100]", "2.0\u00a0[2.0–2.0]", "2"]
    assert rows[1] == ["General", "10.0", "2.0", "1 of 2, 1 failed"]
    assert sweeps.failures(shown) == [
        "General, seed 1: The loss is no longer a number at step 3; take a smaller rate."
    ]
    shown.outcomes[1, 1] = Outcome(
        "running", "", (0, 2), (0.0, 1.0), {"sequence_accuracy": (0.0, 0.1)}
    )
    shown.outcomes[1, 0] = Outcome("queued")
    left = "2 of 4 runs done, 1 training, about 4\u00a0s left"  # 1.5 runs of 3 s
    assert sweeps.progress(shown, 1) == (0.625, left)


def test_lines_follow_the_seeds_that_finished_and_before_that_the_furthest():
    shown = shown_with([[0.5, 0.7], [0.1, 0.2]])
    assert shown.lines("sequence_accuracy", "steps")[0].mean == (0.0, 0.6)
    shown.outcomes[0, 1] = replace(shown.outcomes[0, 1], state="running")
    assert shown.lines("sequence_accuracy", "steps")[0].mean == (0.0, 0.5), (
        "half a run does not bend the mean"
    )
    shown.outcomes[0, 0] = Outcome(
        "running", "", (0, 2), (0.0, 1.0), {"sequence_accuracy": (0.0, 0.3)}
    )
    assert shown.lines("sequence_accuracy", "steps")[0].mean == (0.0, 0.7)


def test_figures_stay_within_their_scale():
    results = {0: SeedStats((97.0, 99.0, 60.0)), 1: SeedStats((5.0,))}
    scale = draw_sweeps.Scale.around([0.0, 99.0], 100.0)
    spec = draw_sweeps.seeds("Title", ["a", "b"], results, scale, "light")
    rules = [
        layer["data"]["values"][0] for layer in spec["layer"] if layer["mark"]["type"] == "rule"
    ]
    assert (
        rules[0]["high"] == 100.0
        and rules[0]["low"] > 0
        and rules[1]["low"] == rules[1]["high"] == 5.0
    )
    marks = [layer for layer in spec["layer"] if layer["mark"]["type"] == "point"]
    assert [len(layer["data"]["values"]) for layer in marks] == [3, 1], "every seed is drawn"
    assert all(isinstance(spec["padding"], dict) for spec in [spec]), "Streamlit writes into it"


def test_each_of_the_most_values_of_a_sweep_has_its_own_colour():
    names, scale = list("abcdefgh"), draw_sweeps.Scale.around([0.0, 1.0], 1.0)
    line = Line((0, 1), (0.0, 0.5), (0.0, 0.4), (0.0, 0.6))
    means, stats = dict.fromkeys(range(8), line), dict.fromkeys(range(8), SeedStats((0.5, 0.6)))
    for spec in (
        draw_sweeps.lines("Title", "step", 1, names, means, scale, "light"),
        draw_sweeps.seeds("Title", names, stats, scale, "light"),
    ):
        colours = {layer["mark"].get("color") for layer in spec["layer"]}
        assert len(set(CATEGORIES["light"][:8]) & colours) == 8


def test_the_kept_sweep_is_whole_and_its_numbers_can_be_taken_away():
    shown = instance(load_sweep(EXAMPLE_SWEEP), SweepData)
    assert shown.finished == len(shown.config.cells) == 30
    assert {o.held_out for o in shown.outcomes.values()} == {1000}
    assert {o.steps[-1] for o in shown.outcomes.values()} == {shown.config.base.steps}
    rows = csv_rows(sweeps.numbers_csv(shown))
    assert len(rows) == 30 and {row["state"] for row in rows} == {"finished"}
    assert all(0 <= float(row["sequence_accuracy"]) <= 1 for row in rows)
