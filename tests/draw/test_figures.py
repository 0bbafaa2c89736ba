"""Figures, tables, numbers as text, and values as the Python that makes them again."""

import json
import random
import re

import nbformat
import numpy as np
import pytest
import torch
import vl_convert
from hypothesis import given, strategies as st
from sklearn.datasets import load_digits

from core.attention import AXES, PRESETS, AttentionConfig, Choice
from core.interpret.evidence import WAYS
from core.models import ModelConfig
from core.models.decoding import SearchSettings
from core.tasks import TASKS, TaskConfig, make_task
from core.training import Prediction, Record, RunConfig, source_weights
from dashboard.draw import grids, tables
from dashboard.draw.components import WIDTH, Cell, Script, source_of
from dashboard.draw.curves import Curve, balanced_points, legend, step_chart
from dashboard.draw.figures import LIGHT_INK, Ink, colour_scale, enlarged, ordered, split_data
from dashboard.draw.formats import (
    about_duration,
    byte_size,
    cell,
    duration,
    latex,
    number,
    operations,
    percent,
    rule,
    signed,
)
from dashboard.draw.grids import bars
from pages.evidence import before_after
from pages.inside_weight import row
from pages.lens import part_bars
from tests.cases import each

# What the Train page draws of a run: pictures from patches, what outputs looked at, tables and curves, as data.


GRID = (2, 3)


