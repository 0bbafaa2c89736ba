"""Cards that are read from a config: those of the table again, a pasted one, and what is refused in words."""

import json
import re

import pytest

from core.models.cards import BY_HAND, CARDS
from core.models.cards.base import ModelCard
from core.pretrained.base import PretrainedError
from core.pretrained.cards import card_of_model, empty_model, parse_card
from tests.cases import each
from tests.tiny_architectures import ARCHITECTURES


def test_a_card_survives_json():
    for one in (*CARDS, *BY_HAND):
        again = ModelCard.from_json(json.loads(json.dumps(one.to_json())))
        assert again.parameter_rows == one.parameter_rows and again.layers == one.layers
        assert again.to_json() == one.to_json()


def test_a_pasted_config_is_read_by_its_fields():
    # By hand: H query heads of 8, two of keys and values, a window of 5 in every layer but the last.
    config = {
        "model_type": "qwen3",
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "vocab_size": 100,
        "tie_word_embeddings": True,
        "use_sliding_window": True,
        "sliding_window": 5,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
    }
    one = parse_card(json.dumps(config), "mine")
    layer = 2 * 32 * 32 + 2 * 32 * 16 + 2 * 8 + 3 * 32 * 48 + 2 * 32
    assert one.parameters == 3 * layer + 32 + 100 * 32 and one.tied
    assert [one.kind for one in one.layers] == ["window", "window", "full"]
    assert one.cache_numbers(20) == 2 * 2 * 8 * (4 + 4 + 20)
    assert one.layers[0].config.mask["lookback"] == 4 and one.layers[2].config.kv_heads == 2
    assert one.layers[0].config.score.key == "qk_norm" and not one.layers[0].extras
    assert len(one.small()) == 3


def test_experts_of_which_a_token_uses_some():
    config = {
        "model_type": "mixtral",
        "num_hidden_layers": 2,
        "num_local_experts": 6,
        "num_experts_per_tok": 2,
    }
    one = parse_card(json.dumps(config), "mine")
    assert one.parameters - one.active == 2 * 4 * 3 * 4096 * 14336


@each(
    "text, why",
    [
        ("{", "is not JSON"),
        ("[1]", "not an object"),
        ("{}", "names no model_type"),
        ('{"model_type": "llama9", "hidden_size": 64, "num_hidden_layers": 2}',
         "has no code for. Read: num_hidden_layers = 2, hidden_size = 64. Not read: how its layers are built"),
        ('{"model_type": "t5"}', "with an encoder"),
        ('{"model_type": "llama", "num_hidden_layers": 1000000}', "num_hidden_layers = 1,000,000, more than any"),
        ('{"model_type": "llama", "hidden_size": "wide"}', "that is no llama"),
        ('{"model_type": "vit"}', "no word embeddings"),
        ("1" * 2_000_000, "at most"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_in_words(text, why):
    pytest.raises(PretrainedError, parse_card, text, "mine").match(why)


SAMPLE = [name for name in ARCHITECTURES[::23] if name != "gpt-sw3"]


@each("name", SAMPLE)
def test_any_type_of_model_gets_its_exact_parameters_or_a_sentence(name):
    try:
        text, model = empty_model({"model_type": name}, name)
        one = card_of_model(text, model, name)
    except PretrainedError as error:
        assert re.search(r"cannot be built|has no |with an encoder|that is no ", str(error))
    else:
        assert one.parameters == sum(weight.numel() for weight in model.parameters())
