import io
from functools import partial

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
from dashboard.draw import grids as charts
from dashboard.draw.formats import number
from dashboard.server.cache import measurements
from dashboard.ui.models import ModelRef
from pages import head_roles as page
from pages.head_roles import (
    FIELDS,
    FILE,
    HEAD,
    LINES,
    MAX_LETTERS,
    MAX_SENTENCES,
    RELATION,
    ROLE,
    SENTENCE,
    TEST,
    TEST_HEAD,
    WORD_HEAD,
    read_sentences,
)
from tests.pages.app import app_at, assert_says, assert_script, csv_rows, open_at

INDUCTION, PREVIOUS = ([role.key for role in ROLES].index(key) for key in ("induction", "previous"))


@pytest.fixture
def app() -> AppTest:
    return app_at("head_roles")


@pytest.fixture(scope="module")
def scores() -> RoleScores:
    model = load_lab_model("induction")
    return score_roles(read_all(model, role_inputs(model)), "causal")


def picked(app: AppTest, *keys: str) -> tuple:
    return tuple(app.selectbox(key=key).value for key in keys)


def test_a_broken_link_leaves_minilm_s_previous_token_head(app):
    app.query_params[ROLE], app.query_params[HEAD] = "<b>", "L9·H99"
    assert picked(app.run(), ROLE, HEAD) == ("previous", "L0·H2")
    app.session_state["head_roles:head:picked"] = "L3·H11"  # in a map
    app.run()
    assert picked(app, HEAD) == ("L3·H11",)
    assert_says(app, "Its role is delimiter; 4 of 72 heads have the role previous token.")
    assert_says(app.text_input(key="inside:text").set_value(" ").run(), "write a sentence")


def test_another_role_brings_its_best_head_and_another_model_what_is_clearest_in_it(app):
    assert_says(app.run().selectbox(key=HEAD).set_value("L2·H11").run(), "L2·H11 puts")
    app.selectbox(key=ROLE).set_value("same").run()
    assert picked(app, HEAD) == ("L2·H9",)
    app.selectbox(key="inside:model").set_value("induction").run()
    role, head = picked(app, ROLE, HEAD)
    assert role == "induction" and head.startswith("L1")
    # Sentences of a person's own are measured, and those that the model does not know are named
    app.text_area(key=FIELDS.key("own")).set_value(
        "the red fox saw the red fox\nQwertz uiop asdf\nthe old dog and the old cat"
    ).run()
    assert_says(app, "measured on 2 sentences of your own", "1 of your sentences is left out")


def test_an_encoder_decoder_is_measured_in_both_its_halves():
    app = open_at("head_roles", **{"inside:model": "numbers"})
    assert "Next token" in app.selectbox(key=ROLE).options
    app.selectbox(key=FIELDS.key("kind")).set_value("causal").run()
    assert_says(app, "causal self-attention")
    assert "Next token" not in app.selectbox(key=ROLE).options  # a decoder cannot look ahead


def test_lines_are_read_once_each_and_what_is_left_out_is_said():
    assert read_sentences("a b\n\n  a   b \nc") == (("a b", "c"), None)
    lines = [*map(str, range(MAX_SENTENCES + 5)), "x" * (MAX_LETTERS + 1)]
    taken, trouble = read_sentences("\n".join(lines))
    assert len(taken) == MAX_SENTENCES
    assert "first 60" in trouble and "1 of the lines" in trouble


def test_the_csv_holds_every_head_in_every_role_that_could_be_measured(scores):
    rows = csv_rows(page.roles_csv(scores))
    by_head = {(int(one["layer"]), int(one["head"]), one["role"]): one for one in rows}
    able = [role.key for role, count in zip(ROLES, scores.rows, strict=True) if count]
    assert set(by_head) == {(*head, key) for head in scores.heads for key in able}
    own = {key[:2]: key[2] for key, one in by_head.items() if one["is_its_role"] == "1"}
    assert own == {head: ROLES[index].key for head, index in scores.head_roles.items()}
    score = float(by_head[1, 2, "induction"]["score"])
    assert score == pytest.approx(scores.score[INDUCTION, 1, 2], abs=1e-6)


