"""The page Head roles, without a browser."""

import io

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from core.interpret.head_tests import TESTS, score_repeats
from core.interpret.roles import (
    ROLES,
    UNIFORM,
    RoleInputs,
    RoleScores,
    read_all,
    role_inputs,
    score_roles,
)
from core.interpret.syntax import OWN, own_parses, read_parses, score_relation
from core.pretrained import ModelInputs, load_lab_model, load_minilm
from core.studies.head_roles import CHOICES, NAMES, SyntaxResult, default_test, queries_by_sentence
from core.tasks import reading
from dashboard.draw import head_roles as charts
from dashboard.draw.formats import number
from dashboard.server.cache import measurements
from dashboard.ui.models import ModelRef, local_models
from pages import head_roles as page
from pages.head_roles import (
    FIELDS,
    FILE,
    HEAD,
    LINES,
    MAX_LETTERS,
    MAX_SENTENCES,
    READ,
    RELATION,
    ROLE,
    SENTENCE,
    TEST,
    TEST_HEAD,
    WORD_HEAD,
    read_sentences,
)
from tests.pages.app import app_at, assert_script, captions, csv_rows, figures, html_text, open_at
from tests.tiny_models import save


@pytest.fixture
def app() -> AppTest:
    return app_at("head_roles")


@pytest.fixture(scope="module")
def inputs() -> RoleInputs:
    return role_inputs(load_lab_model("induction"))


@pytest.fixture(scope="module")
def scores(inputs) -> RoleScores:
    return score_roles(read_all(load_lab_model("induction"), inputs), "causal")


def conditions(app: AppTest) -> str:
    return app.caption[-1].value.replace("\\", "")


def place(key: str) -> int:
    return [role.key for role in ROLES].index(key)


def test_first_sight_shows_minilm_s_previous_token_head_with_nothing_pressed(app):
    app.run()
    assert (app.selectbox(key=ROLE).value, app.selectbox(key=HEAD).value) == ("previous", "L0·H2")
    assert "L0·H2</b></span> puts <b style='font-weight:600'>0.99" in html_text(app)
    assert "shuffled, the same weights would put 0.055 ± 0.0" in html_text(app)
    assert "measured on 30 example sentences" in conditions(app)
    assert len(figures(app)) == 3
    app.session_state["head_roles:head:picked"] = "L3·H11"  # in a map
    app.run()
    assert app.selectbox(key=HEAD).value == "L3·H11"
    assert "Its role is delimiter; 4 of 72 heads have the role previous token." in html_text(app)
    app.text_input(key="inside:text").set_value(" ").run()
    assert "write a sentence" in app.info[0].value


def test_another_role_brings_its_best_head_and_another_model_what_is_clearest_in_it(app):
    app.run()
    app.selectbox(key=HEAD).set_value("L2·H11").run()
    assert "L2·H11</b></span> puts" in html_text(app)
    app.selectbox(key=ROLE).set_value("same").run()
    assert app.selectbox(key=HEAD).value == "L2·H9" and "the same word elsewhere" in html_text(app)
    app.selectbox(key="inside:model").set_value("induction").run()
    assert app.selectbox(key=ROLE).value == "induction"
    assert app.selectbox(key=HEAD).value.startswith("L1")
    assert "the token that followed the same token before" in html_text(app)


def test_an_encoder_decoder_is_measured_in_both_its_halves(app):
    app.query_params["inside:model"] = "numbers"
    app.run()
    assert "16 example lines of numbers" in conditions(app)
    assert "Next token" in app.selectbox(key=ROLE).options
    app.selectbox(key=FIELDS.key("kind")).set_value("causal").run()
    assert "causal self-attention" in conditions(app)
    assert "Next token" not in app.selectbox(key=ROLE).options  # a decoder cannot look ahead


def test_pictures_have_places_but_no_words(app):
    app.query_params["inside:model"] = "digits"
    app.run()
    assert "30 handwritten digits" in conditions(app) and "In this picture" in html_text(app)
    assert "Same word" not in app.selectbox(key=ROLE).options


def test_sentences_of_one_s_own_are_measured_and_the_unknown_are_told(app):
    app.query_params["inside:model"] = "induction"
    app.run()
    app.text_area(key=FIELDS.key("own")).set_value(
        "the red fox saw the red fox\nQwertz uiop asdf\nthe old dog and the old cat"
    ).run()
    assert "measured on 2 sentences of your own" in conditions(app)
    assert "1 of your sentences is left out" in conditions(app)


