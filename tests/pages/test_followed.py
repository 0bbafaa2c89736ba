"""Which class or token Evidence follows, and as what: offered, typed, linked, refused in words."""

import re

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.ui import progress
from tests.pages.app import captions
from tests.pages.evidence_app import evidence_app, fact_text, shown
from tests.tiny_models import save


@pytest.fixture
def app(monkeypatch, tmp_path) -> AppTest:
    return evidence_app(monkeypatch)


def field(app: AppTest, label: str):
    return next((one for one in app.selectbox if one.label == label), None)


def test_above_95_percent_the_logit_is_followed_and_a_link_without_a_choice_means_that_too(app):
    text = fact_text(shown(app, "digits"))
    assert "the logit of the class 3 falls from" in text
    assert re.search(
        r"The most likely has a probability of 0\.9\d+, which changes little", captions(app)
    )
    field(app, "Measured as").set_value("probability").run()
    assert "the probability of the class 3" in fact_text(app) and "changes little" not in captions(
        app
    )


def test_any_class_can_be_followed_and_a_difference_and_the_link_carries_them(
    app, monkeypatch, tmp_path
):
    shown(app, "digits")
    field(app, "Class to measure").set_value("5").run()
    assert "the logit of the class 5" in fact_text(app) and field(app, "Minus the logit of") is None
    field(app, "Measured as").set_value("logit difference").run()
    assert "the logit of the class 5 minus that of 3" in fact_text(app)
    field(app, "Minus the logit of").set_value("8").run()
    text = fact_text(app)
    assert "the logit of the class 5 minus that of 8" in text
    again = evidence_app(monkeypatch)
    assert (
        fact_text(
            shown(
                again,
                "digits",
                **{
                    "evidence:quantity": "logit difference",
                    "evidence:output:digits": "5",
                    "evidence:contrast:digits": "8",
                },
            )
        )
        == text
    )


@pytest.mark.parametrize(
    ("model", "typed", "sentence"),
    [
        ("induction", "king", "the probability of the token king"),
        ("induction", "zebra", "is not in the vocabulary of induction"),
        ("induction", "#99999", "has no token #99999"),
        ("digits", "ten", "has no class “ten”"),
        ("digits", "#7", "the logit of the class 7"),
    ],
)
def test_any_output_can_be_typed_and_what_is_none_is_answered(app, model, typed, sentence):
    sentences = fact_text(shown(app, model, **{f"evidence:output:{model}": typed}))
    markdown = " ".join(one.value for one in app.markdown).replace("\\", "")
    assert sentence in sentences or sentence in markdown and "the most likely" in markdown
    assert ("Until then" in markdown) == (sentence not in sentences)
    assert (
        len(field(app, "Class to measure" if model == "digits" else "Token to measure").options)
        >= 10
    )


def test_the_heads_measured_so_far_are_said_to_be_those(app, monkeypatch):
    monkeypatch.setattr(progress, "AT_ONCE", 0.0)
    measured: dict = {}  # of no earlier session
    monkeypatch.setattr(
        progress, "measurements", lambda name, *about: measured.setdefault((name, repr(about)), {})
    )
    shown(app, "induction")
    labels = [one.label for one in app.expander]
    assert (
        "The 3 heads that the answer needs most of the 3 measured so far, out of 8, as a table"
        in labels
    )
    next(one for one in app.button if one.label.startswith("Measure 7 heads")).click().run()
    assert "The 6 heads that the answer needs most, as a table" in [
        one.label for one in app.expander
    ]


def test_the_masked_word_is_in_the_link(app, monkeypatch, tmp_path):
    folder = str(save("bert", tmp_path))
    shown(app, folder)
    box = field(app, "Masked word")
    box.set_value(box.options.index("animal")).run()
    text, at = fact_text(app), app.query_params["at"]
    again = evidence_app(monkeypatch)
    assert fact_text(shown(again, folder, at=at[0] if isinstance(at, list) else at)) == text
