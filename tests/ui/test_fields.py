"""Fields: a control declared once is drawn, linked, hidden and refused by its declaration."""

from typing import Any

from hypothesis import given, strategies as some
from streamlit.testing.v1 import AppTest

from dashboard.ui.fields import Number, Select, Toggle, Values
from dashboard.ui.links import as_text

START = {
    "sentence": "a b", "mask": "none", "width": 8, "heads": 4, "length": 16,
    "causal": False, "kinds": ["b"], "weights": "random", "seed": 3,
}  # fmt: skip
OTHER = {
    "sentence": "c", "mask": "causal", "width": 12, "heads": 6, "length": 9,
    "causal": True, "kinds": ["a", "c"], "weights": "trained", "seed": 5, "reach": 2,
}  # fmt: skip

LINK: dict[str, Any] = {
    "sentence": "c", "mask": "Causal", "width": "12", "heads:12": "6", "length": "9",
    "causal": "true", "kinds": ["a", "c"], "weights": "Trained", "seed": "5", "reach": "2",
}  # fmt: skip


def page():
    import streamlit as st

    from dashboard.ui.fields import (
        Fields,
        MultiSelect,
        Number,
        Segmented,
        Select,
        SelectSlider,
        Text,
        Toggle,
    )

    fields = Fields(
        "page",
        sentence=Text("Sentence", "a b", span=2),
        mask=Select("Mask", {"none": "No mask", "causal": "Causal"}),
        reach=Number("Reach", 1, 0, 4, when=lambda values: values.mask == "causal"),
        width=SelectSlider("d_model", [4, 8, 12], 8),
        heads=SelectSlider(
            "Heads",
            lambda values: [n for n in range(1, 9) if values.width % n == 0],
            lambda values: values.width // 2,
            key=lambda values: f"heads:{values.width}",
        ),
        length=Number("Length", lambda values: 2 * values.width, 1, 64, slider=True),
        causal=Toggle("Causal"),
        kinds=MultiSelect("Kinds", "abc", ["b"], most=2),
        weights=Segmented("Weights", {"random": "Random", "trained": "Trained"}),
        seed=Number("Seed", 3, 0, 9, hidden=True),
    )
    st.session_state["refused"] = fields.refused()
    shown = [name for name in fields.fields if name != "seed" or not st.session_state.get("closed")]
    values = fields.draw(*shown)
    st.session_state["values"] = {**values, **fields.read("seed")}


def open_at(closed: bool = False, **link: Any) -> AppTest:
    app = AppTest.from_function(page)
    app.session_state["closed"] = closed
    for name, text in link.items():
        app.query_params[f"page:{name}"] = text
    app.run()
    assert not app.exception
    return app


def test_fields_start_where_they_say_and_depend_on_those_before():
    app = open_at()
    assert app.session_state["values"] == {**START, "reach": None}
    assert app.selectbox(key="page:mask").options == ["No mask", "Causal"]
    assert not app.query_params
    app.select_slider(key="page:width").set_value(4).run()
    assert app.select_slider(key="page:heads:4").value == 2


def test_a_link_brings_every_value_also_of_what_is_hidden_now():
    assert open_at(**LINK).session_state["values"] == OTHER
    closed = open_at(closed=True, **LINK)
    assert closed.session_state["values"] == OTHER
    assert [number.key for number in closed.number_input] == ["page:reach"]
    assert closed.query_params["page:seed"] == "5"


def test_what_is_hidden_is_written_into_the_link_and_leaves_it_at_its_start():
    app = open_at()
    app.number_input(key="page:seed").set_value(5).run()
    assert app.query_params["page:seed"] == "5"
    app.number_input(key="page:seed").set_value(3).run()
    assert "page:seed" not in app.query_params


def test_a_refused_text_says_what_would_fit():
    app = open_at(mask="diagonal", reach="9", causal="yes", width="8", weights="Trained", seed="10")
    assert app.session_state["refused"] == [
        "The link says mask = diagonal; expected one of No mask, Causal.",
        "The link says reach = 9; expected a number from 0 to 4.",
        "The link says causal = yes; expected true or false.",
        "The link says seed = 10; expected a number from 0 to 9.",
    ]
    assert app.session_state["values"] == {**START, "reach": None, "weights": "trained"}


@given(some.lists(some.one_of(some.integers(), some.booleans(), some.text()), min_size=1))
def test_a_select_reads_what_it_offers_and_nothing_else(options):
    field = Select("Any", options)
    assert field.start(Values()) == options[0]
    for option in options:
        assert field.fits(as_text(option), Values()) and field.allowed(option, Values())
    assert not field.fits("".join(map(as_text, options)) + "?", Values())


@given(some.integers(-50, 50), some.integers(-50, 50), some.integers(-60, 60))
def test_a_number_reads_what_is_between_its_bounds(one, other, value):
    low, high = sorted((one, other))
    field = Number("Any", low, low, high)
    inside = low <= value <= high
    assert field.fits(str(value), Values()) == field.allowed(value, Values()) == inside
    assert not field.fits("many", Values()) and not Toggle("Any").fits(str(value), Values())
