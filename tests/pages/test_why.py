"""The page Why attention, driven without a browser and without a worker: the kept result, and each state of a pair."""

import re
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from streamlit.dataframe_util import convert_arrow_bytes_to_pandas_df
from streamlit.testing.v1 import AppTest

from core.runs.runs import create_run, list_runs
from core.runs.worker import work
from core.studies import why as study
from core.tasks import TaskConfig
from core.training import Bucket, Prediction, Record
from dashboard.draw import why as draw
from dashboard.fields.reset import PENDING
from dashboard.server import queue
from dashboard.ui.guide import SHOW, TRIED
from pages import why
from tests.cases import each
from tests.pages.app import (
    Case,
    assert_case,
    assert_says,
    html_text,
    open_at,
    page_cases,
    page_text,
    query_value,
    set_state,
)

SAVED = study.load().learned


def open_page(runs: str | None = None) -> AppTest:
    return open_at("why", **({} if runs is None else {"runs": runs}))


def opened(app: AppTest, panel: str) -> AppTest:
    return set_state(app, f"why:{panel}")


def plain_text(app: AppTest) -> str:
    return page_text(app).replace("\u00a0", " ")


def drawn(app: AppTest, number: int = 0) -> list[dict]:
    table = convert_arrow_bytes_to_pandas_df(app.get("vega_lite_chart")[number].proto.data.data)
    return [row for row in table.to_dict("records") if row["kind"] == "point"]


def primary(app: AppTest) -> list[str]:
    return [button.label for button in app.button if button.proto.type == "primary"]


def bars(app: AppTest) -> list[str]:
    return [bar.proto.text for bar in app.get("progress")]


def pair(state: str = "running", decoded: bool = True, last: int = 25, **setting):
    runs = [
        create_run(study.Trial(**setting).config(model)) for model in study.Trial(**setting).pair
    ]
    example = Prediction(("one", ";", "two"), ("eins", ";", "zwei"), ("eins", ";", "drei"))
    for place, run in enumerate(runs):
        more = {
            "loss": 1.0,
            "sequence_accuracy": 0.1,
            "bleu": 30.0,
            "held_out": 18,
            "buckets": (
                Bucket("1–10", 9, 0.2 + 0.6 * place, 40 + 40 * place),
                Bucket("11–20", 9, 0.5 * place, 20.0),
            ),
            "examples": (example,),
            "maps": {"0:cross": np.full((1, 1, 4, 3), 1 / 3)} if place else {},
        }
        for step in (0, last):
            run.append(Record(step, train_seconds=step / 10, **(more if decoded else {})))  # type: ignore[arg-type]
        run.set_status(state, "Finished after 25 steps." if state == "finished" else "")
    return runs, ".".join(run.id for run in runs)


def test_the_page_opens_with_the_kept_measurement():
    app = open_page()
    assert {row["name"] for row in drawn(app)} == {"1–10"} and "51–60" not in html_text(app), (
        "longer sentences would tell the answer"
    )
    app.pills(key="why:predict").set_value(SHOW).run()
    assert "51–60" in html_text(app) and not primary(app)
    points = drawn(app)
    assert {row["model"] for row in points} == {"one vector", "attention"}
    attention = {row["name"]: row["y"] for row in points if row["model"] == "attention"}
    assert draw.stats_text(
        study.by_length(SAVED, study.models(SAVED)[1], "sequence_accuracy")["51–60"]
    ).startswith(f"{attention['51–60']:.0f}")
    assert "make bottleneck" in plain_text(opened(app, "numbers"))
    assert {row["model"] for row in drawn(app, -1)} == set(draw.names(SAVED).values())
    assert sum("a part of a sentence counts" in caption.value for caption in app.caption) == 1


def test_run_it_asks_for_two_models_with_settings_of_page():
    app, setting = open_page(), study.Trial(32, 20, "general", 5, 3)
    for name in ("d_model", "longest", "score", "seconds"):
        app.selectbox(key=f"why:{name}").set_value(getattr(setting, name))
    app.number_input(key="why:seed").set_value(3).run()
    says = "the saved measurement of 900 steps, with 128 numbers and up to 60 words"
    assert says in plain_text(app)
    app.button(key="why:run").click().run()
    runs = sorted(list_runs(), key=lambda run: run.config().model.attention is not None)
    assert [run.config() for run in runs] == [setting.config(model) for model in setting.pair]
    assert query_value(app, "runs").split(".") in ([r.id for r in runs], [r.id for r in runs[::-1]])
    assert primary(app) == ["Stop"]
    app.button(key="why:stop").click().run()
    assert all(run.stop_request() for run in runs)


