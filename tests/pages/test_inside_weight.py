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
from tests.tiny_models import save

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
    assert_says(
        app,
        "it and the key animal have q·k = 21.69: their signs agree in 21 of 32 dimensions",
        "is the largest of 16 and gives the weight 0.68; uniform attention would give 0.06",
        f"computed from them is {own:.6f}"[:-1],
    )
    lines = [one.value.strip("$\n") for one in app.latex]
    assert r"\frac{21.69}{\sqrt{32}} = 3.83" in lines[2] and "0.6768" in lines[3]
    assert lines[1].startswith("21.69 = "), "a phone cuts the end of a line, not the result"
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
    ("head", "cell", "warning"),
    [
        ("9.1", "1.1", "0.0 to 5.11"),
        ("1.1", "99.1", "0.0 to 15.15"),
        ("x", "1.1", "two whole numbers"),
    ],
)
def test_a_link_to_no_cell_says_so(head, cell, warning):
    app = shown(head=head, cell=cell)
    assert any(warning in one.value for one in app.warning)
    assert opened(app)[:3] == ("L3·H1", 10, 2)


@pytest.mark.parametrize(
    ("model", "sentences"),
    [
        ("induction", ("At the same position, rotation changes nothing", "query heads share 2")),
        ("numbers", ("q·k",)),
        ("digits", ("This weight adds α·v of",)),
    ],
)
def test_the_lab_s_own_models_open(model, sentences):
    app = shown(model)
    assert_says(app, *sentences)
    pattern = r"computed from them is (0\.\d+); the model's is (0\.\d+)"
    made, own = map(float, re.search(pattern, page_text(app)).groups())
    assert made == pytest.approx(own, abs=2e-6) and 0.3 < own < 0.95


@pytest.mark.parametrize(
    ("family", "equation", "says"),
    [
        ("gpt2", r"q_i^\top k_j}{\sqrt{D}", ""),
        ("t5", r"q_i^\top k_j + b_{i-j}", ""),
        ("gemma2", r"\kappa \tanh", ""),
        # YaRN: 0.1 ln 32 + 1
        ("gpt_oss", r"e^{\text{sink}}", "The rotation also scales both by 1.35"),
        ("gemma3", r"c\, q_i^\top k_j", ""),
        ("diffllama", "s_{ij}", "the model subtracts a learned share"),
    ],
)
def test_each_family_has_its_own_equation(tmp_path, family, equation, says):
    (folder := tmp_path / family).mkdir()
    link = {"inside_weight:kind": "Encoder"} if family == "t5" else {}
    app = shown(str(save(family, folder)), **link)
    assert_says(app, says)
    assert equation in app.latex[0].value


def test_a_family_that_cannot_be_opened_offers_one_that_can(tmp_path):
    app = shown(str(save("bloom", tmp_path)))
    assert_says(app, "does not expose its queries, keys and values")
    assert app.button


def test_a_masked_cell_says_why_its_weight_is_nothing():
    app = shown("induction", head="0.0", cell="2.5")
    assert opened(app)[:3] == ("L0·H0", 2, 5)
    assert_says(app, "but the cell is masked, so its weight is 0")
    assert any(r"-\infty" in one.value for one in app.latex)


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
