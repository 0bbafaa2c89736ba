"""What is taken away is what was drawn, and typed text stays text."""

import csv
import io
from xml.etree import ElementTree

import numpy as np

from core.trace import AttentionMap, AttentionTrace
from dashboard.widgets.export import head_csv, map_svg, trace_npz

TOKENS = ("=cmd()", "<script>", "שלום")
WEIGHTS = np.array([[[1, 0, 0], [0.25, 0.75, 0], [0.1, 0.2, 0.7]]], np.float32)
ITEM = AttentionMap("self", 3, WEIGHTS, TOKENS, TOKENS)


def test_csv_holds_the_weights_and_no_formula():
    rows = list(csv.reader(io.StringIO(head_csv(ITEM, 0).decode())))
    assert rows[0][1] == "'=cmd()" and rows[1][0] == "'=cmd()"
    np.testing.assert_allclose([[float(x) for x in row[1:]] for row in rows[1:]], WEIGHTS[0])


def test_npz_comes_back_whole():
    loaded = np.load(io.BytesIO(trace_npz(AttentionTrace((ITEM,), "test"))))
    np.testing.assert_array_equal(loaded["self_3"], WEIGHTS)
    assert tuple(loaded["self_3_keys"]) == TOKENS


def test_svg_is_well_formed_and_escapes_tokens():
    root = ElementTree.fromstring(map_svg(WEIGHTS[0], TOKENS, TOKENS))
    names = [node.tag.rpartition("}")[2] for node in root.iter()]
    assert names.count("rect") == 9 and "script" not in names
    assert "0.750" in [node.text for node in root.iter() if node.tag.endswith("title")]


def test_signed_numbers_are_purple_below_zero_and_green_above():
    root = ElementTree.fromstring(map_svg(np.array([[-2.0, 0.0, 2.0]]), TOKENS[:1], TOKENS, signed=2.0))
    fills = [node.get("fill") for node in root.iter() if node.tag.endswith("rect")]
    assert fills == ["rgb(85,37,113)", "rgb(244,245,245)", "rgb(20,73,39)"]