def test_two_running_models_stand_side_by_side(monkeypatch):
    # It would find that nobody holds these folders.
    monkeypatch.setattr(queue, "tick", lambda **how: None)
    app = open_page(pair()[1])
    assert_says(
        app,
        "45 s planned for each: one vector 25 steps in 2.5\u00a0s, attention 25 steps in 2.5\u00a0s",
        "translates 50\u00a0% without a mistake",
    )
    points = {(row["model"], row["name"], row["y"]) for row in drawn(app, 0)}
    one = {("one vector", "1–10", 20), ("one vector", "11–20", 0)}
    assert points == one | {("attention", "1–10", 80), ("attention", "11–20", 50)}
    # Over seconds, as both are given equally many.
    assert [row["x"] for row in drawn(app, -1)] == [0, 2.5, 0, 2.5]
    assert bars(app) == ["One vector: step 25, 2 of 45 s", "Attention: step 25, 2 of 45 s"]
    assert any("0.33" in latex.value for latex in opened(app, "equation").latex)
    app = open_page(pair(decoded=False)[1])  # the saved measurement stays until both have a result
    assert_says(app, "still the saved measurement", "comes at step 50")
    assert bars(app) and {row["name"] for row in drawn(app)} >= {"1–10", "51–60"}
    app = open_page(pair(decoded=False, seconds=study.FEW_STEPS)[1])
    assert bars(app) == [f"{name}: step 25 of {study.FEW}" for name in ("One vector", "Attention")]
    assert f"comes at step {study.FEW}." in plain_text(app)


def test_a_finished_pair_says_so_and_leads_back():
    _, link = pair("finished", longest=20)
    app = open_page(link)
    # The made-up records of both models have equal BLEU at step 25.
    assert_says(
        app,
        "One vector: Finished after 25 steps in 2.5",
        "Trained on this machine",
        "too few steps",
        "trained for 25",
        f"from step {draw.clear_lead(SAVED)}",
    )
    app.switch_page("../pages/scores.py").run()
    app.query_params.clear()
    app.switch_page("../pages/why.py").run()  # the pair is there when one comes back
    assert query_value(app, "runs") == link and "Trained on this machine" in plain_text(app)
    app.button(key="why:kept").click().run()
    assert "runs" not in app.query_params and "Trained on this machine" not in plain_text(app)
    assert not app.info, "the saved measurement needs no excuse"


def test_a_failed_run_is_told():
    runs, link = pair("finished")
    message = "The loss is no longer a number at step 3; take a smaller learning rate."
    runs[1].set_status("failed", message)
    assert open_page(link).error[0].value == f"Attention: {message}"
    app = open_page(pair("stopped", decoded=False)[1])
    assert "ended before their first measurement" in plain_text(app) and not drawn(app)


def test_a_full_queue_is_said_and_one_run_twice_is_no_pair(monkeypatch):
    assert_says(open_page(".".join([pair()[0][1].id] * 2)), "are no such pair")
    monkeypatch.setattr(queue, "QUEUE", 1)
    app = open_page()
    assert_case(app, Case(do=[("button", "why:run", None)], says=["could not be started"]))
    assert len(list_runs()) == 2


def test_runs_of_a_few_steps_are_not_compared():
    runs, link = pair("finished", decoded=False, last=1, seconds=5)
    for run, steps in zip(runs, (1, 3), strict=True):
        values = {"bleu": 10.0 * steps, "train_seconds": 5.5, "held_out": 18}
        run.append(Record(steps, sequence_accuracy=0.0, **values))  # type: ignore[arg-type]
    app = open_page(link)
    assert_says(
        app, "reached only 1 step of a model", "One vector: Finished after 1 step in 5.5\u00a0s"
    )


def test_prediction_is_computed_from_saved_measurement():
    question, two = why.question(SAVED), study.Trial().pair
    assert question.answer == 0
    swapped = [
        replace(one, model=two[one.model.score is None]) for one in SAVED if one.model in two
    ]
    assert why.question(swapped).answer == 1


