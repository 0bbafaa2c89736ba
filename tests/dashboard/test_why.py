"""What Why attention draws and says, from records made by hand; and the experiment itself, in small."""

import numpy as np
import pytest

from core.runs.runs import create_run
from core.studies import why as study
from core.studies.why import (
    SCORES,
    SIZES,
    Controls,
    Model,
    Point,
    Sentence,
    TrainedModel,
    by_length,
    models,
    over_time,
    sentence,
    thinned,
)
from core.training import Record
from core.training.record import Bucket, Prediction
from pages import why
from pages.why import Comparison, Line, rows
from tests.cases import each

NONE, DOT = Model(None, 8), Model("dot", 8)


def learned(model, seed, exact, bleu, seconds=1.0):
    points = (Point(0, 0.0, 0.0, 0.0), Point(10, seconds, bleu[-1], exact[-1]))
    buckets = tuple(
        Bucket(name, 5, e, b) for name, e, b in zip(("1–10", "11–20"), exact, bleu, strict=True)
    )
    return TrainedModel(model, seed, points, buckets, 10)


FOUR = (
    learned(NONE, 0, (0.9, 0.1), (95.0, 30.0)),
    learned(NONE, 1, (0.7, 0.3), (91.0, 34.0)),
    learned(DOT, 0, (1.0, 0.8), (99.0, 90.0), 2.0),
    learned(DOT, 1, (1.0, 0.6), (99.0, 94.0), 4.0),
)


def test_both_models_are_the_same_but_for_the_attention():
    without, with_it = (
        Controls(32, 30, "general", 5, 7).config(model)
        for model in Controls(32, 30, "general").pair
    )
    assert without.model.attention is None and with_it.model.attention.score.key == "general"
    assert without.to_json() | {"model": None} == with_it.to_json() | {"model": None}
    assert (
        with_it.max_train_seconds == 5
        and with_it.task["max_source"] == 30
        and not with_it.finish_early
    )
    assert Controls.of(with_it) == Controls(32, 30, "general", 5, 7)


@each("score", SCORES)
@each("size", (SIZES[0], SIZES[-1]))
def test_every_setting_on_offer_can_run(score, size):
    for seconds in (5, 180):
        for model in Controls(size, score=score, seconds=seconds).pair:
            assert (
                Controls(size, score=score, seconds=seconds).config(model).max_train_seconds
                == seconds
            )


def test_seeds_are_averaged_and_their_spread_told():
    exact = by_length(FOUR, NONE, "sequence_accuracy")
    assert (exact["11–20"].mean, exact["11–20"].std) == pytest.approx((20.0, 200**0.5))
    assert [seconds for seconds, _ in over_time(FOUR, DOT, "bleu", "seconds")] == [0.0, 3.0]
    assert [step for step, _ in over_time(FOUR, DOT, "bleu", "step")] == [0, 10]
    late = TrainedModel(DOT, 2, (Point(0, 0.0, 0.0, 0.0),), (), 0)
    assert len(over_time([*FOUR, late], DOT, "bleu", "step")) == 1, (
        "only steps that every seed has reached"
    )
    assert len(by_length([*FOUR, late], DOT, "sequence_accuracy")["1–10"].values) == 2


def test_models_stand_in_one_order_and_the_larger_says_its_size():
    curves = (
        *FOUR,
        learned(Model(None, 16), 0, (1, 1), (9, 9)),
        learned(Model("general", 8), 0, (1, 1), (9, 9)),
    )
    assert models(curves) == [NONE, DOT, Model("general", 8), Model(None, 16)]
    assert list(why.names(curves).values()) == [
        "one vector",
        "attention",
        "attention, general",
        "one vector, 16",
    ]


def test_the_sentence_of_the_page_is_the_numbers():
    sentence = why.fact_text(Comparison(Controls(8), FOUR, None)).replace("\u00a0", " ")
    assert sentence.startswith(
        "Of sentences of 11–20 words, the model with attention translates **70 ± 14 %** "
        "without a mistake; the model with one vector of 8 numbers **20 ± 14 %**."
    )
    assert sentence.endswith("For 1–10 words it is 100 % and 80 ± 14 %.")
    more = (*FOUR, learned(Model(None, 16), 0, (1.0, 0.5), (98.0, 51.0)))
    assert "with 16 numbers 50 %" in why.fact_text(Comparison(Controls(8), more, None)).replace(
        "\u00a0", " "
    )
    assert why.fact_text(Comparison(Controls(8), FOUR[:2], None)) == "", (
        "one model alone is compared with nothing"
    )
    assert why.numbers(FOUR, ["11–20"])[1] == ["attention", "92\u00a0±\u00a03 / 70\u00a0±\u00a014"]


def test_lines_are_drawn_with_their_spread_and_names_apart():
    lines = [
        Line("one vector", 0, list(by_length(FOUR, NONE, "sequence_accuracy").items())),
        Line("dot product", 1, list(by_length(FOUR, DOT, "sequence_accuracy").items())),
        Line("not yet", 2, []),
    ]
    table = rows(lines).to_pylist()
    points = [row for row in table if row["kind"] == "point"]
    assert [(row["name"], row["y"]) for row in points] == [
        ("1–10", pytest.approx(80)),
        ("11–20", pytest.approx(20)),
        ("1–10", pytest.approx(100)),
        ("11–20", pytest.approx(70)),
    ]
    assert all(0 <= row["low"] <= row["y"] <= row["high"] <= 100 for row in points)
    assert {row["model"] for row in table if row["kind"] == "label"} == {
        "one vector",
        "dot product",
    }
    assert rows([]).num_rows == 0


