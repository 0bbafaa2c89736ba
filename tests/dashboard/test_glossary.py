"""The glossary: no term twice, each on a page that exists, and the first use of one in a sentence is explained."""

import re

from dashboard.charts.glossary import TERMS, explain
from dashboard.navigation import STEPS
from dashboard.views.glossary.page import matching


def test_no_term_or_form_stands_twice_and_each_page_exists():
    forms = [form.lower() for term in TERMS for form in (term.name, *term.forms)]
    assert len(TERMS) >= 60 and not {form for form in forms if forms.count(form) > 1}
    assert {term.page for term in TERMS} <= {step.key for step in STEPS}


def test_an_explanation_is_one_or_two_short_sentences():
    wrong = [term.name for term in TERMS
             if not term.text.endswith(".") or not 1 <= len(re.findall(r"[.:](?:\s|$)", term.text)) <= 3
             or len(term.text) > 170]
    assert not wrong


def test_the_first_use_of_a_term_is_explained_and_all_else_is_escaped():
    html = explain("Softmax <b> of a query; softmax again, and queries", set())
    assert re.findall(r"<abbr[^>]*>([^<]*)</abbr>", html) == ["Softmax", "query"]
    assert re.sub(r"</?abbr[^>]*>", "", html) == "Softmax &lt;b&gt; of a query; softmax again, and queries"
    [title] = [term.text for term in TERMS if term.name == "softmax"]
    assert f'title="{title}"' in html and 'tabindex="0"' in html


def test_a_term_is_a_whole_word_and_no_everyday_word():
    assert explain("tokenizer, a keynote, mid-beam, the value of a head", set()) == (
        "tokenizer, a keynote, mid-beam, the value of a head")


def test_a_typed_text_finds_terms_by_name_before_those_by_explanation():
    assert [term.name for term in matching(" SOFTMAX ")][0] == "softmax" and len(matching("softmax")) > 2
    assert len(matching("")) == len(TERMS) and matching("xyzzy") == []
