"""The Pretrained page's logic, without a browser."""

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def app() -> AppTest:
    app = AppTest.from_file(str(ROOT / "dashboard" / "app.py"), default_timeout=60)
    return app.switch_page("../pages/pretrained.py")


def said(app: AppTest) -> str:
    return " ".join(element.proto.body for element in app.get("html"))


def test_first_sight_measures_something_with_nothing_pressed(app):
    app.run()
    assert not app.exception
    assert "L3·H1" in said(app) and "0.68" in said(app)
    assert "L0·H2 looks most at the previous token: 1.00" in said(app)


def test_a_link_opens_its_head_and_its_cell(app):
    app.query_params["head"] = "0.2"
    app.query_params["pin"] = "10.9"
    app.run()
    assert not app.exception
    assert "L0·H2</b>" in said(app) and "because</b>" in said(app)


@pytest.mark.parametrize(("name", "value"), [("head", "6.0"), ("head", "a.b"), ("pin", "999.0"), ("pin", "<b>")])
def test_a_broken_link_is_said_and_nothing_breaks(app, name, value):
    app.query_params[name] = value
    app.run()
    assert not app.exception
    assert "The link says" in app.warning[0].value
    assert "L3·H1" in said(app)


@pytest.mark.parametrize("text", ["", "   "])
def test_an_empty_sentence_asks_for_one(app, text):
    app.run()
    app.text_input[0].set_value(text).run()
    assert not app.exception
    assert "write a sentence" in app.info[0].value


@pytest.mark.parametrize("text", ["a", "🙂🙂", "שלום עולם", "<script>alert(1)</script> **x** $y$", "word " * 600])
def test_any_sentence_gives_a_picture_and_a_fact(app, text):
    app.run()
    app.text_input[0].set_value(text).run()
    assert not app.exception
    assert "puts" in said(app) and "<script>" not in said(app)
    assert bool(app.warning) == (len(text) > 2000)


def test_special_tokens_can_be_hidden_and_the_page_says_what_that_does(app):
    app.run()
    app.toggle[0].set_value(False).run()
    assert not app.exception
    assert any("Special tokens are hidden" in caption.value for caption in app.caption)
    assert "CLS" not in said(app)
