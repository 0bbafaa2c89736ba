"""What the Train page draws of a run: pictures from patches, what outputs looked at, tables and curves, as data."""

import re

import numpy as np

from core.models import ModelConfig
from core.tasks import TaskConfig, make_task
from core.training.evaluate import source_weights
from core.training.record import Prediction, Record
from dashboard.draw import grids, tables
from dashboard.draw.curves import Curve, balanced_points, legend, step_chart
from dashboard.draw.palette import LIGHT_INK, colour_scale
from dashboard.draw.vega import split_data
from tests.cases import each

GRID = (2, 3)


def patches() -> list[list[float]]:
    """Six patches of 2 × 2 pixels, each of one value: its place."""
    return [[float(place)] * 4 for place in range(6)]


def test_patches_become_the_picture_they_were_cut_from():
    whole = grids.picture(patches(), GRID)
    assert whole.shape == (4, 6)
    assert np.allclose(whole[0], np.array([0, 0, 1, 1, 2, 2]) / 5) and np.allclose(whole[3, 4:], 1)


def test_the_digits_of_the_task_come_back_as_scikit_learn_has_them():
    from sklearn.datasets import load_digits

    task = make_task(TaskConfig.of("digits"))
    images = load_digits().images / 16
    drawn = grids.picture(task.held_out(1)[0].source, task.shape.grid)
    span = images.max((1, 2), keepdims=True)
    assert np.abs(images / span - drawn).max((1, 2)).min() < 1e-5, (
        "one of the data set's pictures, pixel by pixel"
    )


def test_a_patch_has_the_colour_of_its_weight():
    weights = np.array([0, 0.25, 1, 0, 0, 0])
    drawn = grids.tinted(np.zeros((4, 6), dtype=np.float32), GRID, weights, "light", "#131A26")
    stops = [tuple(int(stop[i : i + 2], 16) for i in (1, 3, 5)) for stop in colour_scale("light")]
    assert tuple(drawn[0, 0]) == stops[0] and tuple(drawn[1, 5]) == stops[-1]
    assert tuple(drawn[0, 2]) not in (stops[0], stops[-1])


@each(
    "config, kind, rows, columns, expected",
    [
        (ModelConfig.transformer(), "cross", 4, 3, (4, 3)),
        (ModelConfig.transformer(kind="classifier"), "self", 4, 4, (1, 3)),
        (ModelConfig.transformer(kind="classifier", pool="mean"), "self", 3, 3, (1, 3)),
        (ModelConfig.transformer(kind="forecaster"), "self", 5, 5, (2, 3)),
        (ModelConfig.transformer(kind="decoder"), "causal", 7, 7, (4, 3)),
        (ModelConfig.transformer(), "self", 3, 3, None),
        (ModelConfig.transformer(kind="decoder"), "causal", 3, 3, None),
    ],
)
def test_what_outputs_looked_at_in_three_places(config, kind, rows, columns, expected):
    weights = np.arange(rows * columns, dtype=float).reshape(rows, columns)
    shares = source_weights(config, kind, weights, [str(i) for i in range(rows)], 3)
    assert (None if shares is None else shares[1].shape) == expected
    if shares is not None:
        assert len(shares[0]) == expected[0]


def text(html: str) -> str:
    return re.sub(r"<[^>]+>", " ", html)


def test_what_a_reader_typed_is_never_markup():
    bad = "<script>alert(1)</script>"
    predictions = [Prediction((bad,), (bad,), (f"{bad}!",))]
    drawn = (
        tables.outputs(predictions, " ", "#f00", "#000"),
        tables.continued(predictions, "", "#f00", "#000"),
        tables.answers([tables.escaped(bad)], predictions, " ", "#f00", "#000"),
    )
    for table in drawn:
        assert "<script" not in table and "&lt;script&gt;" in table


def test_wrong_words_are_marked_and_counted():
    table = tables.outputs([Prediction(("a",), ("x", "y", "z"), ("x", "q"))], " ", "#f00", "#000")
    assert re.findall(r"<b [^>]*>(\w)</b>", table) == ["q"]
    assert text(table).split()[-1] == "2", "one is wrong, one is missing"


def test_a_wrong_class_says_what_it_should_be():
    right, wrong = Prediction(("1",), ("a",), ("a",)), Prediction(("1",), ("a",), ("b",))
    assert text(tables.answers(["1"], [right], "", "#f", "#0")).split()[-1] == "a"
    assert text(tables.answers(["1"], [wrong], "", "#f", "#0")).split()[-2:] == [
        "b",
        "a",
    ]


