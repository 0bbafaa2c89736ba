"""The page Model cards, and the pattern of layers on Train: every card opens, and its numbers are those of the card."""

from functools import partial

import pytest

from core.attention import AttentionConfig, Choice, ConfigError
from core.models import ModelConfig
from core.models.cards import CARDS, card
from core.runs.runs import list_runs
from core.training.config import card_recipe
from core.training.sweeps import buildable
from dashboard.ui.mechanism import from_text, pattern_from_text, pattern_to_text
from pages import cards
from pages.cards import COMPARED
from tests.cases import each
from tests.pages.app import app_at, html_text, open_at, page_text, query_value, set_control

put = partial(set_control, "cards:")


def words_of(app):
    """The page's sentences, with plain spaces."""
    return page_text(app).replace("\u00a0", " ")


@pytest.fixture
def page():
    return open_at("cards")


def complaints(app):
    return [*app.warning, *app.error, *app.exception]


def test_a_strip_has_a_cell_for_each_layer(page):
    html, layers = html_text(page), sum(len(one.layers) for one in CARDS)
    assert html.count('<i title="layer ') == layers + 48, "the chosen one twice"
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


# The pattern of layers on Train: attentions of later layers, shared keys and values, and all of it in the link.


NAME = "train:recall:decoder"


def open_page(**query):
    app = app_at("train")
    app.query_params.update({"train:task": "recall", "train:recall:kind": "decoder", **query})
    return app.run()


def model_of(app) -> ModelConfig:
    """The model of a run that is started with the controls of the page."""
    app.button(key="train:train").click().run()
    return list_runs()[-1].config().model


def test_a_link_brings_a_pattern_with_shared_keys_to_the_run():
    text = "position=none;mask=causal_local(lookback=3)"
    app = open_page(
        **{f"{NAME}:layers": "6", f"{NAME}:following": text, f"{NAME}:kv_shared_layers": "3"}
    )
    assert "a pattern of 3 layers" in page_text(
        app
    ) and "3 layers with shared keys and values" in page_text(app)
    model = model_of(app)
    assert [one.position.key for one in model.pattern][1:] == ["none", "none"]
    assert model.pattern[2].mask.key == "causal_local" and model.kv_shared_layers == 3
    assert [model.kv_source(layer) for layer in range(6)] == [None, None, None, 0, 1, 2]


def test_the_popover_makes_and_changes_a_pattern():
    app = open_page(**{f"{NAME}:layers": "4"})
    app.session_state[f"{NAME}:pattern"] = True
    app.run()
    app.number_input(key=f"{NAME}:pattern:count").set_value(2).run()
    app.selectbox(key=f"{NAME}:pattern:0:position").set_value("alibi").run()
    assert query_value(app, f"{NAME}:following") == "position=alibi"
    assert "alibi" in page_text(app).lower()
    model = model_of(app)
    assert [one.position.key for one in model.pattern] == [model.attention.position.key, "alibi"]


def test_what_cannot_stand_in_one_stack_is_said_and_not_trained():
    app = open_page(**{f"{NAME}:layers": "4", f"{NAME}:following": "position=learned"})
    assert any("added to the embedding" in error.value for error in app.error) and not app.exception
    assert app.button(key="train:train").disabled


def test_the_decoder_of_a_transformer_gets_attentions_of_its_own():
    app = app_at("train")
    app.query_params["train:reverse:transformer:cross_attention"] = "score=cosine"
    model = model_of(app.run())
    assert model.cross_attention.score.key == "cosine" and model.decoder_attention is None


def test_a_pattern_as_text_comes_back_with_any_formula():
    first = AttentionConfig(16, 2, position=Choice.of("formula", formula="score - abs(i - j)"))
    second = AttentionConfig(16, 2, mask=Choice.of("formula", text="i - j < 3"))
    for pattern in [(first, AttentionConfig(16, 2), second), (AttentionConfig(16, 2),)]:
        assert pattern_from_text(pattern_to_text(pattern), (16, 2)) == pattern
    with pytest.raises(ConfigError, match="expected an axis or the end"):
        from_text("position=rope;position=none")


def test_the_pattern_of_a_published_model_sets_all_attentions():
    app = open_page(**{f"{NAME}:layers": "2"})
    app.session_state[f"{NAME}:pattern"] = True
    app.run()
    app.selectbox(key=f"{NAME}:pattern:published").set_value("gemma3").run()
    assert app.selectbox(key=f"{NAME}:pattern:published").value == "gemma3"
    model = model_of(app)
    assert model.layers == 6 and model.layer_names == ("causal local",) * 5 + ("causal",)


def test_every_card_can_be_trained_small():
    for one in CARDS:
        config = card_recipe(one)
        assert len(config.model.layer_names) >= one.pattern and config.model.num_heads == 4
        buildable(config)
