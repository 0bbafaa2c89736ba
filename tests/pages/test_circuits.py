"""The page What a head can do, without a browser."""

import json
import re

import pytest
import torch
from streamlit.testing.v1 import AppTest

from core.pretrained import PretrainedError, load_lab_model
from core.studies import circuits as study
from dashboard.draw.formats import signed
from dashboard.ui.models import ModelRef
from pages import circuits as charts, circuits as text
from pages.circuits import EDGES, HEAD, KIND, TOKEN
from tests.pages.app import app_at, captions, figures, html_text, open_at, page_text
from tests.tiny_models import save

ATTENTION = ModelRef("lab", "only-attention")


def sentences(app: AppTest) -> str:
    """The page's sentences without the marks of bold and accent."""
    return re.sub(r":primary\[|\]|\*\*", "", page_text(app))


@pytest.fixture
def folders(monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")


def test_first_sight_shows_the_induction_circuit_found_twice():
    app = open_at("circuits")
    assert not app.exception and app.selectbox(key=HEAD).value == "L1·H2" and len(figures(app)) == 6
    assert (
        "The keys of <b style='font-weight:600'>L1·H2</b> take most from <b style='font-weight:600'>L0·H2</b>"
        in (html_text(app))
    )
    said = sentences(app)
    assert "The weights alone name the same two" in said and "Head L1·H2 copies" in said
    assert "no text was read" in said and "no unembedding" not in said


def test_another_head_kind_and_token_are_drawn_and_linked():
    app = open_at("circuits")
    app.selectbox(key=HEAD).set_value("L0·H1")
    app.segmented_control(key=KIND).set_value("V")
    app.slider(key=EDGES).set_value(3)
    app.text_input(key=TOKEN).set_value("King").run()
    said = sentences(app)
    assert "Where L0·H1 attends to King" in said and "the query of King matches" in said
    assert "No head takes its values from an earlier one more than random matrices would" in said
    assert "No head that it reads comes before it" in said
    app.text_input(key=TOKEN).set_value("zyzzyva").run()
    assert "has no token for “zyzzyva”" in sentences(app) and "attends to river" in sentences(app)


def test_the_model_of_names_has_a_head_for_each_answer():
    app = open_at("circuits", **{"inside:model": "names"})
    said = sentences(app)
    assert (
        "L1·H0 brings back 100\u00a0% of the difference. It puts 0.97 of its weight on “ben”"
        in said
    )
    assert (
        "L0·H1 brings back 88\u00a0% of the difference. It puts 0.99 of its weight on “dogs”"
        in said
    )
    for one in study.carriers(load_lab_model("names")):
        assert one.adds[0] > 1 and one.adds[1] < -1, "each raises the answer of its own text"


def test_a_link_opens_a_head_of_minilm_that_looks_for_the_same_word():
    app = app_at("circuits", **{"inside:model": "all-MiniLM-L6-v2", HEAD: "L2·H9"}).run()
    assert app.selectbox(key=HEAD).value == "L2·H9"
    assert "the query of river matches the key river most" in sentences(app)
    assert "read through the embedding" in captions(app)


@pytest.mark.parametrize(
    "family, heads, words",
    [
        ("llama", "L1·H5", "6 query heads share 2"),
        ("t5", "cross L1·H2", "Special tokens"),
        ("vit", "L1·H2", "It reads no tokens"),
        ("qwen3", "L1·H5", "there is no QK circuit"),
    ],
)
def test_models_of_a_folder_open(family, heads, words, tmp_path, folders):
    app = app_at("circuits", **{"inside:model": str(save(family, tmp_path))}).run()
    assert not app.exception and words in captions(app)
    app.selectbox(key=HEAD).set_value(heads).run()
    assert not app.exception and heads in sentences(app)


def test_a_large_model_waits_for_a_press(tmp_path, folders, monkeypatch):
    monkeypatch.setattr("pages.circuits.UNASKED", 0)  # as on a slow machine
    app = app_at("circuits", **{"inside:model": str(save("t5", tmp_path))}).run()
    assert "3 of 6 layers measured" in captions(app) and not figures(app)
    app.button(key=f"{charts.MEASURED}:go").click().run()
    assert not app.exception and len(figures(app)) == 6
    again = app_at("circuits", **{"inside:model": str(tmp_path)}).run()
    assert len(figures(again)) == 6 and not again.button, (
        "what one session measured, all others have"
    )


def test_a_model_without_such_matrices_is_refused_in_words(tmp_path, folders):
    app = app_at("circuits", **{"inside:model": str(save("deepseek_v3", tmp_path))}).run()
    assert not app.exception and "by more than one matrix" in app.info[0].value


def test_the_translators_decoder_starts_with_a_german_word():
    app = app_at("circuits", **{"inside:model": "numbers"}).run()
    assert "attends to sieben" in sentences(app)
    app.text_input(key=TOKEN).set_value("seven").run()
    assert "The decoder has no embedding of “seven”" in captions(app).replace("\\", "")


def test_edges_are_sorted_and_drawn_from_the_earlier_head_to_the_later_one():
    circuits = charts.circuits_of(ATTENTION)
    edges = circuits.edges("K")
    assert len(edges) == 16 and edges[0].score == max(edge.score for edge in edges)
    assert circuits.edges("V") == [] and len(circuits.pairs("V")) == 16
    assert circuits.best_into(edges[0].target)["K"] == edges[0] and circuits.best_into((0, 1)) == {}
    spec = charts.graph(circuits, edges[:3], edges[0].target, "light")
    lines = spec["layer"][0]["data"]["values"]
    assert [(line["y"], line["y2"]) for line in lines] == [(0, 1)] * 3 and lines[0]["own"]
    assert [lines[0]["wide"], lines[2]["wide"]] == [charts.WIDE, charts.THIN]


def test_no_line_is_drawn_that_random_matrices_would_reach():
    app = open_at("circuits", **{"inside:model": "digits", KIND: "Q: queries", EDGES: "40"})
    circuits = charts.circuits_of(ModelRef("lab", "digits"))
    most, count = circuits.chance("Q")
    strong = [edge for edge in circuits.pairs("Q") if edge.score > most]
    positive = [edge for edge in circuits.pairs("Q") if edge.score > 0]
    assert count >= 1000 and 0 < len(strong) < len(positive), (
        "some that are above the mean are not above chance"
    )
    lines = json.loads(figures(app)[0].proto.spec)["layer"][0]["data"]["values"]
    assert [line["name"] for line in lines] == [
        f"{circuits.name(edge.source)} → {circuits.name(edge.target)}" for edge in strong
    ]
    assert f"A line is drawn only above {signed(most)}" in captions(app)
    assert f"Of 16 pairs of heads {len(strong)} are; all are drawn" in captions(app)


def test_a_graph_without_lines_says_why_and_its_heads_are_still_picked():
    app = open_at("circuits", **{"inside:model": "names", KIND: "K: keys"})
    assert (
        not app.exception
        and "No head takes its keys from an earlier one more than random matrices"
        in (sentences(app))
    )
    spec = json.loads(figures(app)[0].proto.spec)["layer"]
    assert spec[0]["data"]["values"] == [] and len(spec[1]["data"]["values"]) == 4


def test_a_pair_of_which_several_heads_share_the_work_is_not_called_the_same():
    circuits = charts.circuits_of(ATTENTION)
    model = load_lab_model("only-attention")
    circuit = study.induction_circuit(model, circuits.pairs("K")[0])
    other = study.InductionCircuit(
        ((0, 1), (1, 2)), circuit.effects, circuit.composed, 0.5, 0.5, "river"
    )
    assert "several heads share" in text.twice(circuits, other)
    assert "same two" not in text.twice(circuits, other)


def test_the_equations_hold_the_heads_own_numbers():
    circuits = charts.circuits_of(ATTENTION)
    lines = text.equations(circuits, (1, 2), circuits.best_into((1, 2)))
    assert len(lines) == 3 and "= 0.25, " in lines[2] and "= 0.13" in lines[2]
    assert len(text.equations(circuits, (0, 0), {})) == 2


def test_special_tokens_have_no_rank():
    model = load_lab_model("only-attention")
    size, specials = len(model.tokenizer), model.tokenizer.all_special_ids
    values = torch.arange(size, dtype=torch.float32)
    values[specials] = 1e9
    token = study.token_of(model, "river")[0]
    assert study.rank_of(model, values, token) == (size - token, size - len(specials))
    [(best, _)] = study.top_tokens(model, values, 1)
    assert best == model.tokenizer.convert_ids_to_tokens(size - 1)


def test_tokens_are_found_by_their_words():
    model = load_lab_model("only-attention")
    token, pieces = study.token_of(model, " River ")
    assert (model.tokenizer.convert_ids_to_tokens(token), pieces) == ("river", 1)
    assert study.token_of(model, "river stone")[1] == 2
    with pytest.raises(PretrainedError, match="has no token"):
        study.token_of(model, "qwertz")