def test_a_move_draws_its_lines():
    app = open_page().button(key="why:try:0").click().run()
    assert {row["model"] for row in drawn(app)} == {"one vector", "attention", "larger vector"}
    anchor = re.search(r"\*\*Notice:.*\[To the picture\]\(#(.+?)\)", page_text(app), re.DOTALL)[1]
    assert any(f'id="{anchor}"' in part.proto.body for part in app.get("html"))
    app.button(key="why:close").click().run()
    assert "Notice:" not in page_text(app) and app.selectbox(key="why:chart").value == "larger"
    assert "Notice:" in page_text(app.button(key="why:try:0").click().run())
    for page in ("start", "why"):
        app.switch_page(f"../pages/{page}.py").run()
    assert "Notice:" not in page_text(app)


@each(("chart", "says"), [("learned", "a learned matrix"), ("bleu", "of 100 in BLEU")])
def test_a_chart_says_what_it_compares(chart, says):
    app = set_state(open_page(), "why:chart", chart)
    lines = {row["model"] for row in drawn(app)} - {"one vector", "attention"}
    assert lines == ({"attention, general"} if chart == "learned" else set())
    assert_says(app, says)


def test_reset_closes_the_notice():
    app = open_page().button(key="why:try:0").click().run()
    assert TRIED.key in app.session_state
    app.session_state[PENDING] = ("why", [], {})
    assert TRIED.key not in app.run().session_state


def test_the_moves_say_what_the_saved_measurement_shows():
    half = [
        replace(one, buckets=tuple(replace(each, sequence_accuracy=0.5) for each in one.buckets))
        for one in SAVED
    ]
    notice, changed = (
        " ".join(move.notice for move in why.moves(learned)).replace("\u00a0", " ")
        for learned in (SAVED, half)
    )
    assert "translates 65 ± 3 % of the sentences of 11–20 words" in notice
    assert "one 35 ± 4 %." in notice
    assert "translates 50 % of the sentences of 11–20 words" in changed and "one 50 %." in changed


def test_a_query_of_the_decoder_meets_the_keys_of_the_encoder():
    result, sentence = study.load(), study.load().sentence
    assert [step for step, _ in sentence.frames] == list(sentence.vectors), "run make bottleneck"
    for step, frame in sentence.frames:
        for row, weights in enumerate(frame):
            met = study.meeting(result, row, step)
            # all but the scores are saved in fp16
            np.testing.assert_allclose(met.query @ met.keys.T, met.scores, rtol=2e-3, atol=2e-2)
            np.testing.assert_allclose(met.weights, weights, atol=2e-3)
            np.testing.assert_allclose(met.taken, met.weights @ met.keys, rtol=1e-4, atol=1e-5)
    equation = draw.meeting_equation(study.meeting(result, 21, sentence.frames[-1][0]), "dot")
    assert r"q_{\text{fünf}}" in equation and r"k_{\text{five}} &= v_{\text{five}}" in equation


def test_slider_and_map_pick_one_german_word():
    app = open_page()
    assert app.select_slider(key="why:word").value == 21
    assert_says(app, "from the decoder", "with the key of “five”")
    app.select_slider(key="why:word").set_value(0).run()
    assert query_value(app, "why:cell") == "0.0"
    assert "**sechs** takes most from **six**" in page_text(app)
    assert "with the key of “six”" in plain_text(app)
    app = open_at("why", **{"why:cell": "4.3"})
    assert app.select_slider(key="why:word").value == 4
    assert any("acht takes 0" in part.proto.json for part in app.get("bidi_component"))
    app.session_state[PENDING] = ("why", ["why:cell"], {})
    app.run().run()
    assert app.select_slider(key="why:word").value == 21 and "why:cell" not in app.query_params


def test_all_of_the_page_follows_the_step_of_its_map():
    app = open_page()
    result = study.load()
    (step, weights), *_ = result.sentence.frames
    app.session_state["why:map:kept:view"]["frame"] = step
    met = study.meeting(result, 21, step)
    best = met.words[met.best]
    assert best != "five", "before training"
    assert_says(app.run(), f"At step {step}", f"with the key of “{best}”", "q · k itself")
    assert f"**fünf** takes most from **{best}**" in page_text(app)
    assert draw.meeting_equation(met, "dot") in [latex.value.strip("$\n") for latex in app.latex]
    cell = draw.map_cell(result.sentence, step, "kept")
    assert f"step = result.sentence, {step}" in cell.code
    np.testing.assert_array_equal(cell.results["weights"], weights)
    assert "divides by √D" in plain_text(app)


