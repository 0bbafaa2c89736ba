"""Figures, tables, numbers as text, values as the Python that makes them again, and the files of all of these.

A figure of a paper is as wide as its column, has type of 8 points, titles of its axes, and nothing around it.
"""

import csv
import io
import json
import random
import re
import subprocess
import zipfile
from base64 import b64decode
from dataclasses import replace
from types import SimpleNamespace
from typing import cast
from xml.etree import ElementTree

import nbformat
import numpy as np
import pytest
import torch
import vl_convert
from hypothesis import given, strategies as st
from jinja2 import UndefinedError
from PIL import Image
from pypdf import PdfReader

from core.attention import AXES, PRESETS, AttentionConfig, Choice
from core.interpret.evidence import STATES
from core.interpret.trace import AttentionMap, AttentionTrace
from core.latex import latex as escaped_latex
from core.models import ModelConfig
from core.models.decoding import SearchSettings
from core.tasks import TASKS, TaskConfig, make_task
from core.training import Prediction, Record, RunConfig, source_weights
from dashboard.draw import grids, picture_files, tables
from dashboard.draw.components import WIDTH, Cell, Script, source_of
from dashboard.draw.curves import Curve, balanced_points, legend, line_chart, step_chart
from dashboard.draw.evidence import before_after
from dashboard.draw.figures import (
    DARK_INK,
    LIGHT_INK,
    Ink,
    colour_scale,
    enlarged,
    filtered_layer,
    layer,
    light_colours,
    ordered,
    rgb_of,
    shade,
    split_data,
    text_on,
    titled_figure,
)
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
    score,
    share_text,
    signed,
    whole,
    written,
)
from dashboard.draw.grids import bars
from dashboard.draw.inside_weight import row
from dashboard.draw.lens import part_bars
from dashboard.draw.page_views import stacks_svg
from dashboard.draw.picture_files import (
    PAGE,
    TYPES,
    WIDTHS,
    NotForPaper,
    Source,
    framed_svg,
    latex_of,
    latex_table,
    page_file,
    paper_drawing,
    paper_file,
    paper_fit,
    paper_parts,
    paper_words,
    picture_file,
    table_html,
)
from dashboard.draw.pictures import (
    MAX_RECTANGLES,
    ChartPicture,
    DrawnPicture,
    MapsPicture,
    Picture,
    PictureMap,
    TablePicture,
    convert,
    drawing_file,
    maps_svg,
    outlined,
    size_of,
)
from dashboard.draw.templates import html
from tests.cases import each
from tests.draw.test_components import data_of

# What the Train page draws of a run: pictures from patches, what outputs looked at, tables and curves, as data.


GRID = (2, 3)


def test_patches_become_the_picture_they_were_cut_from():
    # six of 2 × 2 pixels
    whole = grids.joined_patches([[float(place)] * 4 for place in range(6)], GRID)
    assert whole.shape == (4, 6)
    assert np.allclose(whole[0], np.array([0, 0, 1, 1, 2, 2]) / 5) and np.allclose(whole[3, 4:], 1)
    from sklearn.datasets import load_digits

    task, images = make_task(TaskConfig.of("digits")), load_digits().images / 16
    drawn = grids.joined_patches(task.held_out(1)[0].source, task.shape.grid)
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


def plain_text(html: str) -> str:
    return re.sub(r"<[^>]+>", " ", html)


def test_what_a_reader_typed_is_never_markup():
    bad = "<script>alert(1)</script>"
    predictions = [Prediction((bad,), (bad,), (f"{bad}!",))]
    drawn = (
        tables.outputs(predictions, " ", "#f00", "#000"),
        tables.continued(predictions, "", "#f00", "#000"),
        tables.answers([tables.escaped(bad)], predictions, " ", "#f00", "#000"),
        tables.answered(predictions, [(bad,)], "#f00", "#000"),
    )
    for table in drawn:
        assert "<script" not in table and "&lt;script&gt;" in table


def test_wrong_words_are_marked_and_counted():
    table = tables.outputs([Prediction(("a",), ("x", "y", "z"), ("x", "q"))], " ", "#f00", "#000")
    assert re.findall(r"<b [^>]*>(\w)</b>", table) == ["q"]
    assert plain_text(table).split()[-1] == "2", "one is wrong, one is missing"
    one = Prediction(("a", "b", "c"), ("x", "y"), ("y", "y"))
    table = tables.answered([one], [("x", "<pad>", "y")], "#f00", "#000")
    assert re.findall(r"<b [^>]*>(\w)</b>", table) == ["y"], "place by place"
    assert plain_text(table).split()[-9:] == ["a", "→", "y", "(not", "x)", "b", "c", "→", "y"][
        -8:
    ] + ["1"]
    for answer, end in (("a", ["should", "be", "1", "a"]), ("b", ["be", "1", "b", "a"])):
        made = [Prediction(("1",), ("a",), (answer,))]
        assert plain_text(tables.answers(["1"], made, "", "#f", "#0")).split()[-4:] == end


