"""A parameter's widget follows from the parameter; what is typed and cannot be read is pointed at under its field."""

from streamlit.testing.v1 import AppTest


def _page():
    import streamlit as st

    from core.attention.formula import parse
    from core.entries import Param
    from dashboard.ui.mechanism import param_widget

    param = Param(
        "formula",
        "Formula",
        "j <= i",
        parse=lambda text: parse(text, "mask"),
        meaning="who sees whom",
    )
    st.write(f"typed {param_widget(param, key='demo:formula')}")


def test_free_text_is_a_field_and_its_error_points_at_the_character():
    app = AppTest.from_function(_page, default_timeout=60).run()
    assert app.text_input[0].value == "j <= i"
    assert not app.code and len(app.markdown) == 1
    app.text_input[0].set_value("j <= k").run()
    assert not app.exception
    assert app.code[0].value == "j <= k\n     ^"
    assert "k is not known" in app.markdown[0].value
    assert app.markdown[1].value == "typed j <= k"