def test_an_equation_has_the_weights_of_its_row():
    weights = np.full((3, 4), 0.1, dtype=np.float32)
    weights[1] = (0.7, 0.2, 0.06, 0.04)
    shown = Sentence(("two", "hundred", ";", "one"), ("zwei", "hundert"))
    without, with_it = why.equations(Controls(8), shown, weights, 1)
    assert (
        r"[\overrightarrow{h}_{3};\, \overleftarrow{h}_0] \in \mathbb{R}^{8}" in without
        and "c_{2} =" in without
    )
    for part in (
        r"c_{1}^{\text{hundert}}",
        r"0.70\, h_{0}^{\text{two}}",
        r"0.060\, h_{2}^{\text{;}}",
        "0.04",
    ):
        assert part in with_it
    assert r"c_{2}^{\text{end}}" in why.equations(Controls(8), shown, weights, 2)[1]


def test_the_sentence_table_counts_errors_and_escapes():
    shown = Sentence(("a", "<b>"), ("x", "y"), {NONE: ("x", "<z>"), DOT: ("x", "y")})
    drawn = why.sentence_table(shown, {NONE: "one vector", DOT: "dot product"}, "#f00", "#eee")
    assert "&lt;b&gt;" in drawn and "&lt;z&gt;</b>" in drawn and "<z>" not in drawn
    assert drawn.index(">1</td>") < drawn.index(">0</td>")


def test_the_longest_watched_sentence_is_read_from_the_runs(tmp_path):
    runs, maps = {}, {"0:cross": np.full((1, 1, 2, 1), 1.0), "1:cross": np.full((1, 1, 3, 2), 0.5)}
    for model in (NONE, DOT):
        run = create_run(Controls(8).config(model), tmp_path / str(model.score))
        short, long = (
            Prediction(("a",), ("b",), ("b",)),
            Prediction(("a", "c"), ("b", "d"), (str(model.score),)),
        )
        for step in range(4):
            run.append(
                Record(
                    step,
                    sequence_accuracy=0.0,
                    bleu=1.0,
                    examples=(short, long) if step else (),
                    maps=maps if model.score else {},
                )
            )
        runs[model] = (run, run.records())
    longest = sentence(runs)
    assert (longest.source, longest.target) == (("a", "c"), ("b", "d"))
    assert longest.outputs == {NONE: ("None",), DOT: ("dot",)}
    assert [step for step, _ in longest.frames] == [0, 1, 2, 3] and longest.frames[0][1].shape == (
        3,
        2,
    )
    assert sentence({NONE: (runs[NONE][0], [])}) is None


@each(
    ("count", "frames"),
    [(0, []), (1, [0]), (4, [0, 1, 2, 3]), (5, [0, 2, 4]), (6, [0, 2, 4, 5]), (9, [0, 4, 8])],
)
def test_as_frames_come_the_kept_ones_stay(count, frames):
    assert thinned(range(count), 4) == frames


def test_the_kept_measurement_is_whole():
    """Made by `make bottleneck`: the models it names, all lengths, and an alignment that is one."""
    saved = study.load()
    assert set(models(saved.learned)) == set(study.MODELS) == set(saved.seconds), (
        "run make bottleneck"
    )
    assert all(
        [b.lengths for b in one.buckets][-1] == "51–60" and one.held_out == 1000
        for one in saved.learned
    )
    assert len({one.points[-1].step for one in saved.learned}) == 1, (
        "equal steps; run make bottleneck when it is quiet"
    )
    weights = saved.sentence.frames[-1][1]
    assert weights.shape == (len(saved.sentence.target) + 1, len(saved.sentence.source))
    assert weights.sum(-1) == pytest.approx(np.ones(len(weights)), abs=0.01)
    exact = {
        model: by_length(saved.learned, model, "sequence_accuracy")["51–60"].mean
        for model in models(saved.learned)
    }
    bleu = {
        model: by_length(saved.learned, model, "bleu")["51–60"].mean
        for model in models(saved.learned)
    }
    without, with_it = Controls().pair
    assert bleu[with_it] >= 90 and bleu[without] < 45, "the budget of the design"
    assert exact[with_it] > 50 and exact[without] < 1


def test_the_experiment_in_small(tmp_path, monkeypatch):
    """Real runs, in this process: both models are measured, and what is saved is what is loaded."""
    small = Controls(d_model=8, longest=20)
    monkeypatch.setattr(study, "MODELS", small.pair)
    monkeypatch.setattr(study, "SAVED", tmp_path)
    monkeypatch.setattr(study, "ProcessPoolExecutor", _Here)
    result = study.measure(small, 1, 1, tmp_path)
    study.save(result, tmp_path)
    saved = study.load()
    assert [one.model for one in saved.learned] == list(saved.seconds) == list(small.pair)
    assert all(one.held_out == 20 and one.points[-1].step == 1 for one in saved.learned)
    assert saved.sentence.outputs == result.sentence.outputs and all(
        seconds > 0 for seconds in saved.seconds.values()
    )
    assert saved.sentence.frames[-1][1].sum(-1) == pytest.approx(1, abs=0.01)


class _Here:
    """A pool of this process alone."""

    def __init__(self, *how):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return False

    map = staticmethod(map)
