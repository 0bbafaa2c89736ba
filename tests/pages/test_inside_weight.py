"""The page Inside one weight without a browser: its numbers are the model's, and what is chosen is what is opened."""

import re
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from core.interpret.weight_breakdown import break_down_weight, layer_attentions
from core.pretrained import ModelInputs, load_minilm, read
from core.studies.inside_weight import Cell, default_cell
from dashboard.draw.formats import number
from dashboard.ui.models import ModelRef, load_model, reading_of
from pages import inside_weight
from tests.pages.app import app_at
from tests.tiny_models import save

TEXT = "The animal didn't cross the street because it was too tired."


@pytest.fixture
def app(monkeypatch) -> AppTest:
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    return app_at("inside_weight")


def shown(app: AppTest, model: str = "all-MiniLM-L6-v2", **link: str) -> AppTest:
    for name, value in ({"inside:model": model} | link).items():
        app.query_params[name] = value
    return app.run()


def facts(app: AppTest) -> str:
    return re.sub(r"<[^>]+>", "", " ".join(element.proto.body for element in app.get("html")))


def fields(app: AppTest) -> list[Any]:
    return [app.selectbox(key=f"inside_weight:{name}").value for name in ("head", "query", "key")]


def link_of(app: AppTest) -> tuple[str, str]:
    return app.query_params["head"], app.query_params["cell"]


def test_first_sight_opens_what_it_means_by_it(app):
    shown(app)
    assert fields(app) == ["L3·H1", 10, 2]
    assert re.search(
        r"it and the key animal have q·k = 21\.69: their signs agree in 21 of 32 dimensions",
        facts(app),
    )
    assert (
        "is the largest of 16 and gives the weight 0.68; uniform attention would give 0.06"
        in facts(app)
    )
    own = float(read(load_minilm(), TEXT).trace.head(3, 1)[10, 2])
    assert f"computed from them is {own:.6f}"[:-1] in " ".join(one.value for one in app.caption)
    assert (
        any("0.6768" in one.value for one in app.latex)
        and r"\frac{21.69}{\sqrt{32}} = 3.83" in app.latex[2].value
    )
    assert link_of(app) == ("3.1", "10.2")
    assert app.latex[1].value.strip("$\n").startswith("21.69 = "), (
        "a phone cuts the end of a line, not the result"
    )


def test_the_numbers_in_the_equation_come_to_what_it_says(app):
    shown(app)
    scaled = re.search(
        r"\\frac\{(.+?)\}\{\\sqrt\{(\d+)\}\} = ([\d.]+)$", app.latex[2].value.strip("$\n")
    )
    over, root, score = map(float, scaled.groups())
    assert abs(over / root**0.5 - score) < 0.006
    below, weight = map(
        float, re.search(r"\}\{([\d.]+)\} = ([\d.]+)$", app.latex[3].value.strip("$\n")).groups()
    )
    assert abs(1 / below - weight) < 0.0003, "this weight is the largest of its row"


def test_the_fields_open_another_weight(app):
    shown(app)
    app.selectbox(key="inside_weight:head").set_value("L5·H7")
    app.selectbox(key="inside_weight:query").set_value(4).run()
    own = float(read(load_minilm(), TEXT).trace.head(5, 7)[4, 2])
    assert f"gives the weight {number(own)}; uniform" in facts(app) and link_of(app) == (
        "5.7",
        "4.2",
    )


def test_a_press_in_the_map_opens_its_cell(app):
    shown(app)
    key = f"{inside_weight.MAP}:view"
    app.session_state[key] = app.session_state[key] | {"pick": (3, 4), "pin": (7, 5)}
    app.run()
    assert fields(app) == ["L3·H4", 7, 5]


def test_a_link_opens_its_cell_and_a_bad_one_says_so(app):
    shown(app, head="2.5", cell="3.9")
    assert fields(app) == ["L2·H5", 3, 9]


@pytest.mark.parametrize(
    ("head", "cell", "warning"),
    [
        ("9.1", "1.1", "0.0 to 5.11"),
        ("1.1", "99.1", "0.0 to 15.15"),
        ("x", "1.1", "two whole numbers"),
    ],
)
def test_a_link_to_no_cell_says_so(app, head, cell, warning):
    shown(app, head=head, cell=cell)
    assert any(warning in one.value for one in app.warning) and fields(app) == ["L3·H1", 10, 2]


def test_a_link_from_another_page_opens_its_cell(app):
    shown(app)
    app.query_params["head"], app.query_params["cell"] = "0.2", "7.6"
    app.run()
    assert fields(app) == ["L0·H2", 7, 6]
    app.selectbox(key="inside_weight:key").set_value(3).run()
    assert fields(app) == ["L0·H2", 7, 3] and link_of(app) == ("0.2", "7.3")


def test_another_text_opens_a_cell_of_its_own(app):
    shown(app)
    app.text_input(key="inside:text").set_value("Short one here").run()
    _, query, key = fields(app)
    assert query < 5 and key < 5


