"""A trace as one HTML file: every weight is in it, nothing is fetched, and it stays small."""

import base64
import json
import re

import numpy as np
import pytest

from core.interpret.trace import AttentionMap, AttentionTrace
from core.show import show, show_maps
from dashboard.draw import html_file
from dashboard.draw.html_file import Part, page_html, trace_html


def trace(layers: int, heads: int, rows: int, columns: int, mask: bool = False) -> AttentionTrace:
    generator = np.random.default_rng(0)
    maps = []
    for layer in range(layers):
        weights = generator.dirichlet(np.full(columns, 0.2), (heads, rows)).astype(np.float32)
        allowed = np.tril(np.ones((rows, columns), bool)) if mask else None
        maps.append(
            AttentionMap(
                "self",
                layer,
                weights,
                tuple(f"q{i}" for i in range(rows)),
                tuple(f"</script>{j}" for j in range(columns)),
                allowed,
            )
        )
    return AttentionTrace(tuple(maps), "a model")


def data_of(html: str) -> dict:
    return json.loads(re.search(r'<script id="data"[^>]*>(.*?)</script>', html, re.DOTALL)[1])


def test_a_file_holds_every_weight_and_asks_nobody():
    made = trace(2, 3, 5, 7, mask=True)
    html = trace_html(made, title="<T>", source="S")
    layers = data_of(html)["parts"][0]["data"]["layers"]
    for item, layer in zip(made.maps, layers, strict=True):
        sent = layer["values"]
        steps = np.frombuffer(base64.b64decode(sent["bytes"]), "<u2").astype(float)
        values = (sent["low"] + sent["step"] * steps).reshape(item.weights.shape)
        np.testing.assert_allclose(values, item.weights, atol=1e-5)
        assert layer["queries"] == list(item.queries) and layer["keys"] == list(item.keys)
    assert "&lt;T&gt;" in html and "<T>" not in html
    assert not re.search(r"""(src|href)=["']|@import url|fetch\(|https?://(?!www\.w3\.org)""", html)


def test_144_heads_of_64_tokens_fit_into_two_megabytes():
    assert len(trace_html(trace(12, 12, 64, 64), title="T").encode()) <= 2_000_000


def test_what_cannot_be_drawn_is_refused(monkeypatch):
    with pytest.raises(ValueError, match="at least one map"):
        trace_html(AttentionTrace((), "none"), title="T")
    monkeypatch.setattr(html_file, "MOST_CELLS", 10)
    with pytest.raises(ValueError, match="105 weights; a file holds 10"):
        trace_html(trace(1, 3, 5, 7), title="T")


def test_a_component_is_in_a_file_once():
    part = Part("Tree", "tree_view", "tv", {"svg": "<svg></svg>", "fact": "", "follow": False})
    html = page_html([part, part, Part("Table", html="<table></table>")], title="T")
    assert html.count("tree_view: (() => {") == 1
    assert [one["title"] for one in data_of(html)["parts"]] == ["Tree", "Tree", "Table"]


def test_a_notebook_shows_the_same_page_in_a_frame(tmp_path):
    shown = show(trace(1, 2, 3, 3))
    frame = shown._repr_html_()
    assert frame.startswith("<iframe srcdoc=") and "</script>" not in frame
    assert shown.save(tmp_path / "a.html").read_text("utf-8") == shown.html


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (np.nan, "holds 1 numbers that are not finite"),
        (np.inf, "not finite"),
        (-0.5, "signed=True"),
        (3.0, "0 to 1"),
    ],
)
def test_numbers_that_are_no_weights_are_refused_unless_masked_or_signed(number, words):
    """What is drawn as 0 would be believed to be 0."""
    made = trace(2, 2, 3, 3, mask=True)
    made.maps[1].weights[1, 0, 2] = number  # masked: hatched, whatever it holds
    show(made)
    made.maps[1].weights[1, 2, 0] = number
    with pytest.raises(ValueError, match=f"Layer L1 .*{words}"):
        show(made)
    maps = {"weights": made.maps[1].weights[1]}
    if np.isfinite(number):
        made.maps[1].weights[1, 0, 2] = 0
        assert show(made, signed=True).html and show_maps(maps, "abc", "abc").svg
        return
    with pytest.raises(ValueError, match="weights holds .*not finite"):
        show_maps(maps, "abc", "abc")
