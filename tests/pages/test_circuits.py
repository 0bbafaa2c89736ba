from dataclasses import replace

import torch

from core.interpret import circuits as study
from core.interpret.circuits import Composer, head_weights
from core.pretrained import load_lab_model
from pages import circuits as page


def circuits_of(name: str) -> study.Circuits:
    weights = head_weights(load_lab_model(name))
    composer = Composer(weights.heads)
    rows = (study.measure_attention(weights, composer, row) for row in range(len(weights.heads)))
    return study.Circuits(weights.heads, weights.vocabularies, tuple(rows))


def test_edges_are_sorted_and_drawn_from_the_earlier_head_to_the_later_one():
    circuits = circuits_of("only-attention")
    edges = circuits.edges("K")
    assert len(edges) == 16 and edges[0].score == max(edge.score for edge in edges)
    assert circuits.edges("V") == [] and len(circuits.pairs["V"]) == 16
    assert circuits.best_into(edges[0].target)["K"] == edges[0] and circuits.best_into((0, 1)) == {}
    lines = page.graph(circuits, edges[:3], edges[0].target, "light")["layer"][0]["data"]["values"]
    assert [(line["y"], line["y2"]) for line in lines] == [(0, 1)] * 3 and lines[0]["own"]
    assert [lines[0]["wide"], lines[2]["wide"]] == [page.WIDE, page.THIN]


def test_no_line_is_drawn_that_random_matrices_would_reach():
    circuits = circuits_of("digits")
    most, count = circuits.chance("Q")
    positive = [edge for edge in circuits.pairs["Q"] if edge.score > 0]
    strong = [edge for edge in positive if edge.score > most]
    assert count >= 1000 and 0 < len(strong) < len(positive) and circuits.edges("Q") == strong


def test_each_carrier_of_names_raises_the_answer_of_its_own_text():
    for one in study.carriers(load_lab_model("names")):
        assert one.adds[0] > 1 and one.adds[1] < -1


def test_a_pair_of_which_several_heads_share_the_work_is_not_called_the_same():
    circuits = circuits_of("only-attention")
    circuit = study.induction_circuit(load_lab_model("only-attention"))
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
