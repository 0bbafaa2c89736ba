"""The view Syntax of the page Head roles, without a browser."""

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from core.interpret.syntax import OWN, own_parses, read_parses, score_relation
from core.pretrained import load_minilm
from core.studies.head_roles import CHOICES, NAMES, SyntaxResult, queries_by_sentence
from core.tasks import reading
from dashboard.draw import head_roles as charts
from dashboard.server.cache import measurements
from dashboard.ui.models import local_models
from pages import head_roles as page
from pages.head_roles import FILE, READ, RELATION, SENTENCE, WORD_HEAD
from tests.pages.app import app_at, assert_script, csv_rows, html_text, open_at

LINK = {"head_roles:view": "Syntax"}


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


def test_a_file_of_one_s_own_is_measured_and_one_that_is_missing_is_left(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path))
    blocks = OWN.read_text("utf-8").split("\n\n")
    app = open_syntax(**{FILE: reading.put("\n\n".join(blocks[:12]))})
    assert "12 sentences of your file" in app.caption[-1].value.replace("\\", "")
    assert app.button(key=f"{FILE}:clear")
    assert_script(app)
    app = open_syntax(**{FILE: "sha256:" + "0" * 64})
    assert "179 sentences annotated by hand" in app.caption[-1].value.replace("\\", "")


def test_a_model_without_english_says_so():
    app = open_syntax(**{"inside:model": "induction"})
    assert "knows the words of 0 of the 179 sentences" in app.info[0].value.replace("\\", "")


def test_a_file_that_was_deleted_since_gives_way_to_the_own_sentences(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path))
    app = app_at("head_roles", **LINK)
    app.session_state[FILE] = "sha256:" + "1" * 64
    app.run()
    assert "is not on this machine" in app.warning[0].value and not app.exception
    assert "179 sentences annotated by hand" in app.caption[-1].value
