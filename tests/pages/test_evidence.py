"""The pages Evidence, Inside one weight and Circuits: what is shown, measured and opened is what the model computes."""

import io
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import streamlit as st
import torch
from streamlit.testing.v1 import AppTest

from core.interpret import circuits as wiring, evidence as study, lens
from core.interpret.circuits import Composer, head_weights
from core.interpret.evidence import (
    Question,
    ablate_heads,
    ask,
    break_down_weight,
    layer_attentions,
    telling_cell,
)
from core.interpret.interventions import BY_KEY, head_effects
from core.pretrained import ModelInputs, load_lab_model
from dashboard.draw import (
    circuits as circuits_draw,
    evidence as evidence_draw,
    inside_weight as inside_draw,
)
from dashboard.draw.formats import plain, signed
from dashboard.draw.grids import short
from dashboard.server.cache import store
from dashboard.ui import progress
from dashboard.ui.models import ModelRef, load_model, reading_of
from pages import evidence, inside_weight
from tests.pages.app import (
    Case,
    app_at,
    assert_case,
    captions,
    csv_rows,
    open_at,
    page_cases,
    page_text,
    pictures_of,
    query_value,
    set_state,
)
from tests.tiny_models import save


def field(app: AppTest, label: str):
    return next((one for one in app.selectbox if one.label == label), None)


