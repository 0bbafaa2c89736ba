"""The pattern of layers on Train: attentions of later layers, shared keys and values, and all of it in the link."""

import pytest

from core.attention import AttentionConfig, Choice, ConfigError
from core.models import ModelConfig
from core.models.cards import CARDS
from core.runs.runs import list_runs
from core.training.config import card_recipe
from core.training.sweeps import buildable
from dashboard.ui.mechanism import from_text, pattern_from_text, pattern_to_text
from tests.pages.app import app_at, page_text, query_value

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
