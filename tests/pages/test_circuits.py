import json
from dataclasses import replace

import pytest
import torch
from streamlit.testing.v1 import AppTest

from core.pretrained import PretrainedError, load_lab_model
from core.studies import circuits as study
from dashboard.draw.formats import signed
from dashboard.ui.models import ModelRef
from pages import circuits as page
from pages.circuits import EDGES, HEAD, KIND
from tests.pages.app import figures, open_at, page_text

ATTENTION = ModelRef("lab", "only-attention")


def says(app: AppTest, *sentences: str) -> None:
    """The page says these, apart from the marks of bold and accent."""
    text = page_text(app).replace(":primary[", "").replace("]", "").replace("**", "")
    assert not app.exception and [one for one in sentences if one not in text] == []


def layers_of(app: AppTest) -> list[dict]:
    return json.loads(figures(app)[0].proto.spec)["layer"]


def test_first_sight_shows_the_induction_circuit_found_twice():
    app = open_at("circuits")
    assert app.selectbox(key=HEAD).value == "L1·H2" and len(figures(app)) == 6
    says(app, "The keys of L1·H2 take most from L0·H2", "The weights alone name the same two")


def test_the_model_of_names_has_a_head_for_each_answer():
    app = open_at("circuits", **{"inside:model": "names", KIND: "K: keys"})
    lines, heads = (one["data"]["values"] for one in layers_of(app))
    assert lines == [] and len(heads) == 4
    for one in study.carriers(load_lab_model("names")):
        assert one.adds[0] > 1 and one.adds[1] < -1, "each raises the answer of its own text"


def test_edges_are_sorted_and_drawn_from_the_earlier_head_to_the_later_one():
    circuits = page.circuits_of(ATTENTION)
    edges = circuits.edges("K")
    assert len(edges) == 16 and edges[0].score == max(edge.score for edge in edges)
    assert circuits.edges("V") == [] and len(circuits.pairs("V")) == 16
    assert circuits.best_into(edges[0].target)["K"] == edges[0] and circuits.best_into((0, 1)) == {}
    spec = page.graph(circuits, edges[:3], edges[0].target, "light")
    lines = spec["layer"][0]["data"]["values"]
    assert [(line["y"], line["y2"]) for line in lines] == [(0, 1)] * 3 and lines[0]["own"]
    assert [lines[0]["wide"], lines[2]["wide"]] == [page.WIDE, page.THIN]
    # The equations hold the head's own numbers
    equations = page.equations(circuits, (1, 2), circuits.best_into((1, 2)))
    assert len(equations) == 3 and "= 0.25, " in equations[2] and "= 0.13" in equations[2]
    assert len(page.equations(circuits, (0, 0), {})) == 2


def test_no_line_is_drawn_that_random_matrices_would_reach():
    app = open_at("circuits", **{"inside:model": "digits", KIND: "Q: queries", EDGES: "40"})
    circuits = page.circuits_of(ModelRef("lab", "digits"))
    most, count = circuits.chance("Q")
    strong = [edge for edge in circuits.pairs("Q") if edge.score > most]
    positive = [edge for edge in circuits.pairs("Q") if edge.score > 0]
    assert count >= 1000 and 0 < len(strong) < len(positive)
    assert [line["name"] for line in layers_of(app)[0]["data"]["values"]] == [
        f"{circuits.name(edge.source)} → {circuits.name(edge.target)}" for edge in strong
    ]
    says(
        app,
        f"A line is drawn only above {signed(most)}",
        f"Of 16 pairs of heads {len(strong)} are; all are drawn",
    )


def test_a_pair_of_which_several_heads_share_the_work_is_not_called_the_same():
    circuits = page.circuits_of(ATTENTION)
    circuit = study.induction_circuit(load_lab_model("only-attention"), circuits.pairs("K")[0])
    words = page.twice(circuits, replace(circuit, patched=((0, 1), (1, 2))))
    assert "several heads share" in words and "same two" not in words


def test_special_tokens_have_no_rank_and_tokens_are_found_by_their_words():
    model = load_lab_model("only-attention")
    size, specials = len(model.tokenizer), model.tokenizer.all_special_ids
    values = torch.arange(size, dtype=torch.float32)
    values[specials] = 1e9
    token, pieces = study.token_of(model, " River ")
    assert (model.tokenizer.convert_ids_to_tokens(token), pieces) == ("river", 1)
    assert study.rank_of(model, values, token) == (size - token, size - len(specials))
    [(best, _)] = study.top_tokens(model, values, 1)
    assert best == model.tokenizer.convert_ids_to_tokens(size - 1)
    assert study.token_of(model, "river stone")[1] == 2
    with pytest.raises(PretrainedError, match="has no token"):
        study.token_of(model, "qwertz")
