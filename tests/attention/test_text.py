"""A mechanism survives its link exactly, whatever is in it; a broken link gives a sentence."""

from contextlib import suppress

import pytest
from hypothesis import given, strategies as some

from core.attention import AXES, AttentionConfig, Choice, ConfigError, entry
from core.attention.text import (
    _Reader,
    _value,
    choice_from_text,
    choice_text,
    from_text,
    to_text,
)
from core.entries import Value, complete
from tests.cases import each


def test_a_mechanism_reads_as_what_it_is():
    assert to_text(AttentionConfig(64, 4)) == "d=64 h=4" and from_text("") == AttentionConfig()
    config = AttentionConfig(24, 3, score=Choice("dot"))
    assert to_text(config, sizes=False) == "score=dot"
    assert from_text("score=dot", sizes=(24, 3)) == config
    assert from_text("d=16 score=dot", sizes=(24, 4)).d_model == 16
    text = "d=16 h=2 position=alibi mask=and(causal,not(local(window=3))) normalizer=softmax(temperature=0.5)"
    mask = Choice.of("and", Choice("causal"), Choice.of("not", Choice.of("local", window=3)))
    assert from_text(text) == AttentionConfig(
        16, 2, position=Choice("alibi"), mask=mask, normalizer=Choice.of("softmax", temperature=0.5)
    )
    assert to_text(from_text(text)) == text
    usual = {param.key: param.default for param in entry("mask", "local").params}
    assert choice_text(Choice.of("local", **usual), "mask") == "local"


@each("axis", AXES)
def test_every_parameter_off_its_default_survives(axis):
    for item in AXES[axis]:
        params: dict[str, Value] = {}
        for param in item.params:
            if param.choices:
                params[param.key] = param.choices[-1]
            elif isinstance(param.default, bool):
                params[param.key] = not param.default
            elif isinstance(param.default, str):
                with suppress(ConfigError):  # a text that can be read with a space at its end
                    params[param.key] = param.check(f"{param.default} ", "test")
            else:
                params[param.key] = param.high if param.high is not None else param.default
        choice = complete(Choice.of(item.key, **params), AXES[axis], axis)
        assert choice_from_text(choice_text(choice, axis), axis) == choice


@given(some.text(max_size=60))
def test_any_text_survives_as_a_value(text):
    assert _Reader("x" + _value(text)).text[1:] == _value(text)
    assert _Reader("k(p=" + _value(text) + ")").choice()["p"] == text


@each(
    ("text", "words"),
    [
        ("d=16 h=3", "num_heads = 3 does not divide"),
        ("score=warp", "score = 'warp'; expected one of"),
        ("mask=local(window=9999)", "expected 0 to 8192"),
        ("mask=and(causal", "expected ,"),
        ("mask=local(window='", "closing quote"),
        ("x=1", "x: expected one of d, h"),
        ("d=16 d=16", "d occurs twice"),
        ("mask=" + "not(" * 20, "more than 8 deep"),
        ("d=1e999", "too large"),
        ("d=" + "1" * 9000, "at most 8,192 signs"),
        ("normalizer=softmax(warmth=1)", "has no warmth"),
    ],
)
def test_a_broken_text_is_said_in_words(text, words):
    pytest.raises(ConfigError, from_text, text).match(words.replace("(", r"\("))
