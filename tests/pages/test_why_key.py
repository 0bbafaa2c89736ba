"""The page Why this key: its numbers are the split's, links lead to it and back, and what has no score says why."""

import re
from dataclasses import replace
from urllib.parse import parse_qsl

import numpy as np
import pytest

from core.interpret.score_sources import (
    Removal,
    Source,
    explain_score,
    remove_source,
)
from core.pretrained import ModelInputs, load_minilm
from dashboard.draw import why_key as draw
from dashboard.draw.figures import Ink
from dashboard.draw.formats import signed
from pages import why_key
from tests.pages.app import (
    Case,
    assert_script,
    open_at,
    page_cases,
    page_text,
    script_of,
    set_state,
)

TEXT = "The animal didn't cross the street because it was too tired."
IT, ANIMAL = 10, 2


@pytest.fixture(scope="module")
def one():
    return explain_score(load_minilm(), ModelInputs(TEXT), 3, 1, IT, ANIMAL)


HEAD, QUERY, KEY = (f"why_key:{name}" for name in ("head", "query", "key"))
test_what_it_splits = page_cases(
    "why_key",
    {
        "the head that links a pronoun to its noun": Case(
            {},
            ["In head L3·H1, it takes 0.68 from animal", "of 1,936 pairs give", "the mean score over 16 keys is"],
            controls={HEAD: "L3·H1", QUERY: IT, KEY: ANIMAL},
        ),
        "a head and a query": Case(
            {},
            do=[("selectbox", HEAD, "L5·H7"), ("selectbox", QUERY, 4)],
            controls={HEAD: "L5·H7", QUERY: 4, KEY: ANIMAL},
            query={"head": "5.7", "cell": "4.2"},
        ),
        "a link": Case(
            {"head": "0.2", "cell": "7.6"},
            ["In head L0·H2"],
            controls={HEAD: "L0·H2", QUERY: 7, KEY: 6},
        ),
        "two queries": Case(
            {"why_key:more": ["was"]},
            ["In head L3·H1, it and was take together"],
            controls={"why_key:more": ["was"]},
        ),
        "a link to no head": Case({"head": "9.1"}, ["0.0 to 5.11", "In head L3·H1"]),
        "another kind": Case(
            {"inside:model": "numbers", "why_key:kind": "Decoder"}, ["from one side at a time"]
        ),
        "a key after its query": Case(
            {"inside:model": "induction", "head": "0.0", "cell": "2.5"},
            ["Query 2 does not see key 5", "Take a key that the query sees"],
        ),
    },
)  # fmt: skip


def test_all_sources_of_the_picture_add_up(one):
    parts = one.parts
    rows, down = draw.grouped(one.q_sources, np.abs(parts).sum(1), {3, 40})
    assert (
        len(rows) == draw.MAX_SOURCES + 1
        and rows[-1] == f"{len(one.q_sources) - draw.MAX_SOURCES} others"
    )
    assert {one.q_sources[3].name, one.q_sources[40].name} <= {*rows}
    np.testing.assert_array_equal(down.sum(0), 1)
    spec = draw.pairs_chart(one, "it", "animal", "light")
    cells, outlined, _, bars, _ = (layer["data"]["values"] for layer in spec["layer"])
    assert sum(cell["part"] for cell in cells) + one.bias == pytest.approx(one.score, rel=1e-4)
    for side in ("query", "key"):
        sums = [bar["sum"] for bar in bars if bar["side"] == f"at the {side}"]
        assert sum(sums) + one.bias == pytest.approx(one.score, rel=1e-4)
    assert len(outlined) == draw.PAIRS
    largest = sorted(np.abs(parts).flat)[-draw.PAIRS :]
    np.testing.assert_allclose(sorted(abs(cell["part"]) for cell in outlined), largest, rtol=1e-5)


def test_the_sentence_names_the_largest_pairs_with_their_sum(one):
    said = draw.why_fact("L3·H1", one, "it", "animal").replace("−", "-")
    terms = re.findall(r"([\w·-]+(?: [\w-]+)?) × ([\w·-]+(?: [\w-]+)?) \(([+-][\d.]+)\)", said)
    assert len(terms) == draw.PAIRS
    (whole,) = re.findall(r"pairs give ([+-][\d.]+)", said)
    assert sum(float(part) for *_, part in terms) == pytest.approx(float(whole), abs=0.05)


def test_what_decides_is_true_of_the_scores(one):
    said = draw.decided_fact(one, "it", [str(at) for at in range(len(one.scores))])
    for side, sources in (("query", one.q_sources), ("key", one.k_sources)):
        removed, rival = one.fewest_removals(side)
        assert f"{removed[0].name}" in said and f"**{rival}** would score higher" in said
        rest = [at for at, source in enumerate(sources) if source not in removed]
        if side == "query":
            scores = one.scale * one.q_parts[rest].sum(0) @ one.keys.T
            assert scores[rival] > scores[one.key]
        else:
            assert one.scores[rival] > one.parts[:, rest].sum() + one.bias
    behind = replace(one, key=int(np.argmin(one.scores)))
    assert "as it is" in draw.decided_fact(behind, "it", [str(at) for at in range(16)])