@pytest.mark.parametrize(
    "link", [{"head_roles:role": "<b>"}, {"head_roles:head": "L9·H99"}, {"head_roles:head": "7"}]
)
def test_a_broken_link_shows_the_usual_head(app, link):
    for name, value in link.items():
        app.query_params[name] = value
    app.run()
    assert app.selectbox(key=HEAD).value == "L0·H2"


def test_lines_are_read_once_each_and_what_is_left_out_is_said():
    assert read_sentences("a b\n\n  a   b \nc") == (("a b", "c"), None)
    taken, trouble = read_sentences(
        "\n".join(map(str, range(MAX_SENTENCES + 5))) + "\n" + "x" * (MAX_LETTERS + 1)
    )
    assert len(taken) == MAX_SENTENCES
    assert "first 60" in trouble and "1 of the lines" in trouble


def test_the_csv_holds_every_head_in_every_role_that_could_be_measured(scores):
    rows = csv_rows(page.roles_csv(scores))
    able = [role.key for role, count in zip(ROLES, scores.rows, strict=True) if count]
    assert len(rows) == len(able) * scores.score.shape[1] * scores.score.shape[2]
    own = {
        (int(row["layer"]), int(row["head"])): row["role"]
        for row in rows
        if row["is_its_role"] == "1"
    }
    assert own == {head: ROLES[at].key for head, at in scores.head_roles.items()}
    one = next(
        row for row in rows if (row["layer"], row["head"], row["role"]) == ("1", "2", "induction")
    )
    assert float(one["score"]) == pytest.approx(scores.score[place("induction"), 1, 2], abs=1e-6)


def test_every_head_is_a_cell_of_its_role_and_the_picked_one_is_ringed(scores):
    spec = charts.role_grid(scores, (1, 0), "light")
    cells = {(row["layer"], row["head"]): row for row in spec["layer"][0]["data"]["values"]}
    assert set(cells) == set(np.ndindex(scores.score.shape[1:]))
    for head, row in cells.items():
        role = scores.head_roles.get(head)
        assert row["mark"] == ("" if role is None else ROLES[role].mark)
    ringed = spec["layer"][1]["data"]["values"]
    assert [(row["layer"], row["head"]) for row in ringed] == [(1, 0)]


def test_the_equation_says_what_was_measured(scores, inputs):
    best = scores.best(place("induction"))
    score, above, share = page.role_equation(scores, best, place("induction"))
    assert (
        f"= {number(scores.score[place('induction')][best])}" in score
        and ">" in above
        and r"\ge" in share
    )
    other = scores.best(place("previous"))
    assert r"\le" in page.role_equation(scores, other, place("induction"))[1]
    assert "Its role is previous token" in page.role_fact(scores, other, place("induction"), inputs)


def test_an_even_head_is_said_not_to_have_chosen():
    score, chance, std = (
        np.full((len(ROLES), 1, 1), value) for value in (UNIFORM + 0.05, 0.7, 0.01)
    )
    even = RoleScores("self", score, chance, std, rows=np.full(len(ROLES), 9), numbers=(0,))
    even.score[:-1] = 0.1
    fact = page.role_fact(
        even, (0, 0), place("broad"), RoleInputs((ModelInputs("a"),), "example sentences")
    )
    assert "its weights are nearly even" in fact and "1 example sentence;" in fact


def test_arrays_alone_are_measured_on_themselves(app):
    """One layer of two heads over a text that comes again: one looks one back, the other at what followed before."""
    tokens = np.array("<s> dog sun tree ship hand dog sun tree ship hand".split())
    size = len(tokens)
    back = np.eye(size)[np.maximum(np.arange(size) - 1, 0)]
    again = np.eye(size)[np.where(np.arange(size) > 5, np.arange(size) - 4, 0)]
    out = io.BytesIO()
    np.savez(out, layer_0=np.stack([back, again]).astype(np.float32), tokens=tokens)
    app.run()
    app.selectbox(key="inside:model").set_value("Your own arrays…").run()
    app.file_uploader(key="inside:array-file").set_value(("mine.npz", out.getvalue(), "")).run()
    assert "measured on only the input above" in conditions(app) and "In this array" in html_text(
        app
    )
    assert app.selectbox(
        key=HEAD
    ).value == "L0·H0" and "1 of 2 heads has the role previous token" in html_text(app)
    app.selectbox(key=ROLE).set_value("induction").run()
    assert app.selectbox(
        key=HEAD
    ).value == "L0·H1" and "1 of 2 heads has the role induction" in html_text(app)


