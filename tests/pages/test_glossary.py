"""Glossary: every term with a link to its page, found by a typed text, which the link holds."""

from pathlib import Path

from streamlit.testing.v1 import AppTest

from dashboard.charts.glossary import TERMS
from tests.pages.app import assert_no_exception, page_text

APP = str(Path(__file__).resolve().parents[2] / "dashboard" / "app.py")


def open_page(**query: str) -> AppTest:
    app = AppTest.from_file(APP, default_timeout=30)
    for name, value in query.items():
        app.query_params[f"glossary:{name}"] = value
    app.switch_page("../pages/glossary.py")
    return assert_no_exception(app.run())


def test_every_term_is_on_the_page_with_a_link():
    app = open_page()
    text = page_text(app)
    assert all(term.name in text and term.text in text for term in TERMS)
    assert len(app.get("page_link")) == len(TERMS) + 1  # and the next page


def test_the_link_finds_a_term_and_one_that_is_not_there_is_answered():
    assert 0 < len(open_page(find="softmax").get("page_link")) - 1 < len(TERMS)
    assert "xyzzy" in open_page(find="xyzzy").info[0].value