@each(
    ("target", "predicted", "wrong", "missing"),
    [
        ("abcd", "abcd", "0000", 0),
        ("abcd", "axcd", "0100", 0),
        ("abcd", "bcda", "0001", 1),  # place by place all four would be wrong
        ("abcd", "abyycd", "001100", 0),
        # the longest blocks in common, cd and then nothing, would leave 4 of 5 wrong
        ("cdxab", "abxcd", "11011", 0),
        ("", "ab", "11", 0),
        ("ab", "", "", 2),
    ],
)
def test_mistakes_are_the_fewest_edits(target, predicted, wrong, missing):
    assert tables.mistakes(target, predicted) == ([each == "1" for each in wrong], missing)


def test_fewest_edits_equal_trying_all():
    def fewest(a: str, b: str) -> int:
        if not (a and b):
            return len(a) + len(b)
        ways = fewest(a[1:], b) + 1, fewest(a, b[1:]) + 1, fewest(a[1:], b[1:]) + (a[0] != b[0])
        return min(ways)

    rng = random.Random(0)
    for _ in range(150):
        a, b = ("".join(rng.choices("abc", k=rng.randrange(6))) for _ in range(2))
        wrong, missing = tables.mistakes(a, b)
        assert sum(wrong) + missing == fewest(a, b) <= max(len(a), len(b)), (a, b)
        assert len(wrong) == len(b) and 0 <= missing <= len(a)


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


def test_a_chart_that_is_polled_changes_its_rows():
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
    for place, (values, part) in enumerate(zip(rows, same["layer"], strict=True)):
        first = rows.index(values) + 1
        assert [
            {name: row[name] for name in row if name != "layer"}
            for row in late
            if row["layer"] == first
        ] == values and first <= place + 1
        assert part["transform"] == [{"filter": f"datum.layer === {first}"}]


@each(("first", "last", "place"), [(25.0, 89.0, 10), (0.0, 24.0, 0)])
def test_words_of_a_baseline_stand_beside_curves(first, last, place):
    curve = Curve("right", [(0.0, first), (10.0, last)])
    spec = step_chart([curve], ink=LIGHT_INK, last_x=10, high=100, guess=(25.0, "majority class"))
    (words,) = layers_of(spec, "text")
    assert words["data"]["values"][0]["x"] == place


def test_a_legend_names_the_curves_that_are_drawn():
    words = legend(
        [Curve("c", [(0.0, None)]), Curve("a", [(0.0, 1.0)]), Curve("<b>", [(0.0, 2.0)])], LIGHT_INK
    )
    assert words.count("<span") == 2 and "<b>" not in words
    assert (
        all(colour in words for colour in LIGHT_INK.series[:2]) and LIGHT_INK.series[2] not in words
    )


def test_forecast_joins_past_and_its_dots_are_weights():
    spec = grids.forecast_chart(
        [1.0, 2.0], [3.0], [2.5], [1.0], np.array([[0.25, 0.75]]), LIGHT_INK, "light"
    )
    past, naive, came, forecast = layers_of(spec, "line")
    assert [row["x"] for row in came["data"]["values"]] == [1, 2]
    assert forecast["data"]["values"][-1] == {"x": 2, "y": 2.5, "told": "2.50"}
    assert [row["w"] for row in layers_of(spec, "circle")[0]["data"]["values"]] == [0.25, 0.75]


def test_balanced_accuracy_is_drawn():
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
        (number, 0.999993, "0.9999"),
        (number, 0.99999999, "1.00"),
        (number, float("-inf"), "−∞"),
        (number, float("nan"), "not a number"),
        (signed, 0.05, "+0.050"),
        (signed, -0.05, "−0.050"),
        (signed, 0, "0.00"),
        (percent, 0.88, "88 %"),
        (percent, 0.0421, "4 %"),
        (percent, 0.0004, "0.04 %"),
        (percent, 3e-10, "under 0.01 %"),
        (percent, -3e-10, "over −0.01 %"),
        (percent, 0.996, "99.6 %"),
        (percent, 0.9999, "99.99 %"),
        (percent, 0.99998, "99.99 %"),
        (percent, 1, "100 %"),
        (percent, 0, "0 %"),
        (percent, -0.5, "−50 %"),
        (lambda value: cell(signed(value)), -0.0123, "−.012"),
        (lambda value: cell(signed(value)), 0.3, "+.30"),
        (lambda value: cell(signed(value)), 10.2, "+10.20"),
        (lambda value: cell(signed(value)), 0, "0.00"),
        (share_text, 1e-16, "0"),
        (share_text, 6e-7, "under 0.0001"),
        (share_text, 0.0001, "0.0001"),
        (share_text, 0.071, "0.071"),
        (share_text, -6e-7, "−6e−7"),
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
        [{"word": word, "of": of, "p": 0.1, "text": "0.1"} for word in WORDS for of in STATES],
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
    start, rest = rest.strip("\n").split("\n", 1)
    assert start.startswith("import attention_lab  #"), "which finds the lab where it is installed"
    assert rest == ("\n# Two numbers.\n# And a sum.\na = 1\nb = 2\n\n# Their sum.\ntotal = a + b")


