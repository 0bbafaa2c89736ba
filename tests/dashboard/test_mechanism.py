"""The editor of a mechanism: made of the entries, refusing in words, kept for the session."""

import pytest
from streamlit.testing.v1 import AppTest

from core.attention import AXES, PRESETS, AttentionConfig, Choice, ConfigError, preset
from dashboard.draw.formats import plain
from dashboard.ui.mechanism import (
    adopt_mask,
    clashes,
    from_text,
    preset_of,
    repairs,
    split,
    to_text,
)
from tests.cases import each


def _page():
    import streamlit as st

    from core.attention import AttentionConfig
    from dashboard.ui.mechanism import mechanism, to_text

    start = st.session_state.get("start", AttentionConfig(16, 2))
    config = mechanism("demo", start)
    st.text(to_text(config) if config else "nothing")


@pytest.fixture
def app() -> AppTest:
    return AppTest.from_function(_page, default_timeout=20)


def shown_text(app: AppTest) -> str:
    assert not app.exception, app.exception[0].message
    return app.text[0].value


def select(app: AppTest, name: str, value) -> AppTest:
    app.selectbox(key=f"demo:{name}").set_value(value).run()
    return app


def test_it_starts_from_what_the_page_says_and_follows_a_new_wish(app):
    assert shown_text(app.run()) == "d=16 h=2"
    app.session_state["start"] = AttentionConfig(24, 3, position=Choice("alibi"))
    assert shown_text(app.run()) == "d=24 h=3 position=alibi"
    assert app.selectbox(key="demo:position").value == "alibi"


def test_every_entry_of_every_axis_can_be_chosen_or_is_refused_in_words(app):
    app.run()
    for axis, entries in AXES.items():
        if axis == "mask":
            continue
        for item in entries:
            select(app, axis, item.key)
            assert shown_text(app) != "nothing" or app.error, (
                f"{axis} = {item.key}: neither a mechanism nor a reason"
            )
            if shown_text(app) != "nothing":
                assert getattr(from_text(shown_text(app)), axis).key == item.key
        select(app, axis, getattr(AttentionConfig(), axis).key)


def test_a_parameter_is_a_widget_and_its_value_is_the_config_s(app):
    app.run()
    app.number_input(key="demo:normalizer:softmax:temperature").set_value(0.5).run()
    assert shown_text(app) == "d=16 h=2 normalizer=softmax(temperature=0.5)"


def test_masks_are_joined_and_turned(app):
    select(app.run(), "mask:join", "and")
    select(app, "mask:0", "causal")
    select(app, "mask:1", "local")
    app.toggle(key="demo:mask:1:not").set_value(True).run()
    turned = Choice.of("not", Choice.of("local", window=2))
    assert from_text(shown_text(app)).mask == Choice.of("and", Choice("causal"), turned)
    select(app, "mask:2", "local")
    assert len(from_text(shown_text(app)).mask.parts) == 3
    select(app, "mask:join", "one")
    assert from_text(shown_text(app)).mask.key == "causal"


@pytest.mark.parametrize(
    "mask",
    [
        Choice.of("or", Choice("causal"), Choice.of("not", Choice("causal"))),
        Choice.of("not", Choice.of("or", Choice("causal"), Choice.of("local", window=4))),
        Choice.of(
            "or", Choice.of("and", Choice("causal"), Choice("local")), Choice.of("local", window=9)
        ),
        Choice.of("and", *[Choice.of("local", window=w) for w in range(1, 6)]),
    ],
)
def test_any_mask_passes_through_the_editor_unharmed(app, mask):
    app.session_state["start"] = AttentionConfig(16, 2, mask=mask)
    assert from_text(shown_text(app.run())) == AttentionConfig(16, 2, mask=mask)


def test_a_preset_sets_every_axis_and_a_change_makes_it_one_s_own(app):
    app.run()
    app.selectbox(key="demo:preset").set_value("causal").run()
    assert from_text(shown_text(app)) == preset("causal").config(16, 2)
    assert app.selectbox(key="demo:preset").value == "causal"
    assert plain(preset("causal").changed(16, 2)[0]) in app.caption[0].value, (
        "what it changed against Vaswani 2017"
    )
    select(app, "score", "dot")
    assert app.selectbox(key="demo:preset").value == "own" and not app.caption


@each("item", PRESETS)
def test_every_preset_is_known_again(item):
    key = preset_of(item.config())
    assert preset(key).config() == item.config()


def test_what_cannot_go_together_is_said_beside_the_control_with_a_button_that_mends_it(app):
    select(app.run(), "score", "additive")
    select(app, "kernel", "fused")
    assert shown_text(app) == "nothing"
    assert "additive" in app.error[0].value
    words = [button.label for button in app.button]
    assert "Use kernel = exact" in words and "Use score = scaled_dot" in words
    app.button(key="demo:repair:kernel:exact").click().run()
    assert shown_text(app) == "d=16 h=2 score=additive" and not app.error
    assert app.selectbox(key="demo:kernel").value == "exact"


def test_the_editor_lists_what_does_not_go_with_the_rest():
    pairs = {
        (axis, item.key)
        for axis, item, _ in clashes(AttentionConfig(16, 2, score=Choice("additive")))
    }
    assert ("kernel", "fused") in pairs
    assert ("score", "dot") not in pairs


def test_a_repair_is_offered_only_where_it_mends():
    fields = {"d_model": 16, "num_heads": 2, "dropout": 0.0} | {
        a: getattr(AttentionConfig(), a) for a in AXES
    }
    fields |= {"score": Choice("additive"), "kernel": Choice("fused")}
    error = ConfigError("no", kernel=("fused", "exact"), score="concat")
    assert repairs(fields, error) == [("kernel", Choice("exact"))]


def test_split_and_adopt_agree():
    mask = Choice.of("and", Choice("causal"), Choice.of("not", Choice.of("local", window=7)))
    assert split(mask)[0] == "and"
    state = adopt_mask("k", mask)
    assert (state["k:mask:join"], state["k:mask:1"], state["k:mask:1:not"]) == (
        "and",
        "local",
        True,
    )
    assert state["k:mask:1:local:window"] == 7
    assert to_text(AttentionConfig(16, 2, mask=mask)).endswith(
        "mask=and(causal,not(local(window=7)))"
    )
