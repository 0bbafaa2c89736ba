"""The picture goes before the controls once the session can be relied on, and stands under them all the same."""

import pytest
from streamlit.testing.v1 import AppTest


def script():
    import streamlit as st

    from dashboard.ui.rendering import render_before_widgets

    log = st.session_state.setdefault("log", [])

    def settings():
        return st.session_state.get("wrong", st.session_state.get("n", 5))

    def controls():
        log.append("controls")
        return st.slider("n", 0, 10, 5, key="n")

    def show(number):
        log.append(f"show {number}")
        st.markdown(f"picture of {number}")
        return -number

    st.session_state["out"] = render_before_widgets("ready", settings, controls, show)


@pytest.fixture
def page():
    at = AppTest.from_function(script, default_timeout=60).run()
    assert not at.exception
    return at


def taken(at):
    log = list(at.session_state["log"])
    at.session_state["log"] = []
    return log


def test_the_first_run_reads_the_controls_first(page):
    assert taken(page) == ["controls", "show 5"] and page.session_state["out"] == (5, -5)


def test_then_the_picture_goes_first_and_still_stands_below(page):
    taken(page)
    page.slider(key="n").set_value(7).run()
    assert taken(page) == ["show 7", "controls"] and page.session_state["out"] == (7, -7)
    top, view = page.main.children.values()
    assert [e.type for e in top.children.values()] == ["slider"]
    assert [e.value for e in view.children.values()] == ["picture of 7"]


def test_where_a_control_says_otherwise_it_is_believed(page):
    taken(page)
    page.session_state["wrong"] = 3
    page.run()
    assert taken(page) == ["show 3", "controls", "controls", "show 5"]
    assert page.session_state["out"] == (5, -5) and [m.value for m in page.markdown] == [
        "picture of 5"
    ]
