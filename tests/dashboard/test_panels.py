"""The parts that every page has: facts and terms, links and panels, and the search of the sidebar."""

import json
import re
from html import escape
from importlib.util import find_spec
from pathlib import Path

from streamlit.testing.v1 import AppTest

from dashboard.draw.formats import plain, spoken
from dashboard.draw.glossary import TERMS, explain, explain_markdown
from dashboard.navigation import STEPS, following
from dashboard.search import PICKED, collect, hits
from dashboard.ui.panels import _as_html
from pages.glossary import matching
from tests.cases import each
from tests.pages.app import open_at

TOKENS = ["<script>alert(1)</script>", "**bold**", ":primary[x]", "a]b", "\\", "$x$", "`"]


@each("token", TOKENS)
def test_a_token_comes_through_as_it_was_typed(token):
    assert (
        _as_html(f"**{plain(token)}**", "#000") == f"<b style='font-weight:600'>{escape(token)}</b>"
    )
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
    assert {path.stem for path in (Path(__file__).parents[2] / "pages").glob("*.py")} == {
        step.key for step in STEPS
    }


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


def test_terms_stand_once_on_pages_that_exist_in_short_sentences_and_are_whole_words():
    forms = [form.lower() for term in TERMS for form in (term.name, *term.forms)]
    assert (
        len(TERMS) >= 60
        and not {form for form in forms if forms.count(form) > 1}
        and {term.page for term in TERMS} <= {step.key for step in STEPS}
    )
    assert not [
        term.name
        for term in TERMS
        if not term.text.endswith(".")
        or not 1 <= len(re.findall(r"[.:](?:\s|$)", term.text)) <= 3
        or len(term.text) > 170
    ]
    within = "tokenizer, a keynote, mid-beam, the value of a head"
    assert explain(within, set()) == within


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
    saved = [*hits().values()]  # no two have the same title and line
    assert saved == json.loads(json.dumps(collect())), "run make search"


def test_what_is_picked_opens_also_on_its_own_page():
    app = open_at("start")
    for typed, key, value in [
        ("sliding window", "mechanisms:mask", "local"),
        ("Nyström", "mechanisms:kernel", "nystrom"),
        ("Your own text", "train:task", "own_text"),
        ("Why divide by", "questions:question", "scaling"),
        ("softmax · term", "glossary:find", "softmax"),
        ("perplexity", "glossary:find", "perplexity"),
        ("One vector", "claims:choice", "bottleneck"),
        ("Llama 3.1", "cards:model", "llama3"),
        ("induction · model", "inside:model", "induction"),
    ]:
        app.session_state[PICKED] = next(one for one in hits() if typed in one)
        app.run()
        assert {one.key: one.value for one in (*app.selectbox, *app.text_input)}[
            key
        ] == value and not app.exception