def test_every_head_is_a_cell_of_its_role_and_the_picked_one_is_ringed(scores):
    cells, ring = (
        {(row["layer"], row["head"]): row["mark"] for row in layer["data"]["values"]}
        for layer in charts.role_grid(scores, (1, 0), "light")["layer"][:2]
    )
    roles = scores.head_roles
    assert set(cells) == set(np.ndindex(scores.score.shape[1:])) and list(ring) == [(1, 0)]
    assert cells == {head: ROLES[roles[head]].mark if head in roles else "" for head in cells}


def test_the_equation_says_what_was_measured(scores):
    best, other = (scores.best(index) for index in (INDUCTION, PREVIOUS))
    score, above, share = page.role_equation(scores, best, INDUCTION)
    assert f"= {number(scores.score[INDUCTION][best])}" in score
    assert ">" in above and r"\ge" in share
    assert r"\le" in page.role_equation(scores, other, INDUCTION)[1]
    one = RoleInputs((ModelInputs("a"),), "example sentences")
    assert "Its role is previous token" in page.role_fact(scores, other, INDUCTION, one)
    # A head that is nearly even has not chosen
    shape = len(ROLES), 1, 1
    even = RoleScores(
        "self",
        np.full(shape, UNIFORM + 0.05),
        np.full(shape, 0.7),
        np.full(shape, 0.01),
        rows=np.full(len(ROLES), 9),
        numbers=(0,),
    )
    even.score[:-1] = 0.1
    fact = page.role_fact(even, (0, 0), len(ROLES) - 1, one)
    assert "its weights are nearly even" in fact and "1 example sentence;" in fact


def test_arrays_alone_are_measured_on_themselves(app):
    """One layer of two heads over a text that comes again: one looks one back, the other at what followed before."""
    tokens = np.array("<s> dog sun tree ship hand dog sun tree ship hand".split())
    rows = np.arange(len(tokens))
    looks = np.maximum(rows - 1, 0), np.where(rows > 5, rows - 4, 0)
    weights = np.stack([np.eye(len(tokens), dtype=np.float32)[each] for each in looks])
    np.savez(out := io.BytesIO(), layer_0=weights, tokens=tokens)
    app.run()
    app.selectbox(key="inside:model").set_value("Your own arrays…").run()
    app.file_uploader(key="inside:array-file").set_value(("mine.npz", out.getvalue(), "")).run()
    assert_says(app, "measured on only the input above", "In this array")
    for role, head, name in (
        ("previous", "L0·H0", "previous token"),
        ("induction", "L0·H1", "induction"),
    ):
        app.selectbox(key=ROLE).set_value(role).run()
        assert picked(app, HEAD) == (head,)
        assert_says(app, f"1 of 2 heads has the role {name}")


# The view Syntax.


LINK = {"head_roles:view": "Syntax"}
TESTS_LINK = {"head_roles:view": "Standard tests"}
open_syntax = partial(open_at, "head_roles", **LINK)


@pytest.fixture(scope="module")
def result():
    readings = read_parses(load_minilm(), own_parses())
    return SyntaxResult(readings, tuple(score_relation(readings, *choice) for choice in CHOICES))


def test_first_sight_shows_the_relation_that_a_head_follows_furthest_beyond_an_offset():
    app = open_syntax()
    assert picked(app, RELATION, WORD_HEAD) == ("Pronoun → antecedent", "L3·H1")
    assert_says(app, "in 80\u00a0%", "✗ she → “tired” 0.19; right is “clerk” 0.19")


def test_a_link_brings_relation_head_and_sentence_and_another_relation_its_best_head():
    app = open_syntax(**{RELATION: "Verb → object", WORD_HEAD: "L2·H0", SENTENCE: "5"})
    assert picked(app, WORD_HEAD, SENTENCE) == ("L2·H0", "5")
    app.selectbox(key=RELATION).set_value("Determiner → noun").run()
    assert picked(app, WORD_HEAD) == ("L3·H1",) and not app.exception


