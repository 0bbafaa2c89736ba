"""What figures write: numbers, any word in a chart, lengths while a session presents."""

import json
import random
import re

import numpy as np
import pytest
import torch
import vl_convert

from core.studies.evidence import WAYS
from dashboard.draw.formats import (
    about_duration,
    byte_size,
    cell,
    duration,
    latex,
    number,
    operations,
    percent,
    signed,
)
from dashboard.draw.grids import bars
from dashboard.draw.palette import Ink
from dashboard.draw.vega import enlarged, ordered
from pages.evidence import before_after
from pages.inside_weight import row
from pages.lens import part_bars
from tests.cases import each

# The rule by which numbers are written, for every page.


@each(
    ("value", "text"),
    [
        (0, "0.00"),
        (1, "1.00"),
        (-0.0, "0.00"),
        (0.68, "0.68"),
        (0.125, "0.13"),
        (-35.484, "−35.48"),
        (11.9, "11.90"),
        (123.45, "123.5"),
        (1234.5, "1,235"),
        (0.042, "0.042"),
        (0.0994, "0.099"),
        (0.0996, "0.10"),
        (0.0004, "0.0004"),
        (3.1e-6, "3e−6"),
        (0.9949, "0.99"),
        (0.9965, "0.997"),
        (0.99962, "0.9996"),
        (0.99999999, "1.00"),
        (float("-inf"), "−∞"),
        (float("nan"), "not a number"),
    ],
)
def test_a_number(value, text):
    assert number(value) == text


def test_only_zero_and_one_are_written_as_such():
    draw = random.Random(0)
    for _ in range(3000):
        size = 10 ** draw.uniform(-9, 0)
        assert number(size) not in ("0.00", "1.00") or size > 1 - 5e-7
        assert number(1 - size) != "1.00" or size < 5e-7
        assert (
            percent(size).rstrip("\u00a0%") not in ("0", "0.0", "100", "100.0") or size > 1 - 5e-7
        )


def test_the_written_number_is_close_to_the_value():
    draw = random.Random(1)
    for _ in range(3000):
        value = draw.choice((-1, 1)) * 10 ** draw.uniform(-7, 6)
        back = float(number(value).replace("−", "-").replace(",", ""))
        assert abs(back - value) <= max(
            0.5 * 10**-3 if abs(value) > 5e-4 else 0.5 * abs(value),
            5.1e-3 if abs(value) > 0.099 else 0,
            5e-4 * abs(value),
        )
        assert number(back) == number(value), "what is written is written like that again"


def test_signs_percentages_and_cells():
    assert (signed(0.05), signed(-0.05), signed(0)) == ("+0.050", "−0.050", "0.00")
    assert [percent(one) for one in (0.88, 0.0421, 0.0004, 0.996, 0.9999, 1, 0, -0.5)] == [
        f"{text}\u00a0%" for text in ("88", "4", "0.04", "99.6", "99.99", "100", "0", "−50")
    ]
    assert [cell(signed(one)) for one in (-0.0123, 0.3, 10.2, 0)] == [
        "−.012",
        "+.30",
        "+10.20",
        "0.00",
    ]
    assert [cell(number(one)) for one in (0.28, 0.9996, 1.0, 0, -0.5)] == [
        ".28",
        ".9996",
        "1.00",
        "0.00",
        "−.50",
    ]


@each(
    ("show", "value", "text"),
    [
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
    ],
)
def test_an_amount_has_three_digits_and_the_unit_that_fits(show, value, text):
    assert show(value).replace("\u00a0", " ") == text


@each(
    ("value", "text"),
    [
        (-0.25, "-0.25"),
        (0, "0.00"),
        (-3e-6, r"-3 \cdot 10^{-6}"),
        (12345.6, "12{,}346"),
        (float("-inf"), r"-\infty"),
        (float("nan"), r"\text{NaN}"),
    ],
)
def test_a_number_in_an_equation(value, text):
    assert latex(value) == text


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