def test_a_masked_model_is_asked_for_a_word(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    link = {"inside:model": str(save("bert", tmp_path))}
    app = open_at("evidence", **link)
    box, first = field(app, "Masked word"), page_text(app)
    box.set_value(box.options.index("animal")).run()
    again = open_at("evidence", **link, at=query_value(app, "at"))
    assert page_text(again) == page_text(app) != first and "of the answer" in first
    app.text_input(key="inside:text").set_value("The [MASK] saw the street.").run()
    assert field(app, "Masked word") is None and "of the answer" in page_text(app)


def test_arrays_alone_show_what_follows_from_weights():
    out, even = io.BytesIO(), np.full((2, 3, 3), 1 / 3)
    np.savez(out, layer_0=even, layer_1=even, tokens=np.array(["a", "b", "c"]))
    app = open_at("evidence")
    app.selectbox(key="inside:model").set_value("Your own arrays…").run()
    app.file_uploader(key="inside:array-file").set_value(("mine.npz", out.getvalue(), "")).run()
    assert "no head can be switched off" in page_text(app)
    text = page_text(app)
    assert "Only the weights are known here" in text and "as they came" in text
    assert "forward pass" not in text, "no model was asked"
    assert "In L0·H0, a takes 0.33 from a. Over all paths through attention" in text
    field(app, "Head").set_value("L1·H1").run()
    assert "In L1·H1, a takes 0.33" in page_text(app)


@pytest.mark.parametrize(
    "place, value, text, case",
    [
        (
            "pages.evidence.MAX_DRAWN",
            8,
            {},
            Case(says=["17 × 17 cells are too many to show side by side, so only row 16 is shown"]),
        ),
        (
            "core.interpret.evidence.room_bytes",
            lambda: 10_000,
            {"inside:text": "the dark . the dark"},
            Case(says=["The gradient is left out", "Written"], never=["Gradient"]),
        ),
    ],
)
def test_what_there_is_no_room_for_is_said(place, value, text, case, monkeypatch):
    monkeypatch.setattr(place, value)
    assert_case(open_at("evidence", **{"inside:model": "induction"}, **text), case)


def test_the_heads_are_told_as_csv():
    ref, given = ModelRef("lab", "induction"), ModelInputs("the old king walked to the old")
    baseline = ask(load_model(ref), Question(given))
    case = evidence.Case(ref, reading_of(ref, given), Question(given), baseline)
    effect = ablate_heads(baseline, frozenset({("causal", 0, 2)}))
    by_way = {"zero": {("causal", 0, 2): effect.drop}}
    rows = csv_rows(evidence_draw.heads_csv(case.ids, case.sharp, case.estimates, by_way))
    assert len(rows) == len(case.heads)
    row = rows[2]
    assert [row[name] for name in ("kind", "layer", "head")] == ["causal", "0", "2"]
    assert row["mean"] == rows[0]["zero"] == ""
    assert baseline.value - effect.value == pytest.approx(float(row["zero"]), abs=1e-6)


WAY, OPEN, SECOND = "evidence:way", "evidence:ways", "evidence:second:names"


@pytest.mark.parametrize(
    "way, title, fact",
    [
        ("uniform", "with uniform weights", "gives all keys the same weight, the logit"),
        ("mean", "with its mean output", "writes its mean output, the logit"),
        ("resampled", "as on the second text", "writes on the second text, the logit"),
        ("patched", "put into the second text", "put into the second text, the logit of"),
        ("direct", "writes itself", "itself writes +"),
    ],
)
def test_each_way_is_drawn_in_its_own_words(way, title, fact):
    link = {"inside:model": "names", WAY: BY_KEY[way].name}
    app = open_at("evidence", **link)
    text = page_text(app)
    assert title in text and fact in text and "of 4 heads" in text
    # The chart is of on, uniform and off
    of_chart = "The likeliest answers" in text, "evidence:bars" in pictures_of(app)
    assert of_chart == 2 * (way == "uniform",) and field(app, "Head").value


def test_all_ways_stand_in_one_table_with_one_sign():
    app = app_at("evidence", **{"inside:model": "names"})
    app.session_state[OPEN] = True
    text = page_text(app.run())
    given = ModelInputs(app.text_input(key="inside:text").value)
    baseline = ask(load_model(ModelRef("lab", "names")), Question(given))
    zero = head_effects(baseline, "zero")
    kind, layer, head = most = max(zero, key=lambda one: abs(zero[one]))
    even = head_effects(baseline, "uniform", [most])[most]
    assert zero[most] == pytest.approx(ablate_heads(baseline, frozenset({most})).drop, abs=1e-4)
    assert f"Without **L{layer}·H{head}** the answer loses {signed(zero[most])}" in text
    assert f"L{layer}·H{head}{signed(zero[most])}{signed(even)}" in text and "patched in" in text
    app.text_input(key=SECOND).set_value(given.text).run()
    assert "second text is the first one so far" in page_text(app)


def test_a_second_text_belongs_to_its_model():
    link = {"inside:model": "names", SECOND: "ann gave the book to", WAY: "resampled"}
    app = open_at("evidence", **link)
    said = "“ann gave the book to”. It has 6 tokens, the first one 15"
    assert said in page_text(app)
    for model, there in (("writer", False), ("names", True)):
        app.selectbox(key="inside:model").set_value(model).run()
        assert ("ann gave the book to" in page_text(app)) == there


def test_a_second_text_without_the_masked_word_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    folder = str(save("bert", tmp_path))
    link = {"inside:model": folder, f"evidence:second:{folder}": "tired"}
    assert "Without each head" in page_text(open_at("evidence", **link))
    app = open_at("evidence", **link, **{WAY: "resampled"})
    assert "has no word" in app.info[0].value and field(app, "Head")


def test_what_layers_without_softmax_are_stands_below(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    ref = ModelRef("folder", folder := str(save("mamba", tmp_path)))
    note = plain(reading_of(ref, ModelInputs("the animal")).note or "")
    text = captions(open_at("evidence", **{"inside:model": folder}))
    assert note and text.endswith(note) and text.count(note) == 1


def test_the_mean_is_over_the_texts_that_a_person_writes():
    link = {"inside:model": "names", WAY: "mean", "evidence:corpus": "Your own texts"}
    app = app_at("evidence", **link)
    app.session_state[OPEN] = True
    app.run()
    assert "no text" in app.info[0].value.lower() and "Each head by every way" in str(app.expander)
    app.text_area(key="evidence:lines").set_value("ann gave ben\nben gave ann").run()
    assert not app.info and "Mean over 2 texts: your own texts." in page_text(app)


def test_a_kl_divergence_has_no_gradient():
    link = {"inside:model": "names", "evidence:quantity": "KL divergence"}
    text = page_text(open_at("evidence", **link))
    assert "minus the KL divergence from the full model" in text and "Gradient" not in text


def test_a_model_of_pictures_has_two_ways():
    app = open_at("evidence", **{"inside:model": "digits"})
    groups: Any = app.get("button_group")
    assert [one.label for one in groups] == ["Without its information"]
    assert groups[0].options == ["zero", "uniform"]


def test_a_popover_is_there_where_it_holds_something():
    # Of an embedding nothing is chosen but the texts of a way that needs some
    for way, there in (("zero", False), ("mean", True)):
        app = open_at("evidence", **{"inside:model": "all-MiniLM-L6-v2", WAY: way})
        labels = [one.proto.popover.label for one in app.get("popover")]
        assert ("What is measured" in labels) == there


def test_agreement_is_of_the_keys_that_some_measure_sees():
    first, second = (
        np.array([[3.0, 2, 1, 0], [1, 2, 3, 4], [0, 0, 0, 0]]),
        np.array([[-1.0, -2, 0, 0], [10, 20, 30, -40], [0, 0, 0, 0]]),
    )
    known = np.array([[False] * 4, [False, False, False, True], [True] * 4])
    measures = study.HeadMaps({"weights": first, "flow": second, "written": second}, None, known)
    assert [
        study.key_agreement(measures, "weights", other) for other in ("written", "flow")
    ] == pytest.approx([(0.5 + 1) / 2, 1])
    weights = np.array([[[1.0, 0.0], [0.6, 0.4]], [[1.0, 0.0], [0.3, 0.7]]])
    maps: Any = [
        SimpleNamespace(kind=kind, shares=weights[:, :rows])
        for kind, rows in (("causal", 2), ("self", 2), ("causal", 1))
    ]
    assert [*study.sharpness(maps).values()] == pytest.approx([0.6, 0.7, 0.8, 0.85, 1, 1])


def test_a_long_text_is_read_in_windows():
    assert [
        *(lens.window_start(position, 200) for position in (0, 47, 48, 79, 80, 199)),
        lens.window_start(60, 63),
    ] == [0, 0, 32, 32, 64, 136, 0]


def test_what_is_written_alike_is_told_by_its_change():
    assert evidence_draw.moves(0.7, 0.6) == "falls from **0.70** to **0.60**"
    assert evidence_draw.moves(0.701, 0.7041) == "rises by **0.003** from **0.70**"
    assert short(-0.0123, 0.05) == "−.012" and short(0.001, 0.05) == ""
    assert [short(change, 0.7, False) for change in (0.7, 0.095, 0.1)] == [".70", ".10", ".10"]


# Long work: squares of the numbers below `count`, of which a press of Stop ends the measurement at `stop`.


def squares() -> None:
    import streamlit as st

    from dashboard.ui import progress

    state = st.session_state

    def one(item: int) -> int:
        if item == state.stop:
            state.stop, state["evidence:squares"]["going"] = None, False
            st.rerun()
        return item * item

    def view() -> None:
        found = progress.measure_with_progress(
            "evidence:squares", state.about, range(state.count), one, "squares"
        )
        st.code(repr((dict(found), progress._in_fragment.get())))

    progress.fragment_unless_measuring(view)


def measuring(about: object, stop: int | None = None) -> AppTest:
    app = AppTest.from_function(squares, default_timeout=60)
    app.session_state["about"], app.session_state["stop"] = about, stop
    app.session_state["count"] = 9
    return app


def test_stop_keeps_what_is_there():
    app = measuring("stop", stop=5).run()
    assert app.code[0].value == repr(({item: item * item for item in range(5)}, False))
    assert "5 of 9 squares measured" in captions(app)
    app.button[0].click().run()
    assert repr({item: item * item for item in range(9)}) in app.code[0].value


def test_what_was_measured_stays_though_cache_gives_it_up():
    app = measuring("given up", stop=5).run()
    store().entries.clear()
    assert app.run().code[0].value.startswith("({0: 0, 1: 1, 2: 4, 3: 9, 4: 16}")


def test_what_has_nothing_to_measure_is_a_fragment():
    # Stop cannot interrupt a fragment: the run that measures, and the one after it, draw without one
    app = measuring("fragment")
    for count in (3, 4):
        app.session_state["count"] = count
        assert [app.run().code[0].value.endswith("True)") for _ in range(3)] == [False, False, True]


@pytest.mark.parametrize("quiet, bars", [(0.5, 0), (0.0, 1)])
def test_quick_work_shows_no_progress(quiet, bars, monkeypatch):
    drawn, empty = list[str](), st.empty

    def bar(share: float, words: str):
        drawn.append(words)
        return empty()

    monkeypatch.setattr(progress, "QUIET", quiet)
    monkeypatch.setattr(st, "progress", bar)
    app = measuring(quiet).run()
    assert drawn == ["1 of 9 squares"] * bars and not app.button


# The page Inside one weight without a browser: its numbers are the model's, and what is chosen is what is opened.


HEAD, QUERY, KEY = (f"inside_weight:{name}" for name in ("head", "query", "key"))
test_what_it_opens = page_cases(
    "inside_weight",
    {
        "a head and a query": Case(
            {},
            ["Their product q·k is"],
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


def test_a_press_or_a_link_opens_another_weight():
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
    facts = [inside_draw.carried_fact(one, "a", "b").replace("−", "-") for one in all_of]
    assert sum(
        float(re.search(r"contributes \*\*(?:under\s|over\s)?(-?[\d.]+)\s%", one)[1])
        for one in facts
    ) == pytest.approx(100, abs=3)


def test_the_telling_cell_is_between_words_far_apart():
    given = ModelInputs("nine thousand three hundred and twelve ; forty-seven")
    reading = reading_of(ModelRef("lab", "numbers"), given)
    cross, cell = reading.trace.of("cross"), telling_cell(reading, "cross")
    assert 0.5 < cross.head(cell.layer, cell.head)[cell.query, cell.key] < 0.8


def test_masked_keys_have_no_bar_and_are_named():
    spec = inside_draw.row(
        ("it's", "b\\", "c"), np.array([0.25, 0.75, -np.inf]), 1, "dark", "weight", 0.5
    )
    bars, hidden, rule = (one["data"]["values"] for one in spec["layer"])
    heights = [(one["weight"], one["picked"]) for one in bars]
    assert heights == [(0.25, False), (0.75, True), (0.0, False)]
    assert [one["at"] for one in hidden] == [2] and rule == [{"level": 0.5}]
    assert r"['it\'s','b\\','c']" in spec["layer"][0]["encoding"]["x"]["axis"]["labelExpr"]


# The page Circuits.


def circuits_of(name: str) -> wiring.Circuits:
    weights = head_weights(load_lab_model(name))
    composer = Composer(weights.heads)
    rows = (wiring.measure_attention(weights, composer, row) for row in range(len(weights.heads)))
    return wiring.Circuits(weights.heads, weights.vocabularies, tuple(rows))


def test_edges_are_sorted_and_drawn_from_the_earlier_head():
    circuits = circuits_of("only-attention")
    edges = circuits.edges("K")
    assert len(edges) == 16 and edges[0].score == max(edge.score for edge in edges)
    assert circuits.edges("V") == [] and len(circuits.pairs["V"]) == 16
    assert circuits.best_into(edges[0].target)["K"] == edges[0] and circuits.best_into((0, 1)) == {}
    lines = circuits_draw.graph(circuits, edges[:3], edges[0].target, "light")["layer"][0]["data"][
        "values"
    ]
    assert [(line["y"], line["y2"]) for line in lines] == [(0, 1)] * 3 and lines[0]["own"]
    assert [lines[0]["wide"], lines[2]["wide"]] == [circuits_draw.WIDE, circuits_draw.THIN]


def test_no_line_is_drawn_that_random_matrices_would_reach():
    circuits = circuits_of("digits")
    most, count = circuits.chance("Q")
    positive = [edge for edge in circuits.pairs["Q"] if edge.score > 0]
    strong = [edge for edge in positive if edge.score > most]
    assert count >= 1000 and 0 < len(strong) < len(positive) and circuits.edges("Q") == strong


def test_each_carrier_of_names_raises_the_answer():
    for one in wiring.carriers(load_lab_model("names")):
        assert one.adds[0] > 1 and one.adds[1] < -1


def test_heads_that_share_the_work_are_not_called_the_same():
    circuits = circuits_of("only-attention")
    circuit = wiring.induction_circuit(load_lab_model("only-attention"))
    other, keys = replace(circuit, patched=((0, 1), (1, 2))), {"L0·H1": 0.02, "L0·H2": 0.001}
    words = circuits_draw.twice(circuits, other, (keys, 0.43), 0.02)
    assert "is another pair" in words and "same two" not in words
    assert (
        "from L0·H1 alone, the most of one head, 2\N{NO-BREAK SPACE}%: the other heads make up"
        in words
    )


def test_a_composition_is_one_number_in_all_sentences():
    circuits = circuits_of("only-attention")
    edge, level = circuits.pairs["K"][0], circuits.random_level
    value = f"{edge.score + level:.2f}"
    circuit = wiring.induction_circuit(load_lab_model("only-attention"))
    words = circuits_draw.twice(circuits, circuit, ({"L0·H2": 0.26}, 0.32), 0.02)
    assert f"({value})" in words and "make up" not in words
    assert f"({value})" in circuits_draw.reads_text(circuits, edge.target)
    assert f"**{value}**" in circuits_draw.edges_fact(circuits, "K", edge.target)
    *_, other = (one for one in circuits.edges("K") if one.target != edge.target)
    fact = circuits_draw.edges_fact(circuits, "K", other.target)  # that is in colour
    assert f":primary[**{circuits.name(other.target)}**]" in fact and f"has most, {value}" in fact
    assert value in " ".join(circuits_draw.equations(circuits, edge.target, {"K": edge}))
    (line, *_) = circuits_draw.graph(circuits, [edge], edge.target, "light")["layer"][0]["data"][
        "values"
    ]
    assert line["by"] == f"K {value}"
    most, _ = circuits.chance("K")
    assert f"above {most + level:.2f}" in circuits_draw.drawn_lines(circuits, "K", 8)


def test_special_tokens_have_no_rank():
    model = load_lab_model("only-attention")
    size, specials = len(model.tokenizer), model.tokenizer.all_special_ids
    values = torch.arange(size, dtype=torch.float32)
    values[specials] = 1e9
    token, pieces = wiring.token_of(model, " River ")
    assert (model.tokenizer.convert_ids_to_tokens(token), pieces) == ("river", 1)
    assert wiring.rank_of(model, values, token) == (size - token, size - len(specials))
    [(best, _)] = wiring.top_tokens(model, values, 1)
    assert best == model.tokenizer.convert_ids_to_tokens(size - 1)
    assert wiring.token_of(model, "river stone")[1] == 2
