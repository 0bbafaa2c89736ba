"""The page Inside one weight without a browser: its numbers are the model's, and what is chosen is what is opened."""

import re
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from core.interpret.evidence import break_down_weight, layer_attentions
from core.pretrained import ModelInputs, load_minilm, read
from core.studies.inside_weight import Cell, default_cell
from dashboard.draw.formats import number
from dashboard.ui.models import ModelRef, load_model, reading_of
from pages import inside_weight
from tests.pages.app import assert_says, open_at, page_text
from tests.tiny_models import FAMILIES, save

TEXT = "The animal didn't cross the street because it was too tired."


@pytest.fixture(autouse=True)
def _folders(monkeypatch) -> None:
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")


def shown(model: str = "all-MiniLM-L6-v2", **link: str) -> AppTest:
    return open_at("inside_weight", **{"inside:model": model}, **link)


def opened(app: AppTest) -> tuple[Any, ...]:
    """What the fields open, and the link to it."""
    keys = (app.selectbox(key=f"inside_weight:{name}").value for name in ("head", "query", "key"))
    return (*keys, app.query_params["head"], app.query_params["cell"])


def test_first_sight_opens_what_it_means_by_it():
    app = shown()
    own = float(read(load_minilm(), TEXT).trace.head(3, 1)[10, 2])
    assert opened(app) == ("L3·H1", 10, 2, "3.1", "10.2")
    assert_says(app, f"computed from them is {own:.6f}"[:-1])
    lines = [one.value.strip("$\n") for one in app.latex]
    # The numbers in the equation come to what it says
    scaled = re.search(r"\\frac\{(.+?)\}\{\\sqrt\{(\d+)\}\} = ([\d.]+)$", lines[2]).groups()
    over, root, score = map(float, scaled)
    assert abs(over / root**0.5 - score) < 0.006
    below, weight = map(float, re.search(r"\}\{([\d.]+)\} = ([\d.]+)$", lines[3]).groups())
    assert abs(1 / below - weight) < 0.0003, "this weight is the largest of its row"


def test_fields_map_and_links_open_another_weight():
    app = shown()
    app.selectbox(key="inside_weight:head").set_value("L5·H7")
    app.selectbox(key="inside_weight:query").set_value(4).run()
    own = float(read(load_minilm(), TEXT).trace.head(5, 7)[4, 2])
    assert_says(app, f"gives the weight {number(own)}; uniform")
    assert opened(app) == ("L5·H7", 4, 2, "5.7", "4.2")
    key = f"{inside_weight.MAP}:view"
    app.session_state[key] = app.session_state[key] | {"pick": (3, 4), "pin": (7, 5)}
    assert opened(app.run()) == ("L3·H4", 7, 5, "3.4", "7.5")
    # A link from another page, and a field after it
    app.query_params["head"], app.query_params["cell"] = "0.2", "7.6"
    assert opened(app.run())[:3] == ("L0·H2", 7, 6)
    app.selectbox(key="inside_weight:key").set_value(3).run()
    assert opened(app) == ("L0·H2", 7, 3, "0.2", "7.3")
    # Another text opens a cell of its own
    app.text_input(key="inside:text").set_value("Short one here").run()
    assert max(opened(app)[1:3]) < 5


@pytest.mark.parametrize(
    ("model", "equation", "says"),
    [
        ("induction", "", "At the same position, rotation changes nothing"),
        ("induction", "", "query heads share 2"),
        ("numbers", "", "q·k"),
        ("digits", "", "This weight adds α·v of"),
        ("gpt2", r"q_i^\top k_j}{\sqrt{D}", ""),
        ("t5", r"q_i^\top k_j + b_{i-j}", ""),
        ("gemma2", r"\kappa \tanh", ""),
        # YaRN: 0.1 ln 32 + 1
        ("gpt_oss", r"e^{\text{sink}}", "The rotation also scales both by 1.35"),
        ("gemma3", r"c\, q_i^\top k_j", ""),
        ("diffllama", "s_{ij}", "the model subtracts a learned share"),
    ],
)
def test_each_model_has_its_own_equation_and_its_own_weight(tmp_path, model, equation, says):
    link = {"inside_weight:kind": "Encoder"} if model == "t5" else {}
    app = shown(str(save(model, tmp_path)) if model in FAMILIES else model, **link)
    assert_says(app, says)
    assert equation in app.latex[0].value
    pattern = r"computed from them is (\d\.\d+); the model's is (\d\.\d+)"
    made, own = map(float, re.search(pattern, page_text(app)).groups())
    assert made == pytest.approx(own, abs=2e-6) and (equation or 0.3 < own < 0.95)


def test_what_is_carried_adds_up_to_the_head_s_output():
    ref = ModelRef("lab", "induction")
    given = ModelInputs("the old king walked to the dark river . the old")
    layer = layer_attentions(load_model(ref), given)[1]
    all_of = [break_down_weight(layer, 3, 9, key) for key in range(layer.k.shape[1])]
    np.testing.assert_allclose(sum(one.contribution for one in all_of), all_of[0].out, atol=1e-5)
    facts = [inside_weight.carried_fact(one, "a", "b").replace("−", "-") for one in all_of]
    shares = [float(re.search(r"contributes \*\*(-?\d+) %", one)[1]) for one in facts]
    assert sum(shares) == pytest.approx(100, abs=3)


def test_the_telling_cell_is_between_words_far_apart():
    given = ModelInputs("nine thousand three hundred and twelve ; forty-seven")
    reading = reading_of(ModelRef("lab", "numbers"), given)
    cross = reading.trace.of("cross")
    cell = default_cell(reading, cross)
    assert 0.5 < cross.head(cell.layer, cell.head)[cell.query, cell.key] < 0.8
    cells = cell, Cell(0, 0, 99, 0), Cell(9, 0, 0, 0)
    assert [one.inside(cross) for one in cells] == [True, False, False]


@pytest.mark.parametrize("order", [np.arange(5), np.array([3, 0, 4, 1, 2])])
def test_the_figure_holds_each_number_once_and_adds_them_up(order):
    q, k = np.array([1.0, -2.0, 0.5, 3.0, 0.0]), np.array([0.5, 1.0, -1.0, 2.0, 4.0])
    spec = inside_weight.products_chart({"q": q, "k. [it]": k}, q * k, order, "light")
    marks = [(one["mark"]["type"], one["data"]["values"]) for one in spec["layer"]]
    bars, line = (next(rows for mark, rows in marks if mark == name) for name in ("bar", "line"))
    products = [(one["dimension"], one["product"]) for one in bars]
    assert products == list(zip(order, (q * k)[order], strict=True))
    assert line[-1]["sum"] == pytest.approx(float(q @ k))
    assert [rows[0]["strip1"] for mark, rows in marks if mark == "rect"] == [k[order[0]]] * 2


def test_masked_keys_have_no_bar_and_are_named():
    values = np.array([0.25, 0.75, -np.inf])
    spec = inside_weight.row(("it's", "b\\", "c"), values, 1, "dark", "weight", 0.5)
    bars, hidden, rule = (one["data"]["values"] for one in spec["layer"])
    heights = [(one["weight"], one["picked"]) for one in bars]
    assert heights == [(0.25, False), (0.75, True), (0.0, False)]
    assert [one["at"] for one in hidden] == [2] and rule == [{"level": 0.5}]
    assert r"['it\'s','b\\','c']" in spec["layer"][0]["encoding"]["x"]["axis"]["labelExpr"]
