"""No text of a person reaches an expression of Vega, whose parser takes the string "if" for the function."""

import json
import re

import numpy as np
import pytest
import torch
import vl_convert

from dashboard.draw.grids import bars
from dashboard.draw.palette import Ink
from dashboard.draw.vega import ordered
from dashboard.views.evidence.compute import WAYS
from pages.evidence import before_after
from pages.inside_weight import row
from pages.lens import part_bars

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