def test_patches_become_the_picture_they_were_cut_from():
    whole = grids.picture([[float(place)] * 4 for place in range(6)], GRID)  # six of 2 × 2 pixels
    assert whole.shape == (4, 6)
    assert np.allclose(whole[0], np.array([0, 0, 1, 1, 2, 2]) / 5) and np.allclose(whole[3, 4:], 1)
    task, images = make_task(TaskConfig.of("digits")), load_digits().images / 16
    drawn = grids.picture(task.held_out(1)[0].source, task.shape.grid)
    assert np.abs(images / images.max((1, 2), keepdims=True) - drawn).max((1, 2)).min() < 1e-5, (
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


def test_wrong_words_are_marked_and_counted_and_a_wrong_class_says_what_it_should_be():
    table = tables.outputs([Prediction(("a",), ("x", "y", "z"), ("x", "q"))], " ", "#f00", "#000")
    assert re.findall(r"<b [^>]*>(\w)</b>", table) == ["q"]
    assert text(table).split()[-1] == "2", "one is wrong, one is missing"
    for answer, end in (("a", ["should", "be", "1", "a"]), ("b", ["be", "1", "b", "a"])):
        made = [Prediction(("1",), ("a",), (answer,))]
        assert text(tables.answers(["1"], made, "", "#f", "#0")).split()[-4:] == end


def layers_of(spec: dict, mark: str) -> list[dict]:
    return [layer for layer in spec["layer"] if layer["mark"]["type"] == mark]


def test_a_chart_holds_its_points_and_its_picked_step():
    points = [(0.0, 3.0), (10.0, None), (20.0, 1.0)]
    spec = step_chart(
        [Curve("loss", points)], ink=LIGHT_INK, last_x=40, step=20, guess=(2.0, "guessing")
    )
    (guess, line), (rule,) = layers_of(spec, "line"), layers_of(spec, "rule")
    assert [(row["x"], row["y"]) for row in line["data"]["values"]] == [(0, 3), (20, 1)]
    assert {row["y"] for row in guess["data"]["values"]} == {2.0}
    assert rule["data"]["values"][0]["x"] == 20
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
    assert len(early) + 1 == len(late), "one more row of the line and its tooltips"
    rows = [layer["data"]["values"] for layer in charts[1]["layer"]]
    for place, (values, layer) in enumerate(zip(rows, same["layer"], strict=True)):
        first = rows.index(values) + 1
        assert [
            {name: row[name] for name in row if name != "layer"}
            for row in late
            if row["layer"] == first
        ] == values and first <= place + 1
        assert layer["transform"] == [{"filter": f"datum.layer === {first}"}]


@each(("first", "last", "place"), [(25.0, 89.0, 10), (0.0, 24.0, 0)])
def test_the_words_of_a_baseline_stand_where_no_curve_runs_through_them(first, last, place):
    curve = Curve("right", [(0.0, first), (10.0, last)])
    spec = step_chart([curve], ink=LIGHT_INK, last_x=10, high=100, guess=(25.0, "majority class"))
    (words,) = layers_of(spec, "text")
    assert words["data"]["values"][0]["x"] == place


def test_a_legend_names_the_curves_that_are_drawn_and_shows_no_markup_of_theirs():
    words = legend(
        [Curve("c", [(0.0, None)]), Curve("a", [(0.0, 1.0)]), Curve("<b>", [(0.0, 2.0)])], LIGHT_INK
    )
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
    for records, points in (
        ([Record(0, token_accuracy=0.75, confusion=even), Record(1, token_accuracy=None)], []),
        ([Record(0, token_accuracy=0.9, confusion=lopsided)], [(0, 50.0)]),
        ([Record(0, sequence_accuracy=0.9, confusion=lopsided)], [(0, 50.0)]),  # fine-tuning
    ):
        assert balanced_points(records) == points


# What figures write: numbers, any word in a chart, lengths while a session presents.


# The rule by which numbers are written, for every page.


@each(
    ("show", "value", "text"),
    [
        (number, 0, "0.00"),
        (number, 1, "1.00"),
        (number, -0.0, "0.00"),
        (number, 0.68, "0.68"),
        (number, 0.125, "0.13"),
        (number, -35.484, "−35.48"),
        (number, 11.9, "11.90"),
        (number, 123.45, "123.5"),
        (number, 1234.5, "1,235"),
        (number, 0.042, "0.042"),
        (number, 0.0994, "0.099"),
        (number, 0.0996, "0.10"),
        (number, 0.0004, "0.0004"),
        (number, 3.1e-6, "3e−6"),
        (number, 0.9949, "0.99"),
        (number, 0.9965, "0.997"),
        (number, 0.99962, "0.9996"),
        (number, 0.99999999, "1.00"),
        (number, float("-inf"), "−∞"),
        (number, float("nan"), "not a number"),
        (signed, 0.05, "+0.050"),
        (signed, -0.05, "−0.050"),
        (signed, 0, "0.00"),
        (percent, 0.88, "88 %"),
        (percent, 0.0421, "4 %"),
        (percent, 0.0004, "0.04 %"),
        (percent, 0.996, "99.6 %"),
        (percent, 0.9999, "99.99 %"),
        (percent, 1, "100 %"),
        (percent, 0, "0 %"),
        (percent, -0.5, "−50 %"),
        (lambda value: cell(signed(value)), -0.0123, "−.012"),
        (lambda value: cell(signed(value)), 0.3, "+.30"),
        (lambda value: cell(signed(value)), 10.2, "+10.20"),
        (lambda value: cell(signed(value)), 0, "0.00"),
        (lambda value: cell(number(value)), 0.28, ".28"),
        (lambda value: cell(number(value)), 0.9996, ".9996"),
        (lambda value: cell(number(value)), 1.0, "1.00"),
        (lambda value: cell(number(value)), 0, "0.00"),
        (lambda value: cell(number(value)), -0.5, "−.50"),
        (byte_size, 12, "12 bytes"),
        (byte_size, 2048, "2.05 kB"),
        (byte_size, 655_360, "655 kB"),
        (byte_size, 2**20, "1.05 MB"),
        (byte_size, 999_600, "1 MB"),
        (byte_size, 3e9, "3 GB"),
        (duration, 0.0218, "21.8 ms"),
        (duration, 0.5, "500 ms"),
        (duration, 4e-5, "40 µs"),
        (duration, 0.99996, "1 s"),
        (duration, 1.25, "1.25 s"),
        (duration, 1240, "1,240 s"),
        (duration, 2e-7, "0.2 µs"),
        (about_duration, 0.2, "1 s"),
        (about_duration, 89, "89 s"),
        (about_duration, 480, "8 min"),
        (operations, 126, "126"),
        (operations, 402.7e6, "403 M"),
        (operations, 9.996e6, "10 M"),
        (operations, 1.21e9, "1.21 G"),
        (operations, 2e15, "2,000 T"),
        (latex, -0.25, "-0.25"),
        (latex, 0, "0.00"),
        (latex, -3e-6, r"-3 \cdot 10^{-6}"),
        (latex, 12345.6, "12{,}346"),
        (latex, float("-inf"), r"-\infty"),
        (latex, float("nan"), r"\text{NaN}"),
    ],
)
def test_a_number_or_an_amount_as_it_is_written(show, value, text):
    assert show(value).replace("\u00a0", " ") == text


def test_only_zero_and_one_are_written_as_such():
    draw = random.Random(0)
    for size in (10 ** draw.uniform(-9, 0) for _ in range(3000)):
        assert number(size) not in ("0.00", "1.00") or size > 1 - 5e-7
        assert number(1 - size) != "1.00" or size < 5e-7
        assert not re.fullmatch(r"(0|0\.0|100|100\.0)\s%", percent(size)) or size > 1 - 5e-7


def test_the_written_number_is_close_to_the_value():
    draw = random.Random(1)
    for value in (draw.choice((-1, 1)) * 10 ** draw.uniform(-7, 6) for _ in range(3000)):
        back = float(number(value).replace("−", "-").replace(",", ""))
        assert abs(back - value) <= max(
            0.5 * 10**-3 if abs(value) > 5e-4 else 0.5 * abs(value),
            5.1e-3 if abs(value) > 0.099 else 0,
            5e-4 * abs(value),
        )
        assert number(back) == number(value), "what is written is written like that again"


# No text of a person reaches an expression of Vega, whose parser takes the string "if" for the function.


WORDS = ["if", "datum", "it's", "back\\slash", "'); alert(1); ('", "</script>", "else", "a\nb"]
INK = Ink.of("light")
FIGURES = {
    "next tokens": lambda: bars({"model": torch.linspace(0.1, 0.2, 8)}, WORDS, 0, INK),
    "evidence": lambda: before_after(
        [{"word": word, "of": of, "p": 0.1, "text": "0.1"} for word in WORDS for of in WAYS],
        WORDS,
        INK,
    ),
    "parts": lambda: part_bars(dict.fromkeys(WORDS, 1.0), "light"),
    "keys": lambda: row(WORDS, np.linspace(0, 1, 8), 0, "light", "weight"),
}


@pytest.mark.parametrize("name", FIGURES)
def test_any_word_can_be_drawn(name):
    spec = ordered(FIGURES[name]())
    assert "if" in vl_convert.vegalite_to_svg(json.dumps(spec))
    vega = json.dumps(vl_convert.vegalite_to_vega(json.dumps(spec)))
    expressions = re.findall(r'"(?:expr|signal|test)": "((?:[^"\\]|\\.)*)"', vega)
    assert not [text for text in expressions if r"\"if" in text]


def test_lengths_grow_areas_by_the_square_and_data_stay():
    spec = {
        "height": {"step": 20},
        "width": "container",
        "padding": {"left": 4},
        "title": {"text": "a", "fontSize": 14},
        "layer": [
            {
                "data": {"values": [{"size": 3, "height": 4}]},
                "mark": {"type": "point", "size": 10, "dx": -4},
                "encoding": {
                    "x": {"axis": {"labelFontSize": 12, "labels": True}, "scale": {"padding": 1}},
                    "strokeWidth": {"value": 2},
                },
            }
        ],
    }
    assert enlarged(spec, 1.5) == {
        "height": {"step": 30},
        "width": "container",
        "padding": {"left": 6},
        "title": {"text": "a", "fontSize": 21},
        "layer": [
            {
                "data": {"values": [{"size": 3, "height": 4}]},
                "mark": {"type": "point", "size": 22.5, "dx": -6},
                "encoding": {
                    "x": {"axis": {"labelFontSize": 18, "labels": True}, "scale": {"padding": 1}},
                    "strokeWidth": {"value": 3},
                },
            }
        ],
    }


NAMES = {
    one.__name__: one
    for one in (AttentionConfig, Choice, ModelConfig, RunConfig, SearchSettings, TaskConfig)
}


def made_again(value: object) -> object:
    text = source_of(value)
    assert max(map(len, text.splitlines())) <= WIDTH
    return eval(text, dict(NAMES))


RUN = RunConfig(
    TaskConfig.of("reverse", length=5), ModelConfig.transformer(position="alibi"), steps=30
)


def test_presets_choices_tasks_and_a_run_come_back():
    made: list[object] = [preset.config() for preset in PRESETS]
    made += [TaskConfig.of(entry.key, seed=7) for entry in TASKS]
    for config in (*made, RUN):
        assert made_again(config) == config
    for entry in (entry for axis in AXES.values() for entry in axis):
        choice = Choice.of(entry.key, **{param.key: param.default for param in entry.params})
        assert source_of(choice) == f"Choice.of({entry.key!r})"


def test_what_is_not_a_default_is_written():
    window = Choice.of("or", Choice.of("causal_local", lookback=5), Choice("padding"))
    config = AttentionConfig(16, 2, mask=window, position=Choice.of("rope", base=50.0))
    assert source_of(config) == (
        "AttentionConfig(\n    d_model=16,\n    num_heads=2,\n    position=Choice.of('rope', base=50.0),\n"
        "    mask=Choice.of('or', Choice.of('causal_local', lookback=5), Choice.of('padding')),\n)"
    )
    assert made_again(config) == config


@given(
    st.recursive(
        st.integers() | st.text() | st.none() | st.floats(allow_nan=False, allow_infinity=False),
        lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_plain_values_come_back(value):
    assert eval(source_of(value)) == value


SCRIPT = Script(
    (
        Cell("Two numbers.\nAnd a sum.", "a = 1\nb = 2"),
        Cell("Their sum.", "total = a + b", "total", "sum"),
    ),
    {"total": np.array(3)},
)


def test_a_script_has_words_as_comments_and_nothing_to_draw():
    first, needs, rest = SCRIPT.text("Masks · 2026-11-23").split("\n", 2)
    assert first == "# Masks · 2026-11-23" and needs.startswith("# Needs Attention Lab ")
    assert rest == ("\n# Two numbers.\n# And a sum.\na = 1\nb = 2\n\n# Their sum.\ntotal = a + b\n")


def test_a_notebook_is_valid_and_opens_with_its_pictures():
    made = json.loads(SCRIPT.notebook("Masks", {"sum": "<svg/>"}))
    nbformat.validate(made)
    *_, total, last = made["cells"]
    code = [cell["source"] for cell in made["cells"] if cell["cell_type"] == "code"]
    assert code == ["a = 1\nb = 2", "total = a + b", "total"] and not total["outputs"]
    assert last["outputs"][0]["data"] == {"image/svg+xml": "<svg/>"}


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\x0c", "\x00", "\u2028", "\x85"])
def test_a_line_break_in_a_typed_text_does_not_end_the_comment(end):
    names: dict[str, object] = {}
    exec(SCRIPT.text(f"Pretrained · the old king{end}broken = True"), names)
    assert "broken" not in names and names["total"] == 3


@each(
    ("key", "parts", "expected"),
    [
        ("and", ("causal", "none"), "j ≤ i"),
        ("or", ("none", "causal"), "all or j ≤ i"),
        ("and", ("none", "none"), "all"),
    ],
)
def test_a_joined_rule_leaves_out_only_parts_that_change_nothing(key, parts, expected):
    written = rule("mask", Choice.of(key, *map(Choice, parts)), changed=False, length=4)
    assert written.replace("all keys", "all") == expected