def test_a_notebook_is_valid_and_opens_with_its_pictures():
    made = json.loads(SCRIPT.notebook("Masks", {"sum": "<svg/>"}))
    nbformat.validate(made)
    *_, total, last = made["cells"]
    code = [cell["source"] for cell in made["cells"] if cell["cell_type"] == "code"]
    assert code.pop(0).startswith("import attention_lab")
    assert code == ["a = 1\nb = 2", "total = a + b", "total"] and not total["outputs"]
    assert last["outputs"][0]["data"] == {"image/svg+xml": "<svg/>"}


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\x0c", "\x00", "\u2028", "\x85"])
def test_line_break_in_typed_text_does_not_end_comment(end):
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
def test_a_joined_rule_leaves_out_what_changes_nothing(key, parts, expected):
    written = rule("mask", Choice.of(key, *map(Choice, parts)), changed=False, length=4)
    assert written.replace("all keys", "all") == expected


# What is taken away is what was drawn, and typed text stays text.


TOKENS = ("=cmd()", "<script>", "שלום")
WEIGHTS = np.array([[1, 0, 0], [0.25, 0.75, 0], [0.1, 0.2, 0.7]], np.float32)
ONE = PictureMap("L3·H0", WEIGHTS, TOKENS, TOKENS, "a note", np.tril(np.ones((3, 3), bool)))
SOURCE = Source(
    "Masks", "2026-11-23", {"model": "GPT-2", "text": "the cat / sat"}, {"masks:mask": "causal"}
)
MAPS = MapsPicture(
    "Two maps", (ONE, PictureMap("other", -WEIGHTS, TOKENS, TOKENS, low=-1, high=1, signed=True)), 1
)
CHART = ChartPicture(
    "Curves",
    {
        "layer": [
            {
                "data": {"values": [{"x": 1, "y": 0.5}, {"x": 2, "y": None}]},
                "mark": {"type": "line"},
                "encoding": {
                    "x": {"field": "x", "type": "quantitative"},
                    "y": {"field": "y", "type": "quantitative"},
                },
            },
            {
                "data": {"values": [{"x": 2, "name": "end"}]},
                "mark": {"type": "text"},
                "encoding": {"text": {"field": "name"}},
            },
        ]
    },
)
TABLE = TablePicture("Costs & bytes", ("name", "bytes_a"), (("50 %", "3"), ("−1", "4")))


def nodes(svg: str, tag: str) -> list[ElementTree.Element]:
    return [
        node for node in ElementTree.fromstring(svg).iter() if node.tag.rpartition("}")[2] == tag
    ]


def test_one_map_is_a_matrix_several_have_a_row_a_cell():
    one, several = (
        list(csv.reader(io.StringIO(picture_file(picture, "CSV", SOURCE).decode())))
        for picture in (MapsPicture("One", (ONE,)), MAPS)
    )
    assert one[0][1] == one[1][0] == "'=cmd()"
    np.testing.assert_array_equal([[np.float32(x) for x in row[1:]] for row in one[1:]], WEIGHTS)
    assert several[0] == ["map", "row", "row name", "column", "column name", "value"]
    assert len(several) == 19
    assert several[1 + 9 + 5] == ["other", "1", "<script>", "2", "שלום", "-0.0"]


@pytest.mark.parametrize(
    "text, numbers",
    [
        (number(1 / 3), {"": 1 / 3}),
        (number(cast(float, np.float32(0.5))), {"": 0.5}),
        (number(-np.inf), {"": -np.inf}),
        (signed(-2e-9), {"": -2e-9}),
        (share_text(3e-5), {"": 3e-5}),
        (share_text(1e-13), {"": 1e-13}),
        (score(31.249), {"": 31.249}),
        (whole(12_345), {"": 12_345}),
        (operations(8_388_608), {"": 8_388_608}),
        (percent(0.12345), {", %": 12.345}),
        (percent(1e-6), {", %": 1e-4}),
        (byte_size(655_360), {", bytes": 655_360}),
        (duration(0.0218), {", s": 0.0218}),
    ],
)
def test_a_written_number_has_all_its_digits_and_its_unit(text, numbers):
    assert text.numbers == pytest.approx(numbers, rel=1e-12)
    assert {type(value) for value in text.numbers.values()} <= {int, float}


def test_table_of_page_is_exported_as_numbers_with_units():
    head = ("run", "time", "grows as", "error, %", "grows as", "interval", "at")
    interval = written("1 to 2", {", low": 1.0, ", high": 2.0})
    table = TablePicture(
        "Runs",
        head,
        (
            ("a", duration(0.0218), number(1.98765), percent(1 / 3), "–", interval, "7"),
            ("b", "–", "too short", "", number(2.0), "–", "–"),
        ),
    )
    assert table.table() == (
        ["run", "time, s", "time: grows as", "error, %", "error, %: grows as", "interval, low"]
        + ["interval, high", "at"],
        [
            ["a", 0.0218, 1.98765, 100 * (1 / 3), None, 1.0, 2.0, 7],
            ["b", None, "too short", None, 2.0, None, None, None],
        ],
    )
    arrays = table.arrays()
    np.testing.assert_array_equal(arrays["time, s"], [0.0218, np.nan])
    assert len(arrays) == 8  # none has taken the place of another
    settings = (("size", byte_size(2_000)), ("share", percent(0.5)), ("heads", whole(8)))
    assert TablePicture("Models", ("setting", "a"), settings).table()[1] == [
        ["size", "2\u00a0kB"],
        ["share", "50\u00a0%"],
        ["heads", "8"],
    ]


