"""The page Model cards, driven without a browser: every card opens, and its numbers are those of the card."""

from functools import partial

import pytest

from core.models.cards import CARDS, card
from pages import cards
from pages.cards import COMPARED
from tests.cases import each
from tests.pages.app import app_at, html_text, open_at, page_text, set_control

put = partial(set_control, "cards:")


def words_of(app):
    """The page's sentences, with plain spaces."""
    return page_text(app).replace("\u00a0", " ")


@pytest.fixture
def page():
    return open_at("cards")


def complaints(app):
    return [*app.warning, *app.error, *app.exception]


def test_the_first_sight_has_all_models_and_one_card(page):
    words, html = words_of(page), html_text(page)
    assert not complaints(page) and all(f'<th scope="row">{one.name}</th>' in html for one in CARDS)
    assert (
        html.count('<i title="layer ') == sum(len(one.layers) for one in CARDS) + 48
    )  # the chosen one twice
    assert html.count('<tr data-model="gemma3">') == 1
    assert (
        "Gemma 3 12B stores 8.93 GB at 131,072 tokens, 65.5 kB for each token; 393 kB while the windows"
        in words
    )
    assert "48 layers: 5 window of 1,024, 1 full, 5 window of 1,024" in html


def test_every_card_opens_with_its_numbers(page):
    for one in CARDS:
        page = put(page, "selectbox", "model", one.key)
        words = words_of(page)
        assert not complaints(page) and f"## {one.name}" in words and f"{one.parameters:,}" in words
        assert f"Sizes of {one.checkpoint}, from" in words and ("from memory" in one.source) == (
            "from memory" in words
        )
        assert ("nothing is stored" in words) == (not one.stores)
        assert all(f"{count} layers" in words or count == 1 for count in one.distinct.values())


def test_the_parts_add_up_and_a_cache_beyond_the_positions_is_not_shown(page):
    page.session_state["cards:parts"] = True
    assert "1,006,878,720" in html_text(page.run())
    for one in CARDS:
        rows = cards.part_rows(one)
        assert sum(int(row[1].replace(",", "")) for row in rows) == one.parameters
    words = words_of(put(page, "selectbox", "model", "gpt2"))
    assert not complaints(page) and "GPT-2 stores 37.7 MB at 1,024 tokens" in words
    assert "It has positions for 1,024 tokens only" in words
    assert cards.figures(card("gpt2"))[3:5] == ["–", "–"]
    assert cards.figures(card("llama2"))[4] == "68.7\u00a0GB"


def test_the_curves_are_those_of_the_chosen_models(page):
    spec = page.get("vega_lite_chart")[0].proto.spec
    assert all(card(key).name in spec for key in (*COMPARED, "gemma3")) and "GPT-2" not in spec
    page = put(put(page, "multiselect", "compared", []), "selectbox", "model", "bert")
    assert not page.get("vega_lite_chart") and not complaints(page)


@each("key", ["gemma3", "llama4", "kimi_linear", "deepseek_v32", "t5"])
def test_the_attentions_open_side_by_side(key):
    app = app_at("compare")
    for parameter, value in cards.link(card(key)).items():
        app.query_params[parameter] = value
    assert not complaints(app.run())


def test_a_card_is_trained_small_with_its_pattern(page):
    put(page, "selectbox", "model", "qwen3_next")
    page.button(key="cards:train").click().run()
    assert page.session_state["train:task"] == "recall" and not page.exception
    following = page.session_state["train:recall:decoder:following"]
    kernels = [page.session_state["train:recall:decoder:attention:now"], *following]
    assert [one.kernel.key for one in kernels] == ["gated_delta"] * 3 + ["exact"]
    assert "gated delta rule; gated delta rule; gated delta rule; exact" in page_text(page)
