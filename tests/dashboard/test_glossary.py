"""The glossary: no term twice, each on a page that exists, and the first use of one in a sentence is explained."""

import ast
import re
from pathlib import Path

from dashboard.draw.glossary import TERMS, explain, explain_markdown
from dashboard.navigation import STEPS
from pages.glossary import matching

DASHBOARD = Path(__file__).resolve().parents[2] / "dashboard"
NUMBER, CHOICE, TEXT, SWITCH = "number", "choice", "text", "switch"
HOLDS = {
    "slider": {NUMBER}, "number_input": {NUMBER}, "select_slider": {NUMBER, CHOICE}, "selectbox": {CHOICE},
    "segmented_control": {CHOICE}, "pills": {CHOICE}, "radio": {CHOICE}, "multiselect": {CHOICE},
    "text_input": {TEXT}, "text_area": {TEXT}, "toggle": {SWITCH}, "checkbox": {SWITCH},
    "Number": {NUMBER}, "SelectSlider": {NUMBER, CHOICE}, "Select": {CHOICE}, "Segmented": {CHOICE},
    "MultiSelect": {CHOICE}, "Text": {TEXT}, "Toggle": {SWITCH},
}  # fmt: skip


def test_no_label_names_values_of_different_types():
    """A label that is a number on one page is no text, choice or switch on another."""
    held: dict[str, set[str]] = {}
    for path in (*DASHBOARD.rglob("*.py"), *(DASHBOARD.parent / "pages").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if (
                isinstance(node, ast.Call)
                and (kind := ast.unparse(node.func).rpartition(".")[2]) in HOLDS
                and node.args
                and isinstance(node.args[0], ast.Constant)
                and isinstance(node.args[0].value, str)
            ):
                held.setdefault(
                    node.args[0].value, {NUMBER, CHOICE, TEXT, SWITCH}
                ).intersection_update(HOLDS[kind])
    assert len(held) > 50 and not {label for label, types in held.items() if not types}


def test_no_term_or_form_stands_twice_and_each_page_exists():
    forms = [form.lower() for term in TERMS for form in (term.name, *term.forms)]
    assert len(TERMS) >= 60 and not {form for form in forms if forms.count(form) > 1}
    assert {term.page for term in TERMS} <= {step.key for step in STEPS}


def test_an_explanation_is_one_or_two_short_sentences():
    wrong = [
        term.name
        for term in TERMS
        if not term.text.endswith(".")
        or not 1 <= len(re.findall(r"[.:](?:\s|$)", term.text)) <= 3
        or len(term.text) > 170
    ]
    assert not wrong


def test_the_first_use_of_a_term_is_explained_and_all_else_is_escaped():
    html = explain("Softmax <b> of a query; softmax again, and queries", set())
    assert re.findall(r"<abbr[^>]*>([^<]*)</abbr>", html) == ["Softmax", "query"]
    assert (
        re.sub(r"</?abbr[^>]*>", "", html)
        == "Softmax &lt;b&gt; of a query; softmax again, and queries"
    )
    [title] = [term.text for term in TERMS if term.name == "softmax"]
    assert f'aria-description="{title}"' in html and 'tabindex="0"' in html


def test_a_term_is_a_whole_word_and_no_everyday_word():
    assert explain("tokenizer, a keynote, mid-beam, the value of a head", set()) == (
        "tokenizer, a keynote, mid-beam, the value of a head"
    )


def test_a_typed_text_finds_terms_by_name_before_those_by_explanation():
    assert [term.name for term in matching(" SOFTMAX ")][0] == "softmax" and len(
        matching("softmax")
    ) > 2
    assert len(matching("")) == len(TERMS) and matching("xyzzy") == []


def test_no_tag_comes_through_a_paragraph():
    tag = "<img src=x onerror=alert(1)>"
    for text in (tag, f'a [b](http://x" {tag})', f"$1 {tag}$", f":small[{tag}]", f"``{tag}"):
        assert "<img" not in explain_markdown(text)
    assert explain_markdown("`a<b` $a<b$") == r"`a<b` $a\lt b$"