def test_the_table_of_a_figure_has_no_places_of_words():
    rows = [{"kind": "point", "y": 1.0}, {"kind": "label", "y": 7.0}]
    at = {"y": {"field": "y", "type": "ordinal"}}
    layers = [filtered_layer("point", "line", at), filtered_layer("label", "text", at)]
    cells, words = layer("rect", [{"y": 1.0}], at), layer("text", [{"y": 7.0}], at)
    for parts, data, table in (
        (layers, rows, (["y"], [[1.0]])),
        ([cells, words], None, (["y"], [[1.0]])),
        ([words], None, (["y"], [[7.0]])),
        ([cells, words, cells], None, (["y"], [[1.0]])),
    ):
        assert ChartPicture("figure", {"layer": parts}, data).table() == table


def test_the_band_of_a_curve_is_in_its_rows():
    curves = [
        Curve("a", [(1, 1e-30), (2, 0.5)], band=[(1e-31, 2e-30), (0.4, 0.6)]),
        Curve("b", [(1, 0.1), (2, 0.2)]),
    ]
    # which draws 1e-30 at its floor
    chart = line_chart("Loss", "step", curves, LIGHT_INK, log=True)
    assert ChartPicture("Loss", chart).table() == (
        ["name", "step", "Loss", "low", "high"],
        [
            ["a", 1, 1e-30, 1e-31, 2e-30],
            ["a", 2, 0.5, 0.4, 0.6],
            ["b", 1, 0.1, None, None],
            ["b", 2, 0.2, None, None],
        ],
    )


def test_a_chart_names_its_columns_as_a_reader_sees_them():
    curve = {
        "mark": {"type": "line"},
        "encoding": {
            "x": {"field": "x", "title": "step"},
            "y": {"field": "y", "axis": {"title": "loss"}},
            "color": {"field": "of", "legend": {"title": "run"}},
            "tooltip": [
                {"field": "x", "title": "at"},
                {"field": "text", "title": "value"},
                {"field": "low"},
            ],
        },
    }
    rows = [{"x": 1, "y": 2.0, "of": "a", "text": "2.0", "low": 1.5}]
    rule = {"mark": {"type": "rule"}, "encoding": {"x": {"field": "x", "title": None}}}
    picture = ChartPicture("Loss", {"layer": [rule, curve]}, rows)
    assert picture.table() == (["step", "loss", "run", "low"], [[1, 2.0, "a", 1.5]])
    band = {
        "mark": {"type": "area"},
        "encoding": {"y": {"field": "low", "title": "loss"}, "y2": {"field": "y"}},
    }
    both = ChartPicture("Loss", {"layer": [curve, band]}, rows).table()[0]
    assert both == ["step", "y", "run", "low"], "two fields of one title have their names"


def test_a_table_on_the_page_names_its_rows_and_columns():
    html = table_html(["token", "weight"], [["<b>", 0.25], ["it", None]])
    assert '<th scope="col">weight</th>' in html and '<th scope="row">&lt;b&gt;</th><td>' in html
    assert html.endswith('<th scope="row">it</th><td></td></tr></tbody></table>')


def test_a_file_holds_its_source():
    loaded = np.load(io.BytesIO(picture_file(MAPS, "NPZ", SOURCE)))
    assert tuple(loaded["L3·H0: columns"]) == TOKENS and "GPT-2" in str(loaded["source"])
    data = json.loads(picture_file(CHART, "JSON", SOURCE))
    assert data["controls"] == {"masks:mask": "causal"} and data["model"] == "GPT-2"
    trace = AttentionTrace((AttentionMap("self", 3, WEIGHTS[None], TOKENS, TOKENS),), "test")
    heads = np.load(
        io.BytesIO(picture_file(MapsPicture("All", (ONE,), trace=trace), "NPZ", SOURCE))
    )
    np.testing.assert_array_equal(heads["self_3"], WEIGHTS[None])
    assert tuple(heads["self_3_keys"]) == TOKENS


def test_a_table_is_latex_that_compiles_by_its_signs():
    text = picture_file(TABLE, "LaTeX", SOURCE).decode()
    parts = r"\caption{Costs \& bytes}", r"name & bytes\_a \\", r"50 \% & 3 \\", "$-$1 & 4"
    assert [part for part in parts if part not in text] == []