@pytest.mark.parametrize(
    ("model", "sentences"),
    [
        ("induction", ("At the same position, rotation changes nothing", "query heads share 2")),
        ("numbers", ("q·k",)),
        ("digits", ("This weight adds α·v of",)),
    ],
)
def test_the_lab_s_own_models_open(app, model, sentences):
    shown(app, model)
    text = facts(app) + " ".join(one.value for one in app.caption)
    assert all(part in text for part in sentences)
    made, own = re.search(r"computed from them is (0\.\d+); the model's is (0\.\d+)", text).groups()
    assert float(made) == pytest.approx(float(own), abs=2e-6) and 0.3 < float(own) < 0.95


@pytest.mark.parametrize(
    ("family", "equation"),
    [
        ("gpt2", r"q_i^\top k_j}{\sqrt{D}"),
        ("t5", r"q_i^\top k_j + b_{i-j}"),
        ("gemma2", r"\kappa \tanh"),
        ("gpt_oss", r"e^{\text{sink}}"),
        ("gemma3", r"c\, q_i^\top k_j"),
    ],
)
def test_each_family_has_its_own_equation(app, tmp_path, family, equation):
    (folder := tmp_path / family).mkdir()
    link = {"inside_weight:kind": "Encoder"} if family == "t5" else {}
    shown(app, str(save(family, folder)), **link)
    assert equation in app.latex[0].value


def test_what_must_be_known_of_the_maps_is_said(app, tmp_path):
    (folder := tmp_path / "diffllama").mkdir()
    shown(app, str(save("diffllama", folder)))
    assert "the model subtracts a learned share" in " ".join(one.value for one in app.caption)


def test_rotation_that_stretches_says_by_how_much(app, tmp_path):
    (folder := tmp_path / "gpt_oss").mkdir()
    shown(app, str(save("gpt_oss", folder)))
    assert "The rotation also scales both by 1.35" in facts(app)  # YaRN: 0.1 ln 32 + 1


def test_a_family_that_cannot_be_opened_offers_one_that_can(app, tmp_path):
    (folder := tmp_path / "bloom").mkdir()
    shown(app, str(save("bloom", folder)))
    assert "does not expose its queries, keys and values" in app.info[0].value and app.button


def test_a_masked_cell_says_why_its_weight_is_nothing(app):
    shown(app, "induction", head="0.0", cell="2.5")
    assert "but the cell is masked, so its weight is 0" in facts(app)
    assert any(r"-\infty" in one.value for one in app.latex)


def test_what_is_carried_adds_up_to_the_head_s_output():
    ref, given = (
        ModelRef("lab", "induction"),
        ModelInputs("the old king walked to the dark river . the old"),
    )
    trace = reading_of(ref, given).trace
    layer = layer_attentions(load_model(ref), given)[1]
    all_of = [break_down_weight(layer, 3, 9, key) for key in range(len(trace.map(1).keys))]
    np.testing.assert_allclose(sum(one.contribution for one in all_of), all_of[0].out, atol=1e-5)
    shares = [
        float(
            re.search(r"contributes \*\*(−?\d+) %", inside_weight.carried_fact(one, "a", "b"))[
                1
            ].replace("−", "-")
        )
        for one in all_of
    ]
    assert sum(shares) == pytest.approx(100, abs=3)


def test_the_telling_cell_is_between_words_far_apart():
    ref = ModelRef("lab", "numbers")
    reading = reading_of(ref, ModelInputs("nine thousand three hundred and twelve ; forty-seven"))
    cross = reading.trace.of("cross")
    cell = default_cell(reading, cross)
    assert (
        cell.inside(cross) and 0.5 < cross.head(cell.layer, cell.head)[cell.query, cell.key] < 0.8
    )
    assert not Cell(0, 0, 99, 0).inside(cross) and not Cell(9, 0, 0, 0).inside(cross)
    assert load_model(ref).reads == "pair"


@pytest.mark.parametrize("order", [np.arange(5), np.array([3, 0, 4, 1, 2])])
def test_the_figure_holds_each_number_once_and_adds_them_up(order):
    q, k = np.array([1.0, -2.0, 0.5, 3.0, 0.0]), np.array([0.5, 1.0, -1.0, 2.0, 4.0])
    spec = inside_weight.products_chart({"q": q, "k. [it]": k}, q * k, order, "light")
    bars = next(one for one in spec["layer"] if one["mark"]["type"] == "bar")["data"]["values"]
    assert [one["dimension"] for one in bars] == list(order)
    assert [one["product"] for one in bars] == [float(one) for one in (q * k)[order]]
    line = next(one for one in spec["layer"] if one["mark"]["type"] == "line")["data"]["values"]
    assert line[-1]["sum"] == pytest.approx(float(q @ k))
    cells = [one for one in spec["layer"] if one["mark"]["type"] == "rect"]
    assert [one["data"]["values"][0]["strip1"] for one in cells] == [k[order[0]]] * 2


def test_masked_keys_have_no_bar_and_are_named():
    spec = inside_weight.row(
        ("it's", "b\\", "c"), np.array([0.25, 0.75, -np.inf]), 1, "dark", "weight", 0.5
    )
    bars, hidden, rule = (one["data"]["values"] for one in spec["layer"])
    assert [(one["weight"], one["picked"]) for one in bars] == [
        (0.25, False),
        (0.75, True),
        (0.0, False),
    ]
    assert [one["at"] for one in hidden] == [2] and rule == [{"level": 0.5}]
    assert r"['it\'s','b\\','c']" in spec["layer"][0]["encoding"]["x"]["axis"]["labelExpr"]
