"""What every ConfigError repeats of a value from outside, and configs made of JSON that is not theirs."""

import json
import random

import pytest

from core.attention import AttentionConfig, Choice
from core.entries import LONGEST_QUOTE, ConfigError, quote, quote_name
from core.models import ModelConfig
from core.tasks import TaskConfig
from core.training import RunConfig
from tests.cases import each
from tests.damage import HOSTILE, damaged, deep
from tests.training.small import small_run

LONGEST_MESSAGE = 700  # the longest list of choices that a message names is some 400 characters


@each("value", [*HOSTILE, deep(300), {"a" * 9000: "b" * 9000}, list(range(9000))])
def test_a_quoted_value_is_short_and_can_be_printed(value):
    for text in (quote(value), quote_name(value)):
        assert len(text) <= LONGEST_QUOTE
        text.encode()


def test_what_is_short_is_quoted_whole():
    assert quote("anser") == "'anser'" and quote(12) == "12" and quote([1, "a"]) == "[1, 'a']"
    assert quote_name("layers") == "layers" and quote_name("two words") == "'two words'"


@each("name", ["key", "seed", "cls", "self"])
def test_a_parameter_of_any_name_is_refused_by_its_name(name):
    with pytest.raises(ConfigError, match=f"has no {name}"):
        TaskConfig.from_json({"key": "reverse", "params": {name: 1}})
    if name != "key":
        with pytest.raises(ConfigError, match=f"has no {name}"):
            AttentionConfig.from_json({"mask": {"key": "causal", name: 1}})


def test_parts_within_parts_end_somewhere():
    with pytest.raises(ConfigError, match="deep"):
        Choice.from_json(deep(200))
    assert len(AttentionConfig(mask=Choice.from_json(deep(6)), d_model=4).mask.walk()) > 6


def test_a_number_too_large_for_a_float_is_refused():
    with pytest.raises(ConfigError, match="window = "):
        AttentionConfig(mask=Choice.of("local", window=10**400))
    with pytest.raises(ConfigError, match="d_model = "):
        AttentionConfig(
            d_model=10**9 + 7, num_heads=2
        )  # a search for what divides it would take minutes


def test_a_damaged_config_is_a_config_or_a_config_error():
    """The run's own reading and the model's and the task's, on a hundred damaged files of three kinds."""
    rng = random.Random(0)
    recurrent = small_run(model=ModelConfig.recurrent(8))
    masked = small_run(
        model=ModelConfig.transformer(
            8, 2, mask=Choice.of("and", Choice("causal"), Choice("padding"))
        )
    )
    for number in range(120):
        data = json.loads(
            json.dumps(
                damaged(
                    (small_run(), recurrent, masked)[number % 3].to_json(), rng, rng.randint(1, 3)
                )
            )
        )
        try:
            hash(RunConfig.from_json(data))
        except ConfigError as error:
            assert len(str(error)) <= LONGEST_MESSAGE, number
            str(error).encode()
