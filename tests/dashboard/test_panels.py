"""The parts that every page has: facts and terms, links and panels, and the search of the sidebar."""

import ast
import json
import re
from html import escape
from importlib.util import find_spec
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.draw.formats import plain, spoken
from dashboard.draw.glossary import TERMS, explain, explain_markdown
from dashboard.navigation import STEPS, following
from dashboard.search import FILE, collect, hits
from dashboard.ui.panels import _as_html
from pages.glossary import matching
from tests.cases import each
from tests.pages.app import open_at

TOKENS = ["<script>alert(1)</script>", "**bold**", ":primary[x]", "a]b", "\\", "$x$", "`"]


@each("token", TOKENS)
def test_a_token_comes_through_as_it_was_typed(token):
    html = _as_html(f"**{plain(token)}**", "#000")
    assert html == f"<b style='font-weight:600'>{escape(token)}</b>"
    fact = f":primary[{plain(token)}] has **0.5**, **{plain(token)}** [CLS]"
    assert spoken(fact) == f"{token} has 0.5, {token} [CLS]", "a screen reader says no signs"


def test_accent_and_bold():
    assert _as_html(":primary[it] has **0.5**", "#abc") == (
        "<span style='color:#abc'>it</span> has <b style='font-weight:600'>0.5</b>"
    )


def test_the_pages_of_the_list_are_files_and_each_leads_on_in_a_line_that_fits_a_phone():
    seen, key = [], STEPS[0].key
    for _ in STEPS:
        seen.append(key)
        key = following(key).key
    assert (
        sorted(seen) == sorted(step.key for step in STEPS)
        and key == STEPS[0].key
        and all(find_spec(f"pages.{step.key}") for step in STEPS)
    )
    assert max(len(step.invite) for step in STEPS) <= 47  # letters after "Next: " at 390 pixels
    assert {path.stem for path in (ROOT / "pages").glob("*.py")} == KEYS


# Every link leads to a page of the app, and no panel closes because its own content changed its label.


ROOT = Path(__file__).resolve().parents[2]
FILES = sorted([*(ROOT / "dashboard").rglob("*.py"), *(ROOT / "pages").glob("*.py")])
KEYS = {step.key for step in STEPS}


def calls(path: Path, *names: str) -> list[ast.Call]:
    """The calls of methods or functions of these names in a file."""
    text = path.read_text(encoding="utf-8")
    nodes = ast.walk(ast.parse(text)) if any(name in text for name in names) else ()
    return [
        node
        for node in nodes
        if isinstance(node, ast.Call)
        and (
            node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        )
        in names
    ]


@each("path", FILES)
def test_links_are_made_from_the_list_of_pages(path):
    """A page is no file that is run: only the list knows it."""
    for call in calls(path, "page_link", "switch_page"):
        target = call.args[0]
        assert not isinstance(target, ast.Constant | ast.JoinedStr), (
            f"line {call.lineno}: take it from navigation"
        )
        keys = {
            node.args[0].value
            for node in ast.walk(target)
            if isinstance(node, ast.Call)
            and ast.unparse(node.func) == "step_of"
            and isinstance(node.args[0], ast.Constant)
        }
        assert keys <= KEYS, f"line {call.lineno}: {keys - KEYS} is no page"


@each("path", FILES)
def test_a_panel_with_state_has_a_label_that_stays(path):
    """Streamlit makes the label a part of a panel's identity, key or not: another label is another panel, closed."""
    for call in calls(path, "popover", "expander"):
        if call.args and any(word.arg == "on_change" for word in call.keywords):
            assert not isinstance(call.args[0], ast.JoinedStr | ast.IfExp), (
                f"line {call.lineno}: its label changes"
            )


def _of_runs():
    import streamlit as st

    from dashboard.ui.links import forget_other_runs

    forget_other_runs("train", "20261124-100000-00000b")
    st.write("drawn")


def test_a_link_says_nothing_of_runs_that_are_not_shown():
    app = AppTest.from_function(_of_runs)
    kept = {
        "train:step:20261124-100000-00000b": "3",
        "train:head:example_run:cross": "0.1",
        "train:seed": "2",
        "decode:step:20261124-100000-00000a": "3",
    }
    for name, value in (
        kept
        | {
            "train:head:20261124-100000-00000a:cross": "0.1",
            "train:more:20261124-100000-00000c": "9",
        }
    ).items():
        app.query_params[name] = value
    assert set(app.run().query_params) == set(kept)


# The glossary: no term twice, each on a page that exists, and the first use of one in a sentence is explained.


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


def test_terms_stand_once_on_pages_that_exist_in_short_sentences_and_are_whole_words():
    forms = [form.lower() for term in TERMS for form in (term.name, *term.forms)]
    assert (
        len(TERMS) >= 60
        and not {form for form in forms if forms.count(form) > 1}
        and {term.page for term in TERMS} <= {step.key for step in STEPS}
    )
    wrong = [
        term.name
        for term in TERMS
        if not term.text.endswith(".")
        or not 1 <= len(re.findall(r"[.:](?:\s|$)", term.text)) <= 3
        or len(term.text) > 170
    ]
    assert not wrong and explain("tokenizer, a keynote, mid-beam, the value of a head", set()) == (
        "tokenizer, a keynote, mid-beam, the value of a head"
    )


def test_the_first_use_of_a_term_is_explained_and_no_tag_comes_through():
    html = explain("Softmax <b> of a query; softmax again, and queries", set())
    assert (
        re.findall(r"<abbr[^>]*>([^<]*)</abbr>", html) == ["Softmax", "query"]
        and re.sub(r"</?abbr[^>]*>", "", html)
        == "Softmax &lt;b&gt; of a query; softmax again, and queries"
    )
    [title] = [term.text for term in TERMS if term.name == "softmax"]
    assert f'aria-description="{title}"' in html and 'tabindex="0"' in html
    tag = "<img src=x onerror=alert(1)>"
    for text in (tag, f'a [b](http://x" {tag})', f"$1 {tag}$", f":small[{tag}]", f"``{tag}"):
        assert "<img" not in explain_markdown(text)
    assert explain_markdown("`a<b` $a<b$") == r"`a<b` $a\lt b$"


def test_a_typed_text_finds_terms_by_name_before_those_by_explanation():
    assert (
        [term.name for term in matching(" SOFTMAX ")][0] == "softmax"
        and len(matching("softmax")) > 2
        and len(matching("")) == len(TERMS)
        and matching("xyzzy") == []
    )


# The search of the sidebar: its saved list is what the lab has, and what is picked opens.


def test_the_saved_list_is_what_the_lab_has():
    saved = json.loads(FILE.read_text("utf-8"))
    assert saved == json.loads(json.dumps(collect())), "run make search"
    assert len(hits()) == len(saved)  # no two stand in the list alike


@pytest.mark.parametrize("start", ["start", "mechanisms", "glossary", "claims", "cards"])
def test_what_is_picked_opens(start):
    app = open_at(start)
    for typed, key, value in [
        ("sliding window", "mechanisms:mask", "local"),
        ("Nyström", "mechanisms:kernel", "nystrom"),
        ("perplexity", "glossary:find", "perplexity"),
        ("One vector", "claims:choice", "bottleneck"),
        ("Llama 3.1", "cards:model", "llama3"),
    ]:
        search = next(one for one in app.sidebar.selectbox if one.label == "Search the lab")
        search.select(next(one for one in hits() if typed in one)).run()
        assert {one.key: one.value for one in (*app.selectbox, *app.text_input)}[
            key
        ] == value and not app.exception