def test_the_table_and_the_csv_have_every_relation_in_both_directions(result):
    rows = {row[0]: row[1:] for row in page.syntax_rows(result)}
    assert list(rows) == list(NAMES) and len(rows) == 12
    expected = ["171", "L3·H1", "81\u00a0%", "74\u00a0% to 86\u00a0%", "2 after", "49\u00a0%"]
    assert rows["Verb → object"] == expected
    values = csv_rows(page.syntax_csv(result))
    key = {"layer": "3", "head": "1", "relation": "object", "direction": "forward"}
    one = next(row for row in values if key.items() <= row.items())
    assert (len(values), one["hits"], one["instances"]) == (72 * 12, "138", "171")


def test_sentences_in_which_the_head_is_wrong_come_first_and_are_drawn_with_their_targets(result):
    score = result.scores[NAMES.index("Verb → object")]
    queries = queries_by_sentence(result, score, (3, 1))
    right = [[query.right for query in each] for each in queries.values()]
    assert [all(each) for each in right] == sorted(all(each) for each in right)
    assert (sum(map(len, right)), sum(map(sum, right))) == (171, 138)
    sentence, first = next(iter(queries.items()))
    parse = result.readings.sentences[sentence].parse
    html = charts.query_lines(parse, np.full((len(parse),) * 2, 0.125), first, "light")
    targets = sum(len(query.targets) for query in first)
    assert html.count('class="target"') == targets and "0.13" in html


def test_a_file_of_one_s_own_is_measured_and_one_that_is_missing_is_left(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path))
    blocks = OWN.read_text("utf-8").split("\n\n")
    app = open_syntax(**{FILE: reading.put("\n\n".join(blocks[:12]))})
    assert_says(app, "12 sentences of your file")
    assert app.button(key=f"{FILE}:clear")
    assert_script(app)
    assert_says(open_syntax(**{FILE: "sha256:" + "0" * 64}), "179 sentences annotated by hand")
    app = app_at("head_roles", **LINK)
    app.session_state[FILE] = "sha256:" + "1" * 64
    assert_says(app.run(), "is not on this machine", "179 sentences annotated by hand")


# The view Standard tests of the page Head roles, without a browser.


def test_another_model_opens_with_its_own_test_and_another_test_with_its_own_head():
    app = open_at("head_roles", **TESTS_LINK, **{"inside:model": "induction"})
    assert picked(app, TEST, TEST_HEAD) == ("Induction", "L1·H2")
    app.selectbox(key="inside:model").set_value("all-MiniLM-L6-v2").run()
    assert picked(app, TEST, TEST_HEAD) == ("Duplicate token", "L2·H9")
    app.selectbox(key=TEST).set_value("Previous token").run()
    assert picked(app, TEST_HEAD) == ("L0·H2",)


def test_table_and_csv_have_every_test():
    scores = score_repeats(load_minilm())
    assert [row[0] for row in page.repeat_rows(scores)] == [test.name for test in TESTS]
    assert TESTS[default_test(scores)].key == "duplicate"
    rows = csv_rows(page.repeats_csv(scores))
    assert len(rows) == 72 * len(TESTS) and rows[72 + 2 * 12 + 9]["score"].startswith("0.61")


def test_a_model_without_ordered_items_opens_with_another_test():
    app = open_at("head_roles", **TESTS_LINK, **{TEST: "Successor"})
    assert picked(app, TEST_HEAD) == ("L3·H8",)
    assert picked(app.selectbox(key="inside:model").set_value("induction").run(), TEST) == (
        "Induction",
    )


def test_a_large_model_waits_for_a_press_and_shows_the_lines_that_were_read(monkeypatch):
    monkeypatch.setattr("pages.head_roles.UNASKED", 0)
    read = measurements(LINES, (ModelRef("lab", "only-attention"), "causal"))
    read.clear()
    app = open_at("head_roles", **TESTS_LINK, **{"inside:model": "only-attention"})
    assert_says(
        app,
        "3 of 8 lines of random tokens measured",
        "causal self-attention, 3 lines of",
    )
    app.button(key=f"{LINES}:go").click().run()
    assert_says(app, "8 lines of 25 different random tokens")
    whole = score_repeats(load_lab_model("only-attention"), "causal")
    assert len(read) == 8
    assert np.mean(list(read.values()), 0) == pytest.approx(whole.score, abs=1e-6)