def rows_of_latex(text: str) -> list[list[str]]:
    """The cells of the lines between the rules of a table that is well formed."""
    order = [
        r"\begin{table}",
        r"\centering",
        r"\caption{",
        r"\label{tab:",
        r"\begin{tabular}{",
        r"\toprule",
        r"\midrule",
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    places = [text.index(part) for part in order]
    assert places == sorted(places) and all(text.count(part) == 1 for part in order)
    assert r"% \usepackage{booktabs}" in text and re.search(r"\\label\{tab:[a-z0-9-]+\}", text)
    columns = len(re.search(r"\\begin\{tabular\}\{([lr]+)\}", text)[1])
    lines = text[places[6] : places[7]].splitlines()[1:]
    assert lines and all(line.endswith(r" \\") for line in lines)
    rows = [re.split(r"(?<!\\)&", line.removesuffix(r" \\")) for line in lines]
    assert {len(row) for row in rows} == {columns}
    assert not re.search(r"(?:\\\\|rule)\s*[\[*]", text), (
        "LaTeX would take what follows as an option of the line's end"
    )
    return [[cell.strip() for cell in row] for row in rows]


LAST = ["--", "--", "0.7"]  # two are masked


@pytest.mark.parametrize(
    ("picture", "last"),
    [
        (MapsPicture("One", (ONE,)), LAST),
        (MAPS, [*LAST, "0", "0", "$-$0.7"]),
        (CHART, ["0.5"]),
        (TABLE, ["3", "4"]),
        (TablePicture("Tokens\n\nand é", ("[token", "n"), (("[CLS]", 1), ("*", 2))), ["1", "2"]),
    ],
)
def test_latex_is_well_formed_and_has_every_number(picture, last):
    assert [
        row[-1] for row in rows_of_latex(picture_file(picture, "LaTeX", SOURCE).decode())
    ] == last


def test_maps_are_rows_under_their_tokens_in_latex():
    text = latex_of(MAPS, SOURCE).decode()
    rows = rows_of_latex(text)
    names = [escaped_latex(name) for name in TOKENS]
    assert [row[:2] for row in rows] == [
        [escaped_latex(item.name) if at == 0 else "", name]
        for item in MAPS.maps
        for at, name in enumerate(names)
    ]
    head = text.partition("toprule\n")[2].partition("\n")[0]
    assert [name in head for name in names] == [True] * 3 and "usepackage{graphicx}" in text


@each(
    ("count", "size", "rows", "says"),
    [
        (1, 12, 12, ""),
        (12, 12, 48, "the first 48 of 144 rows; the CSV has all"),
        (2, 60, 48, "the first 48 of 120 rows and 20 of 62 columns; the CSV has all"),
    ],
)
def test_latex_longer_than_a_page_is_cut_and_says_so(count, size, rows, says):
    names = tuple(map(str, range(size)))
    every = tuple(PictureMap(f"m{at}", np.eye(size), names, names) for at in range(count))
    picture = MapsPicture("Maps", every)
    text = latex_of(picture, SOURCE).decode()
    assert len(rows_of_latex(text)) == rows and latex_table(picture)[2] == says
    assert not says or text.count(says) == 1, "in the caption"


def test_a_table_longer_than_a_page_is_cut():
    picture = TablePicture("Rows", ("a", "b"), tuple((str(at), 1) for at in range(60)))
    assert len(rows_of_latex(latex_of(picture, SOURCE).decode())) == 48
    assert latex_table(picture)[2] == "the first 48 of 60 rows; the CSV has all"


def chart_of(lines: dict[str, list[tuple[float, float, float, float]]]) -> ChartPicture:
    names = ("x", "y", "low", "high")
    rows = [
        dict(zip(names, point, strict=True), name=name)
        for name, line in lines.items()
        for point in line
    ]
    encoding = {
        "x": {"field": "x", "type": "quantitative", "title": "step"},
        "y": {"field": "y", "type": "quantitative"},
        "tooltip": [
            {"field": "told_low", "title": "lowest seed"},
            {"field": "told_high", "title": "highest"},
        ],
    }
    return ChartPicture(
        "Loss", {"layer": [layer("line", rows, encoding), layer("point", rows[:1], encoding)]}
    )


def test_a_row_of_latex_is_a_line_of_the_chart():
    even = [(float(step), 1.5, 1.25, 1.75) for step in range(0, 101, 5)]
    text = picture_file(chart_of({"a_b": even, "[c]": even}), "LaTeX", SOURCE).decode()
    assert rows_of_latex(text) == [[name, *[r"$1.5 \pm 0.25$"] * 6] for name in (r"a\_b", "{}[c]")]
    parts = (
        r"& 0 & 20 & 40 & 60 & 80 & 100 \\",
        r"\multicolumn{6}{c}{step}",
        "% 6 of 21 places along step; the CSV has all",
        "(lowest seed to highest)",
    )
    assert [part for part in parts if part not in text] == []
    ends = {"a": [(1.0, 2.0, 1.0, 2.5), (2.0, 2.0, 1.5, 2.5)], "b": [(1.0, 1.0, 1.0, 1.0)]}
    for lines, rows in (
        (ends, [["a", "2 [1, 2.5]", "2 [1.5, 2.5]"], ["b", "1 [1, 1]", "--"]]),
        ({"": [(1.0, 9.0, 9.0, 9.0)], "b": [(1.0, 1.0, 1.0, 1.0)]}, [["b", r"$1 \pm 0$"]]),
    ):
        assert rows_of_latex(picture_file(chart_of(lines), "LaTeX", SOURCE).decode()) == rows


def test_a_drawing_has_title_tokens_scale_row_and_source():
    svg = framed_svg(MAPS, SOURCE)
    texts, titles = ([node.text or "" for node in nodes(svg, tag)] for tag in ("text", "title"))
    assert {"Two maps", "a note", *TOKENS} <= {*texts} and {"0.75", "−0.75"} <= {*titles}
    assert "script" not in svg.replace("&lt;script&gt;", "")
    assert any("Masks · GPT-2 · the cat / sat · 2026-11-23" in text for text in texts)
    assert (texts.count("1.00"), texts.count("−1.00"), titles.count("masked")) == (2, 1, 3)
    title = "Layers by heads, each with its score as previous token"
    drawing = framed_svg(replace(MAPS, title=title, maps=(ONE,)), SOURCE)
    lines = [node.text for node in nodes(drawing, "text") if node.get("font-size") == "15"]
    assert len(lines) == 2 and " ".join(lines) == title, "it is broken and not cut"


def test_signed_numbers_are_purple_below_zero():
    signed = PictureMap(
        "s", np.array([[-2.0, 0.0, 2.0]]), TOKENS[:1], TOKENS, low=-2, high=2, signed=True
    )
    fills = [node.get("fill") for node in nodes(maps_svg([signed]), "rect")]
    assert fills[:3] == ["rgb(85,37,113)", "rgb(244,245,245)", "rgb(20,73,39)"]


def test_maps_of_one_scale_have_one_legend():
    weights = replace(ONE, noun="weight")
    alone, same, own = (
        maps_svg(one) for one in ([weights], [weights, replace(weights, name="L3·H1")], MAPS.maps)
    )
    texts = [node.text for node in nodes(same, "text")]
    assert [texts.count(word) for word in ("1.00", "weight", "masked")] == [1, 1, 1]
    (word,) = [node for node in nodes(alone, "text") if node.text == "masked"]
    assert float(word.get("x")) + 6 * len("masked") < float(
        ElementTree.fromstring(alone).get("width")
    )
    assert [node.text for node in nodes(own, "text")].count("1.00") == 2, "each with its own scale"


def test_masked_cells_are_hatched():
    svg = maps_svg([ONE])
    (hatching, sample) = nodes(svg, "path")
    points = np.array(re.findall(r"[ML]([\d.]+) ([\d.]+)", hatching.get("d")), float)
    masked = [node for node in nodes(svg, "rect") if len(node) and node[0].text == "masked"]
    left, top = (min(float(node.get(name)) for node in masked) for name in "xy")
    assert (points >= [left - 0.1, top - 0.1]).all() and len(masked) == 3 and sample.get("d")
    many = maps_svg([ONE] * 13, picked=12)
    assert [node.get("stroke") for node in nodes(many, "rect") if node.get("fill") == "none"] == [
        LIGHT_INK.pick
    ]
    assert "=cmd()" not in many and many.count("L3·H0") == 13, "many maps are small"
    names = tuple(map(str, range(int(MAX_RECTANGLES**0.5) + 1)))
    large = maps_svg([PictureMap("large", np.eye(len(names)), names, names)])
    assert len(nodes(large, "image")) == 1 and len(large) < 200_000


def test_a_chart_of_a_dark_page_is_that_of_a_light_one():
    lines = [Curve(name, [(0.0, 3.0), (1.0, 2.0)]) for name in ("validation", "training")]
    dark, light = (
        ChartPicture("Loss", step_chart(lines, ink=ink, last_x=1)) for ink in (DARK_INK, LIGHT_INK)
    )
    assert dark.spec != light.spec and dark.whole_spec() == light.whole_spec()
    night, day = (
        {
            "fill": shade(0.3, theme),
            "ink": text_on(shade(0.3, theme), theme),
            "axis": Ink.of(theme).quiet,
        }
        for theme in ("dark", "light")
    )
    mapped = json.loads(light_colours(json.dumps(night)))
    first, second = (np.array(rgb_of(colors.pop("fill"))) for colors in (mapped, day))
    np.testing.assert_allclose(first, second, atol=1)  # 8 bits a channel
    assert mapped == day


def test_what_cannot_be_drawn_says_so():
    pytest.raises(ValueError, framed_svg, TABLE, SOURCE).match("Costs & bytes is a table")
    pytest.raises(subprocess.CalledProcessError, drawing_file, "no svg", "pdf")
    assert SOURCE.file_name("L3·H0 of 2", "svg") == "Masks_L3-H0-of-2_GPT-2_the-cat-sat.svg"


def test_a_file_opens_a_trace_at_the_picked_head_and_row(
    monkeypatch,
):
    weights = np.stack([WEIGHTS, -WEIGHTS])
    trace = AttentionTrace(
        tuple(AttentionMap("self", layer, weights, TOKENS, TOKENS) for layer in (0, 1)), "test"
    )
    signed = PictureMap("L1·H1", -WEIGHTS, TOKENS, TOKENS, low=-1, high=1, signed=True)
    pictures: dict[str, Picture] = {
        "all": MapsPicture("All", (signed,), trace=trace, pick=(1, 1)),
        "one": MapsPicture("One", (signed,), 2, trace=trace, pick=(1, 1)),
    }
    drawn = {"all": ("attention_view", "av", {"layout": "grid"})}
    (part,) = data_of(page_file(SOURCE, pictures, {}).decode())["parts"]
    opened = {name: part["data"][name] for name in ("layer", "head", "query", "signed")}
    assert opened == {"layer": 1, "head": 1, "query": 2, "signed": True}
    monkeypatch.setattr(picture_files, "MAX_CELLS", 8)
    html = page_file(SOURCE, pictures | {"b": TABLE}, drawn)
    assert b'"layout":"grid"' in html and b'"layers"' not in html


def test_decoder_reads_encoder_in_drawing_of_model():
    def layer(name: str, *kinds: str) -> dict[str, object]:
        return {
            "title": name,
            "sublayers": [{"title": kind, "type": kind, "around": True} for kind in kinds],
        }

    stacks = [
        {"name": "Encoder", "nodes": [layer("Layer 0", "attention", "feed")]},
        {
            "name": "Decoder",
            "nodes": [layer(f"Layer {i}", "attention", "cross", "feed") for i in (0, 1)],
        },
    ]
    drawing = stacks_svg(stacks, pre_norm=False)
    lines = [node.get("d") for node in nodes(drawing, "path") if node.get("fill") == "none"]
    assert [
        float(line.partition("H")[2].partition("V")[2].partition("H")[0]) for line in lines
    ] == [
        float(node.get("y")) + float(node.get("height")) / 2
        for node in nodes(drawing, "rect")
        if node.get("fill") == "#DCC9E1"
    ] and len(lines) == 2
    assert not [
        node for node in nodes(stacks_svg(stacks[1:], True), "path") if node.get("fill") == "none"
    ]


READS = "query (row) takes from → key (column)"
SENTENCE = (
    "The",
    "animal",
    "didn't",
    "cross",
    "the",
    "street",
    "because",
    "it",
    "was",
    "too",
    "tired",
    ".",
)
RNG = np.random.default_rng(0)


def maps(count: int) -> tuple[PictureMap, ...]:
    mask = np.tril(np.ones((12, 12), bool))
    return tuple(
        PictureMap(
            f"L{at // 12}·H{at % 12}",
            RNG.random((12, 12)) * mask,
            SENTENCE,
            SENTENCE,
            "",
            mask,
            noun="weight",
        )
        for at in range(count)
    )


def curves(*names: str) -> ChartPicture:
    lines = [Curve(name, [(step, 1 / (1 + step)) for step in range(0, 200, 10)]) for name in names]
    return ChartPicture(
        "Validation loss over training", *split_data(step_chart(lines, ink=LIGHT_INK, last_x=200))
    )


def words() -> ChartPicture:
    rows = [
        {"word": f"{at} {word}", "layer": f"L{of}", "text": word}
        for at, word in enumerate(SENTENCE)
        for of in range(2)
    ]
    encoding = {
        "x": {"field": "word", "type": "ordinal"},
        "y": {"field": "layer", "type": "nominal"},
    }
    texts = encoding | {"text": {"field": "text"}}
    layers = [layer("rect", rows, encoding), layer("text", rows, texts, fontSize=5)]
    return ChartPicture("Words", titled_figure("The likeliest words", layers, 120, LIGHT_INK))


PICTURES: dict[str, Picture] = {
    "curves": curves("validation", "training"),
    "words in cells": words(),
    "six scales": MapsPicture(  # each with a legend
        "Six maps",
        tuple(replace(item, high=1.0 + at, noun="score") for at, item in enumerate(maps(6))),
        2,
        READS,
    ),
    "a map": MapsPicture("A head", maps(1), 2, READS),
    "two maps": MapsPicture("Two heads", maps(2), 2, READS),
    "twelve maps": MapsPicture("Twelve heads", maps(12), 2, READS),
    "a board": MapsPicture("All heads", maps(24), 2, READS, across=12),
    "a drawing": DrawnPicture(
        "Boxes",
        (),
        (),
        '<svg xmlns="http://www.w3.org/2000/svg" width="300" height="40">'
        '<g font-size="12"><text x="9" y="20">encoder</text></g></svg>',
    ),
}
AXIS_TITLES = {
    "curves": {"step"},
    "words in cells": {"word", "layer"},
    "a map": {"query", "key"},
    "two maps": {"query", "key"},
    "twelve maps": {"query", "key"},
}


def file_of(picture: Picture, millimetres: float, kind: str) -> bytes:
    """The file as a process of its own makes it, made in this one."""
    job = {**paper_drawing(picture, millimetres), "format": kind, "millimetres": millimetres}
    return b64decode(convert({"paper": job})["paper"])


def spots(pdf: bytes) -> dict[str, tuple[float, float]]:
    """Each text of a PDF with the points of its type and how far right it begins."""
    found: dict[str, tuple[float, float]] = {}

    def visit(text: str, cm: list[float], tm: list[float], font: object, size: float) -> None:
        if text.strip():
            points = float(size * np.hypot(tm[0], tm[1]) * np.hypot(cm[0], cm[1]))
            found[text.strip()] = points, cm[0] * tm[4] + cm[4]

    PdfReader(io.BytesIO(pdf)).pages[0].extract_text(visitor_text=visit)
    return found


@pytest.mark.parametrize(
    ("name", "millimetres"),
    [*((name, 85.0) for name in PICTURES), ("curves", 170.0), ("a board", 170.0)],
)
def test_a_figure_has_the_width_and_the_type_of_a_paper(name, millimetres):
    picture = PICTURES[name]
    root = ElementTree.fromstring(file_of(picture, millimetres, "svg").decode())
    assert root.get("width") == f"{millimetres:g}mm" and {
        node.tag.rpartition("}")[2] for node in root.iter()
    } & {"text", "tspan", "path"} == {"path"}
    *_, width, height = map(float, root.attrib["viewBox"].split())
    tall = float(root.attrib["height"].removesuffix("mm"))
    assert 250 > tall == pytest.approx(height / width * millimetres, rel=1e-3)
    pdf = file_of(picture, millimetres, "pdf")
    page = PdfReader(io.BytesIO(pdf)).pages[0]
    assert float(page.mediabox.width) == pytest.approx(millimetres / 25.4 * 72, abs=0.5)
    text = page.extract_text()
    assert not re.search(f"{picture.title}|Attention Lab|likeliest words", text)
    sizes = [points for points, _ in spots(pdf).values()]
    assert min(sizes) == pytest.approx(TYPES[0], rel=0.02), sizes
    assert AXIS_TITLES.get(name, set()) <= set(re.split(r"\s+", text)), text


def on_scales(count: int) -> MapsPicture:
    """Maps each with a legend, which makes a figure tall."""
    own = (replace(item, high=1.0 + at, noun="score") for at, item in enumerate(maps(count)))
    return MapsPicture("Maps", tuple(own), 2, READS)


@each(
    ("picture", "millimetres", "count", "words"),
    [
        (PICTURES["six scales"], 170.0, 1, r"17 cm wide, \d\d?\.\d cm tall, .* of 8 points"),
        (on_scales(10), 85.0, 1, r"8.5 cm wide, 2[0-3]\.\d cm tall, .* of [67] points"),
        (on_scales(12), 85.0, 2, "2 figures in a ZIP, each .* at most 16"),
        (PICTURES["curves"], 85.0, 1, "at most 23.0 cm tall, with type of 8 points"),
    ],
)
def test_many_maps_are_no_taller_than_a_page(picture, millimetres, count, words):
    parts = paper_parts(picture, millimetres)
    assert len(parts) == count and re.search(words, paper_words(parts, millimetres))
    if isinstance(picture, MapsPicture):
        assert [item for part in parts for item in vars(part)["maps"]] == [*picture.maps]
        for part in parts:
            width, height = size_of(paper_drawing(part, millimetres)["svg"])
            assert height / width * millimetres == pytest.approx(
                paper_fit(part, millimetres).height, abs=0.5
            )
            assert height / width * millimetres <= PAGE + 0.5


def test_several_figures_are_a_zip(monkeypatch):
    monkeypatch.setattr(picture_files, "render", lambda jobs: dict.fromkeys(jobs, b"drawn"))
    data = paper_file(on_scales(12), 85.0, "svg")
    assert zipfile.ZipFile(io.BytesIO(data)).namelist() == ["figures/1.svg", "figures/2.svg"]


def test_rows_of_a_chart_have_room_on_a_page():
    def lens(count: int) -> ChartPicture:
        rows = [{"layer": f"L{at}", "word": "it"} for at in range(count)]
        at = {name: {"field": name, "type": "nominal"} for name in ("word", "layer")}
        channels = {"x": at["word"], "y": at["layer"]}
        return ChartPicture(
            "Lens", {"layer": [layer("rect", rows, channels)], "height": {"step": 24}}
        )

    steps = [paper_drawing(lens(count), 85.0)["spec"]["height"]["step"] for count in (4, 48)]
    assert steps[0] == 24 and 48 * steps[1] * 25.4 / 96 < PAGE
    with pytest.raises(NotForPaper, match="the 96 rows of this chart would be taller"):
        paper_words(paper_parts(lens(96), 85.0), 85.0)


def test_a_legend_takes_more_lines_where_its_names_are_long():
    pdf = file_of(curves(*(f"a run with a long name {at}" for at in range(6))), 85.0, "pdf")
    width = float(PdfReader(io.BytesIO(pdf)).pages[0].mediabox.width)
    assert 0 < max(left for _, left in spots(pdf).values()) < width


def test_the_outlines_are_where_the_text_is():
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" width="200" height="60"><g font-size="20" text-anchor="middle" '
        'font-family="Liberation Sans"><text transform="translate(100 40)" fill="#123456">Ab<tspan dy="-5">2</tspan>'
        '</text><text x="0" y="0"> </text></g></svg>'
    )
    paths = outlined(svg, vl_convert.svg_to_pdf)
    assert "<text" not in paths and 'fill="#123456"' in paths
    text, drawn = (
        np.asarray(Image.open(io.BytesIO(vl_convert.svg_to_png(one))).getchannel("A"), float)
        for one in (svg, paths)
    )
    assert np.abs(text - drawn).mean() < 1 and text.max() > 0


