import json
import re

import pytest
from streamlit.testing.v1 import AppTest

from core.interpret.evidence import Question, ask
from core.interpret.lens import attribute_logit
from core.pretrained import ModelInputs, load_lab_model
from dashboard.draw.formats import number, signed
from pages.lens import ATTRIBUTED, LENS_PARTS
from tests.pages.app import captions, open_at, page_text

REPEAT = "the old king walked to the dark river . the old king walked to the dark"


def charts(app: AppTest) -> list[dict]:
    return [json.loads(chart.proto.spec) for chart in app.get("vega_lite_chart")]


def cells(app: AppTest) -> dict[tuple[str, int], str]:
    rows = charts(app)[0]["layer"][0]["data"]["values"]
    return {(row["state"], row["index"]): row["word"] for row in rows}


def series(app: AppTest) -> set[str]:
    return {row["name"] for row in charts(app)[1]["layer"][-1]["data"]["values"]}


def test_first_sight_says_in_which_layer_the_model_decides():
    app = open_at("lens")
    answer = ask(load_lab_model("induction"), Question(ModelInputs(REPEAT)))
    says = f"river is the likeliest from L1 on, with a probability of {number(answer.value)}"
    # Last the attention of the layer that decides.
    assert says in page_text(app) and re.search(r"L1·H2river \(8\)0\.\d+", page_text(app))
    grid = cells(app)
    assert (grid["L1", 16], grid["L0", 16], len(grid)) == ("river", "room", 3 * 17)
    assert series(app) == {"river", "room", "he"}, "the answer, and what led before it"


def test_a_long_text_is_read_around_the_position():
    text = "the old king walked to the dark river . " * 12
    app = open_at("lens", **{"inside:model": "induction", "inside:text": text, "at": "50"})
    assert (len(cells(app)), min(index for _, index in cells(app))) == (3 * 64, 32)
    assert cells(app)["L1", 50] == "the"


def test_the_parts_on_the_page_are_those_that_sum_to_the_logit():
    app = open_at("lens", **{"lens:view": "Who wrote it", "head": "0.1"})
    answer = ask(load_lab_model("induction"), Question(ModelInputs(REPEAT)))
    parts, text = attribute_logit(answer, answer.id or 0), page_text(app)
    assert f"Sum of all 13 parts = {number(parts.logit)}, logit = {number(parts.logit)}" in text
    grid, bars = (chart["layer"][0]["data"]["values"] for chart in charts(app))
    heads = {
        (f"L{part.key[1]}", str(part.head), signed(part.value))
        for part in parts.parts
        if part.role == "head" and part.key is not None
    }
    assert len(heads) == 8 and heads <= {(row["layer"], row["head"], row["by"]) for row in grid}
    assert sum(row["y"] for row in bars) == pytest.approx(parts.logit, rel=1e-4)
    written = re.findall(r"(-?) ?\\underbrace{([\d.]+)}", " ".join(app.latex[0].value.split()))
    terms = [float(sign + value) for sign, value in written]
    assert len(terms) == 4 and sum(terms) == pytest.approx(parts.logit, abs=0.03), written


def test_another_head_of_the_decoder_is_picked():
    app = open_at("lens", **{"inside:model": "numbers", "lens:view": "Who wrote it"})
    field = app.selectbox(key="lens:head:numbers")
    other = next(name for name in field.options if name != field.value)
    field.set_value(other).run()
    assert app.selectbox(key="lens:head:numbers").value == other
    assert f"Where {other} attends to from" in page_text(app)


@pytest.mark.parametrize(
    "view, key, first",
    [
        ("When it decides", LENS_PARTS, "1 of 3 parts"),
        ("Who wrote it", ATTRIBUTED, "1 of 3 passes"),
    ],
)
def test_a_large_model_waits_for_a_press_and_goes_on_where_it_was(view, key, first, monkeypatch):
    for name, value in (
        ("pages.lens.UNASKED", 0),
        ("dashboard.ui.progress.TIMED", 1),
        ("core.interpret.lens.CELLS", 1),
    ):
        monkeypatch.setattr(name, value)
    text = "the young dog saw the old king . the young"
    app = open_at("lens", **{"lens:view": view, "inside:text": text})
    assert f"{first} measured" in captions(app) and not charts(app)
    app.button(key=f"{key}:go").click().run()
    assert not app.exception and charts(app)
    assert f"{key}:go" not in [button.key for button in app.button]
