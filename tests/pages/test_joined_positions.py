"""Two positions at once on the pages: each part is a choice with its own parameters, kept in the link."""

from streamlit.testing.v1 import AppTest

from core.attention import AttentionConfig, Choice
from dashboard.ui.mechanism import from_text
from pages import one_query
from tests.pages.app import live, open_at


def test_one_query_draws_both_and_writes_both_equations():
    app = open_at(
        "one_query",
        "one:",
        position="and(rope,formula(formula='score - 0.25*i'))",
        stage="1 Project",
    )
    assert not app.exception and not app.error and not app.warning
    assert "q_i = R_i(x_i W_q)" in live(app)
    app.selectbox(key="one:position:0").set_value("alibi").run()
    app = open_at(
        "one_query", "one:", position=app.query_params["one:position"], stage="3 Scale + bias"
    )
    assert (
        "alibi" in app.query_params["one:position"][0]
        or "alibi" in app.query_params["one:position"]
    )
    assert r"m_h\,|i - j| + s_{ij} - 0.25 \cdot i" in live(app)
    assert "sinusoidal" not in app.selectbox(key="one:position:1").options


def test_a_sentence_names_both():
    assert one_query.position(AttentionConfig(position="and")) == "RoPE and Formula"


def test_positions_measures_the_parts_that_are_chosen():
    app = open_at("positions", "positions:", position="Two positions · 2024", idea="By distance")
    assert not app.exception and not app.error
    app.selectbox(key="positions:position:and:part1").set_value("alibi").run()
    assert not app.exception and not app.error
    config = app.session_state["positions:controls"].config
    assert [part.key for part in config.position.parts] == ["rope", "alibi"]


def _editor():
    import streamlit as st

    from core.attention import AttentionConfig
    from dashboard.ui.mechanism import mechanism, to_text

    config = mechanism("demo", st.session_state.get("start", AttentionConfig(16, 2)))
    st.text(to_text(config) if config else "nothing")


def test_the_editor_of_mechanisms_takes_and_changes_parts():
    app = AppTest.from_function(_editor, default_timeout=20).run()
    app.selectbox(key="demo:position").set_value("and").run()
    app.text_input(key="demo:position:and:part1:formula:formula").set_value("score * 2").run()
    parts = from_text(app.text[0].value).position.parts
    assert [part.key for part in parts] == ["rope", "formula"] and parts[1][
        "formula"
    ] == "score * 2"
    joined = Choice.of("and", Choice("alibi"), Choice.of("rope", base=500.0))
    app.session_state["start"] = AttentionConfig(16, 2, position=joined)
    app.run()
    assert from_text(app.text[0].value) == AttentionConfig(16, 2, position=joined)
    assert app.selectbox(key="demo:position:and:part0").value == "alibi"
