"""The view Standard tests of the page Head roles, without a browser."""

import numpy as np
import pytest

from core.interpret.head_tests import TESTS, score_repeats
from core.pretrained import load_lab_model, load_minilm
from core.studies.head_roles import default_test
from dashboard.server.cache import measurements
from dashboard.ui.models import ModelRef
from pages import head_roles as page
from pages.head_roles import LINES, TEST, TEST_HEAD
from tests.pages.app import captions, csv_rows, html_text, open_at

LINK = {"head_roles:view": "Standard tests"}


def test_the_induction_model_opens_with_its_induction_head_and_minilm_with_a_duplicate_token_head():
    app = open_at("head_roles", **LINK, **{"inside:model": "induction"})
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
    app = open_at("head_roles", **LINK, **{TEST: "Previous token", TEST_HEAD: "L2·H11"})
    assert (app.selectbox(key=TEST).value, app.selectbox(key=TEST_HEAD).value) == (
        "Previous token",
        "L2·H11",
    )
    assert "L0·H2 has the highest score" in html_text(app)


def test_a_model_without_tokens_says_so():
    app = open_at("head_roles", **LINK, **{"inside:model": "digits"})
    assert "no tokens to repeat" in app.info[0].value and not app.exception


def test_table_and_csv_have_every_test():
    scores = score_repeats(load_minilm())
    assert [row[0] for row in page.repeat_rows(scores)] == [test.name for test in TESTS]
    assert TESTS[default_test(scores)].key == "duplicate"
    rows = csv_rows(page.repeats_csv(scores))
    assert len(rows) == 72 * len(TESTS) and rows[72 + 2 * 12 + 9]["score"].startswith("0.61")


def test_successors_are_ranked_by_the_weights_and_minilm_has_no_such_head():
    app = open_at("head_roles", **LINK, **{TEST: "Successor", "head_roles:order": "days"})
    assert not app.exception and app.selectbox(key=TEST_HEAD).value == "L3·H8"
    assert "No head of this model is a successor head." in html_text(app)
    assert "This model has no unembedding" in captions(app).replace("\\", "")
    app.selectbox(key="inside:model").set_value("induction").run()
    assert app.selectbox(key=TEST).value == "Induction"


def test_a_large_model_waits_for_a_press_and_shows_the_lines_that_were_read(monkeypatch):
    monkeypatch.setattr("pages.head_roles.UNASKED", 0)
    read = measurements(LINES, (ModelRef("lab", "only-attention"), "causal"))
    read.clear()
    app = open_at("head_roles", **LINK, **{"inside:model": "only-attention"})
    assert "3 of 8 lines of random tokens measured" in captions(
        app
    ) and "causal self-attention, 3 lines of" in (captions(app))
    app.button(key=f"{LINES}:go").click().run()
    assert "8 lines of 25 different random tokens" in captions(app) and len(read) == 8
    whole = score_repeats(load_lab_model("only-attention"), "causal")
    assert np.mean(list(read.values()), 0) == pytest.approx(whole.score, abs=1e-6)