def layers_of(spec: dict, mark: str) -> list[dict]:
    return [layer for layer in spec["layer"] if layer["mark"]["type"] == mark]


def test_a_chart_holds_its_points_and_its_picked_step():
    points = [(0.0, 3.0), (10.0, None), (20.0, 1.0)]
    spec = step_chart(
        [Curve("loss", points)], ink=LIGHT_INK, last_x=40, step=20, guess=(2.0, "guessing")
    )
    (guess, line), rule = layers_of(spec, "line"), layers_of(spec, "rule")[0]
    assert [(row["x"], row["y"]) for row in line["data"]["values"]] == [(0, 3), (20, 1)]
    assert {row["y"] for row in guess["data"]["values"]} == {2.0} and rule["data"]["values"][0][
        "x"
    ] == 20
    assert line["encoding"]["x"]["scale"]["domain"] == [0, 40]


def test_a_chart_that_is_polled_changes_its_rows_and_not_its_spec():
    points = [(0.0, 3.0), (10.0, None), (20.0, 1.0), (30.0, 0.5)]
    charts = [
        step_chart(
            [Curve("loss", points[:end])],
            ink=LIGHT_INK,
            last_x=100,
            high=4,
            guess=(2.0, "guess"),
            step=step,
        )
        for end, step in ((3, 0), (4, 20))
    ]
    (spec, early), (same, late) = map(split_data, charts)
    assert spec == same
    assert not [layer for layer in spec["layer"] if "data" in layer]
    assert early.num_rows + 2 == late.num_rows, (
        "one more row of the line and one of the points with tooltips"
    )
    for number, layer in enumerate(charts[1]["layer"], 1):
        rows = [
            {name: row[name] for name in row if row[name] is not None and name != "layer"}
            for row in late.to_pylist()
            if row["layer"] == number
        ]
        assert rows == layer["data"]["values"]
        assert same["layer"][number - 1]["transform"] == [{"filter": f"datum.layer === {number}"}]


@each(("first", "last", "place"), [(25.0, 89.0, 10), (0.0, 24.0, 0)])
def test_the_words_of_a_baseline_stand_where_no_curve_runs_through_them(first, last, place):
    curve = Curve("right", [(0.0, first), (10.0, last)])
    spec = step_chart([curve], ink=LIGHT_INK, last_x=10, high=100, guess=(25.0, "majority class"))
    (words,) = layers_of(spec, "text")
    assert words["data"]["values"][0]["x"] == place


def test_a_legend_names_the_curves_that_are_drawn_and_shows_no_markup_of_theirs():
    curves = [Curve("a", [(0.0, 1.0)]), Curve("<b>", [(0.0, 2.0)]), Curve("c", [(0.0, None)])]
    words = legend(curves, LIGHT_INK)
    assert words.count("<span") == 2 and "<b>" not in words
    assert (
        all(colour in words for colour in LIGHT_INK.series[:2]) and LIGHT_INK.series[2] not in words
    )


def test_the_forecast_joins_the_past_and_its_dots_are_the_weights():
    spec = grids.forecast_chart(
        [1.0, 2.0], [3.0], [2.5], [1.0], np.array([[0.25, 0.75]]), LIGHT_INK, "light"
    )
    past, naive, came, forecast = layers_of(spec, "line")
    assert [row["x"] for row in came["data"]["values"]] == [1, 2]
    assert forecast["data"]["values"][-1] == {"x": 2, "y": 2.5, "told": "2.50"}
    assert [row["w"] for row in layers_of(spec, "circle")[0]["data"]["values"]] == [0.25, 0.75]


def test_balanced_accuracy_is_drawn_where_it_is_not_the_accuracy():
    even, lopsided = ((10, 0), (5, 5)), ((18, 0), (2, 0))
    assert (
        balanced_points(
            [Record(0, token_accuracy=0.75, confusion=even), Record(1, token_accuracy=None)]
        )
        == []
    )
    assert balanced_points([Record(0, token_accuracy=0.9, confusion=lopsided)]) == [(0, 50.0)]
    assert balanced_points([Record(0, sequence_accuracy=0.9, confusion=lopsided)]) == [(0, 50.0)], (
        "fine-tuning"
    )