def test_a_model_that_hears_is_measured_on_its_sound(app, tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    app.query_params["inside:model"] = str(save("whisper", tmp_path / "whisper"))
    app.run()
    assert "measured on only the input above" in conditions(app) and "In this sound" in html_text(
        app
    )
    assert not app.get("text_area")


# The view Syntax of the page Head roles, without a browser.


LINK = {"head_roles:view": "Syntax"}
TESTS_LINK = {"head_roles:view": "Standard tests"}


def open_syntax(**link: str) -> AppTest:
    return open_at("head_roles", **LINK, **link)


@pytest.fixture(scope="module")
def result():
    readings = read_parses(load_minilm(), own_parses())
    return SyntaxResult(readings, tuple(score_relation(readings, *choice) for choice in CHOICES))


def test_first_sight_shows_the_relation_that_a_head_follows_furthest_beyond_an_offset(monkeypatch):
    monkeypatch.setattr("pages.head_roles.UNASKED", 0)  # as on a slow machine
    measurements(READ, (local_models()[0], "", "self")).clear()
    app = open_syntax()
    assert (
        "3 of 179 sentences measured" in " ".join(one.value for one in app.caption)
        and not app.latex
    )
    app.button(key=f"{READ}:go").click().run()
    assert not app.exception
    assert (app.selectbox(key=RELATION).value, app.selectbox(key=WORD_HEAD).value) == (
        "Pronoun → antecedent",
        "L3·H1",
    )
    shown = html_text(app)
    assert (
        "in <b style='font-weight:600'>80" in shown and "the word 2 before, is right in 35" in shown
    )
    assert (
        "the best head reaches <b style='font-weight:600'>76" in shown
        and "from 65\u00a0% to 84\u00a0%" in shown
    )
    assert "✗ she → “tired” 0.19; right is “clerk” 0.19" in shown


def test_a_link_brings_relation_head_and_sentence_and_another_relation_its_best_head():
    app = open_syntax(**{RELATION: "Verb → object", WORD_HEAD: "L2·H0", SENTENCE: "5"})
    assert (app.selectbox(key=WORD_HEAD).value, app.selectbox(key=SENTENCE).value) == ("L2·H0", "5")
    app.selectbox(key=RELATION).set_value("Determiner → noun").run()
    assert app.selectbox(key=WORD_HEAD).value == "L3·H1" and not app.exception


def test_the_table_and_the_csv_have_every_relation_in_both_directions(result):
    rows = page.syntax_rows(result)
    assert [row[0] for row in rows] == list(NAMES) and len(rows) == 12
    assert rows[NAMES.index("Verb → object")] == [
        "Verb → object",
        "171",
        "L3·H1",
        "81\u00a0%",
        "74\u00a0% to 86\u00a0%",
        "2 after",
        "49\u00a0%",
    ]
    values = csv_rows(page.syntax_csv(result))
    assert len(values) == 72 * 12
    one = next(
        row
        for row in values
        if (row["layer"], row["head"], row["relation"], row["direction"])
        == ("3", "1", "object", "forward")
    )
    assert (one["hits"], one["instances"]) == ("138", "171")


def test_sentences_in_which_the_head_is_wrong_come_first_and_are_drawn_with_their_targets(result):
    choice = NAMES.index("Verb → object")
    queries = queries_by_sentence(result, result.scores[choice], (3, 1))
    right = [all(query.right for query in each) for each in queries.values()]
    assert sum(len(each) for each in queries.values()) == 171 and right == sorted(right)
    assert sum(query.right for each in queries.values() for query in each) == 138
    sentence, first = next(iter(queries.items()))
    parse = result.readings.sentences[sentence].parse
    html = charts.query_lines(parse, np.full((len(parse),) * 2, 0.125), first, "light")
    assert (
        html.count('class="target"') == sum(len(query.targets) for query in first)
        and "0.13" in html
    )
    assert CHOICES[choice][0].key == "object"


@pytest.mark.parametrize(
    "link, model, says",
    [
        (LINK, "induction", "knows the words of 0 of the 179 sentences"),
        (TESTS_LINK, "digits", "no tokens to repeat"),
    ],
)
def test_a_model_that_cannot_be_tested_says_so(link, model, says):
    app = open_at("head_roles", **link, **{"inside:model": model})
    assert says in app.info[0].value.replace("\\", "") and not app.exception


def test_a_file_of_one_s_own_is_measured_and_one_that_is_missing_is_left(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path))
    blocks = OWN.read_text("utf-8").split("\n\n")
    app = open_syntax(**{FILE: reading.put("\n\n".join(blocks[:12]))})
    assert "12 sentences of your file" in app.caption[-1].value.replace("\\", "")
    assert app.button(key=f"{FILE}:clear")
    assert_script(app)
    app = open_syntax(**{FILE: "sha256:" + "0" * 64})
    assert "179 sentences annotated by hand" in app.caption[-1].value.replace("\\", "")
    app = app_at("head_roles", **LINK)
    app.session_state[FILE] = "sha256:" + "1" * 64
    app.run()
    assert "is not on this machine" in app.warning[0].value and not app.exception
    assert "179 sentences annotated by hand" in app.caption[-1].value


