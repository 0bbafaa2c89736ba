"""ModelConfig: to JSON and back, and refusals in words."""

import json
from typing import Any

import pytest

from core.attention import AttentionConfig
from core.entries import ConfigError
from core.models import ModelConfig
from tests.cases import each

GOOD = [
    ModelConfig.transformer(
        24, 3, 2, 40, norm="pre", activation="gelu", dropout=0.1, position="rope"
    ),
    ModelConfig.recurrent(10, "additive", 2, cell="lstm", bidirectional=False),
    ModelConfig.recurrent(8, None),
]


@each("config", GOOD)
def test_json_and_back(config):
    assert ModelConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
    assert hash(config) == hash(ModelConfig.from_json(config.to_json()))


BASE = ModelConfig.transformer(24, 3).to_json()
RECURRENT = ModelConfig.recurrent(24).to_json()


@each(
    ("data", "words"),
    [
        (BASE | {"kind": "mlp"}, "expected one of transformer, decoder"),
        (BASE | {"layers": 0}, "layers = 0; expected a whole number from 1"),
        (BASE | {"layers": True}, "layers = True"),
        (BASE | {"d_model": "24"}, "d_model = '24'"),
        (BASE | {"d_model": 48}, "give both the same"),
        (BASE | {"dropout": 1.0}, "dropout = 1.0"),
        (BASE | {"dropout": float("nan")}, "dropout = nan"),
        (BASE | {"attention": None}, "kind = transformer needs an attention"),
        (BASE | {"norm": "middle"}, "expected one of post, pre"),
        (BASE | {"heads": 3}, "has no heads"),
        ({"kind": "recurrent"}, "needs attention"),
        (RECURRENT | {"cell": "rnn"}, "expected one of gru, lstm"),
        (RECURRENT | {"bidirectional": 1}, "expected true or false"),
        (
            RECURRENT | {"attention": RECURRENT["attention"] | {"position": "rope"}},
            "position = rope does not go with it",
        ),
        (
            RECURRENT | {"attention": RECURRENT["attention"] | {"mask": "causal"}},
            "mask = causal has no meaning",
        ),
        (
            RECURRENT
            | {"d_model": 9, "attention": AttentionConfig(9, 1, "identity", "dot").to_json()},
            "even d_model",
        ),
        ([], "an object of its fields"),
    ],
)
def test_what_cannot_be_is_said(data, words):
    with pytest.raises(ConfigError, match=words):
        ModelConfig.from_json(data)


def test_constructors_refuse_what_is_no_number():
    wrong: Any = "64"
    with pytest.raises(ConfigError, match="d_model = '64'"):
        ModelConfig.recurrent(wrong)
    with pytest.raises(ConfigError, match="num_heads = 5 does not divide"):
        ModelConfig.transformer(24, 5)
