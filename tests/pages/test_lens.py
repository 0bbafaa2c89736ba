import json
import re

import pytest
from streamlit.testing.v1 import AppTest

from core.interpret.evidence import Question, ask
from core.interpret.lens import attribute_logit
from core.pretrained import ModelInputs, load_lab_model
from dashboard.draw.formats import number, signed
from pages.lens import ATTRIBUTED, LENS_PARTS
from tests.pages.app import captions, open_at, page_text, query_value
from tests.tiny_models import save

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


def test_another_position_and_another_token_are_followed():
    link = {"at": "3", "lens:layer:induction": "L0", "lens:tokens:induction": ["queen", "zzz"]}
    app = open_at("lens", **link, **{"lens:output:induction": "king"})  # type: ignore[arg-type]
    text = page_text(app)
    assert "At king, king is not the likeliest at the end: its rank is" in text
    assert "Where L0 attends to" in text and "L0·H3" in text.partition("attends most to")[2]
    assert not re.search(r"L1·H\d\w+ \(\d", text), "of the picked layer alone"
    assert {"king", "queen"} <= series(app) and query_value(app, "at") == "3"
    assert "“zzz” is not in the vocabulary of induction" in text


def test_a_long_text_is_read_around_the_position():
    text = "the old king walked to the dark river . " * 12
    app = open_at("lens", **{"inside:model": "induction", "inside:text": text, "at": "50"})
    assert "Tokens 32 to 95 of 97, around" in page_text(app)
    assert (len(cells(app)), min(index for _, index in cells(app))) == (3 * 64, 32)
    assert cells(app)["L1", 50] == "the" and "At to, the is the likeliest" in page_text(app)


def test_the_parts_on_the_page_are_those_that_sum_to_the_logit():
    app = open_at("lens", **{"lens:view": "Who wrote it", "head": "0.1"})
    answer = ask(load_lab_model("induction"), Question(ModelInputs(REPEAT)))
    parts, text = attribute_logit(answer, answer.id or 0), page_text(app)
    assert f"Sum of all 13 parts = {number(parts.logit)}, logit = {number(parts.logit)}" in text
    assert "Where L0·H1 attends to" in text
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
    app.selectbox(key="lens:contrast:induction").set_value("wolf").run()
    assert "minus that of wolf" in page_text(app)


def test_the_decoder_of_an_encoder_decoder_is_read():
    app = open_at("lens", **{"inside:model": "numbers"})
    text = page_text(app)
    assert "sieben is the likeliest from L1 on" in text and cells(app)["L1", 0] == "neun"
    assert "The layers are those of the decoder" in text and "cross" in text
    app.segmented_control(key="lens:view").set_value("who").run()
    assert "by cross L1·H3" in page_text(app) and "Sum of all 31 parts" in page_text(app)
    field = app.selectbox(key="lens:head:numbers")
    other = next(name for name in field.options if name != field.value)
    field.set_value(other).run()
    assert app.selectbox(key="lens:head:numbers").value == other
    assert f"Where {other} attends to from" in page_text(app)


def test_a_model_that_fills_masks_is_read_and_its_logit_is_a_sum_with_the_gate_held(
    monkeypatch, tmp_path
):
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    link = {"inside:model": str(save("bert", tmp_path)), "inside:text": "The street was late."}
    app = open_at("lens", **link)
    assert next(box for box in app.selectbox if box.label == "Masked word").value is not None
    assert "At [MASK]," in page_text(app) and len(charts(app)) == 4
    app.segmented_control(key="lens:view").set_value("who").run()
    assert "Sum of all" in page_text(app) and len(charts(app)) == 2
    assert "the gates of the activation before the unembedding, are held" in captions(app)


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