# The view Standard tests of the page Head roles, without a browser.


def test_the_induction_model_opens_with_its_induction_head_and_minilm_with_a_duplicate_token_head():
    app = open_at("head_roles", **TESTS_LINK, **{"inside:model": "induction"})
    assert not app.exception
    assert (app.selectbox(key=TEST).value, app.selectbox(key=TEST_HEAD).value) == (
        "Induction",
        "L1·H2",
    )
    assert "puts <b style='font-weight:600'>0.97 ± 0.010</b> of its weight" in html_text(app)
    app.selectbox(key="inside:model").set_value("all-MiniLM-L6-v2").run()
    assert (app.selectbox(key=TEST).value, app.selectbox(key=TEST_HEAD).value) == (
        "Duplicate token",
        "L2·H9",
    )
    app.selectbox(key=TEST).set_value("Previous token").run()
    assert app.selectbox(key=TEST_HEAD).value == "L0·H2"
    assert "8 lines of 25 different random tokens" in captions(app)


def test_a_link_brings_test_and_head():
    app = open_at(
        "head_roles",
        **TESTS_LINK,
        **{TEST: "Previous token", TEST_HEAD: "L2·H11"},
    )
    assert (app.selectbox(key=TEST).value, app.selectbox(key=TEST_HEAD).value) == (
        "Previous token",
        "L2·H11",
    )
    assert "L0·H2 has the highest score" in html_text(app)


def test_table_and_csv_have_every_test():
    scores = score_repeats(load_minilm())
    assert [row[0] for row in page.repeat_rows(scores)] == [test.name for test in TESTS]
    assert TESTS[default_test(scores)].key == "duplicate"
    rows = csv_rows(page.repeats_csv(scores))
    assert len(rows) == 72 * len(TESTS) and rows[72 + 2 * 12 + 9]["score"].startswith("0.61")


def test_successors_are_ranked_by_the_weights_and_minilm_has_no_such_head():
    app = open_at(
        "head_roles",
        **TESTS_LINK,
        **{TEST: "Successor", "head_roles:order": "days"},
    )
    assert not app.exception and app.selectbox(key=TEST_HEAD).value == "L3·H8"
    assert "No head of this model is a successor head." in html_text(app)
    assert "This model has no unembedding" in captions(app).replace("\\", "")
    app.selectbox(key="inside:model").set_value("induction").run()
    assert app.selectbox(key=TEST).value == "Induction"


def test_a_large_model_waits_for_a_press_and_shows_the_lines_that_were_read(monkeypatch):
    monkeypatch.setattr("pages.head_roles.UNASKED", 0)
    read = measurements(LINES, (ModelRef("lab", "only-attention"), "causal"))
    read.clear()
    app = open_at("head_roles", **TESTS_LINK, **{"inside:model": "only-attention"})
    assert "3 of 8 lines of random tokens measured" in captions(
        app
    ) and "causal self-attention, 3 lines of" in (captions(app))
    app.button(key=f"{LINES}:go").click().run()
    assert "8 lines of 25 different random tokens" in captions(app) and len(read) == 8
    whole = score_repeats(load_lab_model("only-attention"), "causal")
    assert np.mean(list(read.values()), 0) == pytest.approx(whole.score, abs=1e-6)
