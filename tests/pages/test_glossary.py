"""Glossary: every term with a link to its page, found by a typed text, which the link holds."""

from functools import partial

from dashboard.draw.glossary import TERMS
from tests.pages.app import open_at, page_text

open_page = partial(open_at, "glossary", "glossary:")


def test_every_term_is_on_the_page_with_a_link():
    app = open_page()
    text = page_text(app)
    assert all(term.name in text and term.text in text for term in TERMS)
    assert len(app.get("page_link")) == len(TERMS) + 1  # and the next page


def test_the_link_finds_a_term_and_one_that_is_not_there_is_answered():
    assert 0 < len(open_page(find="softmax").get("page_link")) - 1 < len(TERMS)
    assert "xyzzy" in open_page(find="xyzzy").info[0].value