def test_a_step_without_its_model_says_which_have_one(monkeypatch):
    _, link = pair("finished")
    app = open_page(link)
    assert_says(app, "The model of step 25 is not saved, so its query and keys are not here.")
    assert "q · k itself" not in plain_text(app)
    result = study.load()
    vectors = {step: result.sentence.vectors[step] for step in (0, 90)}
    sentence = replace(result.sentence, vectors=vectors)
    monkeypatch.setattr(study, "load", lambda: replace(result, sentence=sentence))
    assert_says(open_page(), "are not here; those of step 0, 90 are.")


def test_a_run_of_this_machine_shows_its_own_meeting(tmp_path):
    config = replace(
        study.Trial(8, 20).config(DOT), steps=2, record_every=1, decode_every=1, held_out=8
    )
    run = create_run(replace(config, num_examples=2), tmp_path)
    assert work(run.path) == "finished"
    sentence = study.sentence({DOT: (run, run.records())})
    result = study.Result(study.Trial(8, 20), (), sentence)
    assert list(sentence.vectors) == [0, 1, 2]
    for step, weights in sentence.frames:
        met = study.meeting(result, 1, step)
        np.testing.assert_allclose(met.weights, weights[1], atol=2e-3)
        np.testing.assert_allclose(met.query @ met.keys.T, met.scores, rtol=1e-4, atol=1e-5)
    model, task = run.model(2)
    batch = task.collate([task.held_out(1)[0]])
    (steps,) = model(batch.source, batch.source_mask, batch.target_in, record=True).maps["cross"]
    # what the equation of the page says: no maps, no √D
    torch.testing.assert_close(steps.k, steps.v)
    torch.testing.assert_close(steps.scores, steps.q @ steps.k.mT)


def test_moves_stand_above_the_chart_that_they_change():
    text = page_text(open_page())
    assert text.index("Try this") < text.index("English number words")


test_what_it_says = page_cases(
    "why",
    {
        "a cell of the link is the output of the equation": Case(
            {"why:cell": "4.3"}, ["c_{4}"], do=[("session_state", "why:equation", True)]
        )
    }
    | {
        f"no pair: {link!r}": Case(
            {"runs": link}, ["are no such pair", "The charts show the saved measurement"]
        )
        for link in ("../../etc.passwd", "20260101-000000-abcdef.20260101-000000-abcdef", "x")
    },
)


# What Why attention draws and says, from records made by hand; and the experiment itself, in small.


NONE, DOT = study.Model(None, 8), study.Model("dot", 8)


def learned(model, seed, exact, bleu, seconds=1.0):
    points = (study.Point(0, 0.0, 0.0, 0.0), study.Point(10, seconds, bleu[-1], exact[-1]))
    buckets = tuple(
        Bucket(name, 5, e, b) for name, e, b in zip(("1–10", "11–20"), exact, bleu, strict=True)
    )
    return study.TrainedModel(model, seed, points, buckets, 10)


FOUR = (
    learned(NONE, 0, (0.9, 0.1), (95.0, 30.0)),
    learned(NONE, 1, (0.7, 0.3), (91.0, 34.0)),
    learned(DOT, 0, (1.0, 0.8), (99.0, 90.0), 2.0),
    learned(DOT, 1, (1.0, 0.6), (99.0, 94.0), 4.0),
)


def test_both_models_are_the_same_but_for_the_attention():
    setting = study.Trial(32, 30, "general", 5, 7)
    without, with_it = map(setting.config, setting.pair)
    assert without.model.attention is None and with_it.model.attention.score.key == "general"
    assert without.to_json() | {"model": None} == with_it.to_json() | {"model": None}
    limits = with_it.max_train_seconds, with_it.task["max_source"], with_it.finish_early
    assert limits == (5, 30, False) and study.Trial.of(with_it) == setting
    few = study.Trial(seconds=study.FEW_STEPS)  # runs of a few steps end there on any machine
    assert {few.config(model).steps for model in few.pair} == {study.FEW}
    assert study.Trial.of(few.config(few.pair[1])) == few


