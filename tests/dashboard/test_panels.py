"""A fact says typed text as text; the next page follows the sidebar."""

from importlib.util import find_spec

from dashboard.draw.formats import plain, spoken
from dashboard.navigation import STEPS, following
from dashboard.ui.panels import _as_html
from tests.cases import each

TOKENS = ["<script>alert(1)</script>", "**bold**", ":primary[x]", "a]b", "\\", "$x$", "`"]


@each("token", TOKENS)
def test_a_token_comes_through_as_it_was_typed(token):
    from html import escape

    assert (
        _as_html(f"**{plain(token)}**", "#000") == f"<b style='font-weight:600'>{escape(token)}</b>"
    )


@each("token", TOKENS)
def test_a_screen_reader_says_the_words_of_a_fact_and_none_of_its_signs(token):
    fact = f":primary[{plain(token)}] has **0.5**, **{plain(token)}** [CLS]"
    assert spoken(fact) == f"{token} has 0.5, {token} [CLS]"


def test_accent_and_bold():
    assert _as_html(":primary[it] has **0.5**", "#abc") == (
        "<span style='color:#abc'>it</span> has <b style='font-weight:600'>0.5</b>"
    )


def test_each_page_leads_on_and_the_last_leads_back():
    seen, key = [], STEPS[0].key
    for _ in STEPS:
        seen.append(key)
        key = following(key).key
    assert sorted(seen) == sorted(step.key for step in STEPS) and key == STEPS[0].key
    assert all(find_spec(f"pages.{step.key}") for step in STEPS)


def test_the_line_to_the_next_page_fits_a_phone():
    assert max(len(step.invite) for step in STEPS) <= 47  # letters after "Next: " at 390 pixels
