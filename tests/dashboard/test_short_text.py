"""A mechanism survives its link exactly, whatever is in it; a broken link gives a sentence."""

import pytest
from hypothesis import given, strategies as st

from core.attention import AXES, PRESETS, AttentionConfig, Choice, ConfigError, entry
from core.entries import Value, complete
from dashboard.ui.mechanism import choice_from_text, choice_text, from_text, to_text
from tests.cases import each


def test_the_plainest_attention_is_its_sizes_alone():
    assert to_text(AttentionConfig(64, 4)) == "d=64 h=4"
    assert from_text("") == AttentionConfig()


def test_sizes_may_be_said_elsewhere():
    config = AttentionConfig(24, 3, score=Choice("dot"))
    assert to_text(config, sizes=False) == "score=dot"
    assert from_text("score=dot", sizes=(24, 3)) == config
    assert from_text("d=16 score=dot", sizes=(24, 4)).d_model == 16


def test_a_mechanism_reads_as_what_it_is():
    mask = Choice.of("and", Choice("causal"), Choice.of("not", Choice.of("local", window=3)))
    config = AttentionConfig(
        16, 2, position=Choice("alibi"), mask=mask, normalizer=Choice.of("softmax", temperature=0.5)
    )
    text = to_text(config)
    assert text.startswith("d=16 h=2 position=alibi mask=and(causal,not(local(window=3)))")
    assert "temperature=0.5" in text
    assert from_text(text) == config


@each("axis", AXES)
def test_every_choice_with_every_parameter_off_its_default_survives(axis):
    for item in AXES[axis]:
        params: dict[str, Value] = {}
        for param in item.params:
            if param.choices:
                params[param.key] = param.choices[-1]
            elif isinstance(param.default, bool):
                params[param.key] = not param.default
            elif isinstance(param.default, str):
                params[param.key] = spaced(param)
            else:
                params[param.key] = param.high if param.high is not None else param.default
        choice = complete(Choice.of(item.key, **params), AXES[axis], axis)
        assert choice_from_text(choice_text(choice, axis), axis) == choice


def spaced(param) -> str:
    """Another text that can be read, where a space at the end does not matter."""
    try:
        return param.check(f"{param.default} ", "test")
    except ConfigError:
        return param.default


def test_every_preset_survives():
    for preset in PRESETS:
        config = preset.config()
        assert from_text(to_text(config)) == config


@given(st.text(max_size=60))
def test_any_text_survives_as_a_value(text):
    from dashboard.ui.mechanism import _Reader, _value

    assert _Reader("x" + _value(text)).text[1:] == _value(text)
    reader = _Reader("k(p=" + _value(text) + ")")
    assert reader.choice()["p"] == text


@given(st.text(alphabet="dh=16 posit(),'\\.abc_~-", max_size=80))
def test_no_text_crashes(text):
    try:
        config = from_text(text)
    except ConfigError as error:
        assert str(error).endswith(".")
    else:
        assert from_text(to_text(config)) == config


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
    with pytest.raises(ConfigError, match=words.replace("(", r"\(")):
        from_text(text)


def test_the_text_of_a_default_parameter_is_left_out():
    usual = {param.key: param.default for param in entry("mask", "local").params}
    assert choice_text(Choice.of("local", **usual), "mask") == "local"