@each(
    ("size", "score", "seconds"),
    [
        *product(
            (study.SIZES[0], study.SIZES[-1]), study.SCORES, (study.SECONDS[1], study.SECONDS[-1])
        )
    ],
)
def test_every_setting_on_offer_can_run(size, score, seconds):
    setting = study.Trial(size, score=score, seconds=seconds)
    assert {setting.config(model).max_train_seconds for model in setting.pair} == {seconds}


def test_seeds_are_averaged_and_their_spread_told():
    exact = study.by_length(FOUR, NONE, "sequence_accuracy")
    assert (exact["11–20"].mean, exact["11–20"].std) == pytest.approx((20.0, 200**0.5))
    assert [
        [x for x, _ in study.over_time(FOUR, DOT, "bleu", clock)] for clock in ("seconds", "step")
    ] == [[0.0, 3.0], [0, 10]]
    five = [*FOUR, study.TrainedModel(DOT, 2, (study.Point(0, 0.0, 0.0, 0.0),), (), 0)]
    # Only steps that every seed has reached.
    assert len(study.over_time(five, DOT, "bleu", "step")) == 1
    assert len(study.by_length(five, DOT, "sequence_accuracy")["1–10"].values) == 2


def test_models_stand_in_one_order_and_the_larger_says_so():
    others = [
        learned(study.Model(score, size), 0, (1, 1), (9, 9))
        for score, size in ((None, 16), ("general", 8))
    ]
    assert study.models([*FOUR, *others]) == [
        NONE,
        DOT,
        study.Model("general", 8),
        study.Model(None, 16),
    ]
    names = ["one vector", "attention", "attention, general", "larger vector"]
    assert list(draw.names([*FOUR, *others]).values()) == names


def test_the_sentence_of_the_page_is_the_numbers():
    sentence, alone = (
        draw.fact_text(why.Comparison(study.Trial(8), some, None)).replace("\u00a0", " ")
        for some in (FOUR, FOUR[:2])
    )
    assert sentence == (
        "Of sentences of 11–20 words, attention translates **70 ± 14 %** without a mistake, one "
        "vector **20 ± 14 %**."
    )
    assert alone == "", "which is compared with nothing"


def test_the_sentence_is_of_the_metric_that_is_drawn():
    sentence = draw.fact_text(study.load(), metric="bleu")
    assert "of 100 in BLEU" in sentence and "mistake" not in sentence and "%" not in sentence
    assert draw.numbers(FOUR, ["11–20"])[1] == ["attention", "92\u00a0±\u00a03 / 70\u00a0±\u00a014"]


def test_lines_are_drawn_with_their_spread_and_names_apart():
    lines = [
        (name, index, list(study.by_length(FOUR, model, "sequence_accuracy").items()))
        for index, (name, model) in enumerate((("one vector", NONE), ("dot product", DOT)))
    ]
    table = draw.rows([*lines, ("not yet", 2, [])])
    points = [row for row in table if row["kind"] == "point"]
    assert [row["name"] for row in points] == ["1–10", "11–20"] * 2
    assert [row["y"] for row in points] == pytest.approx([80, 20, 100, 70])
    assert all(0 <= row["low"] <= row["y"] <= row["high"] <= 100 for row in points)
    labels = {row["model"] for row in table if row["kind"] == "label"}
    assert labels == {"one vector", "dot product"} and draw.rows([]) == []


def test_an_equation_has_the_weights_of_its_row():
    weights = np.full((3, 4), 0.1, dtype=np.float32)
    weights[1] = (0.7, 0.2, 0.06, 0.04)
    shown = study.Sentence(("two", "hundred", ";", "one"), ("zwei", "hundert"))
    without, with_it = draw.equations(study.Trial(8), shown, weights, 1)
    vector = r"[\overrightarrow{h}_{3};\, \overleftarrow{h}_0] \in \mathbb{R}^{8}"
    assert vector in without and "c_{2} =" in without
    terms = (r"0.70\, h_{0}^{\text{two}}", r"0.060\, h_{2}^{\text{;}}", "0.04")
    assert all(part in with_it for part in (r"c_{1}^{\text{hundert}}", *terms)), with_it
    assert r"c_{2}^{\text{end}}" in draw.equations(study.Trial(8), shown, weights, 2)[1]