def test_a_cap_a_sink_and_a_distance_are_named(one):
    said = draw.conditions("a", replace(one, bias=-0.5, capped=1.25, sink=0.75), "More.")
    assert all(words in said for words in ("b, −0.50", "makes it +1.25", "scores +0.75", "More."))
    assert "+ b" in draw.equation(replace(one, bias=-0.5))[0]


def test_a_removal_is_predicted_by_the_parts_that_go(one):
    removals = draw.removable(one)
    assert [side for side, _ in removals] == ["query"] * draw.REMOVED + ["key"] * draw.REMOVED
    side, source = removals[0]
    rest = np.delete(one.q_parts, one.q_sources.index(source), 0).sum(0)
    without = one.scale * rest @ one.k_parts.sum(0) + one.bias
    removal = remove_source(load_minilm(), ModelInputs(TEXT), one, side, source)
    assert without - one.score == pytest.approx(removal.predicted, rel=1e-3)


def test_the_open_page_says_whether_the_parts_tell_the_cause(monkeypatch):
    app = open_at("why_key", **{"inside:model": "induction"})
    said = page_text(app)
    assert "a removal does: over 12 removals from this score" in said
    assert re.search(r"correlate by [−\d.]+ \(95 %: [−\d.]+ to [−\d.]+\)", said)
    monkeypatch.setattr("dashboard.ui.progress.AT_ONCE", 0)
    waits = page_text(open_at("why_key", **{"inside:model": "induction", "head": "1.1"}))
    assert "3 of 12 removals from this score measured; the rest takes about" in waits
    assert "over 3 removals from this score" in waits or "too few, or too alike" in waits


def test_removals_are_measured_compared_and_in_the_script(monkeypatch):
    monkeypatch.setattr(why_key, "REMOVALS", 12)
    app = open_at("why_key", **{"inside:model": "induction"})
    assert not any("Measure" in button.label for button in app.button)
    set_state(app, "why_key:removals")
    said = page_text(app)
    assert "removedatpredictedactual" in said
    # what is counted is named: the table's rows are measured
    assert "3 of 12 removals from random scores measured" in said
    (measure,) = (button for button in app.button if "Measure 9 removals" in button.label)
    measure.click().run()
    assert "over 12 removals from random scores of L1·H" in page_text(app)
    assert_script(app)
    assert "[random_removal(model, inputs, **place, seed=seed)" in script_of(app).text("")


def test_values_of_cells_are_in_a_table(one):
    rows = draw.pair_rows(one)
    assert len(rows) == draw.LISTED
    (row, column), *_ = draw.largest_pairs(one)
    assert rows[0][:2] == [one.q_sources[row].name, one.k_sources[column].name]
    assert rows[0][2] == signed(float(one.parts[row, column]))
    app = open_at("why_key")
    set_state(app, "why_key:sources")
    assert "part of the score" + "".join(rows[0]) in page_text(app)


def test_where_the_parts_do_not_predict_is_said():
    source = Source("head", "L0·H1", 0, 1)
    removals = [Removal(1, 0, "query", source, float(at), float(at)) for at in range(12)]
    removals[3] = replace(removals[3], actual=-5.0, query=9)
    said = draw.removals_fact("random scores of L2·H0", removals)
    assert "The parts tell in part what a removal does**: over 12 removals" in said
    assert "of query 9 and key 0: predicted +3.00, actual −5.00" in said
    other = [replace(each, actual=float(at % 2)) for at, each in enumerate(removals)]
    assert "do not tell" in draw.removals_fact("this score", other)
    assert "too alike" in draw.removals_fact("L2·H0", removals[:2])
    points = draw.removals_chart(removals, Ink.of("light"))["layer"][1]["data"]["values"]
    assert [point["predicted"] for point in points] == [one.predicted for one in removals]


@pytest.mark.parametrize("page", ["pretrained", "inside_weight", "evidence", "transformer"])
def test_a_weight_leads_here_with_its_head_and_cell(page):
    app = open_at(page)
    (link,) = (one for one in app.get("page_link") if one.proto.label.startswith("Why this key: "))
    query = dict(parse_qsl(link.proto.query_string))
    assert {"head", "cell"} <= {*query}
    there = open_at("why_key", **query)
    head = "L{}·H{}".format(*query["head"].split("."))
    assert f"In head {head}" in page_text(there)
    (back,) = [one for one in there.get("page_link") if one.proto.label.startswith("Inside one")]
    assert f"cell={query['cell']}" in back.proto.query_string


def test_the_script_splits_the_same_score():
    text = script_of(open_at("why_key")).text("")
    assert (
        "one = explain_score(model, inputs, layer=3, head=1, query=10, key=2, kind='self')" in text
    )