def test_a_drawing_that_is_too_small_says_so():
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" width="1200" height="40" '
        'font-size="12"><text>a</text></svg>'
    )
    wide = DrawnPicture("Wide", (), (), svg)
    for millimetres in WIDTHS.values():
        with pytest.raises(NotForPaper, match=r"would have \d\.\d points; a paper needs 6\."):
            paper_file(wide, millimetres, "pdf")
    with pytest.raises(NotForPaper, match=r"taller than the 23 cm of a page"):
        paper_fit(
            DrawnPicture("Tall", (), (), svg.replace("1200", "90").replace("40", "1999")), 85.0
        )
    assert paper_file(PICTURES["a map"], 85.0, "svg").startswith(b"<svg")


def test_templates_escape_all_but_markup():
    table = tables.html_table(("<a>",), [("<b>",), (tables.escaped("<c>"),)], "#000", ("",))
    assert [f"&lt;{name}&gt;" in table for name in "abc"] == [True] * 3 and "&amp;" not in table
    below = html(
        "report", "below", SimpleNamespace(sentence="", note="<i>\n\n2", source="s"), "?a&b"
    )
    assert below.count("<p") == 3 and "&lt;i&gt;" in below and 'href="?a&amp;b"' in below
    with pytest.raises(UndefinedError):
        html("report", "below", object(), "")
