import json
import math

import numpy as np
import pytest

from core.attention import ConfigError
from core.models import ModelConfig
from core.training import RunConfig, devices
from core.training.config import resolve_device
from tests.cases import each
from tests.training.small import small_run


def test_json_both_ways():
    config = small_run(seed=7, schedule="constant", learning_rate=2e-3)
    assert RunConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


@each(
    "change, word",
    [
        ({"steps": 0}, "steps = 0"),
        ({"steps": 20_001}, "20001"),
        ({"steps": 2.5}, "whole number"),
        ({"steps": True}, "whole number"),
        ({"learning_rate": math.nan}, "learning_rate = nan"),
        ({"learning_rate": "fast"}, "'fast'"),
        ({"max_seconds": 1e9}, "max_seconds"),
        ({"device": "abacus"}, "auto, cpu, cuda, mps"),
        ({"optimizer": "prayer"}, "adamw"),
        ({"schedule": "steep"}, "cosine"),
        ({"finish_early": "yes"}, "finish_early = 'yes'; expected true or false"),
        ({"precision": "int4"}, "bf16, fp32"),
        ({"label_smoothing": 0.9}, "0 to 0.5"),
        ({"weight_decay": -1.0}, "0 to 1"),
        ({"patience": 1.5}, "whole number"),
        ({"checkpointing": 1}, "true or false"),
        (
            {"checkpointing": True, "model": ModelConfig.recurrent(8)},
            "kind = recurrent has no layers",
        ),
    ],
)
def test_what_cannot_run_is_refused_in_words(change, word):
    with pytest.raises(ConfigError, match=word):
        small_run(**change)


def test_a_number_of_numpy_is_one():
    assert small_run(learning_rate=np.float64(0.01)) == small_run(learning_rate=0.01)


@each(
    "data, word",
    [
        (None, "object"),
        ([], "object"),
        ({}, "model and task"),
        ({"task": {}, "model": {}, "speed": 1}, "speed"),
    ],
)
def test_a_malformed_run_is_refused_in_words(data, word):
    with pytest.raises(ConfigError, match=word):
        RunConfig.from_json(data)


def test_only_devices_that_are_there():
    assert devices()[:2] == ("auto", "cpu")
    assert resolve_device("auto") in devices()
    for missing in {"cuda", "mps"} - set(devices()):
        with pytest.raises(ConfigError, match=missing):
            resolve_device(missing)
