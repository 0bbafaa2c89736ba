"""The page Inside one weight without a browser: its numbers are the model's, and what is chosen is what is opened."""

import re

import numpy as np
import pytest

from core.interpret.evidence import break_down_weight, layer_attentions, telling_cell
from core.pretrained import ModelInputs
from dashboard.ui.models import ModelRef, load_model, reading_of
from pages import inside_weight
from tests.pages.app import Case, open_at, page_cases, query_value, set_state

HEAD, QUERY, KEY = (f"inside_weight:{name}" for name in ("head", "query", "key"))
test_what_it_opens = page_cases(
    "inside_weight",
    {
        "a head and a query": Case(
            {},
            ["gives the weight"],
            do=[("selectbox", HEAD, "L5·H7"), ("selectbox", QUERY, 4)],
            controls={HEAD: "L5·H7", QUERY: 4, KEY: 2},
            query={"head": "5.7", "cell": "4.2"},
        ),
        "a link and a key": Case(
            {"head": "0.2", "cell": "7.6"},
            do=[("selectbox", KEY, 3)],
            controls={HEAD: "L0·H2", QUERY: 7, KEY: 3},
            query={"head": "0.2", "cell": "7.3"},
        ),
        "another text": Case(
            {"head": "0.2", "cell": "7.6"},
            do=[("text_input", "inside:text", "Short one here")],
            controls={HEAD: "L0·H2", QUERY: 4, KEY: 3},
        ),
    },
)


def test_a_press_in_the_map_and_a_link_from_another_page_open_another_weight():
    app, key = open_at("inside_weight"), f"{inside_weight.MAP}:view"
    set_state(app, key, app.session_state[key] | {"pick": (3, 4), "pin": (7, 5)})
    assert [app.session_state[name] for name in (HEAD, QUERY, KEY)] == ["L3·H4", 7, 5]
    assert [query_value(app, name) for name in ("head", "cell")] == ["3.4", "7.5"]
    app.query_params["head"], app.query_params["cell"] = "0.2", "7.6"  # a link from another page
    app.run()
    assert [app.session_state[name] for name in (HEAD, QUERY, KEY)] == ["L0·H2", 7, 6]


def test_what_is_carried_adds_up_to_the_head_s_output():
    given = ModelInputs("the old king walked to the dark river . the old")
    layer = layer_attentions(load_model(ModelRef("lab", "induction")), given)["causal", 1]
    all_of = [break_down_weight(layer, 3, 9, key) for key in range(layer.k.shape[1])]
    np.testing.assert_allclose(sum(one.contribution for one in all_of), all_of[0].out, atol=1e-5)
    facts = [inside_weight.carried_fact(one, "a", "b").replace("−", "-") for one in all_of]
    assert sum(
        float(re.search(r"contributes \*\*(-?\d+) %", one)[1]) for one in facts
    ) == pytest.approx(100, abs=3)


def test_the_telling_cell_is_between_words_far_apart():
    given = ModelInputs("nine thousand three hundred and twelve ; forty-seven")
    reading = reading_of(ModelRef("lab", "numbers"), given)
    cross = reading.trace.of("cross")
    cell = telling_cell(reading, cross)
    assert 0.5 < cross.head(cell.layer, cell.head)[cell.query, cell.key] < 0.8


def test_masked_keys_have_no_bar_and_are_named():
    spec = inside_weight.row(
        ("it's", "b\\", "c"), np.array([0.25, 0.75, -np.inf]), 1, "dark", "weight", 0.5
    )
    bars, hidden, rule = (one["data"]["values"] for one in spec["layer"])
    heights = [(one["weight"], one["picked"]) for one in bars]
    assert heights == [(0.25, False), (0.75, True), (0.0, False)]
    assert [one["at"] for one in hidden] == [2] and rule == [{"level": 0.5}]
    assert r"['it\'s','b\\','c']" in spec["layer"][0]["encoding"]["x"]["axis"]["labelExpr"]