def test_the_sentence_table_counts_errors_and_escapes():
    shown = study.Sentence(("a", "<b>"), ("x", "y"), {NONE: ("x", "<z>"), DOT: ("x", "y")})
    drawn = draw.sentence_table(shown, {NONE: "one vector", DOT: "dot product"}, "#f00", "#eee")
    assert "&lt;b&gt;" in drawn and "&lt;z&gt;</b>" in drawn and "<z>" not in drawn
    assert drawn.index(">1</td>") < drawn.index(">0</td>")


def test_the_longest_watched_sentence_is_read_from_the_runs(tmp_path):
    runs, maps = {}, {"0:cross": np.full((1, 1, 2, 1), 1.0), "1:cross": np.full((1, 1, 3, 2), 0.5)}
    for model in (NONE, DOT):
        run = create_run(study.Trial(8).config(model), tmp_path / str(model.score))
        said = (
            Prediction(("a",), ("b",), ("b",)),
            Prediction(("a", "c"), ("b", "d"), (str(model.score),)),
        )
        for step in range(4):
            shown = {"examples": said if step else (), "maps": maps if model.score else {}}
            run.append(Record(step, sequence_accuracy=0.0, bleu=1.0, **shown))  # type: ignore[arg-type]
        runs[model] = (run, run.records())
    longest = study.sentence(runs)
    assert (longest.source, longest.target) == (("a", "c"), ("b", "d"))
    assert longest.outputs == {NONE: ("None",), DOT: ("dot",)}
    assert [step for step, _ in longest.frames] == [0, 1, 2, 3]
    assert (
        longest.frames[0][1].shape == (3, 2) and study.sentence({NONE: (runs[NONE][0], [])}) is None
    )


@each(
    ("count", "frames"),
    [(0, []), (1, [0]), (4, [0, 1, 2, 3]), (5, [0, 2, 4]), (6, [0, 2, 4, 5]), (9, [0, 4, 8])],
)
def test_as_frames_come_the_kept_ones_stay(count, frames):
    assert study.thinned(range(count), 4) == frames


def test_the_kept_measurement_is_whole():
    # Made by `make bottleneck`: the models it names, all lengths, and an alignment that is one.
    saved, (without, with_it) = study.load(), study.Trial().pair
    named = set(study.models(saved.learned))
    assert named == set(study.MODELS) == set(saved.seconds), "run make bottleneck"
    assert {(one.buckets[-1].lengths, one.held_out) for one in saved.learned} == {("51–60", 1000)}
    # Equal steps; run make bottleneck when it is quiet.
    assert len({one.points[-1].step for one in saved.learned}) == 1
    weights = saved.sentence.frames[-1][1]
    assert weights.shape == (len(saved.sentence.target) + 1, len(saved.sentence.source))
    assert weights.sum(-1) == pytest.approx(np.ones(len(weights)), abs=0.01)
    exact, bleu = (
        {model: study.by_length(saved.learned, model, metric)["51–60"].mean for model in named}
        for metric in ("sequence_accuracy", "bleu")
    )
    assert bleu[with_it] >= 90 and bleu[without] < 45, "the budget of the design"
    assert exact[with_it] > 50 and exact[without] < 1


def test_the_experiment_in_small(tmp_path, monkeypatch):
    # Real runs, in this process: both models are measured, and what is saved is what is loaded.
    small = study.Trial(d_model=8, longest=20)
    for name, value in {
        "MODELS": small.pair,
        "SAVED": tmp_path,
        "TaskConfig": SimpleNamespace(of=partial(TaskConfig.of, train_pairs=1000)),
        "ProcessPoolExecutor": lambda *how: nullcontext(SimpleNamespace(map=map)),  # here
    }.items():
        monkeypatch.setattr(study, name, value)
    result = study.measure(small, 1, 1, tmp_path)
    study.save(result, tmp_path)
    saved = study.load()
    assert [one.model for one in saved.learned] == list(saved.seconds) == list(small.pair)
    assert saved.learned == tuple(one.rounded() for one in result.learned)
    assert saved.sentence.outputs == result.sentence.outputs
    assert {(one.held_out, one.points[-1].step) for one in saved.learned} == {(20, 1)}
    assert min(saved.seconds.values()) > 0
    assert saved.sentence.frames[-1][1].sum(-1) == pytest.approx(1, abs=0.01)
